"""The predictable component of the top-k target (eq 43-46) and its geometry (Figure 8)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, ndtr

from inverse_depth.spectra import power_law
from inverse_depth.theory.floor import draw_contexts, selected_mean, top_k
from inverse_depth.theory.jackknife import contexts_per_block, delete_block_jackknife


def mean_top_score(P: int, k: int) -> float:
    """gamma_{P,k}: expected mean of the k largest of P standard normals (eq 45).

    P / k times the integral of z phi(z) Pr(fewer than k of the other P - 1 exceed z), by the
    trapezoid rule, which is accurate to rounding for this integrand.
    """
    if not 1 <= k <= P:
        raise ValueError(f"k = {k}: must lie between 1 and P = {P}")
    z = np.linspace(-12, 12, 4801)
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return float(P / k * np.trapezoid(z * density * bdtr(k - 1, P - 1, ndtr(-z)), z))


@dataclass(frozen=True)
class PredictableComponent:
    """Coefficient of Sigma q in the conditional mean of the target, predicted and measured.

    predicted: gamma / sqrt(tr Sigma^2) (eq 46); fixed_query: the same with the variance
    V(q) = q^T Sigma q of eq 45 kept instead of its mean, so that the step from `predicted` to it
    is the averaging of V and the step from it to `measured` is ranking by cosine;
    measured: regression of t on Sigma q over contexts; deviation: measured / predicted - 1, with
    standard errors; validity: 2 tr Sigma^4 / (tr Sigma^2)^2, which eq 46 needs far below one.
    """

    d: int
    P: int
    a: float
    k: int
    contexts: int
    gamma: float
    predicted: float
    fixed_query: float
    measured: float
    measured_se: float
    deviation: float
    deviation_se: float
    validity: float


def predictable_component(
    d: int,
    P: int,
    a: float,
    k: int,
    *,
    contexts: int,
    generator: np.random.Generator,
    blocks: int = 100,
    chunk: int = 16,
    progress: Callable[[int], object] | None = None,
) -> PredictableComponent:
    """Measure the coefficient of Sigma q over `contexts` contexts; memory as `monte_carlo_floor`.

    The regression is E[t . Sigma q] / E[|Sigma q|^2] in the Euclidean norm, the teacher isotropic.
    """
    eigenvalues = power_law(d, a)
    block_size = contexts_per_block(contexts, blocks)
    sums = np.zeros((blocks, 3))
    for block in range(blocks):
        for query, tokens in draw_contexts(eigenvalues, P, block_size, chunk, generator):
            feature = eigenvalues * query
            squared = np.sum(feature**2, axis=1)
            sums[block] += (
                np.sum(selected_mean(query, tokens, k) * feature),
                np.sum(squared),
                np.sum(squared / np.sqrt(np.sum(query * feature, axis=1))),
            )
            if progress is not None:
                progress(len(query))
    measured, measured_se = delete_block_jackknife(lambda m: m[0] / m[1], sums / block_size)
    gamma = mean_top_score(P, k)
    trace2, trace4 = np.sum(eigenvalues**2), np.sum(eigenvalues**4)
    predicted = gamma / np.sqrt(trace2)
    return PredictableComponent(
        d=d,
        P=P,
        a=a,
        k=k,
        contexts=contexts,
        gamma=gamma,
        predicted=float(predicted),
        fixed_query=float(gamma * sums[:, 2].sum() / sums[:, 1].sum()),
        measured=float(measured),
        measured_se=float(measured_se),
        deviation=float(measured / predicted - 1),
        deviation_se=float(measured_se / predicted),
        validity=float(2 * trace4 / trace2**2),
    )


@dataclass(frozen=True)
class PredictableGeometry:
    """One context at d = 2, a = 0, and the conditional mean at its query.

    query (2,), tokens (P, 2), selected (k, 2) in order of decreasing cosine, mean (2,) of the
    selected tokens, conditional_mean (2,) over contexts with its standard error, and residual =
    mean - conditional_mean. `lengths` and `angles` measure them; angles are counterclockwise from
    the query, in degrees within (-180, 180].
    """

    query: np.ndarray
    tokens: np.ndarray
    selected: np.ndarray
    mean: np.ndarray
    conditional_mean: np.ndarray
    conditional_mean_se: np.ndarray
    residual: np.ndarray

    @property
    def vectors(self) -> dict[str, np.ndarray]:
        """The vectors drawn, by name; the selected tokens are "selected 1", "selected 2", ..."""
        selected = {f"selected {i}": token for i, token in enumerate(self.selected, start=1)}
        return {
            "query": self.query,
            **selected,
            "mean": self.mean,
            "conditional mean": self.conditional_mean,
            "residual": self.residual,
        }

    @property
    def lengths(self) -> dict[str, float]:
        """Euclidean length of each vector."""
        return {name: float(np.linalg.norm(v)) for name, v in self.vectors.items()}

    @property
    def angles(self) -> dict[str, float]:
        """Angle of each vector from the query, degrees."""
        x, y = self.query
        return {
            name: float(np.degrees(np.arctan2(x * v[1] - y * v[0], x * v[0] + y * v[1])))
            for name, v in self.vectors.items()
        }


def predictable_geometry(
    generator: np.random.Generator, P: int, k: int = 2, samples: int = 100_000
) -> PredictableGeometry:
    """Draw one context at d = 2, a = b = 0 and average the target over `samples` at its query."""
    (query,), (tokens,) = next(draw_contexts(np.ones(2), P, 1, 1, generator))
    query, tokens = query.copy(), tokens.copy()
    selected = tokens[top_k(query[None], tokens[None], k)[0]]
    cosines = selected @ query / np.linalg.norm(selected, axis=1)
    means = []
    for _, contexts in draw_contexts(np.ones(2), P, samples, 1024, generator):
        means.append(selected_mean(np.broadcast_to(query, (len(contexts), 2)), contexts, k))
    means = np.concatenate(means)
    mean, conditional_mean = selected.mean(axis=0), means.mean(axis=0)
    return PredictableGeometry(
        query=query,
        tokens=tokens,
        selected=selected[np.argsort(-cosines)],
        mean=mean,
        conditional_mean=conditional_mean,
        conditional_mean_se=means.std(axis=0, ddof=1) / np.sqrt(samples),
        residual=mean - conditional_mean,
    )
