"""Figure 8: the part of a top-2 target that linear attention can predict, in one real context."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from . import style

THIN, THICK = 1.0, 2.2  # points
ORIGIN = np.zeros(2)
TARGET = style.CATEGORIES["green"]
PREDICTABLE = style.CATEGORIES["blue"]
RESIDUAL = style.CATEGORIES["vermillion"]


@style.styled
def figure08(geometry: pd.DataFrame) -> Figure:
    """Query, selected tokens, their mean, its conditional mean and the residual, at d = 2.

    `geometry`: point (query, selected_1 …, mean, conditional_mean, residual), x, y, length, angle
    (to the query, in degrees).  The plane is turned so that the query points right; both axes have
    one scale, so lengths and angles are those of the context, and the legend states them.
    """
    geometry = geometry.set_index("point")
    vectors = geometry[["x", "y"]].to_numpy(dtype=float)
    cos, sin = vectors[geometry.index.get_loc("query")] / geometry.loc["query", "length"]
    points = dict(zip(geometry.index, vectors @ np.array([[cos, -sin], [sin, cos]]), strict=True))
    selected = [name for name in points if name.startswith("selected_")]
    figure, axes = style.panels(1, 1, style.FULL_WIDTH, 2.7)
    panel = axes[0, 0]
    drawn = np.vstack([ORIGIN, *(point for name, point in points.items() if name != "residual")])
    low, high = drawn.min(axis=0), drawn.max(axis=0)
    margin = 0.1 * (high - low).max()
    panel.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin))
    panel.set_aspect("equal")
    panel.set_axis_off()
    for number, name in enumerate(selected, start=1):
        _arrow(panel, ORIGIN, points[name], style.INK, THIN)
        _number(panel, points[name], number)
    tips = np.array([points[name] for name in selected])
    panel.plot(*tips.T, ":", color=style.INK, linewidth=0.8, zorder=1)
    _arrow(panel, ORIGIN, points["mean"], TARGET, THICK)
    _arrow(panel, ORIGIN, points["conditional_mean"], PREDICTABLE, THICK)
    _arrow(panel, points["conditional_mean"], points["mean"], RESIDUAL, THICK)
    _arrow(panel, ORIGIN, points["query"], style.GREY, THIN, zorder=4)
    panel.axhline(0, color=style.FAINT, linewidth=0.8, zorder=0)
    panel.plot(0, 0, marker="o", markersize=3, color=style.INK, zorder=5)
    entries = (
        ("query", "query $x_\\mathrm{test}$", style.GREY, THIN),
        *((name, f"selected token {name[9:]}", style.INK, THIN) for name in selected),
        ("mean", "target $t$, the tokens' mean", TARGET, THICK),
        ("conditional_mean", "predictable part $\\bar{t}$", PREDICTABLE, THICK),
        ("residual", "residual $t-\\bar{t}$", RESIDUAL, THICK),
    )
    figure.legend(
        handles=[Line2D([], [], color=color, linewidth=width) for *_, color, width in entries],
        labels=[f"{text}\n{_measures(geometry.loc[name])}" for name, text, *_ in entries],
        loc="outside right center",
        labelspacing=0.8,
    )
    return figure


def _arrow(
    axes: Axes, start: np.ndarray, end: np.ndarray, color: str, width: float, zorder: float = 3
) -> None:
    axes.add_patch(
        FancyArrowPatch(
            tuple(start), tuple(end), arrowstyle="-|>,head_length=4,head_width=2",
            linewidth=width, color=color, shrinkA=0, shrinkB=0, zorder=zorder,
            joinstyle="miter", capstyle="butt",
        )
    )  # fmt: skip


def _number(axes: Axes, tip: np.ndarray, number: int) -> None:
    """A selected token's number just beyond its arrow."""
    beyond = tuple(8 * tip / np.linalg.norm(tip))
    axes.annotate(
        str(number), tuple(tip), xytext=beyond, textcoords="offset points", ha="center", va="center"
    )


def _measures(point: pd.Series) -> str:
    """Length and angle to the query, as measured."""
    if point.name == "query":
        return f"length {point['length']:.2f}"
    return f"length {point['length']:.2f}, {abs(point['angle']):.0f}° from the query"
