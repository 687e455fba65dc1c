"""Power-law fits of loss against depth, in log space (equations 88-89 and 92-93)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import expit

ALPHA_BOUNDS = (0.01, 10.0)
TOO_FEW = "too few depths"
# A fitted floor below this fraction of the smallest loss is at its bound, zero; a reducible
# fraction of the loss below it is no decay.
_BOUND = 1e-6
# An interval needs at least this fraction of the bootstrap replicates.
_NEEDED_REPLICATES = 0.9


@dataclass(frozen=True)
class FitSettings:
    """Which depths enter the fits, and when a fit counts.

    Args:
        deep_from: first depth of the deep regime; fits with a free floor start there.
        easy_depths: first and last depth of an easy-task fit, by spectrum "a,b"; a spectrum that
            is not named uses every depth.
        plateau_from: first depth of linear attention's plateau on top-k.
        plateau_from_steep: the same at a >= 1, where degrees 1, 2 and 3 still differ.
        plateau_identifiable: largest relative standard error of a fitted linear floor; above it
            the floor is the mean over the plateau.
        alpha_bounds: a fit that ends at one of these is reported as failed.
        interval: coverage of the bootstrap intervals.
        bootstrap_seed: seeds the resampling of training seeds.
    """

    deep_from: int = 8
    easy_depths: Mapping[str, Sequence[int]] = field(default_factory=dict)
    plateau_from: int = 2
    plateau_from_steep: int = 3
    plateau_identifiable: float = 0.01
    alpha_bounds: tuple[float, float] = ALPHA_BOUNDS
    interval: float = 0.95
    bootstrap_seed: int = 0

    def easy_range(self, a: float, b: float) -> tuple[float, float]:
        """First and last depth of the easy-task fit at (a, b)."""
        for key, (first, last) in self.easy_depths.items():
            if tuple(float(exponent) for exponent in key.split(",")) == (a, b):
                return first, last
        return 1, np.inf

    def plateau_start(self, a: float) -> int:
        """First depth of the linear plateau at input exponent a."""
        return self.plateau_from_steep if a >= 1 else self.plateau_from

    def fit_deep(self, depths: ArrayLike, losses: ArrayLike) -> "PowerLawFit":
        """Fit with a free floor to the deep regime (equation 16); depths and losses (n,)."""
        depths, losses = np.asarray(depths, dtype=float), np.asarray(losses, dtype=float)
        deep = depths >= self.deep_from
        return fit_power_law(depths[deep], losses[deep], alpha_bounds=self.alpha_bounds)

    def fit_easy(self, a: float, b: float, depths: ArrayLike, losses: ArrayLike) -> "PowerLawFit":
        """Fit without a floor to the fitted depths of the easy task; depths and losses (n,)."""
        depths, losses = np.asarray(depths, dtype=float), np.asarray(losses, dtype=float)
        first, last = self.easy_range(a, b)
        used = (depths >= first) & (depths <= last)
        return fit_power_law(depths[used], losses[used], 0.0, self.alpha_bounds)


@dataclass(frozen=True)
class PowerLawFit:
    """loss = L0 + c L^-alpha (equation 88).

    `L0_se` and `alpha_se` are standard errors from the Jacobian (0 for a fixed floor), `r2` is
    that of the log loss, `depths` are the depths fitted. A failed fit has NaN numbers and says
    why in `message`, which is otherwise empty.
    """

    L0: float
    L0_se: float
    c: float
    alpha: float
    alpha_se: float
    r2: float
    depths: tuple[int, ...]
    message: str = ""

    @property
    def ok(self) -> bool:
        return not self.message

    def predict(self, L: ArrayLike) -> np.ndarray:
        """Fitted loss at depths L, in L's shape; NaN where the fit failed."""
        return self.L0 + self.c * np.asarray(L, dtype=float) ** -self.alpha


@dataclass(frozen=True)
class Plateau:
    """Mean loss over the depths of a plateau; NaN, with a message, where there is none."""

    loss: float
    se: float
    depths: tuple[int, ...]
    message: str = ""


@dataclass(frozen=True)
class BootstrapFits:
    """Fitted floor and exponent of each bootstrap replicate, each (R,).

    A replicate whose best fit lies at a bound keeps the bound's value, so that intervals stay
    honest; one that cannot be fitted at all is NaN.
    """

    L0: np.ndarray
    alpha: np.ndarray
    at_bound: np.ndarray


