"""Which model an architecture names."""

import torch

from inverse_depth.controlled import AttentionModel, LinearAttention, NonlinearAttention
from inverse_depth.generalized import (
    ContextUpdates,
    LayerValues,
    SingleStream,
    SingleStreamMLP,
)
from inverse_depth.run import Architecture

MODELS: dict[str, type[AttentionModel]] = {
    "nonlinear": NonlinearAttention,
    "layer_values": LayerValues,
    "linear": LinearAttention,
    "single_stream": SingleStream,
    "context_updates": ContextUpdates,
}


def build(architecture: Architecture, d: int, generator: torch.Generator) -> AttentionModel:
    """The model of an architecture with fresh weights from `generator` (float32, on the CPU).

    Raises:
        ValueError: if the architecture asks for what its model does not have.
    """
    model = MODELS[architecture.model]
    if architecture.mlp:
        if model is not SingleStream:
            raise ValueError(
                f"mlp: true with model {architecture.model}; allowed is single_stream, the only "
                "model whose states are a residual stream of all tokens"
            )
        model = SingleStreamMLP
    return model(architecture, d, generator)
