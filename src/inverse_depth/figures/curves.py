"""A quantity against depth, spectrum by spectrum: the panel that most figures are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from . import style

if TYPE_CHECKING:
    from ..fits import PowerLawFit

DECADES = 0.2  # least span of a term of the decomposition, so that a constant looks like one

Spectrum = tuple[float, float]
Fits = Mapping[Spectrum, "PowerLawFit"]


def of_experiment(frame: pd.DataFrame, *experiments: str) -> pd.DataFrame:
    """Rows of the named experiments; an empty frame may lack columns."""
    return frame[frame["experiment"].isin(experiments)] if len(frame) else frame


def of_spectrum(frame: pd.DataFrame, a: float, b: float) -> pd.DataFrame:
    """Rows of spectrum (a, b); an empty frame may lack columns."""
    return frame[(frame["a"] == a) & (frame["b"] == b)] if len(frame) else frame


def spectra(frame: pd.DataFrame) -> list[Spectrum]:
    """The spectra (a, b) in `frame`, in ascending order."""
    return sorted({(float(a), float(b)) for a, b in zip(frame["a"], frame["b"], strict=True)})


def against_depth(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Mean of `column` over seeds at each depth, with its error bar.

    Returns columns L, value, error, ascending in L, without the depths at which `column` is
    missing.  The error is the standard deviation over seeds where there are several; with one
    seed it is `loss_se` for the loss and missing for any other quantity.
    """
    rows = rows.dropna(subset=[column])
    grouped = rows.groupby("L")[column]
    curve = pd.DataFrame({"value": grouped.mean(), "error": grouped.std(ddof=1)})
    if column == "loss":
        curve["error"] = curve["error"].fillna(rows.groupby("L")["loss_se"].mean())
    return curve.rename_axis("L").reset_index().astype({"L": float})


def setting(rows: pd.DataFrame) -> str:
    """'d = …, P = …' of the rows, for the corner of a panel; empty for no rows."""
    sizes = rows[["d", "P"]].drop_duplicates()
    if len(sizes) == 0:
        return ""
    if len(sizes) > 1:
        return "several $d$, $P$"
    d, P = sizes.iloc[0]
    return f"$d={d:g}$, $P={'∞' if np.isinf(P) else f'{P:g}'}$"


def drawing_note(rows: pd.DataFrame) -> str:
    """What filled symbols and error bars mean in a figure of these rows."""
    seeds = rows.groupby(["experiment", "a", "b", "L"])["seed"].nunique()
    if (seeds > 1).all():
        bars = "standard deviation over seeds"
    elif (seeds == 1).all():
        bars = "standard error over contexts"
    else:
        bars = "standard deviation over seeds where several, else standard error over contexts"
    return f"filled: depths in the fit; bars: {bars}"


def uncertain(value: float, se: float) -> str:
    """'value ± se' to the two to four decimals that the standard error supports."""
    if not np.isfinite(se) or se <= 0:
        return f"{value:.2f}"
    decimals = int(np.clip(np.ceil(-np.log10(se)), 2, 4))
    return f"{value:.{decimals}f} ± {se:.{decimals}f}"


def exponent_text(fit: PowerLawFit | None) -> str:
    """Exponent of a fit with its standard error, or that there is none."""
    if fit is None:
        return "not fitted"
    return uncertain(fit.alpha, fit.alpha_se) if fit.ok else "fit failed"


def draw_curve(
    axes: Axes,
    curve: pd.DataFrame,
    color: str,
    marker: str = "o",
    fit: PowerLawFit | None = None,
    name: str = "",
) -> Line2D:
    """Points with error bars, joined by a faint line, and the dashed curve of `fit`.

    Depths that entered the fit are filled, all others hollow; without a fit every point is filled.
    Over the fitted depths the curve takes the place of the joining line.  `name` becomes the
    artists' group id.  Returns the handle for a legend.
    """
    depths, values = curve["L"].to_numpy(), curve["value"].to_numpy()
    fitted = np.isin(depths, fit.depths) if fit is not None else np.ones(len(depths), dtype=bool)
    joined = values
    if fit is not None and fit.ok:
        within = (depths > min(fit.depths)) & (depths < max(fit.depths))
        joined = np.where(within, np.nan, values)
    axes.plot(depths, joined, color=color, linewidth=0.7, alpha=0.45)
    axes.errorbar(
        depths, values, yerr=curve["error"].fillna(0.0),
        fmt="none", ecolor=color, elinewidth=0.8, gid=f"{name} errors",
    )  # fmt: skip
    points = {"linestyle": "none", "marker": marker, "color": color}
    other = f"{name} points not fitted"
    axes.plot(depths[~fitted], values[~fitted], markerfacecolor="white", gid=other, **points)
    axes.plot(depths[fitted], values[fitted], gid=f"{name} points", **points)
    if fit is not None and fit.ok:
        grid = np.geomspace(min(fit.depths), depths.max(), 200)
        axes.plot(grid, fit.predict(grid), "--", color=color, zorder=1.5, gid=f"{name} fit")
    return Line2D([], [], linestyle="--" if fit is not None else "-", marker=marker, color=color)