def fit_power_law(
    depths: ArrayLike,
    losses: ArrayLike,
    floor: float | None = None,
    alpha_bounds: tuple[float, float] = ALPHA_BOUNDS,
) -> PowerLawFit:
    """Least squares on the log residuals of L0 + c L^-alpha (equation 89), c, alpha > 0.

    Args:
        depths: depths L, (n,), in any order, each once.
        losses: losses, (n,).
        floor: L0 where it is known; None fits it, L0 >= 0.
        alpha_bounds: alpha is sought between these, and a fit that ends there has failed.

    Returns:
        the fit; it needs more depths than parameters, finite positive losses, and an optimum
        inside the bounds that the depths determine, otherwise it fails with a message.

    Raises:
        ValueError: for depths that are not positive or repeat, shapes that differ, or a floor
            that is not a finite number >= 0.
    """
    depths, losses = _ordered(depths, losses)
    if floor is not None and not (np.isfinite(floor) and floor >= 0):
        raise ValueError(f"floor is {floor}; allowed is a finite number >= 0, or None to fit it")
    parameters = 3 if floor is None else 2
    message = _unfit(depths, losses, parameters + 1)
    if not message and floor is not None and floor >= losses.max():
        message = f"no loss is above the floor {floor:.6g}"
    if message:
        return _failed(depths, message)

    solution = _solve(depths, losses[None], floor, alpha_bounds)
    L0, c, alpha = (float(values[0]) for values in solution[:3])
    message = _bound(depths, losses, floor, alpha_bounds, L0, c, alpha, solution[3][0])
    if message:
        return _failed(depths, message)
    model = L0 + c * depths**-alpha
    residuals = np.log(losses / model)
    L0_se, alpha_se = _standard_errors(depths, model, L0, c, alpha, residuals, floor is None)
    if not alpha_se < alpha:
        return _failed(
            depths, f"not identifiable: alpha = {alpha:.3g} with standard error {alpha_se:.3g}"
        )
    scatter = np.log(losses) - np.log(losses).mean()
    r2 = float(1 - (residuals @ residuals) / (scatter @ scatter))
    return PowerLawFit(L0, L0_se, c, alpha, alpha_se, r2, _as_tuple(depths))


def fit_gap(
    depths: ArrayLike,
    shared_error: ArrayLike,
    L0: float,
    alpha_bounds: tuple[float, float] = ALPHA_BOUNDS,
) -> PowerLawFit:
    """Power law of the gap between floor and shared error, L0 - C_L = c L^-alpha (eq 92-93).

    Args:
        depths: depths L, (n,).
        shared_error: C_L, (n,).
        L0: the floor, fixed at the unrounded fit of the loss.

    Returns:
        the fit of the gap (its own L0 is 0, r2 is that of the log gap); it fails with a message
        where the floor is missing or the gap is not positive at every depth.
    """
    depths, shared_error = _ordered(depths, shared_error)
    if not np.isfinite(L0):
        return _failed(depths, "the floor L0 is missing")
    gap = L0 - shared_error
    if not (gap > 0).all():
        at = _at(depths, ~(gap > 0))
        return _failed(depths, f"the shared error is not below the floor {L0:.6g} at L = {at}")
    return fit_power_law(depths, gap, floor=0.0, alpha_bounds=alpha_bounds)


def law_through(depths: ArrayLike, losses: ArrayLike) -> tuple[float, float]:
    """Floor and exponent of the one law L0 + c L^-alpha that passes through three points.

    Args:
        depths, losses: (3,), depths increasing.

    Returns:
        L0 and alpha > 0; NaN where the losses do not fall ever less.
    """
    x, (first, second, third) = np.log(np.asarray(depths, dtype=float)), losses
    slope = (second - third) / (first - second) if first != second else nan
    if not 0 < slope < (x[2] - x[1]) / (x[1] - x[0]):
        return nan, nan

    def excess(alpha: float) -> float:
        powers = np.exp(-alpha * (x - x[0]))
        return (powers[1] - powers[2]) / (powers[0] - powers[1]) - slope

    alpha = brentq(excess, 1e-6, 50)
    powers = np.exp(-alpha * (x - x[0]))
    return float(third - (first - second) / (powers[0] - powers[1]) * powers[2]), float(alpha)


