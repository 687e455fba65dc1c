"""Statistics that stand for the paper's qualitative claims, and what each is held to."""

from collections.abc import Mapping
from math import inf

import numpy as np
import pandas as pd

from inverse_depth.tables.curves import depth_curve, keys_of, select

# What each qualitative claim is held to: the smallest and the largest allowed statistic.
CLAIMS = {
    "Figure 6: exponent farthest from one": (0.9, 1.1),
    "Figure 4: largest loss / E[y*^2] at one layer, nonlinear, easy task": (-inf, 1e-3),
    "Figure 4c: attention mass on the matching token at the start": (-inf, 0.1),
    "Figure 4c: attention mass on the matching token at the end": (0.9, inf),
    "Figure 3c: half-loss depth of the last mode over the first, linear": (4.0, inf),
    "Figure 7: half-loss depth of the slowest over the fastest mode, nonlinear": (-inf, 2.0),
    "Figure 5: depth at which linear attention stops improving on top-2": (1.0, 2.0),
    "Figure 13: mean gain of depth below percentile 5": (-inf, 0.0),
    "Figure 13: mean gain of depth above percentile 50": (0.0, inf),
    "Figure 11a: largest relative distance to the fixed-context loss, top-2": (-inf, 0.05),
    "Figure 11b: relative gain from two layers to the deepest, top-16": (-inf, 0.05),
    "Figure 11d: range of m over depth, top-16": (-inf, 0.6),
}

# Linear attention has stopped improving at the first depth this close to its deepest loss.
PLATEAU_REACHED = 0.01


def claim_statistics(
    tables: Mapping[str, pd.DataFrame],
    evaluations: pd.DataFrame,
    extras: Mapping[str, pd.DataFrame],
) -> dict[str, tuple[float, str]]:
    """Statistic and note by claim, for the claims that the runs at hand can test.

    Args:
        tables, evaluations, extras: as in `comparison.compare`.
    """
    return {
        **_exponent_claim(tables.get("figure6_fits")),
        **_easy_claim(evaluations),
        **_attention_claims(extras.get("history")),
        **_mode_claims(extras.get("modes")),
        **_plateau_claim(evaluations),
        **_selection_claims(extras.get("selection")),
        **_context_update_claims(evaluations),
    }


def context_scalars(evaluations: pd.DataFrame) -> pd.Series:
    """m of the top-16 runs by depth, averaged over seeds; at one layer m has no effect."""
    runs = select(evaluations, experiment="context_updates_top16", a=0, b=0)
    return runs[runs["L"] >= 2].groupby("L")["context_scalar"].mean().dropna()


def _exponent_claim(figure6_fits: pd.DataFrame | None) -> dict[str, tuple[float, str]]:
    if figure6_fits is None or not figure6_fits["alpha"].notna().any():
        return {}
    fitted = figure6_fits.dropna(subset="alpha")
    farthest = fitted.loc[(fitted["alpha"] - 1).abs().idxmax()]
    note = f"{_at(farthest)}, of {len(fitted)} spectra fitted"
    return {"Figure 6: exponent farthest from one": (farthest["alpha"], note)}


def _easy_claim(evaluations: pd.DataFrame) -> dict[str, tuple[float, str]]:
    """E[y*^2] = tr(Sigma Omega) on the easy task, whose target is a token's label."""
    runs = select(evaluations, experiment="nonlinear_easy", L=1)
    if runs.empty:
        return {}
    scale = [np.sum(np.arange(1, run.d + 1.0) ** -(run.a + run.b)) for run in runs.itertuples()]
    ratio = runs["loss"] / scale
    worst = runs.loc[ratio.idxmax()]
    spectra = len(keys_of(["a", "b"], runs))
    item = "Figure 4: largest loss / E[y*^2] at one layer, nonlinear, easy task"
    return {item: (ratio.max(), f"{_at(worst)}, of {spectra} spectra")}


def _attention_claims(history: pd.DataFrame | None) -> dict[str, tuple[float, str]]:
    if history is None or history.empty:
        return {}
    runs = select(history, experiment="nonlinear_easy", a=1, b=0, L=1)
    mass = runs.groupby("step")["attention_mass"].mean().dropna()
    if mass.empty:
        return {}
    item = "Figure 4c: attention mass on the matching token at the "
    return {
        f"{item}start": (mass.iloc[0], f"step {mass.index[0]}"),
        f"{item}end": (mass.iloc[-1], f"step {mass.index[-1]}"),
    }


