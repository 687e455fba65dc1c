"""The look of every figure: one style sheet, one colour for each spectrum, one way to save.

Figures are drawn at their final size: `FULL_WIDTH` fills the text of a page, `COLUMN_WIDTH` one of
two columns, and no text is smaller than 7 points.  Nothing here knows what a figure shows.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from io import BytesIO
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogFormatterMathtext,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)
from matplotlib.transforms import ScaledTranslation

from inverse_depth.files import write_bytes

FULL_WIDTH = 6.5  # inches
COLUMN_WIDTH = 3.25

INK = "#222222"
GREY = "#6E6E6E"
FAINT = "#D9D9D9"

# Okabe and Ito's colours, for categories without an order.
CATEGORIES = {
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "green": "#009E73",
    "purple": "#AA4499",
    "orange": "#E69F00",
    "sky": "#56B4E9",
}

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "mathtext.fontset": "dejavusans",
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.title_fontsize": 7,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 5,
    "axes.labelpad": 3,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 4,
    "lines.markeredgewidth": 0.9,
    "errorbar.capsize": 1.5,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.2,
    "legend.labelspacing": 0.35,
    "legend.borderaxespad": 0.4,
    "legend.borderpad": 0.2,
    "figure.constrained_layout.h_pad": 0.05,
    "figure.constrained_layout.w_pad": 0.05,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
}


Arguments = ParamSpec("Arguments")


def styled(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Draw under `STYLE`, whatever the caller's own matplotlib settings are."""

    @wraps(draw)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


def save(figure: Figure, path_without_suffix: str | Path) -> tuple[Path, Path]:
    """Write `figure` as PDF and as 200-dpi PNG; the same figure gives the same bytes."""
    pdf, png = Path(f"{path_without_suffix}.pdf"), Path(f"{path_without_suffix}.png")
    nothing = {"CreationDate": None, "Creator": None, "Producer": None}
    for path, metadata in ((pdf, nothing), (png, {"Software": None})):
        drawn = BytesIO()
        with matplotlib.rc_context(STYLE):
            figure.savefig(drawn, format=path.suffix.removeprefix("."), metadata=metadata)
        write_bytes(path, drawn.getvalue())
    return pdf, png


# Colours ------------------------------------------------------------------------------------------

_VARY_B = LinearSegmentedColormap.from_list("b", ["#5BC0EB", "#1F83C4", "#1D4FA0", "#3A0F5E"])
_VARY_A = LinearSegmentedColormap.from_list("a", ["#F2B134", "#E4741B", "#BE3327", "#7B1145"])
_VARY_BOTH = LinearSegmentedColormap.from_list("a, b", ["#98D45A", "#2FA36B", "#10708A", "#2A2E5C"])
_DARKNESS = {0.0: 0.0, 0.25: 0.0, 0.5: 0.33, 1.0: 0.66, 1.5: 0.9, 2.0: 1.0}  # of one exponent
_DARKNESS_OF_SUM = {0.5: 0.0, 1.0: 0.5, 1.25: 0.75, 2.0: 1.0}  # of a + b, both nonzero
_MARKERS = {0.0: "o", 0.25: "s", 0.5: "^", 1.0: "D", 1.25: "P", 1.5: "v", 2.0: "o"}
_MARKERS_OF_SUM = {0.5: "s", 0.75: "^", 1.0: "D", 1.25: "P", 2.0: "v"}


def _varied(a: float, b: float) -> str:
    """Which exponent a spectrum varies: 'a', 'b', 'both', or 'neither' at the shared corners."""
    if a == b and a in (0, 2):
        return "neither"
    if a == 0 or (a == 2 and b != 0):
        return "b"
    return "a" if b in (0, 2) else "both"


def spectrum_color(a: float, b: float) -> str:
    """The one colour of spectrum (a, b) in every figure.

    Blues vary the teacher's exponent b at fixed a, oranges the input's exponent a at fixed b,
    greens have both exponents nonzero; within a family a larger exponent is darker.  The corners
    (0, 0) and (2, 2), where the families meet, are nearly black.
    """
    varied = _varied(a, b)
    if varied == "neither":
        return INK
    exponent, darkness = (a + b, _DARKNESS_OF_SUM) if varied == "both" else (b, _DARKNESS)
    if varied == "a":
        exponent = a
    colormap = {"a": _VARY_A, "b": _VARY_B, "both": _VARY_BOTH}[varied]
    return to_hex(colormap(float(np.interp(exponent, [*darkness], [*darkness.values()]))))


def spectrum_marker(a: float, b: float) -> str:
    """Marker of spectrum (a, b), by the exponent that its family varies."""
    varied = _varied(a, b)
    if varied == "both":
        return _MARKERS_OF_SUM.get(float(a + b), "X")
    return _MARKERS.get(float(a if varied == "a" else b), "X")


def spectrum_label(a: float, b: float) -> str:
    """'(a, b)' with the exponents' values."""
    return f"({a:g}, {b:g})"


def ordered_colors(count: int) -> list[str]:
    """`count` colours for an ordered quantity (depth, mode), dark to light, legible on white."""
    colormap = matplotlib.colormaps["viridis"]
    return [to_hex(colormap(position)) for position in np.linspace(0.0, 0.8, max(count, 2))[:count]]


