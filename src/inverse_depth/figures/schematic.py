"""Figure 2: the two tasks, drawn from one real sampled context."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from . import style

QUERY = style.CATEGORIES["vermillion"]
SELECTED = style.CATEGORIES["blue"]
UNSELECTED = "#B3B3B3"


@style.styled
def figure02(schematic: pd.DataFrame) -> Figure:
    """The easy task (left) and the top-k task (right) on one context in the plane.

    Above, the inputs with the query and the selected tokens; below, every label against its
    token's similarity to the query, and the target.  `schematic`: role (token, easy, top_k), x, y,
    label (of a query: its target), and for tokens {task}_similarity and {task}_selected.
    """
    figure, axes = style.panels(
        2, 2, style.FULL_WIDTH, 4.4, gridspec_kw={"height_ratios": [1.25, 1.0]}
    )
    tokens = schematic[schematic["role"] == "token"]
    k = int(tokens["top_k_selected"].astype(bool).sum())
    for column, task in enumerate(("easy", "top_k")):
        query = schematic[schematic["role"] == task].iloc[0]
        chosen = tokens[f"{task}_selected"].astype(bool).to_numpy()
        _plane(axes[0, column], tokens[["x", "y"]].to_numpy(), chosen, query)
        points = tokens[[f"{task}_similarity", "label"]].to_numpy(dtype=float)
        _labels(axes[1, column], points, chosen, query["label"])
    style.title(axes[0, 0], "a", "easy: the query is a context token")
    style.title(axes[0, 1], "b", f"top-{k}: the {k} tokens nearest in angle")
    style.title(axes[1, 0], "c", "copy its label")
    style.title(axes[1, 1], "d", f"average their {k} labels")
    figure.legend(
        handles=[
            Line2D([], [], linestyle="none", marker="*", markersize=8, color=QUERY),
            Line2D([], [], linestyle="none", marker="o", markersize=4.5, color=SELECTED),
            Line2D([], [], linestyle="none", marker="o", markersize=3, color=UNSELECTED),
            Line2D([], [], linestyle="--", color=QUERY),
        ],
        labels=["query", "selected token", "other token", "target $y^*$"],
        loc="outside lower center",
        ncols=4,
    )
    return figure


def _plane(axes: Axes, tokens: np.ndarray, chosen: np.ndarray, query: pd.Series) -> None:
    """Tokens, query and the rays whose angles cosine similarity compares."""
    for x, y in tokens[chosen]:
        axes.plot([0, x], [0, y], color=SELECTED, linewidth=0.9, zorder=1)
    axes.plot([0, query["x"]], [0, query["y"]], color=QUERY, linewidth=1.1, zorder=1)
    _scatter(axes, tokens, chosen)
    ring = {"s": 130, "facecolors": "none", "edgecolors": SELECTED, "linewidths": 0.9}
    axes.scatter(*tokens[chosen].T, zorder=3, **ring)
    star = {"s": 90, "marker": "*", "color": QUERY, "edgecolors": "white", "linewidths": 0.4}
    axes.scatter(query["x"], query["y"], zorder=5, **star)
    axes.plot(0, 0, marker="o", markersize=2, color=style.INK)
    axes.margins(0.1)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set(xticks=[], yticks=[], xlabel="$x_1$", ylabel="$x_2$")


def _labels(axes: Axes, points: np.ndarray, chosen: np.ndarray, target: float) -> None:
    """Labels against similarity; the dashed target is the mean of the selected ones."""
    axes.axhline(0, color=style.FAINT, linewidth=0.6, zorder=0)
    axes.axhline(target, linestyle="--", color=QUERY, zorder=1, gid="target")
    _scatter(axes, points, chosen)
    axes.margins(y=0.1)
    axes.set(xlim=(-1.08, 1.08), xticks=[-1, -0.5, 0, 0.5, 1])
    axes.set(xlabel="cosine similarity to the query", ylabel="label $y_i$")


def _scatter(axes: Axes, points: np.ndarray, chosen: np.ndarray) -> None:
    axes.scatter(*points[~chosen].T, s=9, color=UNSELECTED, linewidths=0, zorder=2)
    axes.scatter(*points[chosen].T, s=22, color=SELECTED, linewidths=0, zorder=4)
