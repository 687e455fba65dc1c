"""Power-law spectra of the input and the teacher covariances (eq 2)."""

import math

import numpy as np


def power_law(d: int, exponent: float) -> np.ndarray:
    """Eigenvalues k**-exponent for k = 1..d, float64 (d,), not normalized (eq 2).

    Raises ValueError if d is below one or the exponent is negative or not finite.
    """
    if d < 1:
        raise ValueError(f"d = {d}: the dimension must be at least 1")
    if not (math.isfinite(exponent) and exponent >= 0):
        raise ValueError(f"exponent = {exponent}: a spectral exponent must be finite and >= 0")
    return np.arange(1.0, d + 1) ** -float(exponent)