def draw_floor(axes: Axes, floor: float, color: str) -> None:
    """A published floor: a dotted line across the panel."""
    axes.axhline(floor, linestyle=":", linewidth=0.9, color=color, alpha=0.9, zorder=1, gid="paper")


def loss_panel(
    axes: Axes,
    rows: pd.DataFrame,
    name: Callable[[float, float], str],
    fits: Fits | None = None,
    floors: Mapping[Spectrum, float] | None = None,
    alphas: Mapping[Spectrum, float] | None = None,
    columns: int = 1,
    floors_label: str = "paper's $L_0$",
) -> None:
    """Loss against depth, log-log, a curve a spectrum, with a legend below.

    `name(a, b)` labels a curve; `fits` adds the dashed fits and their exponents, `floors` and
    `alphas` the published floors (dotted) and exponents (in brackets).
    """
    if rows.empty:
        return style.not_run(axes)
    handles, labels = [], []
    for a, b in spectra(rows):
        color = style.spectrum_color(a, b)
        fit = fits.get((a, b)) if fits else None
        curve = against_depth(of_spectrum(rows, a, b), "loss")
        handle = draw_curve(
            axes,
            curve,
            color,
            style.spectrum_marker(a, b),
            fit,
            f"{style.spectrum_label(a, b)} loss",
        )
        if floors and (a, b) in floors:
            draw_floor(axes, floors[a, b], color)
        label = name(a, b)
        if fits:
            label += f": {exponent_text(fit)}"
            if alphas and (a, b) in alphas:
                label += f" [{alphas[a, b]:g}]"
        handles.append(handle)
        labels.append(label)
    style.depth_axis(axes, rows["L"])
    style.log_value_axis(axes)
    axes.set_ylabel("loss $R_L$")
    heading = None
    if fits:
        heading = "fitted $\\alpha$ ± SE" + (" [paper]" if alphas else "")
    if floors:
        handles.append(Line2D([], [], linestyle=":", linewidth=0.9, color=style.GREY))
        labels.append(floors_label)
    style.legend_below(axes, columns, heading, handles=handles, labels=labels)


def quantity_panel(
    axes: Axes,
    rows: pd.DataFrame,
    column: str,
    label: str,
    name: Callable[[float, float], str],
    limits: Mapping[Spectrum, float] | None = None,
    columns: int = 1,
) -> None:
    """`column` of the decomposition against depth, a curve a spectrum.

    `limits` draws the constant that the theory says the curve tends to, as a dashed line.
    """
    rows = rows.dropna(subset=[column])
    if rows.empty:
        return style.not_run(axes)
    handles, labels = [], []
    for a, b in spectra(rows):
        color = style.spectrum_color(a, b)
        curve = against_depth(of_spectrum(rows, a, b), column)
        draw_curve(
            axes, curve, color, style.spectrum_marker(a, b),
            name=f"{style.spectrum_label(a, b)} {column}",
        )  # fmt: skip
        handles.append(Line2D([], [], marker=style.spectrum_marker(a, b), color=color))
        labels.append(name(a, b))
        if limits and (a, b) in limits:
            axes.axhline(limits[a, b], linestyle="--", linewidth=0.9, color=color, zorder=1)
    style.depth_axis(axes, rows["L"])
    style.value_axis(axes, rows[column])
    if axes.get_yscale() == "log":
        style.widen(axes, DECADES)
    axes.set_ylabel(label)
    if limits:
        handles.append(Line2D([], [], linestyle="--", linewidth=0.9, color=style.GREY))
        labels.append("fitted $L_0$")
    style.legend_below(axes, columns, handles=handles, labels=labels)


def published_values(table: pd.DataFrame, column: str, **selection: float) -> dict[Spectrum, float]:
    """`column` of a published table by spectrum, of the rows with the `selection`'s values."""
    for key, value in selection.items():
        table = table[table[key] == value]
    keys = zip(table["a"].astype(float), table["b"].astype(float), strict=True)
    return dict(zip(keys, table[column].astype(float), strict=True))


def fitted_floors(fits: Fits) -> dict[Spectrum, float]:
    """L0 of the fits that succeeded."""
    return {spectrum: fit.L0 for spectrum, fit in fits.items() if fit.ok}


def by_a(a: float, b: float) -> str:
    """Label of a spectrum in a panel that varies a."""
    return f"$a={a:g}$"


def by_b(a: float, b: float) -> str:
    """Label of a spectrum in a panel that varies b."""
    return f"$b={b:g}$"
