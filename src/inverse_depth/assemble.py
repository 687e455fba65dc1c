"""From files to tables: what each table passes to its pure function."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pandas as pd

from inverse_depth import comparison, published, tables
from inverse_depth.fits import FitSettings, PowerLawFit, fit_identity
from inverse_depth.frames import Results
from inverse_depth.paths import Paths
from inverse_depth.theory import characteristic_depths

if TYPE_CHECKING:
    from inverse_depth.settings import Scale

Fits = Mapping[tuple[float, float], PowerLawFit]


class Sources:
    """What products of one scale are made from, read when asked for."""

    def __init__(self, scale: "Scale", results: Results, paths: Paths):
        self.scale = scale
        self.results = results
        self.paths = paths
        self.fits = FitSettings(
            deep_from=scale.fits.deep_from,
            easy_depths=scale.fits.easy_depths,
            plateau_from=scale.fits.plateau_from,
            plateau_from_steep=scale.fits.plateau_from_steep,
        )
        self.evaluations = results.evaluations()

    def theory(self, name: str) -> pd.DataFrame:
        return pd.read_csv(self.paths.theory(name))

    def table(self, name: str) -> pd.DataFrame:
        return pd.read_csv(self.paths.table(name))

    def floors(self) -> pd.DataFrame:
        """The floors at the highest polynomial degree."""
        frame = self.theory("floors")
        return frame[frame["degree"] == frame["degree"].max()]

    def slopes(self) -> pd.DataFrame:
        """Exponents of the reference curves, a row a spectrum."""
        columns = ["a", "b", "constrained_slope", "free_slope", "finite_context_slope"]
        return self.theory("references")[columns].drop_duplicates()

    def spectra(self, experiment: str) -> list[tuple[float, float]]:
        rows = self.evaluations[self.evaluations["experiment"] == experiment]
        return list(dict.fromkeys(zip(rows["a"], rows["b"], strict=True)))

    def deep_fits(self, experiment: str) -> Fits:
        """Fits with a free floor over the deep regime (eq 16), by spectrum."""
        fits = {}
        for a, b in self.spectra(experiment):
            curve = tables.depth_curve(self.evaluations, experiment, a=a, b=b)
            fits[a, b] = self.fits.fit_deep(curve.depths, curve.loss)
        return fits

    def easy_fits(self, experiment: str) -> Fits:
        """Fits without a floor over the fitted depths of the easy task, by spectrum."""
        fits = {}
        for a, b in self.spectra(experiment):
            curve = tables.depth_curve(self.evaluations, experiment, a=a, b=b)
            fits[a, b] = self.fits.fit_easy(a, b, curve.depths, curve.loss)
        return fits


def _characteristic_depths(sources: Sources) -> pd.DataFrame:
    """Appendix A.4: decay depth of each mode, and the exponent that they imply (eq 55-56)."""
    modes = sources.results.modes()
    rows = []
    for experiment in ("linear_easy_finite", "linear_easy"):
        fits = sources.easy_fits(experiment)
        for (a, b), fit in fits.items():
            here = modes[
                (modes["experiment"] == experiment) & (modes["a"] == a) & (modes["b"] == b)
            ]
            losses = here.groupby(["mode", "L"])["loss"].mean().unstack("L")
            weights = losses.index.to_numpy(float) ** -(a + b)
            found = characteristic_depths(losses.columns, losses.to_numpy(), weights)
            rows.append(
                {
                    "experiment": experiment,
                    "a": a,
                    "b": b,
                    "modes_used": len(found.used),
                    "beta": found.beta,
                    "implied_alpha": found.aggregate_exponent,
                    "implied_alpha_se": found.aggregate_exponent_se,
                    "alpha": fit.alpha,
                    "alpha_se": fit.alpha_se,
                }
            )
    columns = ["experiment", "a", "b", "modes_used", "beta", "implied_alpha", "implied_alpha_se"]
    return pd.DataFrame(rows, columns=[*columns, "alpha", "alpha_se"])


def context_mixing(sources: Sources) -> pd.DataFrame:
    """Identity weight rho of A^1, averaged over seeds, and the R^2 of its fit (eq 83-84)."""
    rows = []
    for k, elements in sources.results.attention().groupby("k"):
        matrix = elements.pivot_table(index="row", columns="column", values="weight")
        rho, r2 = fit_identity(matrix.to_numpy())
        paper = {name: published.scalar(f"rho_top{k}{key}") for name, key in PAPER_RHO[k].items()}
        rows.append({"k": k, "rho": rho, "r2": r2} | paper)
    return pd.DataFrame(rows, columns=["k", "rho", "r2", "paper_rho", "paper_r2"])


PAPER_RHO = {
    2: {"paper_rho": "", "paper_r2": "_r2_lower_bound"},
    16: {"paper_rho": "", "paper_r2": "_r2"},
}


def _generalized_fits(sources: Sources) -> pd.DataFrame:
    frames = []
    for experiment in dict.fromkeys(sources.evaluations["experiment"]):
        fits = tables.experiment_fits(sources.evaluations, experiment, sources.fits)
        frames.append(fits.assign(experiment=experiment))
    if not frames:
        return pd.DataFrame(columns=["experiment", "k", "a", "b"])
    frame = pd.concat(frames, ignore_index=True)
    return frame[["experiment", *[name for name in frame if name != "experiment"]]]


def _local_exponents(sources: Sources) -> pd.DataFrame:
    frames = [
        tables.local_exponents(
            sources.evaluations, experiment, sources.fits, sources.results.bootstrap()
        ).assign(experiment=experiment)
        for experiment in ("nonlinear_top2", "deep")
    ]
    return pd.concat(frames, ignore_index=True)


TABLES: dict[str, Callable[[Sources], pd.DataFrame]] = {
    "figure6_fits": lambda s: tables.figure6_fits(s.evaluations, s.fits, s.results.bootstrap()),
    "table1": lambda s: tables.table1(s.evaluations, s.fits),
    "table2": lambda s: tables.table2(s.evaluations, s.fits, s.slopes()),
    "table3": lambda s: tables.table3(s.evaluations, s.floors(), s.fits),
    "table3_theory": lambda s: tables.table3_theory(s.floors()),
    "table4": lambda s: tables.table4(s.evaluations, s.fits, s.results.bootstrap()),
    "table5": lambda s: tables.table5(s.evaluations, s.fits, s.results.bootstrap()),
    "table1_matched": lambda s: tables.table1_matched(s.evaluations, s.fits),
    "training_sensitivity": lambda s: tables.training_sensitivity(s.evaluations),
    "calibration": lambda s: tables.calibration(s.evaluations, s.fits),
    "predictable_component": lambda s: tables.predictable_component(s.theory("predictable")),
    "characteristic_depths": _characteristic_depths,
    "local_exponents": _local_exponents,
    "generalized_fits": _generalized_fits,
    "context_mixing": context_mixing,
}


DATA: dict[str, Callable[[Sources], pd.DataFrame]] = {
    "evaluations": lambda s: s.evaluations,
    "modes": lambda s: s.results.modes(),
    "selection": lambda s: s.results.selection(),
}


def compare(sources: Sources, names: tuple[str, ...]) -> pd.DataFrame:
    """The comparison with every published number, from the named tables."""
    extras = {
        "history": sources.results.history(),
        "modes": sources.results.modes(),
        "selection": sources.results.selection(),
        "attention": sources.results.attention(),
    }
    made = {name: sources.table(name) for name in names}
    return comparison.compare(made, sources.evaluations, extras)
