"""Which products exist and what each is made from: the one place that workflow and CLI ask."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from inverse_depth.paths import Paths
from inverse_depth.run import Run

Kind = Literal["theory", "data", "table", "figure", "comparison"]
_BUILDERS: dict[Kind, str] = {
    "theory": "inverse_depth.theory.artifacts",
    "data": "inverse_depth.frames",
    "table": "inverse_depth.assemble",
    "figure": "inverse_depth.drawing",
    "comparison": "inverse_depth.assemble",
}

FITS = ("fits", "evaluation.convergence_limit")


@dataclass(frozen=True)
class Product:
    """A file that is rebuilt from other files without training.

    Attributes:
        experiments: those whose evaluations it reads; None for every experiment.
        theory, tables: products of those kinds that it reads.
        history: whether it reads the training histories, too.
        settings: keys of the scale that decide it, beside what its files are made from.
    """

    name: str
    kind: Kind
    experiments: tuple[str, ...] | None = ()
    theory: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    history: bool = False
    settings: tuple[str, ...] = FITS

    @property
    def code(self) -> str:
        """The module that builds it."""
        return _BUILDERS[self.kind]


_SEED = "evaluation.seed"
_MONTE_CARLO = (_SEED, *(f"theory.{key}" for key in ("d", "P", "contexts", "blocks", "floors")))
_EASY = tuple(
    f"experiments.{experiment}.{key}"
    for experiment in ("linear_easy_finite", "linear_easy")
    for key in ("spectra", "depths", "d", "P")
)
_TRAINING_FACTORS = (
    "training.teacher",
    "training.learning_rate",
    "experiments.nonlinear_top2.N",
    "experiments.nonlinear_top2.encoder",
    "experiments.nonlinear_top2.init",
)

_PRODUCTS = [
    Product("floors", "theory", settings=(*_MONTE_CARLO, "theory.degree")),
    Product(
        "references",
        "theory",
        settings=(
            _SEED,
            "fits.easy_depths",
            "theory.reference_contexts",
            "theory.blocks",
            *_EASY,
        ),
    ),
    Product("predictable", "theory", settings=_MONTE_CARLO),
    Product("geometry", "theory", settings=(_SEED, "theory.geometry_samples")),
    Product("schematic", "theory", settings=(_SEED,)),
    Product("evaluations", "data", None),
    Product("modes", "data", ("linear_easy", "linear_easy_finite", "nonlinear_top2")),
    Product("selection", "data", ("nonlinear_top2",)),
    Product("figure6_fits", "table", ("nonlinear_top2",)),
    Product("table1", "table", ("nonlinear_top2", "linear_top2")),
    Product("table2", "table", ("linear_easy_finite", "linear_easy"), ("references",)),
    Product("table3", "table", ("linear_top2", "linear_top16"), ("floors",)),
    Product("table3_theory", "table", (), ("floors",)),
    Product("table4", "table", ("nonlinear_top2_mixed", "nonlinear_top16")),
    Product("table5", "table", ("nonlinear_top2",)),
    Product(
        "table1_matched",
        "table",
        ("nonlinear_top2", "nonlinear_matched", "linear_top2", "linear_matched"),
    ),
    Product("training_sensitivity", "table", ("sensitivity",)),
    Product("calibration", "table", ("calibration_top2", "calibration_top16")),
    Product("predictable_component", "table", (), ("predictable",)),
    Product("characteristic_depths", "table", ("linear_easy", "linear_easy_finite")),
    Product("local_exponents", "table", ("nonlinear_top2", "deep")),
    Product(
        "generalized_fits",
        "table",
        (
            "single_stream_top2",
            "layer_values_top2",
            "context_updates_top2",
            "context_updates_top16",
            "looped",
            "looped_single_stream",
        ),
    ),
    Product("context_mixing", "table", ("context_updates_top2", "context_updates_top16")),
    Product(
        "figure01",
        "figure",
        ("linear_easy_finite", "nonlinear_easy", "linear_top2", "nonlinear_top2"),
    ),
    Product("figure02", "figure", (), ("schematic",)),
    Product("figure03", "figure", ("linear_easy_finite",), ("references",)),
    Product("figure04", "figure", ("nonlinear_easy",), history=True),
    Product("figure05", "figure", ("linear_top2",)),
    Product("figure06", "figure", ("nonlinear_top2",)),
    Product("figure07", "figure", ("nonlinear_top2",)),
    Product("figure08", "figure", (), ("geometry",)),
    Product("figure09", "figure", ("single_stream_top2",)),
    Product("figure10", "figure", ("layer_values_top2",)),
    Product("figure11", "figure", ("context_updates_top2", "context_updates_top16")),
    Product("figure12", "figure", ("context_updates_top2", "context_updates_top16")),
    Product("figure13", "figure", ("nonlinear_top2",)),
    Product("figure14", "figure", ("nonlinear_top2_mixed", "nonlinear_top16")),
    Product("figure_convergence", "figure", None),
    Product("figure_local_exponents", "figure", ("nonlinear_top2",), tables=("local_exponents",)),
    Product("figure_deep", "figure", ("deep",), tables=("local_exponents",)),
    Product("figure_table1_matched", "figure", (), (), ("table1_matched",)),
    Product(
        "figure_training_sensitivity",
        "figure",
        tables=("training_sensitivity",),
        settings=(*FITS, *_TRAINING_FACTORS),
    ),
    Product("figure_calibration", "figure", (), (), ("calibration",)),
    Product(
        "comparison",
        "comparison",
        None,
        tables=("table1", "table2", "table3", "table3_theory", "table4", "table5", "figure6_fits"),
        history=True,
    ),
]
PRODUCTS: dict[str, Product] = {product.name: product for product in _PRODUCTS}


def product_runs(product: Product, runs: Iterable[Run]) -> list[Run]:
    """The runs, of those that a scale has, whose evaluations a product reads."""
    wanted = product.experiments
    return [run for run in runs if wanted is None or run.experiment in wanted]


def available(runs: Iterable[Run]) -> list[Product]:
    """The products that a scale with these runs can fill, and those that they read.

    Filled are all that read no run, or have one of those that they read.
    """
    experiments = {run.experiment for run in runs}
    found: set[str] = set()
    for product in PRODUCTS.values():
        wanted = experiments if product.experiments is None else product.experiments
        sources = {*product.theory, *product.tables}
        if (not experiments.isdisjoint(wanted)) if wanted else found.issuperset(sources):
            found |= {product.name, *sources}
    return [product for name, product in PRODUCTS.items() if name in found]


def outputs(product: Product, paths: Paths) -> list[Path]:
    """The files of a product."""
    if product.kind == "theory":
        return [paths.theory(product.name)]
    if product.kind == "data":
        return [paths.data(product.name)]
    if product.kind == "table":
        return [paths.table(product.name, suffix) for suffix in (".csv", ".md")]
    if product.kind == "figure":
        return [paths.figure(product.name, suffix) for suffix in (".png", ".pdf")]
    comparison = paths.data(product.name)
    return [comparison, comparison.with_suffix(".md"), comparison.with_suffix(".json")]
