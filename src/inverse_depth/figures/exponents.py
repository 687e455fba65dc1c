"""Local exponents: the slope of the reducible loss between successive depths."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from . import style
from .curves import Fits, against_depth, draw_curve, of_experiment, of_spectrum, setting, spectra

EXPONENT_LIMITS = (-1.0, 3.0)  # intervals that leave them are cut at the panel's edge


@style.styled
def local_exponents(
    evaluations: pd.DataFrame, fits: Fits, local: pd.DataFrame, experiment: str
) -> Figure:
    """(a) Reducible loss R_L − L0 and (b) its local exponent with its interval, against depth.

    `evaluations`: experiment, a, b, d, P, L, seed, loss, loss_se; `fits`: of R = L0 + c L^−α;
    `local`: a, b, shallow, deep, exponent, low, high, a row a pair of successive depths, drawn
    between them (the table of that name).  `experiment` names the rows of `evaluations`; spectra
    without a fit are left out.
    """
    figure, axes = style.panels(1, 2, style.FULL_WIDTH, 3.0)
    rows = of_experiment(evaluations, experiment)
    fitted = [spectrum for spectrum in spectra(rows) if spectrum in fits and fits[spectrum].ok]
    reason = "no fitted floors" if len(rows) else style.NOT_RUN
    style.title(axes[0, 0], "a", "reducible loss", setting(rows))
    style.title(axes[0, 1], "b", "local exponent", setting(rows))
    _reducible_panel(axes[0, 0], rows, fits, fitted, reason)
    _exponent_panel(axes[0, 1], local, fitted, reason)
    if fitted:
        figure.legend(
            handles=[
                Line2D([], [], color=style.spectrum_color(a, b), marker=style.spectrum_marker(a, b))
                for a, b in fitted
            ],
            labels=[style.spectrum_label(a, b) for a, b in fitted],
            loc="outside lower center", ncols=7, title="spectrum $(a, b)$",
        )  # fmt: skip
    return figure


def _reducible_panel(axes: Axes, rows: pd.DataFrame, fits: Fits, fitted: list, reason: str) -> None:
    """R_L − L0 where it is positive, its fit, and a guide of slope −1."""
    starts = []
    for a, b in fitted:
        curve = against_depth(of_spectrum(rows, a, b), "loss")
        curve["value"] -= fits[a, b].L0
        curve = curve[curve["value"] > 0]
        name = f"{style.spectrum_label(a, b)} reducible"
        draw_curve(axes, curve, style.spectrum_color(a, b), style.spectrum_marker(a, b), name=name)
        starts.append(curve["value"].max())
    if not starts:
        return style.empty(axes, reason)
    style.depth_axis(axes, rows["L"])
    depths = np.array([rows["L"].min(), rows["L"].max()], dtype=float)
    guide = 1.6 * max(starts) * depths[0] / depths
    axes.plot(depths, guide, "--", color=style.GREY, linewidth=0.9, gid="guide")
    axes.annotate(
        "$\\propto 1/L$", (depths[0], guide[0]), xytext=(8, 0), textcoords="offset points",
        color=style.GREY, fontsize=7, ha="left", va="center",
    )  # fmt: skip
    style.log_value_axis(axes)
    axes.set_ylabel("$R_L-L_0$")


def _exponent_panel(axes: Axes, local: pd.DataFrame, fitted: list, reason: str) -> None:
    """Exponents at the geometric mean of their two depths, spread a little to part the bars."""
    local = local.dropna(subset=["exponent"])
    local = local[[spectrum in fitted for spectrum in zip(local["a"], local["b"], strict=True)]]
    if local.empty:
        return style.empty(axes, reason)
    spread = np.linspace(-0.3, 0.3, len(fitted)) if len(fitted) > 1 else [0.0]
    for (a, b), shift in zip(fitted, spread, strict=True):
        rows = of_spectrum(local, a, b).sort_values("shallow")
        middle = np.sqrt(rows["shallow"] * rows["deep"]) * 2.0**shift
        below, above = rows["exponent"] - rows["low"], rows["high"] - rows["exponent"]
        axes.errorbar(
            middle, rows["exponent"], yerr=[below.fillna(0), above.fillna(0)],
            linestyle="none", marker=style.spectrum_marker(a, b), color=style.spectrum_color(a, b),
            linewidth=0.5, elinewidth=0.8, capsize=0, gid=f"{style.spectrum_label(a, b)} exponent",
        )  # fmt: skip
    axes.axhline(1, linestyle="--", linewidth=0.9, color=style.GREY, zorder=0)
    style.depth_axis(axes, [local["shallow"].min(), local["deep"].max()])
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, EXPONENT_LIMITS[0]), min(high, EXPONENT_LIMITS[1]))
    axes.set_ylabel("$-\\,\\mathrm{d}\\log(R_L-L_0)\\,/\\,\\mathrm{d}\\log L$")
