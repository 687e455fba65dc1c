"""Nonlinear attention: fits in the deep regime, their gap form, local exponents, sensitivity."""

from math import nan

import numpy as np
import pandas as pd

from inverse_depth import fits, published
from inverse_depth.fits import FitSettings
from inverse_depth.tables.curves import (
    NOT_RUN,
    depth_curve,
    joined,
    keys_of,
    listed,
    lookup,
    replicate_curves,
    select,
)

# What the setting of the paper scale is chosen by: Tables 1 and 5 at (0, 0).
FLOOR_TOLERANCE = 0.03
PUBLISHED_ALPHA = float(lookup(published.table(5), a=0, b=0)["alpha"])

_HOW = ["L0_low", "L0_high", "alpha_low", "alpha_high", "seeds", "d", "P", "fit_depths", "note"]
_FIT = ["L0", "L0_se", "c", "alpha", "alpha_se", "r2"]


def deep_fit(
    evaluations: pd.DataFrame,
    experiment: str,
    settings: FitSettings,
    bootstrap: pd.DataFrame | None = None,
    **where: float,
) -> dict[str, object]:
    """Fit L0 + c L^-alpha, L0 free, to the depths from `settings.deep_from` on.

    Returns:
        L0, L0_se, c, alpha, alpha_se, r2; bootstrap intervals L0_low, L0_high, alpha_low,
        alpha_high; seeds, d, P, fit_depths, note.
    """
    whole = depth_curve(evaluations, experiment, **where)
    curve = whole.between(settings.deep_from)
    fit = settings.fit_deep(whole.depths, whole.loss)
    L0_interval = alpha_interval = (nan, nan)
    replicates = replicate_curves(
        bootstrap, evaluations, experiment, curve.depths, settings.bootstrap_seed, **where
    )
    if fit.ok and replicates is not None:
        drawn = fits.bootstrap_fits(curve.depths, replicates[0], alpha_bounds=settings.alpha_bounds)
        L0_interval = fits.percentile_interval(drawn.L0, settings.interval)
        alpha_interval = fits.percentile_interval(drawn.alpha, settings.interval)
    return {
        **{name: getattr(fit, name) for name in _FIT},
        "L0_low": L0_interval[0],
        "L0_high": L0_interval[1],
        "alpha_low": alpha_interval[0],
        "alpha_high": alpha_interval[1],
        "seeds": whole.seeds,
        "d": whole.d,
        "P": whole.P,
        "fit_depths": listed(fit.depths) if fit.ok else "",
        "note": NOT_RUN if not len(whole.depths) else joined(fit.message, curve.note),
    }


