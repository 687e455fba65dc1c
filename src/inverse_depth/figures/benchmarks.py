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
    "a job a core": "purple",
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


def _shares(axes: Axes, rows: pd.DataFrame) -> None:
    """Percent of a step that goes into its contexts, by dimension, a bar a spectrum."""
    style.title(axes, "e", "contexts in a step, nonlinear, $L=64$")
    parts = rows.pivot(index="case", columns="form", values="seconds")
    percent = 100 * parts["contexts"] / parts.sum(axis=1)
    cases = percent.index.str.extract(r"d=(\d+) a=(\d+)").astype(int)
    dimensions = sorted(cases[0].unique())
    for a, color, shift in ((0, "blue", -0.2), (1, "vermillion", 0.2)):
        chosen = percent[(cases[1] == a).to_numpy()]
        places = [dimensions.index(d) + shift for d in cases[0][cases[1] == a]]
        axes.bar(places, chosen, 0.4, color=style.CATEGORIES[color], label=f"$a={a}$")
    axes.axhline(20, color=style.GREY, linestyle="--", label="goal")
    axes.set_xticks(range(len(dimensions)), [f"d={d}" for d in dimensions])
    axes.set_ylabel("share of the time (%)")
    style.legend_below(axes, columns=3)


def _sharing(axes: Axes, rows: pd.DataFrame, cores: int) -> None:
    """Steps a second of every job and of all together, against the number of jobs."""
    style.title(axes, "f", f"jobs of one thread on {cores} cores, $L=64$")
    jobs = rows["case"].str.removeprefix("jobs=").astype(int).to_numpy()
    each = 1 / rows["seconds"].to_numpy()
    for label, values, color, marker in (
        ("each job", each, "blue", "o"),
        ("all together", each * jobs, "green", "s"),
    ):
        axes.plot(jobs, values, marker=marker, color=style.CATEGORIES[color], label=label)
    axes.set_xticks(jobs)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("jobs at once")
    axes.set_ylabel("steps a second")
    style.legend_below(axes, columns=2)


@style.styled
def benchmarks(frame: pd.DataFrame) -> Figure:
    """(a) A gradient, (b) drawing contexts, (c) linear attention, (d) growth with depth,
    (e) what contexts take of a step, (f) steps a second of jobs that share the machine.

    `frame`: benchmark, case, form, seconds, peak_mb, threads (the benchmarks' CSV).
    """
    figure, axes = style.panels(3, 2, style.FULL_WIDTH, 7.2)
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
    _shares(axes[2, 0], frame[frame["benchmark"] == "shares"])
    _sharing(axes[2, 1], frame[frame["benchmark"] == "sharing"], int(frame["threads"].iloc[0]))
    return figure
