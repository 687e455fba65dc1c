"""Figure 1: loss against depth for {linear, nonlinear} attention × {easy, top-2} task."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from . import style
from .curves import against_depth, draw_curve, of_experiment, of_spectrum, setting, spectra


@style.styled
def figure01(evaluations: pd.DataFrame, linear_easy: str) -> Figure:
    """Overview, log-log, every spectrum of the four controlled experiments.

    `evaluations` has the columns experiment, a, b, d, P, L, seed, loss, loss_se; `linear_easy`
    names the experiment of linear attention on the easy task (finite or infinite context).
    """
    figure, axes = style.panels(2, 2, style.FULL_WIDTH, 4.6)
    panels = (
        (axes[0, 0], "a", "linear, easy", (linear_easy,)),
        (axes[0, 1], "b", "linear, top-2", ("linear_top2",)),
        (axes[1, 0], "c", "nonlinear, easy", ("nonlinear_easy",)),
        (axes[1, 1], "d", "nonlinear, top-2", ("nonlinear_top2", "nonlinear_top2_mixed")),
    )
    drawn: dict[str, set] = {}
    for panel, letter, text, experiments in panels:
        rows = of_experiment(evaluations, *experiments)
        style.title(panel, letter, text, setting(rows))
        drawn[letter] = set(spectra(rows))
        if rows.empty:
            style.not_run(panel)
            continue
        for a, b in spectra(rows):
            curve = against_depth(of_spectrum(rows, a, b), "loss")
            name = f"{style.spectrum_label(a, b)} loss"
            draw_curve(
                panel, curve, style.spectrum_color(a, b), style.spectrum_marker(a, b), name=name
            )
        style.depth_axis(panel, rows["L"])
        style.log_value_axis(panel)
        panel.set_ylabel("loss $R_L$")
    _legend(figure, drawn["a"], "$(a, b)$, panel a", "upper")
    _legend(figure, drawn["b"] | drawn["c"] | drawn["d"], "$(a, b)$, panels b–d", "lower")
    return figure


def _legend(figure: Figure, drawn: set, heading: str, where: str) -> None:
    """The easy task of linear attention has spectra of its own, so each group has its legend."""
    handles = [
        Line2D([], [], color=style.spectrum_color(a, b), marker=style.spectrum_marker(a, b))
        for a, b in sorted(drawn)
    ]
    labels = [style.spectrum_label(a, b) for a, b in sorted(drawn)]
    if handles:
        figure.legend(handles, labels, loc=f"outside right {where}", title=heading)
