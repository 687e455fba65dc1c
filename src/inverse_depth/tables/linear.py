"""Linear attention: exponents of the easy task, plateaus on top-k beside their theory."""

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
)


def table2(
    evaluations: pd.DataFrame, settings: FitSettings, references: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Table 2: exponents of linear attention on the easy task, between zeta and 2 zeta.

    `alpha` is that of the finite context, which is the published comparison; `infinite_alpha`
    that of S = Sigma. zeta = (a + b - 1) / a (equation 40).

    Args:
        references: slopes over the same depths of the repeated-update model and of the optimal
            polynomial in Sigma, and of that in S: a, b, constrained_slope, free_slope,
            finite_context_slope.
    """
    paper = published.table(2)
    runs = evaluations[evaluations["experiment"].isin(["linear_easy_finite", "linear_easy"])]
    rows = []
    for spectrum in keys_of(["a", "b"], paper, runs):
        a, b = spectrum["a"], spectrum["b"]
        zeta = (a + b - 1) / a if a > 0 else nan
        finite = _easy_fit(evaluations, "linear_easy_finite", settings, spectrum)
        infinite = _easy_fit(evaluations, "linear_easy", settings, spectrum)
        reference = lookup(references, **spectrum)
        rows.append(
            {
                **spectrum,
                **finite,
                "zeta": zeta,
                "two_zeta": 2 * zeta,
                "paper_alpha": lookup(paper, **spectrum).get("alpha", nan),
                "infinite_alpha": infinite["alpha"],
                "infinite_alpha_se": infinite["alpha_se"],
                "constrained_reference": reference.get("constrained_slope", nan),
                "free_reference": reference.get("free_slope", nan),
                "finite_context_reference": reference.get("finite_context_slope", nan),
                "infinite_fit_depths": infinite["fit_depths"],
                "infinite_note": infinite["note"],
            }
        )
    columns = ["a", "b", "zeta", "alpha", "alpha_se", "two_zeta", "paper_alpha"]
    columns += ["infinite_alpha", "infinite_alpha_se", "constrained_reference", "free_reference"]
    columns.append("finite_context_reference")
    columns += ["c", "r2", "seeds", "d", "P", "fit_depths", "note"]
    columns += ["infinite_fit_depths", "infinite_note"]
    return pd.DataFrame(rows, columns=columns)


def _easy_fit(evaluations, experiment, settings, spectrum) -> dict[str, object]:
    whole = depth_curve(evaluations, experiment, **spectrum)
    curve = whole.between(*settings.easy_range(**spectrum))
    fit = settings.fit_easy(spectrum["a"], spectrum["b"], whole.depths, whole.loss)
    return {
        **{name: getattr(fit, name) for name in ("c", "alpha", "alpha_se", "r2")},
        "seeds": whole.seeds,
        "d": whole.d,
        "P": whole.P,
        "fit_depths": listed(fit.depths) if fit.ok else "",
        "note": NOT_RUN if not len(whole.depths) else joined(fit.message, curve.note),
    }


def table3(
    evaluations: pd.DataFrame, floors: pd.DataFrame | None, settings: FitSettings
) -> pd.DataFrame:
    """Table 3: Monte Carlo floors of linear attention (equation 54) and the trained plateau.

    `difference` is |measured - theory| / measured, as in the paper.

    Args:
        floors: k, a, b, theory, theory_se (from Sigma), finite_context_floor and its standard
            error (from S), and d, P where known; one row per (k, a, b).
    """
    paper = published.table(3)
    rows = []
    for key in keys_of(["k", "a", "b"], paper, floors):
        floor, paper_row = lookup(floors, **key), lookup(paper, **key)
        curve = depth_curve(evaluations, f"linear_top{key['k']:g}", **key)
        notes = [] if floor else ["theory not computed"]
        if len(curve.depths) and any(
            floor.get(name, value) != value for name, value in (("d", curve.d), ("P", curve.P))
        ):
            notes.append(f"theory left out, it is for d = {floor['d']:g}, P = {floor['P']:g}")
            floor = {}
        start = settings.plateau_start(key["a"])
        measured = fits.plateau(curve.depths, curve.loss, start, curve.loss_se)
        if not len(curve.depths):
            notes.append(f"plateau {NOT_RUN}")
        else:
            notes += [measured.message, curve.between(start).note if measured.depths else ""]
        rows.append(
            {
                **key,
                **{name: floor.get(name, nan) for name in _FLOORS},
                "measured": measured.loss,
                "measured_se": measured.se,
                "difference": abs(measured.loss - floor.get("theory", nan)) / measured.loss,
                "paper_theory": paper_row.get("theory", nan),
                "paper_measured": paper_row.get("measured", nan),
                "d": curve.d if len(curve.depths) else floor.get("d", nan),
                "P": curve.P if len(curve.depths) else floor.get("P", nan),
                "plateau_depths": listed(measured.depths),
                "note": joined(*notes),
            }
        )
    columns = ["k", "a", "b", "theory", "theory_se", "finite_context_floor", "measured"]
    columns += ["difference", "paper_theory", "paper_measured"]
    columns += ["finite_context_floor_se", "measured_se", "d", "P", "plateau_depths", "note"]
    return pd.DataFrame(rows, columns=columns)


_FLOORS = ("theory", "theory_se", "finite_context_floor", "finite_context_floor_se")


def table3_theory(floors: pd.DataFrame | None) -> pd.DataFrame:
    """Theory side of Table 3, which needs no training; deviations in combined standard errors."""
    paper = published.table(3)
    rows = []
    for key in keys_of(["k", "a", "b"], paper, floors):
        floor, paper_row = lookup(floors, **key), lookup(paper, **key)
        row = {name: floor.get(name, nan) for name in (*_FLOORS, "d", "P")}
        row |= {f"paper_{name}": paper_row.get(name, nan) for name in ("theory", "theory_se")}
        combined = np.hypot(row["theory_se"], row["paper_theory_se"])
        row["deviation_in_se"] = (row["theory"] - row["paper_theory"]) / combined
        rows.append(key | row | {"note": "" if floor else NOT_RUN})
    columns = ["k", "a", "b", *_FLOORS, "paper_theory", "paper_theory_se", "deviation_in_se"]
    return pd.DataFrame(rows, columns=[*columns, "d", "P", "note"])


def predictable_component(coefficients: pd.DataFrame) -> pd.DataFrame:
    """Measured coefficient of Sigma q in the conditional mean target against equations 45-46.

    Args:
        coefficients: k, a, b, d, P, measured, measured_se, predicted (gamma / sqrt(tr Sigma^2))
            and validity (2 tr Sigma^4 / (tr Sigma^2)^2, which must be small and grows with a);
            further columns are kept at the end.
    """
    frame = coefficients.assign(deviation=coefficients["measured"] / coefficients["predicted"] - 1)
    columns = ["k", "a", "b", "measured", "measured_se", "predicted", "deviation", "validity"]
    columns += [name for name in frame if name not in columns]
    return frame.sort_values(["k", "a", "b"], ignore_index=True)[columns]
