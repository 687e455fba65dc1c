"""Floors of both kinds of attention side by side: Table 1, matched dimensions, calibration."""

from math import nan

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
    select,
)
from inverse_depth.tables.nonlinear import deep_fit


def linear_floor(
    evaluations: pd.DataFrame, experiment: str, settings: FitSettings, **where: float
) -> dict[str, object]:
    """Floor of linear attention on top-k: fitted where the fit determines it, else the plateau.

    The fit takes every depth. It counts if it succeeds and the standard error of its L0 is at
    most `settings.plateau_identifiable` of it; otherwise L0 is the mean over the plateau.

    Returns:
        L0, L0_se, method ("fit", "plateau mean" or empty), fit_depths, d, P, note.
    """
    curve = depth_curve(evaluations, experiment, **where)
    row = {"L0": nan, "L0_se": nan, "method": "", "fit_depths": "", "d": curve.d, "P": curve.P}
    if not len(curve.depths):
        return row | {"note": NOT_RUN}
    fit = fits.fit_power_law(curve.depths, curve.loss, alpha_bounds=settings.alpha_bounds)
    if fit.ok and fit.L0_se <= settings.plateau_identifiable * fit.L0:
        found = {"L0": fit.L0, "L0_se": fit.L0_se, "fit_depths": listed(fit.depths)}
        return row | found | {"method": "fit", "note": curve.note}
    reason = fit.message or f"floor known to {fit.L0_se / fit.L0:.1%} only"
    start = settings.plateau_start(where["a"])
    mean = fits.plateau(curve.depths, curve.loss, start, curve.loss_se)
    return row | {
        "L0": mean.loss,
        "L0_se": mean.se,
        "method": "" if mean.message else "plateau mean",
        "fit_depths": listed(mean.depths),
        "note": joined(
            f"no fit: {reason}",
            mean.message,
            curve.between(start).note if mean.depths else "",
        ),
    }


def table1(evaluations: pd.DataFrame, settings: FitSettings) -> pd.DataFrame:
    """Table 1: fitted floors on top-2, each model at the dimensions of its own experiment."""
    paper = published.table(1)
    runs = select(evaluations, experiment="nonlinear_top2")
    rows = []
    for spectrum in keys_of(["a", "b"], paper, runs):
        models = {
            "nonlinear": deep_fit(evaluations, "nonlinear_top2", settings, **spectrum),
            "linear": linear_floor(evaluations, "linear_top2", settings, **spectrum),
        }
        row = dict(spectrum)
        for model, floor in models.items():
            paper_L0 = lookup(paper, **spectrum).get(f"{model}_L0", nan)
            row |= {
                f"{model}_L0": floor["L0"],
                f"{model}_L0_se": floor["L0_se"],
                f"paper_{model}_L0": paper_L0,
                f"{model}_deviation": floor["L0"] / paper_L0 - 1,
                f"{model}_d": floor["d"],
                f"{model}_P": floor["P"],
                f"{model}_depths": floor["fit_depths"],
                f"{model}_note": floor["note"],
            }
        row["linear_method"] = models["linear"]["method"]
        rows.append(row)
    columns = ["a", "b", "nonlinear_L0", "nonlinear_L0_se", "linear_L0", "linear_L0_se"]
    columns += ["paper_nonlinear_L0", "paper_linear_L0", "nonlinear_deviation", "linear_deviation"]
    columns += ["linear_method", "nonlinear_d", "nonlinear_P", "linear_d", "linear_P"]
    columns += ["nonlinear_depths", "linear_depths", "nonlinear_note", "linear_note"]
    return pd.DataFrame(rows, columns=columns)


def table1_matched(evaluations: pd.DataFrame, settings: FitSettings) -> pd.DataFrame:
    """Table 1 with both models at the same dimensions; a row per (d, P) that both have.

    Where the nonlinear floor cannot be fitted, the loss of the deepest model stands in its
    place, an upper bound, and `nonlinear_method` says so.
    """
    top2 = evaluations[(evaluations["k"] == 2) & (evaluations["task"] == "top_k")]
    experiments = {
        "nonlinear": ["nonlinear_top2", "nonlinear_matched"],
        "linear": ["linear_top2", "linear_matched"],
    }
    runs = {model: top2[top2["experiment"].isin(names)] for model, names in experiments.items()}
    linear_sizes = keys_of(["d", "P"], runs["linear"])
    sizes = [size for size in keys_of(["d", "P"], runs["nonlinear"]) if size in linear_sizes]
    rows = []
    for size in sorted(sizes, key=lambda size: size["d"]):
        here = {model: select(frame, **size) for model, frame in runs.items()}
        spectra = keys_of(["a", "b"], published.table(1), here["nonlinear"])
        rows += [_matched_row(here, spectrum, size, settings) for spectrum in spectra]
    columns = ["a", "b", "d", "P", "nonlinear_L0", "linear_L0", "ratio"]
    columns += ["nonlinear_L0_se", "linear_L0_se", "nonlinear_method", "linear_method"]
    columns += ["nonlinear_note", "linear_note"]
    return pd.DataFrame(rows, columns=columns)


def _matched_row(here, spectrum, size, settings) -> dict[str, object]:
    floors = {}
    for model, runs in here.items():
        names = select(runs, **spectrum)["experiment"].unique()
        if len(names) > 1:
            raise ValueError(f"{' and '.join(names)} both ran {spectrum} at {size}; expected one")
        name = names[0] if len(names) else ""
        find = _nonlinear_floor if model == "nonlinear" else linear_floor
        floors[model] = find(runs, name, settings, **spectrum)
    return {
        **spectrum,
        **size,
        **{f"{model}_{name}": floors[model][name] for model in floors for name in _FLOOR},
        "ratio": floors["linear"]["L0"] / floors["nonlinear"]["L0"],
    }


_FLOOR = ("L0", "L0_se", "method", "note")


def _nonlinear_floor(evaluations, experiment, settings, **where) -> dict[str, object]:
    fit = deep_fit(evaluations, experiment, settings, **where)
    curve = depth_curve(evaluations, experiment, **where)
    if fit["fit_depths"] or not len(curve.depths):
        return fit | {"method": "fit" if fit["fit_depths"] else ""}
    method = f"loss at L = {curve.depths[-1]:g}, an upper bound"
    return fit | {"L0": curve.loss[-1], "L0_se": curve.loss_se[-1], "method": method}


def calibration(evaluations: pd.DataFrame, settings: FitSettings) -> pd.DataFrame:
    """Nonlinear floors at (0, 0) by context length P, beside the paper's for the same k.

    The paper's top-16 floor at (0, 0) is derived from the one at (0, 0.25).
    """
    rows = []
    for k, experiment in {2: "calibration_top2", 16: "calibration_top16"}.items():
        runs = select(evaluations, experiment=experiment, k=k, a=0, b=0)
        for size in sorted(keys_of(["P"], runs), key=lambda size: size["P"]):
            fit = deep_fit(runs, experiment, settings, **size)
            curve = depth_curve(runs, experiment, **size)
            deepest = {"deepest": int(curve.depths[-1]), "deepest_loss": curve.loss[-1]}
            paper_L0 = published.isotropic_floor(k)
            deviation = {"paper_L0": paper_L0, "deviation": fit["L0"] / paper_L0 - 1}
            rows.append({"k": k} | fit | size | deepest | deviation)
    columns = ["k", "P", "L0", "L0_se", "paper_L0", "deviation", "alpha", "alpha_se", "r2"]
    columns += ["deepest", "deepest_loss", "seeds", "d", "fit_depths", "note"]
    return pd.DataFrame(rows, columns=columns)
