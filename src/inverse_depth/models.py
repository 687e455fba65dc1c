"""Which model an architecture names."""

import torch

from inverse_depth.controlled import AttentionModel, LinearAttention, NonlinearAttention
from inverse_depth.generalized import ContextUpdates, LayerValues, SingleStream
from inverse_depth.run import Architecture

MODELS: dict[str, type[AttentionModel]] = {
    "nonlinear": NonlinearAttention,
    "layer_values": LayerValues,
    "linear": LinearAttention,
    "single_stream": SingleStream,
    "context_updates": ContextUpdates,
}


def build(architecture: Architecture, d: int, generator: torch.Generator) -> AttentionModel:
    """The model of an architecture with fresh weights from `generator` (float32, on the CPU)."""
    return MODELS[architecture.model](architecture, d, generator)
