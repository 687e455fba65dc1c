"""Nonlinear attention: two streams, softmax, fixed context states (eq 8-10, 76)."""

from torch import Tensor

from inverse_depth.attention import attention_weights, ensemble_loss, layer_queries, rms_norm
from inverse_depth.contexts import Contexts
from inverse_depth.model import AttentionModel


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
        return ensemble_loss(
            self.W_x,
            self.bilinear(),
            self.gains(),
            contexts.rotated(contexts.query.unsqueeze(1)).squeeze(1),
            contexts.rotated(contexts.tokens),
            contexts.teacher.labels(contexts.tokens),
            contexts.teacher.labels(contexts.target),
            normalize=self.architecture.norm == "rms",
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


MODEL = NonlinearAttention
