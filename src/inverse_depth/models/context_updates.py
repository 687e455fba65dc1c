"""Context updates: the mask M(m) lets the context's label states change, too (eq 77-82).

The product of eq 82 is taken from the left: from r = 0,

    r <- r + [m/L r, 1] A_l    for l = L ... 1,

where A_l (P + 1, P) is the attention of all tokens to the context, test row last. The prediction
is g/L r Y: one vector a context serves all label channels Y.
"""

import torch
from torch import Tensor, nn

from inverse_depth.attention import attention_weights, chunk_size, mean_loss
from inverse_depth.contexts import Contexts
from inverse_depth.models.nonlinear import NonlinearAttention
from inverse_depth.run import Architecture

aten = torch.ops.aten


def with_test_token(query: Tensor, keys: Tensor) -> Tensor:
    """All P + 1 token states (B, P + 1, N), test token last, from (B, N) and (B, P, N)."""
    return torch.cat([keys, query.unsqueeze(1)], dim=1)


def _mask_row(row: Tensor, factor: Tensor) -> Tensor:
    """[factor row, 1]: (B, 1, P) -> (B, 1, P + 1)."""
    return torch.nn.functional.pad(factor * row, (0, 1), value=1.0)


def token_weights(query: Tensor, keys: Tensor, bilinear: Tensor, m: Tensor) -> Tensor:
    """Weights r / L (B, P) of the context labels in the prediction, before the gain (eq 82).

    Args:
        query: (B, N) normalized test states.
        keys: (B, P, N) normalized context states.
        bilinear: (L, N, N) products W_k^T W_q.
        m: scalar of the mask M(m) (eq 77).
    """
    depth = len(bilinear)
    tokens = with_test_token(query, keys)
    row = keys.new_zeros(len(keys), 1, keys.shape[1])
    for matrix in bilinear.flip(0):
        row = row + _mask_row(row, m / depth) @ attention_weights(tokens @ matrix.mT, keys)
    return row.squeeze(1) / depth


def _context_update_sum(query, keys, bilinear, m, gain, values, target):
    """Sum of squared errors and all gradients, in one pass over chunks of contexts.

    Only the attention of one chunk is stored, (L, chunk, P + 1, P), and one layer's logits, in
    buffers that serve every chunk. The gradient of A_l is the outer product of the row [m/L r, 1]
    before the layer and the gradient s of the row after it; through the softmax it becomes
    A_l (s - A_l s) times that row, so it is never formed.
    """
    batch, P = keys.shape[:2]
    depth = len(bilinear)
    step = min(batch, chunk_size(P + 1, P, keys.element_size(), keys.device))
    tokens = with_test_token(query, keys)
    loss = keys.new_zeros(())
    d_tokens, d_keys = torch.zeros_like(tokens), torch.zeros_like(keys)
    d_bilinear = torch.zeros_like(bilinear)
    d_m, d_gain = torch.zeros_like(m), torch.zeros_like(gain)
    attention = keys.new_empty(depth, step, P + 1, P)
    logits = keys.new_empty(step, P + 1, P)
    for start in range(0, batch, step):
        part = slice(start, start + step)
        T, k, Y = tokens[part], keys[part], values[part]
        scores = logits[: len(k)]
        row = k.new_zeros(len(k), 1, P)
        layers = []
        for index in reversed(range(depth)):
            U = T @ bilinear[index].mT
            A = attention[index, : len(k)]
            aten._softmax.out(torch.bmm(U, k.mT, out=scores), -1, False, out=A)
            mask_row = _mask_row(row, m / depth)
            layers.append((index, U, A, row, mask_row.mT))
            row = torch.baddbmm(row, mask_row, A)
        read = torch.bmm(row, Y).squeeze(1) / depth
        residual = gain * read - target[part]
        loss += residual.square().sum()
        d_gain += 2 * (residual * read).sum()
        s = torch.bmm(Y, 2 * gain / depth * residual.unsqueeze(-1)).mT
        for index, U, A, row, mask_column in reversed(layers):
            As = torch.bmm(A, s.mT)
            d_softmax = torch.sub(s, As, out=scores).mul_(A)
            d_U = torch.bmm(d_softmax, k).mul_(mask_column)
            d_keys[part].baddbmm_(d_softmax.mT, U * mask_column)
            d_tokens[part] += d_U @ bilinear[index]
            d_bilinear[index] += d_U.flatten(0, 1).mT @ T.flatten(0, 1)
            d_m += torch.bmm(row, As[:, :P]).sum() / depth
            s = s + m / depth * As[:, :P].mT
    d_keys += d_tokens[:, :P]
    return loss, (d_tokens[:, P], d_keys, d_bilinear, d_m, d_gain)


def context_update_loss(
    query: Tensor,
    keys: Tensor,
    bilinear: Tensor,
    m: Tensor,
    gain: Tensor,
    values: Tensor,
    target: Tensor,
) -> Tensor:
    """Mean over contexts of |g w Y - t|^2 summed over label channels, w the `token_weights`.

    Args:
        query: (B, N) normalized test states.
        keys: (B, P, N) normalized context states.
        bilinear: (L, N, N) products W_k^T W_q.
        m: scalar of the mask. gain: scalar g = W_o W_y.
        values: (B, P, c) label channels of the context tokens; not differentiated.
        target: (B, c) label channels of the target; not differentiated.
    """
    differentiated = (query, keys, bilinear, m, gain)
    return mean_loss(_context_update_sum, len(keys), differentiated, (values, target))


class ContextUpdates(NonlinearAttention):
    """Two streams with the learned mask M(m): context label states change too (eq 77-82).

    Attributes:
        m: scalar, shared by all layers, starting at `context_scalar`.

    Raises:
        ValueError: if W_v is to be trained, which would leave the scale of m undetermined.
    """

    def __init__(self, architecture: Architecture, d: int, generator: torch.Generator):
        if architecture.values != "identity":
            raise ValueError(
                f"values: {architecture.values} with model context_updates; allowed is identity, "
                "because scaling W_v would trade against m"
            )
        super().__init__(architecture, d, generator)
        self.m = nn.Parameter(torch.tensor(architecture.context_scalar))

    def loss(self, contexts: Contexts) -> Tensor:
        query, keys = self.states(contexts)
        return context_update_loss(
            query,
            keys,
            self.bilinear(),
            self.m,
            self.gain(),
            contexts.teacher.labels(contexts.tokens),
            contexts.teacher.labels(contexts.target),
        )

    def token_weights(self, contexts: Contexts) -> Tensor:
        """Weights (B, P) of the context labels in the prediction, without the gain (eq 82)."""
        query, keys = self.states(contexts)
        return token_weights(query, keys, self.bilinear(), self.m)

    def prediction(self, contexts: Contexts) -> Tensor:
        values = contexts.teacher.labels(contexts.tokens)
        weights = self.token_weights(contexts).unsqueeze(1)
        return self.gain() * (weights @ values).squeeze(1)

    def layer_predictions(self, contexts: Contexts) -> None:
        """None: labels mixed by earlier layers belong to no single layer."""
        return None

    def context_attention(self, contexts: Contexts) -> Tensor:
        """A^1 (B, P, P) of the first layer among the context tokens, before m multiplies it."""
        _, keys = self.states(contexts)
        return attention_weights(keys @ self.bilinear()[0].mT, keys)

    def context_scalar(self) -> float | None:
        """m, or None at L = 1, where no layer reads an updated context."""
        return self.m.item() if self.depth > 1 else None


MODEL = ContextUpdates
