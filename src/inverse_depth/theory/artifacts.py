"""The theory's files: each a data frame computed from the settings alone."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from inverse_depth.theory.exponents import (
    constrained_reference,
    exponent_between,
    finite_context_free_reference,
    free_reference,
    validity_conditions,
)
from inverse_depth.theory.floor import monte_carlo_floor, top_k
from inverse_depth.theory.predictable import predictable_component, predictable_geometry

if TYPE_CHECKING:
    from inverse_depth.settings import Scale

Progress = Callable[[int], object]


def _rng(scale: "Scale", purpose: str) -> np.random.Generator:
    return np.random.default_rng([scale.evaluation.seed, *purpose.encode()])


def floors(scale: "Scale", progress: Progress | None = None) -> pd.DataFrame:
    """Monte Carlo floors (eq 54) of polynomials in Sigma and in S, a row a target and degree.

    Targets of one input spectrum share their contexts.
    """
    theory = scale.theory
    rows = []
    for a in dict.fromkeys(a for _, a, _ in theory.floors):
        targets = [(b, k) for k, other, b in theory.floors if other == a]
        results = monte_carlo_floor(
            theory.d,
            theory.P,
            a,
            targets,
            degree=theory.degree,
            contexts=theory.contexts,
            generator=_rng(scale, f"floors {a:g}"),
            blocks=theory.blocks,
            progress=progress,
        )
        for (b, k), floor in zip(targets, results, strict=True):
            for degree in range(1, theory.degree + 1):
                rows.append(
                    {
                        "k": k,
                        "a": a,
                        "b": b,
                        "degree": degree,
                        "theory": floor.population[degree - 1],
                        "theory_se": floor.population_se[degree - 1],
                        "finite_context_floor": floor.finite_context[degree - 1],
                        "finite_context_floor_se": floor.finite_context_se[degree - 1],
                        "d": theory.d,
                        "P": theory.P,
                        "contexts": theory.contexts,
                    }
                )
    return pd.DataFrame(rows)


def _easy_experiments(scale: "Scale") -> Iterable:
    for name in ("linear_easy_finite", "linear_easy"):
        if name in scale.experiments:
            yield name, scale.experiments[name]


def references(scale: "Scale", progress: Progress | None = None) -> pd.DataFrame:
    """Losses of repeated updates, of the best polynomial in Sigma and of that in S, by depth.

    Their exponents tend to zeta and 2 zeta; `constrained_slope` and `free_slope` are those of
    the finite-d curves over the fitted depths, `finite_context_slope` that of the polynomial in S,
    whose coefficients are fitted to the sampled contexts: where `finite_context_held_out`, its
    loss on contexts left out of that fit, is far above it, there are too few contexts to know it.
    `repeated_limit` and `free_limit` are the depths that the infinite-context curves need to stay
    far below.
    """
    rows = []
    spectra = {}
    for _, experiment in _easy_experiments(scale):
        for spectrum in experiment.spectra:
            spectra.setdefault(spectrum, experiment)  # the finite context comes first
    for (a, b), experiment in spectra.items():
        depths = sorted(experiment.depths)
        d = experiment.d
        constrained = constrained_reference(depths, a, b, d)
        free = free_reference(depths, a, b, d)
        first, last = scale.fits.easy_depths.get(f"{a:g},{b:g}", (depths[0], depths[-1]))
        limits = validity_conditions(a, d)
        finite = finite_se = held_out = np.full(len(depths), np.nan)
        if experiment.P != "infinite":
            reference = finite_context_free_reference(
                depths,
                a,
                b,
                d,
                experiment.P,
                contexts=scale.theory.reference_contexts,
                generator=_rng(scale, f"references {a:g} {b:g}"),
                blocks=scale.theory.blocks,
            )
            finite, finite_se = reference.loss, reference.loss_se
            held_out = reference.held_out
        for i, L in enumerate(depths):
            rows.append(
                {
                    "a": a,
                    "b": b,
                    "d": d,
                    "L": L,
                    "constrained": constrained[i],
                    "free": free[i],
                    "finite_context_free": finite[i],
                    "finite_context_free_se": finite_se[i],
                    "finite_context_held_out": held_out[i],
                    "constrained_slope": exponent_between(depths, constrained, first, last),
                    "free_slope": exponent_between(depths, free, first, last),
                    "finite_context_slope": exponent_between(depths, finite, first, last),
                    "repeated_limit": limits.repeated,
                    "free_limit": limits.free,
                }
            )
    columns = ["a", "b", "d", "L", "constrained", "free", "constrained_slope", "free_slope"]
    columns.append("finite_context_slope")
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=columns)


def predictable(scale: "Scale", progress: Progress | None = None) -> pd.DataFrame:
    """Coefficient of Sigma q in the conditional mean target, predicted and measured (eq 45-46)."""
    theory = scale.theory
    rows = []
    for k, a in dict.fromkeys((k, a) for k, a, _ in theory.floors):
        component = predictable_component(
            theory.d,
            theory.P,
            a,
            k,
            contexts=theory.contexts,
            generator=_rng(scale, f"predictable {k} {a:g}"),
            blocks=theory.blocks,
            progress=progress,
        )
        names = ("measured", "measured_se", "predicted", "fixed_query", "validity")
        values = {name: getattr(component, name) for name in names}
        rows.append({"k": k, "a": a, "b": 0.0} | values | {"d": theory.d, "P": theory.P})
    return pd.DataFrame(rows)


def geometry(scale: "Scale", progress: Progress | None = None) -> pd.DataFrame:
    """Figure 8's context at d = 2: points with their length and angle from the query (degrees)."""
    found = predictable_geometry(
        _rng(scale, "geometry"), P=16, k=2, samples=scale.theory.geometry_samples
    )
    points = {"query": found.query, "conditional_mean": found.conditional_mean}
    points |= {f"selected_{i}": token for i, token in enumerate(found.selected, start=1)}
    points |= {"mean": found.mean, "residual": found.residual}
    turn = np.arctan2(found.query[1], found.query[0])
    rows = []
    for name, (x, y) in points.items():
        angle = np.degrees(np.arctan2(y, x) - turn)
        angle = (angle + 180) % 360 - 180
        rows.append({"point": name, "x": x, "y": y, "length": np.hypot(x, y), "angle": angle})
    return pd.DataFrame(rows)


