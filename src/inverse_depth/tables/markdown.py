"""Tables as a reader wants them."""

import math
from numbers import Integral, Real

import numpy as np
import pandas as pd

DASH = "–"


def to_markdown(frame: pd.DataFrame) -> str:
    """Markdown with sensible digits: standard errors two, R^2 five decimals, other numbers four.

    Relative deviations and differences are in percent; a missing value is a dash.
    """
    sides = ["right" if pd.api.types.is_numeric_dtype(frame[name]) else "left" for name in frame]
    return readable(frame).to_markdown(
        index=False, disable_numparse=True, colalign=sides if len(frame) else None
    )


def readable(frame: pd.DataFrame) -> pd.DataFrame:
    """The same frame with every value as the text that a reader wants."""
    cells = {name: [_cell(name, value) for value in frame[name]] for name in frame}
    return pd.DataFrame(cells, dtype=str)


def significant(value: float, digits: int) -> str:
    """The number with so many significant digits, with an exponent only if tiny or huge."""
    if math.isnan(value):
        return DASH
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    if value == int(value):
        return f"{value:.0f}"
    return f"{float(f'{value:.{digits - 1}e}'):.15g}"


def _cell(name: str, value: object) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return str(value)
    if not isinstance(value, Real):
        return str(value) if value is not None and value != "" else DASH
    if not math.isfinite(value):
        return significant(value, 1)
    if name.endswith("deviation"):
        return f"{100 * value:+.1f} %"
    if name.endswith("difference"):
        return f"{100 * value:.2f} %"
    if name.endswith("r2"):
        return f"{value:.5f}"
    return significant(value, 2 if name.endswith("_se") else 4)