def local_exponents(depths: ArrayLike, losses: ArrayLike, floor: ArrayLike) -> np.ndarray:
    """Exponent between successive depths, -d log(loss - floor) / d log L.

    Args:
        depths: increasing depths, (n,).
        losses: losses, (..., n).
        floor: L0, (...).

    Returns:
        exponents, (..., n - 1); NaN where a loss is not above the floor.
    """
    reducible = np.asarray(losses, dtype=float) - np.asarray(floor, dtype=float)[..., None]
    logs = np.log(np.where(reducible > 0, reducible, nan))
    return -np.diff(logs, axis=-1) / np.diff(np.log(np.asarray(depths, dtype=float)))


def bootstrap_fits(
    depths: ArrayLike,
    replicate_losses: ArrayLike,
    floor: float | None = None,
    alpha_bounds: tuple[float, float] = ALPHA_BOUNDS,
) -> BootstrapFits:
    """Fit every bootstrap replicate of the losses.

    Args:
        depths: depths L, (n,), increasing.
        replicate_losses: losses, (R, n).
        floor, alpha_bounds: as in `fit_power_law`.
    """
    depths = np.asarray(depths, dtype=float)
    replicates = np.asarray(replicate_losses, dtype=float)
    if replicates.ndim != 2 or replicates.shape[1] != len(depths):
        raise ValueError(
            f"replicate_losses has shape {replicates.shape}; expected (replicates, {len(depths)})"
        )
    L0, alpha = np.full((2, len(replicates)), nan)
    at_bound = np.zeros(len(replicates), dtype=bool)
    needed = 3 if floor is None else 2
    usable = np.array([not _unfit(depths, losses, needed) for losses in replicates], dtype=bool)
    if usable.any():
        solution = _solve(depths, replicates[usable], floor, alpha_bounds)
        L0[usable], _, alpha[usable], _ = solution
        at_bound[usable] = [
            bool(_bound(depths, losses, floor, alpha_bounds, *values))
            for losses, *values in zip(replicates[usable], *solution, strict=True)
        ]
    return BootstrapFits(L0, alpha, at_bound)


def percentile_interval(values: ArrayLike, coverage: float = 0.95) -> tuple[float, float]:
    """Percentile interval of replicate values (R,); NaN when over a tenth of them are missing."""
    values = np.asarray(values, dtype=float)
    present = values[np.isfinite(values)]
    if len(present) < max(2, _NEEDED_REPLICATES * len(values)):
        return nan, nan
    tail = 50 * (1 - coverage)
    low, high = np.percentile(present, [tail, 100 - tail])
    return float(low), float(high)


def plateau(
    depths: ArrayLike, losses: ArrayLike, start: int, loss_se: ArrayLike | None = None
) -> Plateau:
    """Mean loss at the depths >= start.

    Its standard error joins the scatter between the depths with the error that they share,
    since they are evaluated on common contexts: sqrt(var / n + mean(loss_se^2)). With one depth
    and no `loss_se` it is NaN.
    """
    chosen = np.asarray(depths) >= start
    if not chosen.any():
        return Plateau(nan, nan, (), f"no depth at or above {start}")
    depths, values = _ordered(np.asarray(depths)[chosen], np.asarray(losses)[chosen])
    if not np.isfinite(values).all():
        message = f"the loss is not finite at L = {_at(depths, ~np.isfinite(values))}"
        return Plateau(nan, nan, _as_tuple(depths), message)
    variance = values.var(ddof=1) / len(values) if len(values) > 1 else nan
    if loss_se is not None:
        shared = np.mean(np.asarray(loss_se, dtype=float)[chosen] ** 2)
        variance = shared if len(values) == 1 else variance + shared
    return Plateau(float(values.mean()), float(np.sqrt(variance)), _as_tuple(depths))


def fit_identity(attention: ArrayLike) -> tuple[float, float]:
    """Identity weight rho of A = rho I + (1 - rho) J, and the fit's R^2 (equation 83).

    J has every entry 1/P. For rows that sum to one least squares gives (tr A - 1) / (P - 1).

    Args:
        attention: context attention, (P, P), each row sums to one.
    """
    attention = np.asarray(attention, dtype=float)
    P = len(attention)
    if attention.shape != (P, P) or P < 2:
        raise ValueError(f"attention has shape {attention.shape}; expected (P, P) with P >= 2")
    rho = (np.trace(attention) - 1) / (P - 1)
    residual = attention - rho * np.eye(P) - (1 - rho) / P
    return float(rho), float(1 - (residual**2).sum() / ((attention - attention.mean()) ** 2).sum())