def schematic(scale: "Scale", progress: Progress | None = None) -> pd.DataFrame:
    """Figure 2's sampled context at d = 2: P tokens, and the queries of both tasks.

    Columns: role (token, easy, top_k), x, y, label (of a query: its target), and for tokens the
    cosine similarity to both queries and whether each task selects them.
    """
    rng = _rng(scale, "schematic")
    P, k = 12, 2
    tokens = rng.standard_normal((P, 2))
    labels = tokens @ rng.standard_normal(2)
    queries = {"easy": tokens[rng.integers(P)], "top_k": rng.standard_normal(2)}
    frame = pd.DataFrame({"role": "token", "x": tokens[:, 0], "y": tokens[:, 1], "label": labels})
    rows = []
    for task, query in queries.items():
        chosen = 1 if task == "easy" else k
        cosine = tokens @ query / np.linalg.norm(tokens, axis=1) / np.linalg.norm(query)
        selected = top_k(query[None], tokens[None], chosen)[0]
        frame[f"{task}_similarity"] = cosine
        frame[f"{task}_selected"] = np.isin(np.arange(P), selected)
        rows.append({"role": task, "x": query[0], "y": query[1], "label": labels[selected].mean()})
    return pd.concat([frame, pd.DataFrame(rows)], ignore_index=True)


ARTIFACTS: dict[str, Callable[["Scale", Progress | None], pd.DataFrame]] = {
    "floors": floors,
    "references": references,
    "predictable": predictable,
    "geometry": geometry,
    "schematic": schematic,
}
