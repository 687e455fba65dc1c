"""The benchmarks: time a context of every form, and how time and memory grow with depth."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import style

FORMS = {
    "literal": "vermillion",
    "QR": "orange",
    "eager": "sky",
    "in use": "blue",
    "roofline": "green",
}


def _bars(axes: Axes, rows: pd.DataFrame) -> None:
    """Microseconds by case, a bar a form."""
    cases = list(dict.fromkeys(rows["case"]))
    forms = [form for form in FORMS if form in set(rows["form"])]
    width = 0.8 / len(forms)
    for index, form in enumerate(forms):
        chosen = rows[rows["form"] == form].set_index("case")["seconds"].reindex(cases) * 1e6
        places = np.arange(len(cases)) + (index - (len(forms) - 1) / 2) * width
        axes.bar(places, chosen, width, color=style.CATEGORIES[FORMS[form]], label=form)
    axes.set_xticks(range(len(cases)), cases)
    axes.set_ylabel("time a context (µs)")
    axes.set_yscale("log")
    style.legend_below(axes, columns=len(forms))


@style.styled
def benchmarks(frame: pd.DataFrame) -> Figure:
    """(a) A training step, (b) drawing contexts, (c) linear attention, (d) growth with depth.

    `frame`: benchmark, case, form, seconds, peak_mb (the benchmarks' CSV).
    """
    figure, axes = style.panels(2, 2, style.FULL_WIDTH, 5.0)
    panels = (
        (axes[0, 0], "a", "training step", "gradient, nonlinear, top-2"),
        (axes[0, 1], "b", "data generation", "drawing a context"),
        (axes[1, 0], "c", "linear chain", "gradient, linear, $d=128$, $P=1024$"),
    )
    for panel, letter, benchmark, text in panels:
        style.title(panel, letter, text)
        _bars(panel, frame[frame["benchmark"] == benchmark])
    growth = frame[frame["benchmark"] == "depth scaling"]
    depths = growth["case"].str.removeprefix("L=").astype(int)
    slope = np.polyfit(np.log(depths), np.log(growth["seconds"]), 1)[0]
    panel = axes[1, 1]
    style.title(panel, "d", f"one batch: time grows as $L^{{{slope:.2f}}}$")
    series = (("time (ms)", growth["seconds"] * 1e3, "blue", "o"),)
    series += (("peak memory (MB)", growth["peak_mb"], "vermillion", "s"),)
    for label, values, color, marker in series:
        panel.plot(depths, values, marker=marker, color=style.CATEGORIES[color], label=label)
    panel.set_yscale("log")
    panel.set_ylabel("time (ms), memory (MB)")
    style.depth_axis(panel, depths)
    style.legend_below(panel, columns=2)
    return figure
