"""Figure 7: nonlinear attention learns strong and weak spectral modes in parallel."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from . import style
from .curves import draw_curve, of_experiment, of_spectrum

if TYPE_CHECKING:
    from ..fits import PowerLawFit

MODES = (1, 2, 4, 8, 16)
COLORS = dict(zip(MODES, style.ordered_colors(len(MODES)), strict=True))
MARKERS = dict(zip(MODES, "os^Dv", strict=True))
Fits = Mapping[int, "PowerLawFit"]
SMALLEST_SHARE = 1e-2


@style.styled
def figure07(modes: pd.DataFrame, mode_fits: Fits, a: float, b: float) -> Figure:
    """(a) Loss of each mode; (b) its reducible part, (R_k(L) − L0_k) / (R_k(1) − L0_k).

    `modes`: experiment, a, b, L, seed, mode, loss; `mode_fits`: mode → fit of its loss against
    depth, whose L0 is subtracted; (a, b) the spectrum, with a > 0 (at a = 0 the collapse is an
    identity).
    """
    figure, axes = style.panels(1, 2, style.FULL_WIDTH, 2.9)
    rows = of_spectrum(of_experiment(modes, "nonlinear_top2"), a, b)
    rows = rows[rows["mode"].isin(MODES)]
    style.title(axes[0, 0], "a", f"mode losses, {style.spectrum_label(a, b)}")
    style.title(axes[0, 1], "b", "reducible part, normalized")
    if rows.empty:
        style.not_run(axes[0, 0])
        style.not_run(axes[0, 1])
        return figure
    losses = rows.groupby(["mode", "L"])["loss"].mean()
    drawn = [mode for mode in MODES if mode in losses.index.unique("mode")]
    _raw_panel(axes[0, 0], losses, mode_fits, drawn)
    _reducible_panel(axes[0, 1], losses, mode_fits, drawn)
    figure.legend(
        handles=[Line2D([], [], color=COLORS[mode], marker=MARKERS[mode]) for mode in drawn],
        labels=[f"$k={mode}$" for mode in drawn],
        loc="outside lower center", ncols=len(drawn),
    )  # fmt: skip
    return figure


def _draw_mode(
    axes: Axes, losses: pd.Series, mode: int, name: str, fit: "PowerLawFit | None" = None
) -> None:
    curve = pd.DataFrame({"L": losses.index.astype(float), "value": losses, "error": float("nan")})
    draw_curve(axes, curve, COLORS[mode], MARKERS[mode], fit, name)


def _raw_panel(axes: Axes, losses: pd.Series, fits: Fits, drawn: list[int]) -> None:
    for mode in drawn:
        _draw_mode(axes, losses[mode], mode, f"mode {mode}", fits.get(mode))
    style.depth_axis(axes, losses.index.get_level_values("L"))
    style.log_value_axis(axes)
    axes.set_ylabel("mode loss $R_k(L)$")


def _reducible_panel(axes: Axes, losses: pd.Series, fits: Fits, drawn: list[int]) -> None:
    """Reducible losses over their value at one layer: parallel learning collapses.

    Below a hundredth they are within the error of the fitted floors, and out of view.
    """
    usable = [k for k in drawn if k in fits and fits[k].ok and 1 in losses[k].index]
    if not usable:
        return style.empty(axes, "no fitted floors")
    for mode in usable:
        reducible = losses[mode] - fits[mode].L0
        normalized = reducible / reducible.loc[1]
        _draw_mode(axes, normalized[normalized > 0], mode, f"mode {mode} reducible")
    style.depth_axis(axes, losses.index.get_level_values("L"))
    style.log_value_axis(axes)
    axes.set_ylim(bottom=max(axes.get_ylim()[0], SMALLEST_SHARE))
    axes.set_ylabel(r"$(R_k(L)-L_{0,k})\,/\,(R_k(1)-L_{0,k})$")
