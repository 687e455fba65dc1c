"""Figure 3: linear attention on the easy task."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from . import style
from .curves import (
    Fits,
    by_a,
    by_b,
    draw_curve,
    drawing_note,
    loss_panel,
    of_experiment,
    of_spectrum,
    published_values,
    setting,
    spectra,
)

FIXED = 2.0
MODE_SPECTRUM = (2.0, 1.0)
MODES = (1, 2, 4, 8, 16, 32)
THRESHOLD = 0.02  # mode losses below it are drawn on it


@style.styled
def figure03(
    evaluations: pd.DataFrame,
    modes: pd.DataFrame,
    fits: Fits,
    references: pd.DataFrame,
    published: pd.DataFrame,
    linear_easy: str,
) -> Figure:
    """(a) Loss at a = 2 and (b) at b = 2 with power-law fits; (c) normalized mode losses at (2, 1).

    `evaluations`: experiment, a, b, d, P, L, loss, loss_se; `modes`: experiment, a, b, L, seed,
    mode, loss; `references`: a, b, L, constrained, free (the losses whose exponents tend to ζ and
    2ζ, drawn as a band); `published`: a, b, alpha (Table 2).  `linear_easy` names the experiment.
    """
    figure, axes = style.panels(1, 3, style.FULL_WIDTH, 3.2)
    rows = of_experiment(evaluations, linear_easy)
    alphas = published_values(published, "alpha")
    for panel, letter, fixed, varied, name in (
        (axes[0, 0], "a", "a", "b", by_b),
        (axes[0, 1], "b", "b", "a", by_a),
    ):
        family = rows[(rows[fixed] == FIXED) & (rows[varied] > 0)]
        style.title(panel, letter, f"fixed ${fixed}=2$")
        loss_panel(panel, family, name, fits, alphas=alphas)
        if not family.empty:
            _draw_references(panel, references, spectra(family))
    panel = axes[0, 2]
    style.title(panel, "c", "modes at (2, 1)")
    _mode_panel(panel, of_spectrum(of_experiment(modes, linear_easy), *MODE_SPECTRUM))
    if not rows.empty:
        style.note(figure, f"linear attention, easy task, {setting(rows)}; {drawing_note(rows)}")
    return figure


def _draw_references(axes: Axes, references: pd.DataFrame, family: list) -> None:
    """Bands between the constrained and the free reference, without moving the axes."""
    limits = axes.get_xlim(), axes.get_ylim()
    for a, b in family:
        band = of_spectrum(references, a, b).sort_values("L")
        if band.empty:
            continue
        axes.fill_between(
            band["L"], band["free"], band["constrained"],
            color=style.spectrum_color(a, b), alpha=0.13, linewidth=0, zorder=0,
            gid=f"{style.spectrum_label(a, b)} reference",
        )  # fmt: skip
    axes.set(xlim=limits[0], ylim=limits[1])
    legend = axes.get_legend()
    style.legend_below(
        axes,
        heading=legend.get_title().get_text(),
        handles=[*legend.legend_handles, Patch(color=style.GREY, alpha=0.2, linewidth=0)],
        labels=[*(text.get_text() for text in legend.texts), "references, $\\zeta$ to $2\\zeta$"],
    )


def _mode_panel(axes: Axes, modes: pd.DataFrame) -> None:
    """Loss of each representative mode over λ_k ω_k = k^−(a+b), what predicting zero costs."""
    modes = modes[modes["mode"].isin(MODES)]
    if modes.empty:
        return style.not_run(axes)
    handles = []
    colors = style.ordered_colors(len(MODES))
    for color, mode in zip(colors, MODES, strict=True):
        losses = modes[modes["mode"] == mode].groupby("L")["loss"].mean()
        normalized = losses * float(mode) ** sum(MODE_SPECTRUM)
        curve = pd.DataFrame(
            {
                "L": losses.index.astype(float),
                "value": np.maximum(normalized, THRESHOLD),
                "error": np.nan,
            }
        )
        draw_curve(axes, curve, color, name=f"mode {mode}")
        handles.append(Line2D([], [], marker="o", color=color))
    axes.axhline(THRESHOLD, linestyle="--", linewidth=0.9, color=style.GREY, gid="threshold")
    axes.text(
        0.98, THRESHOLD * 0.93, "2 %", transform=axes.get_yaxis_transform(),
        ha="right", va="top", fontsize=7, color=style.GREY,
    )  # fmt: skip
    style.depth_axis(axes, modes["L"])
    axes.set_yscale("log")
    axes.set_ylim(THRESHOLD / 1.5, max(1.4, axes.get_ylim()[1]))
    style.log_value_axis(axes)
    axes.set_ylabel("mode loss / $\\lambda_k\\omega_k$")
    style.legend_below(axes, 3, "mode $k$", handles=handles, labels=[str(mode) for mode in MODES])
