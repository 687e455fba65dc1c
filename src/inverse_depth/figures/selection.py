"""Figure 13: token selection of a shallow and a deep model on the same contexts."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from . import style
from .curves import of_experiment, of_spectrum

SHALLOW_COLOR = style.CATEGORIES["vermillion"]
DEEP_COLOR = style.CATEGORIES["blue"]


@style.styled
def figure13(selection: pd.DataFrame, deep: int) -> Figure:
    """(a) Percentiles Q_L(q) of the selection loss for L = 1 and L = `deep`; (b) Q_1 − Q_deep.

    `selection`: experiment, a, b, L, seed, percentile, selection_loss; drawn at (0, 0), averaged
    over seeds.  `deep` is 256 in the paper.
    """
    figure, axes = style.panels(1, 2, style.FULL_WIDTH, 2.5)
    rows = of_spectrum(of_experiment(selection, "nonlinear_top2"), 0, 0)
    curves = rows[rows["L"].isin([1, deep])].pivot_table(
        index="percentile", columns="L", values="selection_loss"
    )
    style.title(axes[0, 0], "a", "selection loss, top-2, (0, 0)")
    style.title(axes[0, 1], "b", "difference")
    if set(curves.columns) != {1, deep}:
        style.not_run(axes[0, 0])
        style.not_run(axes[0, 1])
        return figure
    for depth, color in ((1, SHALLOW_COLOR), (deep, DEEP_COLOR)):
        axes[0, 0].plot(curves.index, curves[depth], color=color, label=f"$L={depth}$")
    axes[0, 0].set_ylabel("selection loss $Q_L(q)$")
    axes[0, 0].set_ylim(bottom=0)
    axes[0, 0].legend(loc="upper left")
    _difference_panel(axes[0, 1], curves[1] - curves[deep], deep)
    for panel in axes[0]:
        panel.yaxis.set_major_locator(MaxNLocator(5))
        panel.set_xlabel("percentile $q$ of contexts")
        panel.set_xlim(0, 100)
    return figure


def _difference_panel(axes: Axes, difference: pd.Series, deep: int) -> None:
    """Difference of percentiles, shaded by which depth it favours, the low tail enlarged."""
    _difference(axes, difference)
    axes.set_ylabel(f"$\\Delta Q(q)=Q_1(q)-Q_{{{deep}}}(q)$")
    axes.text(
        0.04, 0.95, f"positive: favors $L={deep}$", transform=axes.transAxes,
        ha="left", va="top", fontsize=7, color=DEEP_COLOR,
    )  # fmt: skip
    if (difference < 0).any():
        axes.text(
            0.04, 0.85, "negative: favors $L=1$", transform=axes.transAxes,
            ha="left", va="top", fontsize=7, color=SHALLOW_COLOR,
        )  # fmt: skip
        low = difference[difference.index <= 1.6 * difference.index[difference < 0].max()]
        if len(low) >= 4 and low.index.max() <= 60:
            inset = axes.inset_axes([0.2, 0.42, 0.34, 0.32])
            _difference(inset, low)
            bound = 1.2 * np.abs(difference[difference < 0]).max()
            inset.set(xlim=(0, low.index.max()), ylim=(-bound, bound))
            inset.ticklabel_format(axis="y", style="plain")


def _difference(axes: Axes, difference: pd.Series) -> None:
    q, values = difference.index.to_numpy(), difference.to_numpy()
    axes.axhline(0, color=style.INK, linewidth=0.6)
    for favored, color in ((values >= 0, DEEP_COLOR), (values <= 0, SHALLOW_COLOR)):
        axes.fill_between(
            q, values, 0, where=favored, interpolate=True, color=color, alpha=0.25, linewidth=0
        )
    axes.plot(q, values, color=style.INK, gid="difference")
