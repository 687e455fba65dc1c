"""How much a context-attention matrix mixes tokens: A = rho I + (1 - rho) J (eq 83)."""

import numpy as np
from numpy.typing import ArrayLike


def fit_identity_mixture(attention: ArrayLike) -> tuple[float, float]:
    """Least-squares rho of A by rho I + (1 - rho) J, J = 1 1^T / P, and the R^2 of the fit.

    For rows that sum to one, A - J and I - J meet in rho = (tr A - 1) / (P - 1).

    Args:
        attention: (P, P) with rows that sum to one, P at least 2.

    Raises:
        ValueError: if the matrix is not square, has one token, or its rows do not sum to one.
    """
    A = np.asarray(attention, dtype=np.float64)
    if A.ndim != 2 or A.shape[0] != A.shape[1] or len(A) < 2:
        raise ValueError(f"attention has shape {A.shape}; allowed is (P, P) with P at least 2")
    sums = A.sum(1)
    if not np.allclose(sums, 1, atol=1e-4):
        raise ValueError(
            f"attention rows sum to {sums.min():.6g} ... {sums.max():.6g}; allowed is one"
        )
    P = len(A)
    rho = (np.trace(A) - 1) / (P - 1)
    fitted = rho * np.eye(P) + (1 - rho) / P
    r2 = 1 - np.square(A - fitted).sum() / np.square(A - A.mean()).sum()
    return float(rho), float(r2)