def _mode_claims(modes: pd.DataFrame | None) -> dict[str, tuple[float, str]]:
    """Depth at which half of a mode's loss is gone, compared between modes.

    Linear at (2, 1): of the zero predictor's loss, modes 1, 2, 4, ... 32. Nonlinear, at the
    largest a > 0 run on top-2: of the loss between one layer and the deepest, all modes.
    """
    if modes is None or modes.empty:
        return {}
    claims = {}
    for experiment in ("linear_easy_finite", "linear_easy"):
        losses = _mode_curves(select(modes, experiment=experiment, a=2, b=1))
        losses = losses.loc[:, [mode for mode in (1, 2, 4, 8, 16, 32) if mode in losses]]
        if len(losses) < 2 or losses.shape[1] < 2:
            continue
        depths = [_half_depth(losses[mode] / mode**-3.0) for mode in losses]
        order = "in order" if depths == sorted(depths) else "not in order"
        item = "Figure 3c: half-loss depth of the last mode over the first, linear"
        note = f"{experiment}, modes {losses.columns[0]} to {losses.columns[-1]}, {order}"
        claims[item] = (depths[-1] / depths[0], note)
        break
    runs = select(modes, experiment="nonlinear_top2")
    runs = runs[runs["a"] > 0].sort_values("a")
    if len(runs):
        spectrum = {"a": runs["a"].iloc[-1], "b": runs["b"].iloc[-1]}
        losses = _mode_curves(select(runs, **spectrum))
        if len(losses) >= 3 and losses.index[0] == 1:
            reducible = (losses - losses.iloc[-1]) / (losses.iloc[0] - losses.iloc[-1])
            depths = [_half_depth(reducible[mode]) for mode in reducible]
            item = "Figure 7: half-loss depth of the slowest over the fastest mode, nonlinear"
            claims[item] = (max(depths) / min(depths), f"{_at(spectrum)}, all modes")
    return claims


def _mode_curves(modes: pd.DataFrame) -> pd.DataFrame:
    """Mode losses, averaged over seeds: a row per depth, a column per mode."""
    return modes.pivot_table(index="L", columns="mode", values="loss", aggfunc="mean")


def _half_depth(fraction: pd.Series) -> float:
    """Depth at which the fraction first falls to one half, log-linear in depth between depths.

    The first depth if it is already there, infinite if it never is.
    """
    values, log_depths = fraction.to_numpy(), np.log(fraction.index.to_numpy(dtype=float))
    below = np.flatnonzero(values <= 0.5)
    if not len(below):
        return inf
    i = below[0]
    if i == 0:
        return float(np.exp(log_depths[0]))
    part = (values[i - 1] - 0.5) / (values[i - 1] - values[i])
    return float(np.exp(log_depths[i - 1] + part * (log_depths[i] - log_depths[i - 1])))


def _plateau_claim(evaluations: pd.DataFrame) -> dict[str, tuple[float, str]]:
    runs = select(evaluations, experiment="linear_top2")
    runs = runs[(runs["a"] == 0) | (runs["b"] == 0)]
    reached = {}
    for spectrum in keys_of(["a", "b"], runs):
        curve = depth_curve(runs, "linear_top2", **spectrum)
        if len(curve.depths) >= 3:
            close = curve.loss <= (1 + PLATEAU_REACHED) * curve.loss[-1]
            reached[_at(spectrum)] = curve.depths[np.argmax(close)]
    if not reached:
        return {}
    latest = max(reached, key=reached.get)
    item = "Figure 5: depth at which linear attention stops improving on top-2"
    return {item: (reached[latest], f"latest at {latest}, of {len(reached)} spectra")}


def _selection_claims(selection: pd.DataFrame | None) -> dict[str, tuple[float, str]]:
    """Q_1(q) - Q_L(q) (equation 91) at (0, 0), L the deepest up to 256."""
    if selection is None or selection.empty:
        return {}
    runs = select(selection, experiment="nonlinear_top2", a=0, b=0)
    runs = runs[runs["L"] <= 256]
    quantiles = runs.pivot_table(
        index="percentile", columns="L", values="selection_loss", aggfunc="mean"
    )
    if 1 not in quantiles or quantiles.shape[1] < 2:
        return {}
    deepest = quantiles.columns.max()
    gain = quantiles[1] - quantiles[deepest]
    note = f"L = 1 minus L = {deepest:g}"
    return {
        "Figure 13: mean gain of depth below percentile 5": (gain.loc[:5].mean(), note),
        "Figure 13: mean gain of depth above percentile 50": (gain.loc[50:].mean(), note),
    }


def _context_update_claims(evaluations: pd.DataFrame) -> dict[str, tuple[float, str]]:
    claims = {}
    isotropic = {"a": 0, "b": 0}
    moving = depth_curve(evaluations, "context_updates_top2", **isotropic)
    fixed = depth_curve(evaluations, "nonlinear_top2", **isotropic)
    common = np.intersect1d(moving.depths, fixed.depths)
    common = common[common >= 2]  # at one layer the two models are the same
    if len(common):
        losses = [curve.loss[np.isin(curve.depths, common)] for curve in (moving, fixed)]
        distance = np.abs(losses[0] / losses[1] - 1)
        item = "Figure 11a: largest relative distance to the fixed-context loss, top-2"
        claims[item] = (distance.max(), f"at L = {common[distance.argmax()]:g}")
    wide = depth_curve(evaluations, "context_updates_top16", **isotropic).between(2)
    if len(wide.depths) >= 2:
        note = f"from L = {wide.depths[0]:g} to {wide.depths[-1]:g}"
        item = "Figure 11b: relative gain from two layers to the deepest, top-16"
        claims[item] = (1 - wide.loss[-1] / wide.loss[0], note)
    scalars = context_scalars(evaluations)
    if len(scalars) >= 2:
        note = f"from L = {scalars.index[0]:g} to {scalars.index[-1]:g}"
        item = "Figure 11d: range of m over depth, top-16"
        claims[item] = (float(np.ptp(scalars)), note)
    return claims


def _at(spectrum: Mapping[str, float]) -> str:
    return f"({spectrum['a']:g}, {spectrum['b']:g})"
