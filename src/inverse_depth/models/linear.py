"""Linear attention with the context-subtracting mask (eq 11, 75)."""

from collections.abc import Callable

import torch
from torch import Tensor

from inverse_depth.contexts import Contexts
from inverse_depth.model import AttentionModel
from inverse_depth.run import Architecture

DENSE_FROM = 4  # layers: forming S once costs less than that many products with the tokens

SPREAD = 4.0


class LinearAttention(AttentionModel):
    """Linear attention with the context-subtracting mask (eq 11, 19-26, 75).

    The weights start as scaled identities, B_l = kappa_l I. The steps kappa_l / L, of mean `init`,
    lie log-evenly over a factor of SPREAD, in random order: the best polynomials in S have
    distinct roots, which layers that start alike are slow to find.
    """

    def __init__(self, architecture: Architecture, d: int, generator: torch.Generator):
        super().__init__(architecture, d, generator)
        N, layers = architecture.N, self.W_q.shape[0]
        steps = torch.logspace(0, 1, layers, base=SPREAD)[
            torch.randperm(layers, generator=generator)
        ]
        kappa = (architecture.init * architecture.L * steps / steps.mean())[:, None, None]
        with torch.no_grad():
            self.W_x.copy_(N**0.5 * torch.eye(N, d))
            self.W_q.copy_(kappa.sqrt() * torch.eye(N))
            self.W_k.copy_(kappa.sqrt() * torch.eye(N))

    def average_gradient_over_rotations(self) -> None:
        """Give the weights their gradient's exact mean over rotations of the data, where N = d.

        At scaled identities, inputs rotated by R have the gradient R G R^T, whose mean is
        (tr G / d) I: so identities stay scaled identities, as they would without sampling noise.
        """
        for weight in (self.W_x, self.W_q, self.W_k):
            mean = weight.grad.diagonal(dim1=-2, dim2=-1).mean(-1)
            weight.grad = mean[..., None, None] * torch.eye(len(self.W_x), device=mean.device)

    def matched(self, vectors: Tensor, W_q: Tensor, W_k: Tensor) -> Tensor:
        """B_l v with B_l = W_x^T W_k^T W_q W_x / N (eq 20), for (B, n, d) vectors.

        Few vectors go through the four factors one after the other, many meet their product.
        """
        W_x, N = self.W_x, self.architecture.N
        if vectors[..., 0].numel() < 2 * vectors.shape[-1]:
            return vectors @ W_x.mT @ W_q.mT @ W_k @ W_x / N
        return vectors @ ((W_q @ W_x).mT @ (W_k @ W_x) / N)

    def prediction(self, contexts: Contexts) -> Tensor:
        """beta^T P_L(S) x_test in label channels.

        With W_v = I one vector passes through the layers: u <- u - S B_l u / L from u = x_test,
        and P_L(S) x_test = W_o W_y (x_test - u). With a general W_v there are N of them:
        U <- U - S B_l U W_v / L from U = x_test W_o.
        """
        query = contexts.rotated(contexts.query.unsqueeze(1))
        single = self.architecture.values == "identity"
        chain = query if single else self.W_o.mT @ query
        times_covariance = self._covariance_products(contexts)
        shape = (self.depth, -1, -1)
        layers = zip(self.W_q.expand(shape).unbind(), self.W_k.expand(shape).unbind(), strict=True)
        for W_q, W_k in reversed(list(layers)):
            update = times_covariance(self.matched(chain, W_q, W_k)) / self.depth
            chain = chain - (update if single else self.W_v.mT @ update)
        left = self.W_o @ self.W_y * chain if single else self.W_y.mT @ chain
        vector = contexts.unrotated(self.W_o @ self.W_y * query - left)
        return contexts.teacher.labels(vector.squeeze(1))

    def _covariance_products(self, contexts: Contexts) -> Callable[[Tensor], Tensor]:
        """v -> S v in the data basis: from the tokens, or where many layers share it from S."""
        if self.depth >= DENSE_FROM:
            S = contexts.data_covariance()
            return lambda vectors: vectors @ S
        return lambda vectors: contexts.rotated(
            contexts.covariance.apply(contexts.unrotated(vectors))
        )


MODEL = LinearAttention
