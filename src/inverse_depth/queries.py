"""What a researcher asks at the command line first: the fits of an experiment, a linear floor."""

import numpy as np
import pandas as pd

from inverse_depth import tables
from inverse_depth.fits import FitSettings, fit_power_law
from inverse_depth.theory.floor import monte_carlo_floor


def fit_experiment(
    evaluations: pd.DataFrame, experiment: str, settings: FitSettings
) -> pd.DataFrame:
    """Power laws of loss against depth, a row a spectrum: k, a, b, the fit, its depths, a note.

    On the easy task the floor is zero (eq 88-89); on top-k it is fitted over the deep regime
    (eq 16).

    Raises:
        ValueError: where runs of one spectrum differ in more than depth and seed.
    """
    rows = evaluations[evaluations["experiment"] == experiment]
    if not (rows["task"] == "easy").all():
        frame = tables.experiment_fits(evaluations, experiment, settings)
        columns = ["k", "a", "b", "L0", "L0_se", "c", "alpha", "alpha_se", "r2"]
        return frame[[*columns, "fit_depths", "note"]]
    found = []
    for a, b in dict.fromkeys(zip(rows["a"], rows["b"], strict=True)):
        curve = tables.depth_curve(evaluations, experiment, a=a, b=b)
        used = curve.between(*settings.easy_range(a, b))
        fit = fit_power_law(used.depths, used.loss, floor=0.0)
        numbers = {name: getattr(fit, name) for name in ("c", "alpha", "alpha_se", "r2")}
        depths = " ".join(str(depth) for depth in fit.depths) if fit.ok else ""
        notes = "; ".join(filter(None, (fit.message, used.note)))
        found.append({"a": a, "b": b} | numbers | {"fit_depths": depths, "note": notes})
    return pd.DataFrame(found)


def floor_by_degree(
    k: int,
    a: float,
    b: float,
    *,
    d: int,
    P: int,
    degree: int,
    contexts: int,
    blocks: int,
    seed: int,
) -> pd.DataFrame:
    """The lowest loss of linear attention on top-k (eq 54), a row a polynomial degree.

    Columns: degree; sigma, sigma_se with polynomials in Sigma, as the paper's theory has it;
    s, s_se with polynomials in the covariance S of the context, which is what a model sees.

    Raises:
        ValueError: naming the value that is not allowed.
    """
    floor = monte_carlo_floor(
        d,
        P,
        a,
        [(b, k)],
        degree=degree,
        contexts=contexts,
        generator=np.random.default_rng(seed),
        blocks=blocks,
    )[0]
    return pd.DataFrame(
        {
            "degree": range(1, degree + 1),
            "sigma": floor.population,
            "sigma_se": floor.population_se,
            "s": floor.finite_context,
            "s_se": floor.finite_context_se,
        }
    )
