"""Easy task: the test input is one of the context tokens (eq 5)."""

import torch
from torch import Tensor

from inverse_depth.run import Data


def draw(
    tokens: Tensor, root: Tensor, data: Data, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The query (B, d) and the index (B, 1) of the token that it repeats."""
    selected = torch.randint(data.P, (len(tokens), 1), generator=generator, device=generator.device)
    return tokens[torch.arange(len(tokens), device=tokens.device), selected[:, 0]], selected
