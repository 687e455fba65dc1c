"""Attention of a test token that moves among fixed context states, in its fast form (eq 64-66).

Every layer reads the same keys and values with a query of its own state, h_l = h_{l-1} + r_l / L
with r_l = p_l V, at a cost of O(P N + N^2) a layer.
"""

import torch
from torch import Tensor

from inverse_depth.attention import attention_weights

aten = torch.ops.aten


class _Reads(torch.autograd.Function):
    """The recursion over layers and its gradients.

    Going back, only the gradient of the moving state passes from layer to layer; those of keys,
    values and weights are one product over all layers at the end.
    """

    @staticmethod
    def forward(ctx, test, keys, values, bilinear, normalize):
        L = len(bilinear)
        scales, states, queries, rows, reads = [], [], [], [], []
        for matrix in bilinear:
            mean_square = test.square().mean(-1, keepdim=True) + 1e-12
            scale = mean_square.rsqrt() if normalize else torch.ones_like(mean_square)
            state = scale * test
            query = (state @ matrix.mT).unsqueeze(1)
            row = attention_weights(query, keys)
            read = torch.bmm(row, values)
            test = test + read.squeeze(1) / L
            scales.append(scale)
            states.append(state)
            queries.append(query)
            rows.append(row)
            reads.append(read)
        rows = torch.cat(rows, dim=1)
        ctx.normalize = normalize
        ctx.save_for_backward(
            keys,
            values,
            bilinear,
            torch.stack(scales),
            torch.stack(states),
            torch.cat(queries, dim=1),
            rows,
        )
        ctx.mark_non_differentiable(rows)
        return torch.cat(reads, dim=1), rows

    @staticmethod
    def backward(ctx, d_reads, _):
        keys, values, bilinear, scales, states, queries, rows = ctx.saved_tensors
        L = len(bilinear)
        d_reads, d_logits = d_reads.clone(), torch.empty_like(rows)
        d_queries = torch.empty_like(states)
        d_test = torch.zeros_like(states[0])
        for index in reversed(range(L)):
            d_reads[:, index] += d_test / L
            layer = slice(index, index + 1)
            d_row = torch.bmm(d_reads[:, layer], values.mT)
            d_logits[:, layer] = aten._softmax_backward_data(d_row, rows[:, layer], -1, d_row.dtype)
            d_queries[index] = torch.bmm(d_logits[:, layer], keys).squeeze(1)
            d_state, state = d_queries[index] @ bilinear[index], states[index]
            if ctx.normalize:
                d_state = d_state - state * (state * d_state).mean(-1, keepdim=True)
            d_test = d_test + scales[index] * d_state
        d_keys = torch.bmm(d_logits.mT, queries)
        d_values = torch.bmm(rows.mT, d_reads)
        return d_test, d_keys, d_values, torch.bmm(d_queries.mT, states), None


def layer_reads(
    test: Tensor, keys: Tensor, values: Tensor, bilinear: Tensor, normalize: bool
) -> tuple[Tensor, Tensor]:
    """What each layer reads, r_l (B, L, N), and its attention rows p_l (B, L, P).

    Args:
        test: (B, N) state of the test token before the first layer.
        keys: (B, P, N) normalized context states.
        values: (B, P, N) context states under W_v.
        bilinear: (L, N, N) products W_k^T W_q.
        normalize: whether queries see the test state divided by its root mean square.

    Only the reads are differentiable.
    """
    return _Reads.apply(test, keys, values, bilinear, normalize)