# Panels -------------------------------------------------------------------------------------------


def panels(
    rows: int, columns: int, width: float, height: float, **subplots: Any
) -> tuple[Figure, np.ndarray]:
    """A figure of `rows` × `columns` panels, `width` × `height` inches, and its axes in 2-D."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **subplots)


def title(axes: Axes, letter: str, text: str, setting: str = "") -> None:
    """Panel letter in bold and what the panel shows, left; the setting (d, P), right, in grey."""
    axes.set_title(rf"$\mathbf{{({letter})}}$ {text}" if letter else text, loc="left")
    if setting:
        axes.set_title(setting, loc="right", color=GREY, fontsize=7)


def note(figure: Figure, text: str) -> None:
    """What all panels of a figure share, in grey under them."""
    figure.supxlabel(text, fontsize=7, color=GREY)


NOT_RUN = "not run at this scale"


def not_run(axes: Axes) -> None:
    """An empty panel whose runs do not exist at this scale."""
    empty(axes, NOT_RUN)


def empty(axes: Axes, reason: str) -> None:
    """Say in the middle of an empty panel why it is empty."""
    axes.text(
        0.5, 0.5, reason,
        transform=axes.transAxes, ha="center", va="center", color=GREY, style="italic",
    )  # fmt: skip
    axes.tick_params(which="both", bottom=False, left=False, labelbottom=False, labelleft=False)
    axes.spines[:].set_color(FAINT)


def legend_below(axes: Axes, columns: int = 1, heading: str | None = None, **legend: Any) -> Legend:
    """Legend under the panel's x label, where no data can be."""
    offset = ScaledTranslation(0, -29 / 72, axes.figure.dpi_scale_trans)
    return axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0.0), bbox_transform=axes.transAxes + offset,
        ncols=columns, title=heading, borderaxespad=0.0, **legend,
    )  # fmt: skip


# Scales -------------------------------------------------------------------------------------------


def depth_axis(axes: Axes, depths: Iterable[float]) -> None:
    """Logarithmic x axis for depths, with the powers of two (or of four) written out."""
    depths = np.asarray(list(depths), dtype=float)
    low, high = depths.min(), depths.max()
    margin = max((high / low) ** 0.06, 1.15)
    axes.set_xscale("log", base=2)
    axes.set_xlim(low / margin, high * margin)
    octaves = np.arange(np.ceil(np.log2(low)), np.floor(np.log2(high)) + 1)
    written = octaves if len(octaves) <= 5 else octaves[octaves % 2 == 0]
    axes.xaxis.set_major_locator(FixedLocator(2.0**written))
    axes.xaxis.set_minor_locator(FixedLocator(2.0**octaves))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda depth, _: f"{depth:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("depth $L$")


def log_ticks(low: float, high: float) -> np.ndarray:
    """Three to six round tick values between `low` and `high` of a logarithmic axis."""
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    inside = decades[(decades >= low) & (decades <= high)]
    if len(inside) >= 3:
        return inside[:: int(np.ceil(len(inside) / 6))]
    for multiples in ((1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 6)):
        ticks = np.sort(np.outer(decades, multiples).ravel())
        ticks = ticks[(ticks >= low) & (ticks <= high)]
        if 3 <= len(ticks) <= 6:
            return ticks
    for intervals in range(3, 8):
        ticks = MaxNLocator(nbins=intervals, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        ticks = ticks[(ticks >= low) & (ticks <= high)]
        if len(ticks) >= 3:
            break
    return ticks


def log_value_axis(axes: Axes) -> None:
    """Logarithmic y axis over the present limits, with round values that fit the range."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    ticks = log_ticks(low, high)
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    decades = np.floor(np.log10(low)), np.ceil(np.log10(high))
    if decades[1] - decades[0] <= 8 and high / low > 5:
        minor = np.outer(10.0 ** np.arange(*decades), np.arange(1, 10)).ravel()
        axes.yaxis.set_minor_locator(FixedLocator(minor[(minor >= low) & (minor <= high)]))
    else:
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    if ticks.max() / ticks.min() >= 100 or ticks.max() < 1e-3 or ticks.max() >= 1e4:
        axes.yaxis.set_major_formatter(LogFormatterMathtext())
    else:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(low, high)


def value_axis(axes: Axes, values: Iterable[float]) -> None:
    """Logarithmic y axis when every value is positive, linear otherwise."""
    if np.min(np.asarray(list(values), dtype=float)) > 0:
        axes.set_yscale("log")
        log_value_axis(axes)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))


def y_length(axes: Axes) -> float:
    """Length of the y axis: in decades if it is logarithmic, else in its units."""
    low, high = axes.get_ylim()
    return float(np.log10(high / low)) if axes.get_yscale() == "log" else high - low


def widen(axes: Axes, length: float) -> None:
    """Make the y axis at least `length` long (see `y_length`) around its middle.

    Flat curves then look flat, instead of filling the panel with their noise.
    """
    missing = (length - y_length(axes)) / 2
    if missing <= 0:
        return
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log":
        axes.set_ylim(low / 10**missing, high * 10**missing)
        log_value_axis(axes)
    else:
        axes.set_ylim(low - missing, high + missing)
