"""Top-k task: a fresh test input, and the k context tokens most similar to it (eq 6)."""

import torch
from torch import Tensor

from inverse_depth.run import Data


def cosine_top_k(tokens: Tensor, query: Tensor, k: int) -> Tensor:
    """Indices (B, k) of the k tokens with the largest cosine similarity to the query (eq 6)."""
    scores = (query.unsqueeze(1) @ tokens.mT).squeeze(1)
    return (scores / torch.linalg.vector_norm(tokens, dim=-1)).topk(k, dim=-1).indices


def draw(
    tokens: Tensor, root: Tensor, data: Data, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The query (B, d) and the indices (B, k) of the selected tokens.

    Args:
        tokens: (B, P, d) context inputs in the eigenbasis.
        root: (d,) square roots of the input spectrum.
    """
    query = torch.randn(len(tokens), data.d, generator=generator, device=generator.device) * root
    return query, cosine_top_k(tokens, query, data.k)
