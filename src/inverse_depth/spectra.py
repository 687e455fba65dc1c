"""Power-law spectra of inputs and teachers."""

import torch
from torch import Tensor


def power_law(d: int, exponent: float) -> Tensor:
    """k^-exponent for k = 1 ... d, not normalized (eq 2): (d,) float64."""
    return torch.arange(1, d + 1, dtype=torch.float64) ** -exponent
