"""How runs were trained: curves, convergence, and what the depth curve owes to the training."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from . import style
from .curves import draw_curve, of_experiment, of_spectrum, spectra

FACTORS = {
    "N": "width $N$",
    "encoder": "start of $W_x$",
    "init": "initialization",
    "teacher": "teacher",
    "learning_rate": "learning rate",
}


@style.styled
def training_sensitivity(
    sensitivity: pd.DataFrame, base: Mapping[str, Any], published_floor: float
) -> Figure:
    """Loss (above) and A_L − C_L (below) against depth, a column a factor of the training.

    `sensitivity`: N, encoder, init, teacher, learning_rate, L, loss, loss_se, shared_error and
    disagreement (the table of that name, of one task, spectrum and number of steps); `base`: the
    value of each factor at which it is held while another varies; `published_floor`: the paper's
    L0.
    """
    figure, axes = style.panels(2, len(FACTORS), style.FULL_WIDTH, 4.4, sharey="row")
    for column, (factor, text) in enumerate(FACTORS.items()):
        others = [name for name in FACTORS if name != factor]
        rows = sensitivity[np.all([sensitivity[name] == base[name] for name in others], axis=0)]
        style.title(axes[0, column], "abcde"[column], text)
        for panel, quantity in ((axes[0, column], "loss"), (axes[1, column], "disagreement")):
            _factor_panel(panel, rows, factor, quantity)
        if not rows.empty:
            axes[0, column].set_xlabel("")
            _level_legend(axes[1, column], rows[factor], base[factor])
    for panel in axes[0]:
        if panel.lines:
            panel.axhline(
                published_floor, linestyle=":", linewidth=0.9, color=style.GREY, gid="paper"
            )
    for panels, values, label in (
        (axes[0], sensitivity["loss"], "loss $R_L$"),
        (axes[1], sensitivity["disagreement"].dropna(), "$A_L-C_L$"),
    ):
        panels[0].set_ylabel(label)
        if len(values):
            style.value_axis(panels[0], values)
    if len(sensitivity):
        style.note(
            figure, "base: the others' value where one factor varies; dotted: the paper's $L_0$"
        )
    return figure


def _levels(values: pd.Series) -> dict[Any, str]:
    """Levels of a factor in order, each with its colour."""
    levels = sorted(values.unique())
    return dict(zip(levels, style.ordered_colors(len(levels)), strict=True))


def _factor_panel(axes: Axes, rows: pd.DataFrame, factor: str, quantity: str) -> None:
    if rows[quantity].isna().all():
        return style.not_run(axes)
    for level, color in _levels(rows[factor]).items():
        chosen = rows[rows[factor] == level].dropna(subset=[quantity]).sort_values("L")
        curve = pd.DataFrame(
            {
                "L": chosen["L"].astype(float),
                "value": chosen[quantity],
                "error": chosen["loss_se"] if quantity == "loss" else np.nan,
            }
        )
        draw_curve(axes, curve, color, name=f"{factor}={level} {quantity}")
    style.depth_axis(axes, rows["L"])


def _level_legend(axes: Axes, values: pd.Series, base_level: Any) -> None:
    levels = _levels(values)
    written = {level: level if isinstance(level, str) else f"{level:g}" for level in levels}
    text = [
        f"{written[level]} (base)" if level == base_level else written[level] for level in levels
    ]
    handles = [Line2D([], [], marker="o", color=color) for color in levels.values()]
    style.legend_below(axes, handles=handles, labels=text)


@style.styled
def training_curves(history: pd.DataFrame, experiment: str) -> Figure:
    """Validation loss against training step, a panel a spectrum, a line a run, colour by depth.

    `history`: experiment, a, b, L, seed, step, loss, validation_loss.
    """
    rows = of_experiment(history, experiment)
    if len(rows):
        rows = rows.dropna(subset=["validation_loss"])
    drawn = spectra(rows) if len(rows) else []
    columns = min(4, max(1, len(drawn)))
    lines = max(1, int(np.ceil(len(drawn) / columns)))
    figure, axes = style.panels(
        lines, columns, style.FULL_WIDTH if columns > 1 else style.COLUMN_WIDTH, 0.5 + 1.7 * lines
    )
    for panel in axes.flat[len(drawn) :]:
        if drawn:
            panel.set_axis_off()
        else:
            style.not_run(panel)
    depths = sorted(rows["L"].unique()) if drawn else []
    colors = dict(zip(depths, style.ordered_colors(len(depths)), strict=True))
    for panel, (a, b) in zip(axes.flat, drawn, strict=False):
        style.title(panel, "", style.spectrum_label(a, b))
        runs = of_spectrum(rows, a, b)
        for (depth, seed), run in runs.groupby(["L", "seed"]):
            run = run[run["step"] > 0].sort_values("step")
            panel.plot(
                run["step"], run["validation_loss"], color=colors[depth], linewidth=0.9,
                gid=f"{style.spectrum_label(a, b)} L={depth} seed={seed}",
            )  # fmt: skip
        panel.set_xscale("log")
        style.value_axis(panel, runs["validation_loss"])
        panel.set_xlabel("training step")
    for panel in axes[:, 0]:
        panel.set_ylabel("validation loss")
    if drawn:
        figure.legend(
            handles=[Line2D([], [], color=color) for color in colors.values()],
            labels=[f"{depth:g}" for depth in depths],
            loc="outside right center", title="depth $L$",
        )  # fmt: skip
    return figure


@style.styled
def convergence(evaluations: pd.DataFrame, limit: float) -> Figure:
    """Relative change of the loss over the last quarter of training, a point a run.

    `evaluations`: experiment, L, final_change, converged; `limit`: the change above which a run is
    flagged as not converged (hollow).
    """
    rows = evaluations.dropna(subset=["final_change"])
    experiments = list(dict.fromkeys(rows["experiment"]))
    height = 0.8 + 0.2 * max(len(experiments), 3)
    figure, axes = style.panels(1, 1, style.FULL_WIDTH, height)
    panel = axes[0, 0]
    if rows.empty:
        style.not_run(panel)
        return figure
    for converged, face in ((True, style.CATEGORIES["blue"]), (False, "white")):
        chosen = rows[rows["converged"].astype(bool) == converged]
        panel.plot(
            np.maximum(chosen["final_change"].abs(), 1e-7),
            [experiments.index(name) for name in chosen["experiment"]],
            linestyle="none", marker="o", markersize=3.5, color=style.CATEGORIES["blue"],
            markerfacecolor=face, alpha=0.8, label="converged" if converged else "flagged",
        )  # fmt: skip
    panel.axvline(limit, linestyle="--", linewidth=0.9, color=style.GREY, label="limit")
    panel.set_xscale("log")
    panel.set_yticks(range(len(experiments)), experiments)
    panel.set_ylim(len(experiments) - 0.4, -0.6)
    panel.grid(axis="y", color=style.FAINT, linewidth=0.4)
    panel.tick_params(axis="y", length=0)
    panel.set_xlabel("|relative change| of the loss over the last quarter of training")
    figure.legend(loc="outside upper right", ncols=3)
    return figure
