"""The exact decomposition of the loss into shared error and disagreement (eq 61-63, 69-70)."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Decomposition:
    """Per-context values (B,), float64, summed over label channels.

    Attributes:
        loss: squared error of the averaged prediction, R_L.
        layer_error: mean squared error of the single layers, A_L.
        disagreement: A_L - C_L as the spread of the layers about their mean (eq 69, last line).
    """

    loss: Tensor
    layer_error: Tensor
    disagreement: Tensor

    @property
    def shared_error(self) -> Tensor:
        """C_L = A_L - (A_L - C_L)."""
        return self.layer_error - self.disagreement


def decompose(layer_predictions: Tensor, target: Tensor) -> Decomposition:
    """Decompose predictions f_l (B, L, m) of a target (B, m), L > 1.

    The three parts are computed independently of each other, so that the identity
    R = C + (A - C) / L can fail; it is asserted here for every context.

    Raises:
        ValueError: if there is only one layer, where the shared error is undefined.
        AssertionError: if the identity does not hold to rounding.
    """
    depth = layer_predictions.shape[1]
    if depth < 2:
        raise ValueError("the shared error is undefined for one layer")
    f, target = layer_predictions.double(), target.double()
    prediction = f.mean(1)
    loss = (prediction - target).square().sum(-1)
    layer_error = (f - target.unsqueeze(1)).square().sum(-1).mean(1)
    spread = (f - prediction.unsqueeze(1)).square().sum(-1).sum(1)
    parts = Decomposition(loss, layer_error, spread / (depth - 1))
    rebuilt = parts.shared_error + parts.disagreement / depth
    torch.testing.assert_close(
        rebuilt.mean(), loss.mean(), rtol=1e-9, atol=float(layer_error.mean()) * 1e-12
    )
    return parts
