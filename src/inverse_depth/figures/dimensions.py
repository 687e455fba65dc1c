"""Floors at matched dimensions, and what context length the published floors single out."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from ..published import DIMENSIONS
from . import style

NONLINEAR = style.CATEGORIES["blue"]
LINEAR = style.CATEGORIES["vermillion"]


@style.styled
def table1_matched(
    matched: pd.DataFrame,
    published: pd.DataFrame,
) -> Figure:
    """Floors of both models on top-2 as published, and with both at one (d, P): a panel each.

    `matched`: a, b, d, P, nonlinear_L0, linear_L0,
    nonlinear_method (an upper bound is drawn hollow); `published`: a, b, nonlinear_L0,
    linear_L0 (Table 1), at the two sizes that reproduce its columns.
    """
    sizes = sorted({(int(d), int(P)) for d, P in zip(matched["d"], matched["P"], strict=True)})
    groups = [published, *(matched[(matched["d"] == d) & (matched["P"] == P)] for d, P in sizes)]
    headings = [
        "as published: nonlinear at\n"
        f"$d={DIMENSIONS['nonlinear']['d']}$, linear at $d={DIMENSIONS['linear']['d']}$",
        *(f"both at\n$d={d}$, $P={P}$" for d, P in sizes),
    ]
    figure, axes = style.panels(
        1, max(2, len(groups)), style.FULL_WIDTH, 2.9, sharex=True, sharey=True
    )
    keys = zip(published["a"], published["b"], strict=True)
    rows = {spectrum: position for position, spectrum in enumerate(keys)}
    for panel, letter, heading, group in zip(axes[0], "abcdef", headings, groups, strict=False):
        style.title(panel, letter, heading)
        _floors_panel(panel, group, rows)
    if not sizes:
        style.title(axes[0, 1], "b", "both at one $d$, $P$")
        style.not_run(axes[0, 1])
    first = axes[0, 0]
    first.set_yticks(list(rows.values()), [style.spectrum_label(a, b) for a, b in rows])
    first.set_ylim(len(rows) - 0.5, -0.7)
    first.set_ylabel("spectrum $(a, b)$")
    entries = {}
    for panel in axes[0]:
        entries |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    figure.legend(entries.values(), entries, loc="outside lower center", ncols=3)
    return figure


def _floors_panel(axes: Axes, floors: pd.DataFrame, rows: dict) -> None:
    """Both floors of each spectrum on one line, joined, with their ratio above."""
    floors = floors[[spectrum in rows for spectrum in zip(floors["a"], floors["b"], strict=True)]]
    positions = [rows[spectrum] for spectrum in zip(floors["a"], floors["b"], strict=True)]
    nonlinear, linear = floors["nonlinear_L0"].to_numpy(), floors["linear_L0"].to_numpy()
    axes.hlines(positions, nonlinear, linear, color=style.GREY, linewidth=0.8, zorder=1)
    style_points = {"linestyle": "none", "markersize": 5, "zorder": 2}
    methods = floors.get("nonlinear_method", pd.Series("", floors.index)).astype(str)
    bound = methods.str.contains("bound")
    for hollow in (False, True):
        chosen = (bound == hollow).to_numpy()
        if not chosen.any():
            continue
        axes.plot(
            nonlinear[chosen], np.array(positions)[chosen], "o", color=NONLINEAR,
            markerfacecolor="white" if hollow else NONLINEAR,
            label="nonlinear, upper bound" if hollow else "nonlinear $L_0$", **style_points,
        )  # fmt: skip
    axes.plot(linear, positions, "D", color=LINEAR, label="linear $L_0$", **style_points)
    for position, low, high in zip(positions, nonlinear, linear, strict=True):
        if np.isfinite(low) and np.isfinite(high):
            axes.annotate(
                f"×{high / low:.3g}", (max(low, high), position), xytext=(6, 0),
                textcoords="offset points", ha="left", va="center", fontsize=7,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.margins(x=0.3)
    axes.set_xlabel("floor $L_0$")
    axes.yaxis.set_minor_locator(NullLocator())


@style.styled
def calibration(calibration: pd.DataFrame) -> Figure:
    """Fitted floor at (0, 0) against context length P on top-2 and top-16, beside the paper's.

    Open markers: the loss at the deepest depth, an upper bound where no floor could be fitted.

    `calibration`: k, P, L0, L0_se, paper_L0, deepest, deepest_loss (the table of that name).
    """
    figure, axes = style.panels(1, 2, style.FULL_WIDTH, 2.3)
    color = style.spectrum_color(0, 0)
    for panel, letter, k in zip(axes[0], "ab", (2, 16), strict=True):
        rows = calibration[calibration["k"] == k].dropna(subset=["deepest_loss"]).sort_values("P")
        style.title(panel, letter, f"nonlinear, top-{k}, (0, 0)")
        if rows.empty:
            style.not_run(panel)
            continue
        drawn = {}
        fitted = rows.dropna(subset=["L0"])
        if len(fitted):
            drawn["fitted"] = panel.errorbar(
                fitted["P"], fitted["L0"], yerr=fitted["L0_se"].fillna(0), color=color,
                marker="o", linewidth=0.7, elinewidth=0.8, gid=f"top-{k}",
            )  # fmt: skip
        (bound,) = panel.plot(
            rows["P"], rows["deepest_loss"], color=color, marker="o", markerfacecolor="white",
            linewidth=0.4, gid=f"top-{k}-bound",
        )  # fmt: skip
        drawn[f"loss at L = {rows['deepest'].max():g}"] = bound
        level = rows["paper_L0"].iloc[0]
        paper = panel.axhline(level, linestyle=":", linewidth=0.9, color=style.GREY, gid="paper")
        drawn[f"paper's $L_0$, {level:.4g}"] = paper
        style.depth_axis(panel, rows["P"])
        panel.set_xticks(rows["P"], [f"{P:g}" for P in rows["P"]])
        panel.margins(y=0.15)
        panel.set_xlabel("context tokens $P$")
        panel.set_ylabel("floor $L_0$")
        style.legend_below(panel, 3, handles=list(drawn.values()), labels=list(drawn))
    return figure