def _solve(depths, losses, floor, alpha_bounds) -> tuple[np.ndarray, ...]:
    """Constrained optimum L0, c, alpha, and whether it was reached, each (R,); losses (R, n)."""
    if floor == 0:
        return _solve_without_floor(depths, losses, alpha_bounds)
    return _solve_with_floor(depths, losses, floor, alpha_bounds)


def _bound(depths, losses, floor, alpha_bounds, L0, c, alpha, converged) -> str:
    """In words the bound that an optimum lies at; empty for one inside."""
    low, high = alpha_bounds
    if c * depths[0] ** -alpha < _BOUND * losses.min():
        return "the losses do not decay with depth"
    if floor is None and L0 / losses.min() < _BOUND:
        return "the floor is at its bound, zero: these depths show no floor"
    if alpha <= low or alpha >= high:
        return f"alpha is at its bound, {low if alpha <= low else high:g}"
    return "" if converged else "the least-squares fit did not converge"


def _solve_without_floor(depths, losses, alpha_bounds):
    """Straight line of log loss against log depth, its slope kept within the bounds."""
    x, y = np.log(depths), np.log(losses)
    slope = y @ (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    alpha = np.clip(-slope, *alpha_bounds)
    c = np.exp(y.mean(axis=-1) + alpha * x.mean())
    return np.zeros_like(alpha), c, alpha, np.ones(len(alpha), dtype=bool)


def _solve_with_floor(depths, losses, floor, alpha_bounds):
    """Search for the reducible fraction w of the loss at the first depth, and alpha.

    With x = L / L_1, loss = s (1 - w + w x^-alpha). The scale s is projected out of the log
    residuals (free floor) or is floor / (1 - w) (fixed floor). From exponents low to high, each
    with the best w of a grid, the search descends to the nearest optimum; the lowest counts.
    """
    log_x = np.log(depths / depths[0])
    log_losses = np.log(losses)[:, None, :]  # (R, start, n)

    def centred(values, at_fixed_floor):
        if floor is None:
            return values - values.mean(axis=-1, keepdims=True)
        return values + at_fixed_floor

    def residuals(p):
        w, alpha = p[..., :1], p[..., 1:]
        shape = np.log(1 - w + w * np.exp(-alpha * log_x))
        return centred(log_losses - shape, np.log((1 - w) / (floor or 1)))

    def jacobian(p):
        w, alpha = p[..., :1], p[..., 1:]
        decay = np.exp(-alpha * log_x)
        shape = 1 - w + w * decay
        by_w, by_alpha = (1 - decay) / shape, w * decay * log_x / shape
        return np.stack([centred(by_w, -1 / (1 - w)), centred(by_alpha, 0.0)], axis=-1)

    box = np.array([(0.0, 1 - 1e-15), alpha_bounds]).T
    w, alpha = expit(np.linspace(-10, 12, 45)), np.geomspace(*alpha_bounds, 10)[1:-1]
    grid = np.stack(np.meshgrid(w, alpha), axis=-1).reshape(-1, 2)
    costs = (residuals(grid) ** 2).sum(axis=-1).reshape(len(losses), len(alpha), len(w))
    starts = [w[costs.argmin(axis=-1)], np.broadcast_to(alpha, costs.shape[:2])]
    p, cost, converged = _descend(residuals, jacobian, np.stack(starts, axis=-1), box)
    best = np.arange(len(losses)), cost.argmin(axis=-1)
    (w, alpha), converged = p[best].T, converged[best]

    if floor is None:
        shape = 1 - w[:, None] * (1 - np.exp(-alpha[:, None] * log_x))
        scale = np.exp(np.mean(log_losses[:, 0] - np.log(shape), axis=-1))
        L0 = scale * (1 - w)
    else:
        scale, L0 = floor / (1 - w), np.full(len(losses), float(floor))
    return L0, scale * w * depths[0] ** alpha, alpha, converged


def _descend(residuals, jacobian, p, box, iterations=500):
    """Levenberg-Marquardt descent in a box, from many points at once.

    A parameter at its bound that would leave the box is held there.

    Args:
        residuals: (..., 2) -> (..., n).
        jacobian: their derivatives, (..., 2) -> (..., n, 2).
        p: starting points, (..., 2).
        box: smallest and largest parameters, (2, 2).

    Returns:
        the optima (..., 2), their squared residuals (...), and whether each was reached (...).
    """
    r = residuals(p)
    cost = (r**2).sum(axis=-1)
    damping = np.full(cost.shape, 1e-3)
    done = np.zeros(cost.shape, dtype=bool)
    for _ in range(iterations):
        J = jacobian(p)
        norms = np.sqrt((J**2).sum(axis=-2)) + 1e-150
        J /= norms[..., None, :]
        gradient = np.einsum("...np,...n->...p", J, r)
        free = ~((p <= box[0]) & (gradient > 0) | (p >= box[1]) & (gradient < 0))
        g0, g1 = np.moveaxis(gradient * free, -1, 0)
        correlation = np.einsum("...n,...n->...", J[..., 0], J[..., 1]) * free.all(axis=-1)
        # (J^T J + damping I) step = -gradient over the free parameters, by Cramer's rule.
        diagonal = 1 + damping
        step = np.stack([correlation * g1 - diagonal * g0, correlation * g0 - diagonal * g1], -1)
        step /= (diagonal**2 - correlation**2)[..., None] * norms
        moved = np.clip(p + step, *box)
        trial = residuals(moved)
        trial_cost = (trial**2).sum(axis=-1)
        better = trial_cost < cost
        still = better & (damping < 1e-6) & (cost - trial_cost < 1e-13 * cost)
        done |= still | ~better & (damping > 1e6)
        p = np.where(better[..., None], moved, p)
        r = np.where(better[..., None], trial, r)
        cost = np.where(better, trial_cost, cost)
        damping = np.clip(np.where(better, damping / 5, damping * 5), 1e-15, 1e12)
        if done.all():
            break
    return p, cost, done


def _standard_errors(depths, model, L0, c, alpha, residuals, free_floor) -> tuple[float, float]:
    """Standard errors of L0 and alpha: s^2 (J^T J)^-1 of the log model, s^2 = RSS / (n - p)."""
    decay = c * depths**-alpha / model
    columns = [decay, -decay * np.log(depths)]  # by log c and by alpha
    if free_floor:
        columns.append(1 / model)  # by L0
    jacobian = np.stack(columns, axis=-1)
    norms = np.linalg.norm(jacobian, axis=0)
    singular = np.linalg.svd(jacobian / norms, compute_uv=False)
    if singular[-1] < 1e-10 * singular[0]:
        return nan, nan
    inverse = np.linalg.inv(np.linalg.qr(jacobian / norms, mode="r"))
    variance = residuals @ residuals / (len(depths) - len(norms))
    se = np.sqrt(variance * (inverse**2).sum(axis=1)) / norms
    return float(se[2]) if free_floor else 0.0, float(se[1])


def _ordered(depths: ArrayLike, values: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Both as float vectors in order of depth."""
    depths, values = np.asarray(depths, dtype=float), np.asarray(values, dtype=float)
    if depths.ndim != 1 or depths.shape != values.shape:
        raise ValueError(f"depths {depths.shape} and values {values.shape} must be vectors alike")
    if not (depths > 0).all() or len(np.unique(depths)) < len(depths):
        raise ValueError(f"depths are {depths.tolist()}; allowed are positive depths, each once")
    order = np.argsort(depths)
    return depths[order], values[order]


def _unfit(depths: np.ndarray, losses: np.ndarray, needed: int) -> str:
    """Why these losses cannot be fitted; empty if they can."""
    if len(depths) < needed:
        return f"{TOO_FEW}: {len(depths)}, at least {needed} needed"
    if not np.isfinite(losses).all():
        return f"the loss is not finite at L = {_at(depths, ~np.isfinite(losses))}"
    if (losses <= 0).any():
        return f"the loss is not positive at L = {_at(depths, losses <= 0)}"
    if np.ptp(losses) == 0:
        return "the losses do not decay with depth"
    return ""


def _at(depths: np.ndarray, chosen: np.ndarray) -> str:
    return ", ".join(f"{L:g}" for L in depths[chosen])


def _failed(depths: np.ndarray, message: str) -> PowerLawFit:
    return PowerLawFit(nan, nan, nan, nan, nan, nan, _as_tuple(depths), message)


def _as_tuple(depths: np.ndarray) -> tuple[int, ...]:
    return tuple(int(L) for L in depths)
