"""The models: `name` in the settings is the file `name.py` here, whose MODEL is its class."""

from importlib import import_module

import torch

from inverse_depth.model import AttentionModel
from inverse_depth.run import Architecture


def build(architecture: Architecture, d: int, generator: torch.Generator) -> AttentionModel:
    """The model of an architecture with fresh weights from `generator` (float32, on the CPU).

    Raises:
        ValueError: if the architecture asks for what its model does not have.
    """
    model = import_module(f"{__name__}.{architecture.model}").MODEL
    return model(architecture, d, generator)
