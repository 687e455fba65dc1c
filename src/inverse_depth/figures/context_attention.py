"""Figure 12: the first context-attention matrix of the two-layer model with context updates."""

import pandas as pd
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from . import style

TASKS = (2, 16)
WEIGHTS = LogNorm(1e-4, 1.0)  # one scale for both, so that sharp and broad can be compared


@style.styled
def figure12(attention: pd.DataFrame, identity_fits: pd.DataFrame) -> Figure:
    """A¹ on (a) top-2 and (b) top-16, averaged over contexts, with its fit ρ I + (1 − ρ) J.

    `attention`: k, row, column, weight; `identity_fits`: k, rho, r2, paper_rho.
    """
    figure, axes = style.panels(1, 2, style.FULL_WIDTH, 3.1)
    image = None
    for panel, letter, k in zip(axes[0], "ab", TASKS, strict=True):
        entries = attention[attention["k"] == k]
        if entries.empty:
            style.title(panel, letter, f"top-{k}")
            style.not_run(panel)
            continue
        matrix = entries.pivot_table(index="row", columns="column", values="weight")
        tokens = len(matrix)
        image = panel.imshow(
            matrix.to_numpy().clip(WEIGHTS.vmin), cmap="viridis", norm=WEIGHTS,
            interpolation="nearest", extent=(0.5, tokens + 0.5, tokens + 0.5, 0.5),
        )  # fmt: skip
        ticks = [1, tokens // 2, tokens]
        panel.set(
            xticks=ticks, yticks=ticks, xlabel="context token $j$", ylabel="context token $i$"
        )
        panel.spines[:].set_visible(False)
        style.title(panel, letter, f"top-{k}{_fit_text(identity_fits[identity_fits['k'] == k])}")
    if image is not None:
        bar = figure.colorbar(image, ax=list(axes[0]), extend="min", shrink=0.8, aspect=25)
        bar.set_label("mean weight $A^1_{ij}$")
        bar.outline.set_linewidth(0.4)
        bar.ax.minorticks_off()
    return figure


def _fit_text(fit: pd.DataFrame) -> str:
    """Second line of a title: the identity weight, the paper's, and R²."""
    if fit.empty:
        return ""
    rho, r2, paper = fit[["rho", "r2", "paper_rho"]].iloc[0]
    return rf"{chr(10)}$\rho={rho:.4f}$ [paper {paper:g}], $R^2={r2:.5f}$"
