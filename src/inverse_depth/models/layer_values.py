"""Layer values: a value matrix of its own in every layer (eq 71-72)."""

import torch
from torch import Tensor, nn

from inverse_depth.models.nonlinear import NonlinearAttention
from inverse_depth.run import Architecture


class LayerValues(NonlinearAttention):
    """The nonlinear model with a value matrix of its own in every layer (eq 71-72)."""

    def __init__(self, architecture: Architecture, d: int, generator: torch.Generator):
        super().__init__(architecture, d, generator)
        values = torch.eye(architecture.N).repeat(architecture.L, 1, 1)
        self.W_v = nn.Parameter(values, requires_grad=self.W_v.requires_grad)

    def gains(self) -> Tensor:
        """A gain for every layer, (L,) (eq 72)."""
        return (self.W_o @ self.W_v @ self.W_y).flatten()

    def gain(self) -> Tensor:
        return self.gains().mean()


MODEL = LayerValues