def experiment_fits(
    evaluations: pd.DataFrame,
    experiment: str,
    settings: FitSettings,
    bootstrap: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """`deep_fit` of every spectrum of an experiment: k, a, b and the fit."""
    runs = select(evaluations, experiment=experiment)
    rows = [
        spectrum | deep_fit(evaluations, experiment, settings, bootstrap, **spectrum)
        for spectrum in keys_of(["k", "a", "b"], runs)
    ]
    return pd.DataFrame(rows, columns=["k", "a", "b", *_FIT, *_HOW])


def figure6_fits(
    evaluations: pd.DataFrame, settings: FitSettings, bootstrap: pd.DataFrame | None = None
) -> pd.DataFrame:
    """The fits of Figure 6 (equation 16), the seven spectra of Table 1 on top-2."""
    runs = select(evaluations, experiment="nonlinear_top2")
    rows = [
        spectrum | deep_fit(evaluations, "nonlinear_top2", settings, bootstrap, **spectrum)
        for spectrum in keys_of(["a", "b"], published.table(1), runs)
    ]
    columns = ["a", "b", "L0", "c", "alpha", "alpha_se", "r2", "L0_se", *_HOW]
    return pd.DataFrame(rows, columns=columns)


def table4(
    evaluations: pd.DataFrame, settings: FitSettings, bootstrap: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Table 4: floors and exponents of the mixed top-2 and the top-16 spectra."""
    paper = published.table(4)
    experiments = {2: "nonlinear_top2_mixed", 16: "nonlinear_top16"}
    runs = evaluations[evaluations["experiment"].isin(list(experiments.values()))]
    rows = []
    for key in sorted(keys_of(["k", "a", "b"], paper, runs), key=lambda key: key["k"]):
        paper_row = lookup(paper, **key)
        fit = deep_fit(evaluations, experiments[int(key["k"])], settings, bootstrap, **key)
        values = {f"paper_{name}": paper_row.get(name, nan) for name in ("L0", "alpha", "r2")}
        rows.append(key | fit | values)
    columns = ["k", "a", "b", "L0", "alpha", "alpha_se", "r2"]
    columns += ["paper_L0", "paper_alpha", "paper_r2", "L0_se", "c", *_HOW]
    return pd.DataFrame(rows, columns=columns)


def table5(
    evaluations: pd.DataFrame, settings: FitSettings, bootstrap: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Table 5: L0 - C_L = c L^-alpha (equations 92-93), L0 fixed at our own unrounded fit."""
    paper = published.table(5)
    runs = select(evaluations, experiment="nonlinear_top2")
    rows = []
    for spectrum in keys_of(["a", "b"], paper, runs):
        paper_row = lookup(paper, **spectrum)
        values = {f"paper_{name}": paper_row.get(name, nan) for name in ("alpha", "r2")}
        rows.append(spectrum | _gap_fit(evaluations, settings, bootstrap, spectrum) | values)
    columns = ["a", "b", "alpha", "alpha_se", "r2", "paper_alpha", "paper_r2", "L0", "c"]
    columns += ["alpha_low", "alpha_high", "seeds", "d", "P", "fit_depths", "note"]
    return pd.DataFrame(rows, columns=columns)


def _gap_fit(evaluations, settings, bootstrap, spectrum) -> dict[str, object]:
    loss_fit = deep_fit(evaluations, "nonlinear_top2", settings, **spectrum)
    curve = depth_curve(evaluations, "nonlinear_top2", **spectrum)
    curve = curve.between(max(settings.deep_from, 2))  # C_L needs two layers
    fit = fits.fit_gap(curve.depths, curve.shared_error, loss_fit["L0"], settings.alpha_bounds)
    interval = (nan, nan)
    replicates = replicate_curves(
        bootstrap,
        evaluations,
        "nonlinear_top2",
        curve.depths,
        settings.bootstrap_seed,
        **spectrum,
    )
    if fit.ok and replicates is not None:
        losses, shared_error = replicates
        floors = fits.bootstrap_fits(curve.depths, losses, alpha_bounds=settings.alpha_bounds).L0
        gaps = floors[:, None] - shared_error
        drawn = fits.bootstrap_fits(
            curve.depths, gaps, floor=0.0, alpha_bounds=settings.alpha_bounds
        )
        interval = fits.percentile_interval(drawn.alpha, settings.interval)
    missing_floor = not np.isfinite(loss_fit["L0"])
    return {
        "alpha": fit.alpha,
        "alpha_se": fit.alpha_se,
        "r2": fit.r2,
        "c": fit.c,
        "L0": loss_fit["L0"],
        "alpha_low": interval[0],
        "alpha_high": interval[1],
        "seeds": loss_fit["seeds"],
        "d": loss_fit["d"],
        "P": loss_fit["P"],
        "fit_depths": listed(fit.depths) if fit.ok else "",
        "note": loss_fit["note"] if missing_floor else joined(fit.message, curve.note),
    }


def local_exponents(
    evaluations: pd.DataFrame,
    experiment: str,
    settings: FitSettings,
    bootstrap: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Exponent between successive depths, the floor being the fit of the deep regime.

    Its bootstrap interval includes the floor's uncertainty: every replicate fits its own.

    Returns:
        k, a, b, shallow, deep (the two depths), exponent, low, high, L0, note; a row per
        spectrum and pair of depths, and a single row with a note where there is no floor.
    """
    rows = []
    runs = select(evaluations, experiment=experiment)
    for spectrum in keys_of(["k", "a", "b"], runs):
        curve = depth_curve(evaluations, experiment, **spectrum)
        fit = deep_fit(evaluations, experiment, settings, **spectrum)
        row = spectrum | {"L0": fit["L0"], "note": fit["note"]}
        if not np.isfinite(fit["L0"]):
            rows.append(row)
            continue
        exponents = fits.local_exponents(curve.depths, curve.loss, fit["L0"])
        low, high = np.full((2, len(exponents)), nan)
        replicates = replicate_curves(
            bootstrap, evaluations, experiment, curve.depths, settings.bootstrap_seed, **spectrum
        )
        if replicates is not None:
            deep = curve.depths >= settings.deep_from
            floors = fits.bootstrap_fits(
                curve.depths[deep], replicates[0][:, deep], alpha_bounds=settings.alpha_bounds
            ).L0
            drawn = fits.local_exponents(curve.depths, replicates[0], floors)
            low, high = np.transpose(
                [fits.percentile_interval(values, settings.interval) for values in drawn.T]
            )
        for i, exponent in enumerate(exponents):
            pair = {"shallow": curve.depths[i], "deep": curve.depths[i + 1]}
            rows.append(row | pair | {"exponent": exponent, "low": low[i], "high": high[i]})
    columns = ["k", "a", "b", "shallow", "deep", "exponent", "low", "high", "L0", "note"]
    return pd.DataFrame(rows, columns=columns)


def training_sensitivity(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Loss and decomposition of the experiment `sensitivity` by how a run is trained.

    `L0` and `alpha` are those of the law through the three depths of a setting. The paper scale
    trains as the setting does whose alpha is nearest to the published one, of those whose L0 is
    within the tolerance of Table 1 (`chosen`).

    Seeds are averaged, and the standard error joins context error and scatter between seeds.
    """
    factors = ["N", "encoder", "init", "teacher", "learning_rate"]
    where = ["k", "a", "b", "d", "P", "steps"]
    runs = select(evaluations, experiment="sensitivity")
    rows = []
    for setting in keys_of([*factors, *where], runs):
        curve = depth_curve(runs, "sensitivity", **setting)
        three = len(curve.depths) == 3
        L0, alpha = fits.law_through(curve.depths, curve.loss) if three else (nan, nan)
        for i, L in enumerate(curve.depths):
            values = {
                name: getattr(curve, name)[i]
                for name in ("loss", "loss_se", "shared_error", "disagreement")
            }
            how = {"L": int(L), "seeds": curve.seeds, "note": curve.between(L, L).note}
            rows.append(setting | values | how | {"L0": L0, "alpha": alpha})
    columns = ["N", "init", "teacher", "learning_rate", "L"]
    columns += ["loss", "loss_se", "shared_error", "disagreement", "encoder", "L0", "alpha"]
    frame = pd.DataFrame(rows, columns=[*columns, *where, "seeds", "note"])
    near = (frame["L0"] / published.isotropic_floor(2) - 1).abs() <= FLOOR_TOLERANCE
    distance = (frame["alpha"] - PUBLISHED_ALPHA).abs().where(near)
    frame["chosen"] = distance.notna() & (distance == distance.min())
    return frame.sort_values([*where, *factors, "L"], ignore_index=True)
