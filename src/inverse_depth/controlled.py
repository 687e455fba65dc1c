"""The controlled models, linear and nonlinear: modules that own weights (eq 7-12).

The mathematics is in `attention`.
"""

import torch
from torch import Tensor, nn

from inverse_depth.attention import (
    attention_weights,
    ensemble_loss,
    layer_queries,
    rms_norm,
)
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

    W_x starts as an isometry, so that normalized states have the cosine similarities of their
    inputs; from Gaussian entries training at a = 1 stalls for thousands of steps.
    W_v starts as the identity and W_y, W_o as equal entries with gain W_o W_v W_y = 1: a start
    of negative gain would be a trap that training does not leave. With `values: identity` W_v
    keeps that start.

    Attributes:
        W_x: (N, d). W_y: (N, 1). W_o: (1, N). W_v: (N, N), or (L, N, N) for layer values.
        W_q, W_k: (L, N, N), or (1, N, N) when tied.
    """

    def __init__(self, architecture: Architecture, d: int, generator: torch.Generator):
        super().__init__()
        self.architecture = architecture
        N, L = architecture.N, architecture.L
        layers = 1 if architecture.tied else L
        self.W_x = isometry(N, d, generator)
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

    def context_scalar(self) -> float | None:
        """The learned m of the mask M(m) (eq 77), or None where there is none to report."""
        return None


class NonlinearAttention(AttentionModel):
    """Two streams, softmax attention, fixed context states (eq 8-10, 76)."""

    def gains(self) -> Tensor:
        """The gain that all layers share, (1,)."""
        return self.gain().reshape(1)

    def states(self, contexts: Contexts) -> tuple[Tensor, Tensor]:
        """Normalized input-stream states of the test token (B, N) and the context (B, P, N)."""
        query = contexts.rotated(contexts.query.unsqueeze(1)) @ self.W_x.mT
        keys = contexts.rotated(contexts.tokens) @ self.W_x.mT
        if self.architecture.norm == "rms":
            query, keys = rms_norm(query), rms_norm(keys)
        return query.squeeze(1), keys

    def loss(self, contexts: Contexts) -> Tensor:
        query, keys = self.states(contexts)
        return ensemble_loss(
            query,
            keys,
            self.bilinear(),
            self.gains(),
            contexts.teacher.labels(contexts.tokens),
            contexts.teacher.labels(contexts.target),
        )

    def attention(self, contexts: Contexts) -> Tensor:
        """Attention rows p_l (B, L, P) of the test token (eq 59)."""
        query, keys = self.states(contexts)
        return attention_weights(layer_queries(query, self.bilinear()), keys)

    def layer_predictions(self, contexts: Contexts) -> Tensor:
        values = contexts.teacher.labels(contexts.tokens)
        return self.gains()[:, None] * (self.attention(contexts) @ values)

    def prediction(self, contexts: Contexts) -> Tensor:
        return self.layer_predictions(contexts).mean(1)

    def test_attention(self, contexts: Contexts) -> Tensor:
        return self.attention(contexts).mean(1)


class LinearAttention(AttentionModel):
    """Linear attention with the context-subtracting mask (eq 11, 19-26, 75).

    The weights start as scaled identities, B_l = kappa_l I with kappa_l / L = `init` up to a
    tenth in a random direction, which tells the layers apart.
    """

    def __init__(self, architecture: Architecture, d: int, generator: torch.Generator):
        super().__init__(architecture, d, generator)
        N, layers = architecture.N, self.W_q.shape[0]
        spread = torch.exp(0.1 * torch.randn(layers, 1, 1, generator=generator))
        kappa = architecture.init * architecture.L * spread
        with torch.no_grad():
            self.W_x.copy_(N**0.5 * torch.eye(N, d))
            self.W_q.copy_(kappa.sqrt() * torch.eye(N))
            self.W_k.copy_(kappa.sqrt() * torch.eye(N))

    def matching(self) -> Tensor:
        """B_l = W_x^T W_k^T W_q W_x / N (eq 20), (L, d, d)."""
        N = self.architecture.N
        return ((self.W_k @ self.W_x).mT @ (self.W_q @ self.W_x) / N).expand(self.depth, -1, -1)

    def prediction(self, contexts: Contexts) -> Tensor:
        """beta^T P_L(S) x_test in label channels.

        Only products of S and B_l with vectors are formed. With W_v = I one vector does:
        u <- u - S B_l u / L from u = x_test, and P_L(S) x_test = W_o W_y (x_test - u). With a
        general W_v there are N of them: U <- U - S B_l U W_v / L from U = x_test W_o.
        """
        query = contexts.query.unsqueeze(1)
        single = self.architecture.values == "identity"
        chain = query if single else self.W_o.mT @ query
        matching = self.matching()
        for layer in reversed(range(self.depth)):
            matched = contexts.unrotated(contexts.rotated(chain) @ matching[layer].mT)
            update = contexts.covariance.apply(matched) / self.depth
            chain = chain - (update if single else self.W_v.mT @ update)
        left = self.W_o @ self.W_y * chain if single else self.W_y.mT @ chain
        vector = self.W_o @ self.W_y * query - left
        return contexts.teacher.labels(vector.squeeze(1))
