"""Loss floor of linear attention on the top-k task, by Monte Carlo (eq 41-54).

The teacher is averaged analytically, so each loss is E|t - u|^2 in the norm of Omega; it does not
depend on the rotation O, and every vector here is in the common eigenbasis of Sigma and Omega.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from inverse_depth.spectra import power_law
from inverse_depth.theory.jackknife import contexts_per_block, delete_block_jackknife

# Relative eigenvalue below which a direction of the scaled Gram matrix is rounding, not data.
GRAM_CUTOFF = 1e-13


@dataclass(frozen=True)
class Floor:
    """Lowest loss of polynomials of degree 1, 2, ... (arrays over degree) on the top-k task.

    `population` is for polynomials in Sigma (eq 54), `finite_context` for polynomials in the
    covariance S of the same context, which is what a trained model sees. `*_se` are
    delete-a-block jackknife standard errors over contexts.
    """

    d: int
    P: int
    a: float
    b: float
    k: int
    contexts: int
    population: np.ndarray
    population_se: np.ndarray
    finite_context: np.ndarray
    finite_context_se: np.ndarray


def monte_carlo_floor(
    d: int,
    P: int,
    a: float,
    targets: Sequence[tuple[float, int]],
    *,
    degree: int,
    contexts: int,
    generator: np.random.Generator,
    blocks: int = 100,
    chunk: int = 16,
    progress: Callable[[int], object] | None = None,
) -> list[Floor]:
    """Loss floors for polynomials of degree 1..degree, one `Floor` for each (b, k) of `targets`.

    All targets share the contexts, whose P d normals are the cost. Memory is about
    8 chunk (P + 1) d bytes. `contexts` must be a multiple of `blocks`, the number of
    jackknife blocks. `progress` is called with the number of contexts just finished.
    """
    if degree < 1:
        raise ValueError(f"degree = {degree}: must be at least 1")
    eigenvalues = power_law(d, a)
    teacher = {b: power_law(d, b) for b, _ in targets}
    block_size = contexts_per_block(contexts, blocks)
    moments = np.zeros((len(targets), 2, blocks, degree + 1, degree + 1))
    for block in range(blocks):
        for query, tokens in draw_contexts(eigenvalues, P, block_size, chunk, generator):
            features = (
                population_features(query, eigenvalues, degree),
                finite_context_features(query, tokens, degree),
            )
            selected = {k: selected_mean(query, tokens, k) for k in {k for _, k in targets}}
            for i, (b, k) in enumerate(targets):
                for j, phi in enumerate(features):
                    moments[i, j, block] += summed_moments(selected[k], phi, teacher[b])
            if progress is not None:
                progress(len(query))
    moments /= block_size
    floors = []
    for (b, k), (population, finite) in zip(targets, moments, strict=True):
        estimates = delete_block_jackknife(floors_by_degree, population)
        estimates += delete_block_jackknife(floors_by_degree, finite)
        floors.append(Floor(d, P, a, b, k, contexts, *estimates))
    return floors


def draw_contexts(
    eigenvalues: np.ndarray, P: int, count: int, chunk: int, generator: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield queries (c, d) and context tokens (c, P, d), c <= chunk, all N(0, Sigma).

    Both are views of one buffer that the next step overwrites. The numbers do not depend on chunk.
    """
    if P < 1 or chunk < 1:
        raise ValueError(f"P = {P}, chunk = {chunk}: both must be at least 1")
    scale = np.sqrt(eigenvalues)
    buffer = np.empty((min(chunk, count), P + 1, len(eigenvalues)))
    for start in range(0, count, chunk):
        drawn = buffer[: min(chunk, count - start)]
        generator.standard_normal(out=drawn)
        drawn *= scale
        yield drawn[:, 0], drawn[:, 1:]


def selected_mean(query: np.ndarray, tokens: np.ndarray, k: int) -> np.ndarray:
    """Mean t (c, d) of the k tokens (c, P, d) with the largest cosine to query (c, d) (eq 41)."""
    P = tokens.shape[1]
    if not 1 <= k <= P:
        raise ValueError(f"k = {k}: must lie between 1 and P = {P}")
    chosen = top_k(query, tokens, k)
    return np.take_along_axis(tokens, chosen[:, :, None], axis=1).mean(axis=1)


def top_k(query: np.ndarray, tokens: np.ndarray, k: int) -> np.ndarray:
    """Indices (c, k), unordered, of the tokens with the largest cosine similarity (eq 6).

    The query's own length is common to all scores and is left out.
    """
    lengths = np.sqrt(np.einsum("cpd,cpd->cp", tokens, tokens))
    cosines = np.einsum("cpd,cd->cp", tokens, query) / lengths
    return np.argpartition(-cosines, k - 1, axis=1)[:, :k]


def population_features(query: np.ndarray, eigenvalues: np.ndarray, degree: int) -> np.ndarray:
    """Sigma^r q for r = 1..degree: (degree, c, d) (eq 47)."""
    powers = eigenvalues ** np.arange(1, degree + 1)[:, None]
    return powers[:, None, :] * query


def finite_context_features(query: np.ndarray, tokens: np.ndarray, degree: int) -> np.ndarray:
    """S^r q for r = 1..degree with S = X X^T / P of the context: (degree, c, d).

    Only products of the tokens with vectors are formed, never S.
    """
    features = np.empty((degree, *query.shape))
    vector = query
    for r in range(degree):
        labels = np.einsum("cpd,cd->cp", tokens, vector)
        vector = np.einsum("cp,cpd->cd", labels, tokens) / tokens.shape[1]
        features[r] = vector
    return features


def summed_moments(target: np.ndarray, features: np.ndarray, teacher: np.ndarray) -> np.ndarray:
    """[[T, h^T], [h, G]] of eq 49 summed over the contexts of a chunk.

    target: (c, d), features: (degree, c, d), teacher: (d,) eigenvalues of Omega; returns
    (degree + 1, degree + 1).
    """
    vectors = np.concatenate([target[None], features])
    weighted = vectors * teacher
    return weighted.reshape(len(vectors), -1) @ vectors.reshape(len(vectors), -1).T


def floors_by_degree(moments: np.ndarray) -> np.ndarray:
    """T - h^T G^+ h (eq 51) with the first r = 1, 2, ... features; moments as in eq 49.

    The features are first scaled to unit length, so that the pseudo-inverse drops only what is
    linearly dependent (at a = 0 all population features are the same).
    """
    T, h, G = moments[0, 0], moments[0, 1:], moments[1:, 1:]
    scale = 1 / np.sqrt(np.diag(G))
    h, G = h * scale, G * np.outer(scale, scale)
    floors = np.empty(len(h))
    for r in range(1, len(h) + 1):
        inverse = np.linalg.pinv(G[:r, :r], rcond=GRAM_CUTOFF, hermitian=True)
        floors[r - 1] = T - h[:r] @ inverse @ h[:r]
    return floors
