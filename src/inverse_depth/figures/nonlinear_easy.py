"""Figure 4: nonlinear attention solves the easy task with one layer."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from . import style
from .curves import (
    against_depth,
    by_a,
    by_b,
    draw_curve,
    of_experiment,
    of_spectrum,
    setting,
    spectra,
)

EXPERIMENT = "nonlinear_easy"
MASS_SPECTRUM = (1.0, 0.0)
SOLVED = 1e-3  # of the zero predictor's loss
FLOOR = 1e-8  # normalized losses below it, zero included, are drawn on it


@style.styled
def figure04(evaluations: pd.DataFrame, history: pd.DataFrame) -> Figure:
    """(a) Loss at b = 0, (b) at a = 0, over the zero predictor's; (c) attention mass in training.

    `evaluations`: experiment, a, b, d, P, L, loss, loss_se; `history`: experiment, a, b, L, seed,
    step, attention_mass (the mass on the matching token), drawn for (1, 0) with one layer.
    """
    figure, axes = style.panels(1, 3, style.FULL_WIDTH, 2.8)
    rows = of_experiment(evaluations, EXPERIMENT)
    for panel, letter, fixed, name in (
        (axes[0, 0], "a", "b", by_a),
        (axes[0, 1], "b", "a", by_b),
    ):
        family = rows[rows[fixed] == 0]
        style.title(panel, letter, f"fixed ${fixed}=0$")
        _normalized_panel(panel, family, name)
    contexts = of_spectrum(rows, *MASS_SPECTRUM)["P"].unique()
    style.title(axes[0, 2], "c", "matching token, (1, 0)")
    _mass_panel(
        axes[0, 2], of_spectrum(of_experiment(history, EXPERIMENT), *MASS_SPECTRUM), contexts
    )
    if not rows.empty:
        style.note(figure, f"nonlinear attention, easy task, {setting(rows)}")
    return figure


def _normalized_panel(axes: Axes, rows: pd.DataFrame, name) -> None:
    """Loss over E[y*²] = Σ_k λ_k ω_k, the loss of predicting zero on the easy task."""
    if rows.empty:
        return style.not_run(axes)
    handles, labels = [], []
    for a, b in spectra(rows):
        spectrum = of_spectrum(rows, a, b)
        curve = against_depth(spectrum, "loss")
        zero = np.sum(np.arange(1.0, spectrum["d"].iloc[0] + 1) ** -(a + b))
        curve["value"] = np.maximum(curve["value"] / zero, FLOOR)
        curve["error"] /= zero
        color, marker = style.spectrum_color(a, b), style.spectrum_marker(a, b)
        draw_curve(axes, curve, color, marker, name=f"{style.spectrum_label(a, b)} loss")
        handles.append(Line2D([], [], marker=marker, color=color))
        labels.append(name(a, b))
    for level, text in ((1.0, "predicting zero"), (SOLVED, "solved")):
        axes.axhline(level, linestyle=":", linewidth=0.9, color=style.GREY)
        axes.text(
            0.98, level * 0.8, text, transform=axes.get_yaxis_transform(),
            ha="right", va="top", fontsize=7, color=style.GREY,
        )  # fmt: skip
    style.depth_axis(axes, rows["L"])
    axes.set_yscale("log")
    axes.set_ylim(min(axes.get_ylim()[0], SOLVED / 30), 2.0)
    style.log_value_axis(axes)
    axes.set_ylabel("loss / $\\Sigma_k\\,\\lambda_k\\omega_k$")
    style.legend_below(axes, 2, handles=handles, labels=labels)


def _mass_panel(axes: Axes, history: pd.DataFrame, contexts: np.ndarray) -> None:
    """Mean attention mass on the matching token against training step, one layer."""
    if len(history):
        history = history[history["L"] == 1].dropna(subset=["attention_mass"])
    if history.empty:
        return style.not_run(axes)
    color = style.spectrum_color(*MASS_SPECTRUM)
    for seed, run in history.groupby("seed"):
        run = run.sort_values("step")
        axes.plot(run["step"], run["attention_mass"], color=color, gid=f"mass seed {seed}")
    if len(contexts) == 1 and np.isfinite(contexts[0]):
        axes.axhline(1 / contexts[0], linestyle=":", linewidth=0.9, color=style.GREY)
        axes.text(
            0.98, 1 / contexts[0] + 0.02, "uniform, $1/P$", transform=axes.get_yaxis_transform(),
            ha="right", va="bottom", fontsize=7, color=style.GREY,
        )  # fmt: skip
    axes.set_ylim(0, 1.04)
    axes.margins(x=0.02)
    axes.set_xlabel("training step")
    axes.set_ylabel("attention mass")
