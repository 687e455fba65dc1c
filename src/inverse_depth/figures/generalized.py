"""Figures 9-11: single stream, layer-specific value matrices, context updates; all at (0, 0)."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import style
from .curves import (
    Fits,
    against_depth,
    draw_curve,
    drawing_note,
    fitted_floors,
    loss_panel,
    of_experiment,
    of_spectrum,
    quantity_panel,
    setting,
)


@style.styled
def figure09(evaluations: pd.DataFrame, fits: Fits) -> Figure:
    """Single-stream model on top-2: (a) loss with its fit, (b) C_L, (c) A_L − C_L.

    `evaluations`: experiment, a, b, d, P, L, seed, loss, loss_se, shared_error, disagreement, norm;
    `fits`: of R = L0 + c L^−α.
    """
    return _decomposition(evaluations, "single_stream_top2", "single stream", fits)


@style.styled
def figure10(evaluations: pd.DataFrame, fits: Fits) -> Figure:
    """Layer-specific value matrices on top-2; panels and columns as in `figure09`."""
    return _decomposition(evaluations, "layer_values_top2", "layer values", fits)


@style.styled
def figure11(
    evaluations: pd.DataFrame, fits_top2: Fits, fits_top16: Fits, published_scalar: float
) -> Figure:
    """Context updates: loss on (a) top-2 and (b) top-16; (c, d) the learned scalar m of each.

    The y axes of a row are equally long.

    `evaluations`: experiment, a, b, d, P, L, seed, loss, loss_se, context_scalar (missing at
    L = 1); `published_scalar`: the paper's stable m on top-16.
    """
    figure, axes = style.panels(2, 2, style.FULL_WIDTH, 4.4)
    shown = [_isotropic(evaluations, f"context_updates_top{k}") for k in (2, 16)]
    for column, (k, rows) in enumerate(zip((2, 16), shown, strict=True)):
        loss, scalar = axes[:, column]
        style.title(loss, "ab"[column], f"context updates, top-{k}", setting(rows))
        loss_panel(loss, rows, style.spectrum_label, (fits_top2, fits_top16)[column])
        style.title(scalar, "cd"[column], f"context scalar, top-{k}", setting(rows))
        _scalar_panel(scalar, rows, (None, published_scalar)[column])
    if all(len(rows) for rows in shown):
        for pair in axes:
            length = max(style.y_length(panel) for panel in pair)
            for panel in pair:
                style.widen(panel, length)
    if any(len(rows) for rows in shown):
        style.note(figure, drawing_note(pd.concat(shown)))
    return figure


def _isotropic(evaluations: pd.DataFrame, experiment: str) -> pd.DataFrame:
    return of_spectrum(of_experiment(evaluations, experiment), 0, 0)


def _decomposition(evaluations: pd.DataFrame, experiment: str, model: str, fits: Fits) -> Figure:
    """Loss, C_L and A_L − C_L of one experiment at (0, 0), in three panels."""
    figure, axes = style.panels(1, 3, style.FULL_WIDTH, 2.6)
    rows = _isotropic(evaluations, experiment)
    style.title(axes[0, 0], "a", model)
    style.title(axes[0, 1], "b", "shared error")
    style.title(axes[0, 2], "c", "disagreement")
    loss_panel(axes[0, 0], rows, style.spectrum_label, fits)
    quantity_panel(
        axes[0, 1], rows, "shared_error", "$C_L$", style.spectrum_label, fitted_floors(fits), 2
    )
    quantity_panel(axes[0, 2], rows, "disagreement", "$A_L-C_L$", style.spectrum_label)
    if not rows.empty:
        norms = " and ".join(sorted(rows["norm"].astype(str).unique()))
        text = f"top-2, {setting(rows)}, norm before queries and keys: {norms}"
        style.note(figure, f"{text}\n{drawing_note(rows)}")
    return figure


def _scalar_panel(axes: Axes, rows: pd.DataFrame, published: float | None) -> None:
    """Learned scalar m against depth; undefined at one layer."""
    rows = rows.dropna(subset=["context_scalar"])
    if rows.empty:
        return style.not_run(axes)
    color = style.spectrum_color(0, 0)
    handles = [draw_curve(axes, against_depth(rows, "context_scalar"), color, name="m")]
    labels = ["trained $m$"]
    if published is not None:
        handles.append(
            axes.axhline(published, linestyle=":", linewidth=0.9, color=style.GREY, gid="paper")
        )
        labels.append(f"paper's $m$, {published:g}".replace("-", "−"))
    style.depth_axis(axes, rows["L"])
    axes.margins(y=0.25)
    axes.set_ylabel("context scalar $m$")
    style.legend_below(axes, 2, handles=handles, labels=labels)
