"""From exponential decay of single modes to a power law of the whole loss (Appendix A.4)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import linregress


@dataclass(frozen=True)
class CharacteristicDepths:
    """Decay depths of the modes and the aggregate exponent that they imply.

    tau: (modes,) decay depth of each mode, NaN where it cannot be measured; used: numbers, from 1,
    of the modes that enter the fit; beta: exponent of the loss-weighted density of tau (eq 55);
    aggregate_exponent: beta - 1, the depth exponent of the loss (eq 56), with its standard error.
    These are NaN where fewer than three modes can be used.
    """

    tau: np.ndarray
    used: np.ndarray
    beta: float
    aggregate_exponent: float
    aggregate_exponent_se: float


def characteristic_depths(
    depths: Sequence[float],
    mode_losses: np.ndarray,
    weights: np.ndarray,
    *,
    resolution: float = 0.02,
) -> CharacteristicDepths:
    """Fit R_k(L) = w_k exp(-L / tau_k) to each mode and a power law to the density of tau.

    mode_losses: (modes, depths); weights: (modes,) the losses w_k of the zero predictor. tau_k is
    the least-squares fit of log(R_k / w_k) = -L / tau_k over the depths at which
    R_k / w_k > resolution. A mode is used if it has two such depths and has decayed below w_k / e
    somewhere. With tau_k ~ k^p and w_k ~ k^-s over the used modes, their density
    w_k dk / dtau_k ~ tau^-beta has beta = 1 + (s - 1) / p.
    """
    depths = np.asarray(depths, dtype=float)
    remaining = np.asarray(mode_losses, dtype=float) / np.asarray(weights, dtype=float)[:, None]
    resolved = remaining > resolution
    decay = -np.log(np.where(resolved, remaining, 1.0))
    projection = (decay * depths).sum(axis=1)
    tau = np.full(len(remaining), np.nan)
    decays = projection > 0
    tau[decays] = (resolved * depths**2).sum(axis=1)[decays] / projection[decays]
    usable = decays & (resolved.sum(axis=1) >= 2) & (remaining.min(axis=1) < np.exp(-1))
    used = np.flatnonzero(usable) + 1
    aggregate = aggregate_se = np.nan
    if len(used) >= 3:
        growth = linregress(np.log(used), np.log(tau[usable]))
        falloff = -linregress(np.log(used), np.log(np.asarray(weights)[usable])).slope
        aggregate = float((falloff - 1) / growth.slope)
        aggregate_se = float(abs(aggregate / growth.slope) * growth.stderr)
    return CharacteristicDepths(
        tau=tau,
        used=used,
        beta=1 + aggregate,
        aggregate_exponent=aggregate,
        aggregate_exponent_se=aggregate_se,
    )
