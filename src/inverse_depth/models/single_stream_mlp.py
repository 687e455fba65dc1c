"""The single stream with a residual MLP block after each attention block."""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from inverse_depth.attention import attention_weights
from inverse_depth.model import gaussian
from inverse_depth.models.single_stream import SingleStream
from inverse_depth.run import Architecture


class SingleStreamMLP(SingleStream):
    """The single stream with an MLP a layer.

    Each block adds W_2 gelu(W_1 norm(H)) / L to the states of all tokens, so that context states
    change token by token and keys and values follow. It starts at zero.

    Attributes:
        W_1: (L, 4N, N). W_2: (L, N, 4N). One layer of each when tied.
    """

    def __init__(self, architecture: Architecture, d: int, generator: torch.Generator):
        super().__init__(architecture, d, generator)
        layers, N = self.W_q.shape[:2]
        self.W_1 = gaussian(layers, 4 * N, N, scale=1.0, generator=generator)
        self.W_2 = nn.Parameter(torch.zeros(layers, N, 4 * N))

    def updates(self, test: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        shape = (self.depth, -1, -1)
        updates, rows = [], []
        for matrix, W_1, W_2 in zip(
            self.bilinear(), self.W_1.expand(shape), self.W_2.expand(shape), strict=True
        ):
            query = self.normalized(test) @ matrix.mT
            row = attention_weights(query.unsqueeze(1), self.normalized(context))
            read = (row @ context @ self.W_v.mT).squeeze(1)
            hidden = self.normalized(test + read / self.depth) @ W_1.mT
            update = read + gelu(hidden) @ W_2.mT
            test = test + update / self.depth
            context = context + gelu(self.normalized(context) @ W_1.mT) @ W_2.mT / self.depth
            updates.append(update)
            rows.append(row)
        return torch.stack(updates, dim=1), torch.cat(rows, dim=1)


MODEL = SingleStreamMLP
