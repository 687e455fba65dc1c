"""From files to figures: what each figure passes to its pure function."""

from collections.abc import Callable

from matplotlib.figure import Figure

from inverse_depth import figures, published
from inverse_depth.assemble import Sources, context_mixing


def _figure03(sources: Sources) -> Figure:
    experiment = "linear_easy_finite"
    return figures.figure03(
        sources.evaluations,
        sources.results.modes(),
        sources.easy_fits(experiment),
        sources.theory("references"),
        published.table(2),
        experiment,
    )


def _figure07(sources: Sources) -> Figure:
    """At the first spectrum with a > 0; at a = 0 the collapse is an identity."""
    structured = [s for s in sources.spectra("nonlinear_top2") if s[0] > 0]
    a, b = max(structured, default=(1.0, 0.0))
    modes = sources.results.modes()
    here = modes[(modes["experiment"] == "nonlinear_top2") & (modes["a"] == a) & (modes["b"] == b)]
    fits = {}
    for mode, rows in here.groupby("mode"):
        curve = rows.groupby("L")["loss"].mean()
        fits[int(mode)] = sources.fits.fit_deep(curve.index, curve)
    return figures.figure07(modes, fits, a, b)


def _figure12(sources: Sources) -> Figure:
    return figures.figure12(sources.results.attention(), context_mixing(sources))


def _figure13(sources: Sources) -> Figure:
    selection = sources.results.selection()
    return figures.figure13(selection, int(selection["L"].max()) if len(selection) else 256)


def _local_exponent_figure(sources: Sources, experiment: str) -> Figure:
    local = sources.table("local_exponents")
    local = local[local["experiment"] == experiment]
    fits = sources.deep_fits(experiment)
    return figures.local_exponents(sources.evaluations, fits, local, experiment)


def _sensitivity_figure(sources: Sources) -> Figure:
    training = sources.scale.training
    experiment = sources.scale.experiments.get("nonlinear_top2")
    base = {
        "N": experiment.N if experiment else 0,
        "encoder": experiment.encoder if experiment else "",
        "init": experiment.init if experiment else 0.0,
        "teacher": training.teacher,
        "learning_rate": training.learning_rate,
    }
    floor = published.isotropic_floor(2)
    return figures.training_sensitivity(sources.table("training_sensitivity"), base, floor)


FIGURES: dict[str, Callable[[Sources], Figure]] = {
    "figure01": lambda s: figures.figure01(s.evaluations, "linear_easy_finite"),
    "figure02": lambda s: figures.figure02(s.theory("schematic")),
    "figure03": _figure03,
    "figure04": lambda s: figures.figure04(s.evaluations, s.results.history()),
    "figure05": lambda s: figures.figure05(s.evaluations, published.table(1)),
    "figure06": lambda s: figures.figure06(
        s.evaluations, s.deep_fits("nonlinear_top2"), published.table(1)
    ),
    "figure07": _figure07,
    "figure08": lambda s: figures.figure08(s.theory("geometry")),
    "figure09": lambda s: figures.figure09(s.evaluations, s.deep_fits("single_stream_top2")),
    "figure10": lambda s: figures.figure10(s.evaluations, s.deep_fits("layer_values_top2")),
    "figure11": lambda s: figures.figure11(
        s.evaluations,
        s.deep_fits("context_updates_top2"),
        s.deep_fits("context_updates_top16"),
        published.scalar("context_update_scalar_top16"),
    ),
    "figure12": _figure12,
    "figure13": _figure13,
    "figure14": lambda s: figures.figure14(
        s.evaluations,
        s.deep_fits("nonlinear_top2_mixed"),
        s.deep_fits("nonlinear_top16"),
        published.table(4),
    ),
    "figure_convergence": lambda s: figures.convergence(
        s.evaluations, s.scale.evaluation.convergence_limit
    ),
    "figure_local_exponents": lambda s: _local_exponent_figure(s, "nonlinear_top2"),
    "figure_deep": lambda s: _local_exponent_figure(s, "deep"),
    "figure_table1_matched": lambda s: figures.table1_matched(
        s.table("table1_matched"), published.table(1)
    ),
    "figure_training_sensitivity": _sensitivity_figure,
    "figure_calibration": lambda s: figures.calibration(s.table("calibration")),
}
