"""The numbers printed in the paper, as data frames; nothing here is computed by this project."""

from functools import cache
from importlib.resources import files

import numpy as np
import pandas as pd

# The dimensions that reproduce the paper's numbers; it does not state them. Linear attention's
# are singled out by its theory column, the nonlinear d by the ratios among its floors at a = 0.
# The nonlinear context length is only calibrated, so it is not among them.
DIMENSIONS = {"linear": {"d": 128, "P": 1024}, "nonlinear": {"d": 16}}


def table(number: int) -> pd.DataFrame:
    """Table 1 to 5 of the paper, a row per spectrum, in the paper's order.

    Raises:
        ValueError: if there is no such table.
    """
    if number not in range(1, 6):
        raise ValueError(f"number is {number}; the paper has tables 1 to 5")
    return _read(f"table{number}.csv").copy()


def scalar(name: str) -> float:
    """A single number given in a figure or in the text, by its name in `scalars.csv`.

    Raises:
        ValueError: if there is no number of that name.
    """
    values = _read("scalars.csv").set_index("name")["value"]
    if name not in values.index:
        raise ValueError(f"name is {name!r}; allowed are {', '.join(values.index)}")
    return float(values[name])


def isotropic_floor(k: int) -> float:
    """The nonlinear floor at (0, 0) for top-k; at k = 16 derived from the one at (0, 0.25).

    With isotropic inputs the loss is proportional to tr Omega, so L0(0, 0) is
    L0(0, b) d / sum_k k^-b with d = 16.

    Raises:
        ValueError: if the paper has no floor at a = 0 for this k.
    """
    if k == 2:
        return float(table(1).query("a == 0 and b == 0")["nonlinear_L0"].iloc[0])
    rows = table(4).query("k == @k and a == 0")
    if rows.empty:
        raise ValueError(f"k is {k}; the paper gives floors at a = 0 for k = 2 and k = 16")
    d = DIMENSIONS["nonlinear"]["d"]
    b, L0 = rows.iloc[0][["b", "L0"]]
    return float(L0 * d / np.sum(np.arange(1, d + 1) ** -b))


@cache
def _read(name: str) -> pd.DataFrame:
    with (files("inverse_depth") / "published" / name).open() as lines:
        return pd.read_csv(lines)
