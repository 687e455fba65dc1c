"""Depth scaling of the linear model on the easy task: reference losses and exponents (eq 28-40).

A depth-L model realizes a residual polynomial r of degree <= L with r(0) = 1; its loss is
sum_k lambda_k omega_k r(lambda_k)^2 where the context is infinite (eq 30).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln

from inverse_depth.spectra import power_law
from inverse_depth.theory.jackknife import (
    contexts_per_block,
    delete_block_jackknife,
    leave_one_out_means,
)

# The next orthogonal polynomial vanishes on the whole measure when its norm, relative to the
# largest node times the previous one, is below this: the residual can then be zero everywhere.
BREAKDOWN = 1e-14


def zeta(a: float, b: float) -> float:
    """Exponent of repeated updates, (a + b - 1) / a; that of free polynomials is twice it (eq 40).

    Raises ValueError unless a > 0 and a + b > 1, where the loss is a power law of depth.
    """
    if not (a > 0 and a + b > 1):
        raise ValueError(f"a = {a}, b = {b}: zeta needs a > 0 and a + b > 1")
    return (a + b - 1) / a


@dataclass(frozen=True)
class ValidityConditions:
    """Depths below which the continuum exponents can hold.

    Repeated updates need 1 << L << `repeated` = lambda_1 / lambda_d, free polynomials
    1 << L << `free`, its square root.
    """

    repeated: float
    free: float


def validity_conditions(a: float, d: int) -> ValidityConditions:
    """Upper ends of the two depth ranges for a spectrum k**-a of dimension d."""
    eigenvalues = power_law(d, a)
    ratio = float(eigenvalues[0] / eigenvalues[-1])
    return ValidityConditions(repeated=ratio, free=ratio**0.5)


def constrained_reference(depths: Sequence[int], a: float, b: float, d: int) -> np.ndarray:
    """Loss (depths,) of repeated updates at their best scale, infinite context (eq 33 in eq 30)."""
    eigenvalues, teacher = power_law(d, a), power_law(d, b)
    return np.array(
        [
            repeated_update_loss(
                L, eigenvalues, teacher, optimal_update_scale(L, eigenvalues, teacher)
            )
            for L in checked_depths(depths)
        ]
    )


def repeated_update_loss(
    L: int, eigenvalues: np.ndarray, teacher: np.ndarray, gamma: float
) -> float:
    """Loss sum_k lambda_k omega_k (1 - gamma lambda_k / L)^(2 L) of L equal updates (eq 33)."""
    return float(np.sum(eigenvalues * teacher * (1 - gamma * eigenvalues / L) ** (2 * L)))


def optimal_update_scale(L: int, eigenvalues: np.ndarray, teacher: np.ndarray) -> float:
    """The gamma that minimizes `repeated_update_loss`, which is convex in gamma.

    The minimum lies between L / lambda_max and L / lambda_min, where the terms have theirs, and
    below the gamma at which the largest mode alone would lose as much as the zero predictor.
    """
    weights = eigenvalues * teacher
    largest = int(np.argmax(eigenvalues))
    amplification = (weights.sum() / weights[largest]) ** (1 / (2 * L))
    low = L / eigenvalues[largest]
    high = min(L / eigenvalues.min(), low * (1 + amplification))

    def slope(gamma: float) -> float:
        return -float(np.sum(weights * eigenvalues * (1 - gamma * eigenvalues / L) ** (2 * L - 1)))

    if slope(low) >= 0:
        return low
    return float(brentq(slope, low, high, xtol=1e-14 * low, rtol=1e-14))


def free_reference(depths: Sequence[int], a: float, b: float, d: int) -> np.ndarray:
    """Loss (depths,) of the best residual polynomial of degree L, infinite context (eq 35-37)."""
    eigenvalues, teacher = power_law(d, a), power_law(d, b)
    return free_loss(depths, eigenvalues, eigenvalues * teacher)


def free_loss(depths: Sequence[int], nodes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Minimum (depths,) of sum_k weights_k r(nodes_k)^2 over deg r <= L, r(0) = 1 (eq 35-37)."""
    depths = checked_depths(depths)
    values, _ = orthonormal_polynomials(
        lambda v: nodes * v, np.ones(len(nodes)), weights, max(depths)
    )
    return np.array([minimum_from_values(values[: L + 1]) for L in depths])


def jacobi_free_loss(depths: Sequence[int], zeta: float, largest: float = 1.0) -> np.ndarray:
    """Minimum (depths,) of the integral of x^(zeta-1) r(x)^2 over [0, largest] (eq 37-39).

    The sum of eq 39 over the shifted Jacobi polynomials of eq 38 has the closed form
    [Gamma(L+1+zeta) / (Gamma(L+1) Gamma(zeta))]^2 / (zeta largest^zeta).
    """
    L = np.asarray(checked_depths(depths), dtype=float)
    log_ratio = gammaln(L + 1) + gammaln(zeta) - gammaln(L + 1 + zeta)
    return zeta * largest**zeta * np.exp(2 * log_ratio)


@dataclass(frozen=True)
class FiniteContextReference:
    """Loss (depths,) of the best polynomial in the context's own covariance S, easy task.

    `loss` is the minimum on the sampled contexts, with its jackknife standard error; `held_out`
    is the mean over blocks of contexts of the loss of the polynomial fitted to the other blocks.
    In expectation the true optimum lies between the two. Where they separate (at d = 128,
    P = 1024 from L of about 24), the best polynomial rises so steeply outside the sampled
    eigenvalues that rarer contexts decide the loss; `loss` then still grows, like the logarithm
    of the number of contexts.
    """

    depths: tuple[int, ...]
    loss: np.ndarray
    loss_se: np.ndarray
    held_out: np.ndarray


