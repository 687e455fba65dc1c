"""What all models share: modules that own weights (eq 7-12). Each lies in `models`."""

import torch
from torch import Tensor, nn

from inverse_depth.contexts import Contexts
from inverse_depth.run import Architecture


def gaussian(*shape: int, scale: float, generator: torch.Generator) -> nn.Parameter:
    """Weights (..., fan_out, fan_in) of standard deviation scale / sqrt(fan_in)."""
    weight = torch.randn(*shape, generator=generator) * scale / shape[-1] ** 0.5
    return nn.Parameter(weight)


def isometry(rows: int, columns: int, generator: torch.Generator) -> nn.Parameter:
    """Weights with random orthonormal columns, rows >= columns."""
    Q, _ = torch.linalg.qr(torch.randn(rows, columns, generator=generator))
    return nn.Parameter(Q.contiguous())


class AttentionModel(nn.Module):
    """What all models share: W_x, W_y, W_o, W_v and per-layer W_q, W_k.

    W_x starts as the architecture's `encoder` says: as an isometry normalized states have the
    cosine similarities of their inputs, with Gaussian entries at N = d they are far from it.
    W_v starts as the identity and W_y, W_o as equal entries with gain W_o W_v W_y = 1: a start
    of negative gain would be a trap that training does not leave. With `values: identity` W_v
    keeps that start.

    Attributes:
        linear_in_labels: whether the prediction is, so that the teacher can be averaged over.
        W_x: (N, d). W_y: (N, 1). W_o: (1, N). W_v: (N, N), or (L, N, N) for layer values.
        W_q, W_k: (L, N, N), or (1, N, N) when tied.
    """

    linear_in_labels = True

    def __init__(self, architecture: Architecture, d: int, generator: torch.Generator):
        super().__init__()
        self.architecture = architecture
        N, L = architecture.N, architecture.L
        layers = 1 if architecture.tied else L
        if architecture.encoder == "isometry":
            self.W_x = isometry(N, d, generator)
        else:
            self.W_x = gaussian(N, d, scale=1.0, generator=generator)
        self.W_q = gaussian(layers, N, N, scale=architecture.init, generator=generator)
        self.W_k = gaussian(layers, N, N, scale=architecture.init, generator=generator)
        self.W_y = nn.Parameter(torch.full((N, 1), N**-0.5))
        self.W_o = nn.Parameter(torch.full((1, N), N**-0.5))
        self.W_v = nn.Parameter(torch.eye(N), requires_grad=architecture.values == "trained")

    @property
    def depth(self) -> int:
        return self.architecture.L

    def gain(self) -> Tensor:
        """g = W_o W_v W_y (eq 60), a scalar."""
        return (self.W_o @ self.W_v @ self.W_y).squeeze()

    def bilinear(self) -> Tensor:
        """W_k^T W_q for every layer, (L, N, N)."""
        return (self.W_k.mT @ self.W_q).expand(self.depth, -1, -1)

    def loss(self, contexts: Contexts) -> Tensor:
        """Mean over contexts of the squared error, summed over label channels (eq 12)."""
        residual = self.prediction(contexts) - contexts.teacher.labels(contexts.target)
        return residual.square().sum(-1).mean()

    def prediction(self, contexts: Contexts) -> Tensor:
        """Label channels (B, m) predicted for the test token."""
        raise NotImplementedError

    def layer_predictions(self, contexts: Contexts) -> Tensor | None:
        """Predictions f_l (B, L, m) of the single layers, whose mean is the prediction.

        None where the model has no such decomposition.
        """
        return None

    def test_attention(self, contexts: Contexts) -> Tensor | None:
        """Attention (B, P) of the test token averaged over layers, or None."""
        return None

    def context_attention(self, contexts: Contexts) -> Tensor | None:
        """First-layer attention (B, P, P) among the context tokens, None where there is none."""
        return None

    def context_scalar(self) -> float | None:
        """The learned m of the mask M(m) (eq 77), or None where there is none to report."""
        return None