def finite_context_free_reference(
    depths: Sequence[int],
    a: float,
    b: float,
    d: int,
    P: int,
    *,
    contexts: int,
    generator: np.random.Generator,
    blocks: int = 20,
) -> FiniteContextReference:
    """Best polynomial of degree L in S where x_test is one of the P tokens.

    The minimum of E[q^T r(S) Omega r(S) q] over deg r <= L, r(0) = 1, one polynomial for all
    contexts: eq 35-37 with S in place of Sigma, orthogonalized over the sampled contexts.
    Memory is about 16 contexts d (d + L) bytes. Needs P > d.
    """
    depths = checked_depths(depths)
    block_size = contexts_per_block(contexts, blocks)
    eigenvalues, teacher = power_law(d, a), power_law(d, b)
    query, covariance = easy_contexts(eigenvalues, P, contexts, generator)
    values, basis = orthonormal_polynomials(
        lambda v: np.einsum("nij,nj->ni", covariance, v),
        query,
        np.broadcast_to(teacher / contexts, query.shape),
        max(depths),
    )
    if len(basis) <= max(depths):
        raise ValueError(
            f"contexts = {contexts}: too few at d = {d}, a polynomial of degree "
            f"{len(basis)} < {max(depths)} already vanishes on all of them"
        )
    blocked = basis.reshape(len(basis), blocks, block_size * d).swapaxes(0, 1)
    weights = np.tile(teacher / block_size, block_size)
    gram = np.array([(vectors * weights) @ vectors.T for vectors in blocked])
    degrees = [L + 1 for L in depths]

    def minimum(moments: np.ndarray) -> np.ndarray:
        return np.array(
            [1 / (values[:n] @ np.linalg.solve(moments[:n, :n], values[:n])) for n in degrees]
        )

    loss, loss_se = delete_block_jackknife(minimum, gram)
    held_out = np.zeros(len(depths))
    for others, own in zip(leave_one_out_means(gram), gram, strict=True):
        for i, n in enumerate(degrees):
            fitted = np.linalg.solve(others[:n, :n], values[:n])
            fitted /= values[:n] @ fitted
            held_out[i] += fitted @ own[:n, :n] @ fitted / blocks
    return FiniteContextReference(tuple(depths), loss, loss_se, held_out)


def easy_contexts(
    eigenvalues: np.ndarray, P: int, contexts: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Queries q (n, d) and covariances S (n, d, d) of P tokens of which q is one.

    S = (W + q q^T) / P with W ~ Wishart_d(Sigma, P - 1) drawn by its Bartlett factor.
    """
    d = len(eigenvalues)
    if d >= P:
        raise ValueError(f"P = {P}: the Bartlett factor at d = {d} needs P > d")
    scale = np.sqrt(eigenvalues)
    query = generator.standard_normal((contexts, d)) * scale
    factor = np.tril(generator.standard_normal((contexts, d, d)), -1)
    diagonal = np.arange(d)
    factor[:, diagonal, diagonal] = np.sqrt(
        generator.chisquare(P - 1 - diagonal, size=(contexts, d))
    )
    factor *= scale[:, None]
    covariance = np.matmul(factor, factor.swapaxes(1, 2))
    covariance += query[:, :, None] * query[:, None, :]
    return query, covariance / P


def orthonormal_polynomials(
    operator: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    weights: np.ndarray,
    degree: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Values at zero (n,) of the orthonormal polynomials phi_0..phi_{n-1} and their vectors.

    The vectors phi_i(operator) start, (n, size), are orthonormal under <u, v> = sum weights u v:
    Arnoldi with Gram-Schmidt done twice. n = degree + 1, or fewer when the measure is exhausted;
    the polynomial of degree n then vanishes on it, and the values end with an infinity.
    """
    weights = weights.ravel()
    root = np.sqrt(weights)
    norm = np.linalg.norm(root * start.ravel())
    basis = np.empty((degree + 1, start.size))
    basis[0] = start.ravel() / norm
    values = [1 / norm]
    for n in range(degree):
        vector = operator(basis[n].reshape(start.shape)).ravel()
        size = np.linalg.norm(root * vector)
        overlaps = np.zeros(n + 1)
        for _ in range(2):
            correction = basis[: n + 1] @ (weights * vector)
            vector = vector - correction @ basis[: n + 1]
            overlaps += correction
        norm = np.linalg.norm(root * vector)
        if norm <= BREAKDOWN * size:
            return np.array([*values, np.inf]), basis[: n + 1]
        basis[n + 1] = vector / norm
        values.append(-(overlaps @ values) / norm)
    return np.array(values), basis


def minimum_from_values(values: np.ndarray) -> float:
    """[sum_n phi_n(0)^2]^-1 (eq 37)."""
    return float(1 / np.sum(values**2))


def exponent_between(
    depths: Sequence[float], losses: Sequence[float], first: float, last: float
) -> float:
    """Least-squares exponent of R = c L^-alpha in log space over depths first <= L <= last."""
    depths, losses = np.asarray(depths, dtype=float), np.asarray(losses, dtype=float)
    used = (depths >= first) & (depths <= last)
    if used.sum() < 2:
        raise ValueError(f"first = {first}, last = {last}: fewer than two depths lie between them")
    return float(-np.polyfit(np.log(depths[used]), np.log(losses[used]), 1)[0])


def checked_depths(depths: Sequence[int]) -> list[int]:
    """The depths as a list; ValueError unless there are some, all at least 1."""
    depths = [int(L) for L in depths]
    if not depths or min(depths) < 1:
        raise ValueError(f"depths = {depths}: needs at least one depth, all at least 1")
    return depths
