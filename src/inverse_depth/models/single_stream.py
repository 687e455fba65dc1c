"""Single stream: a test token that moves among fixed context states (eq 64-66).

Every layer reads the same keys and values with a query of its own state, h_l = h_{l-1} + r_l / L
with r_l = p_l V, at a cost of O(P N + N^2) a layer.
"""

import torch
from torch import Tensor

from inverse_depth.attention import attention_weights, rms_norm
from inverse_depth.contexts import AveragedTeacher, Contexts
from inverse_depth.model import AttentionModel
from inverse_depth.run import Architecture

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


class SingleStream(AttentionModel):
    """One state H^0 = W_x X + W_y y feeds queries, keys and values (eq 64-66).

    Under the mask M(0) context states stay as they are, so each layer's keys come from the same
    normalized states and only the test token moves. Its query depends on the labels it has read,
    so the prediction is not linear in them and the teacher has to be sampled.

    W_x starts orthogonal to the label direction W_y, so that the readout starts without input
    in it and the gain is one.
    """

    linear_in_labels = False

    def __init__(self, architecture: Architecture, d: int, generator: torch.Generator):
        super().__init__(architecture, d, generator)
        with torch.no_grad():
            self.W_x -= self.W_x.mean(0)

    def normalized(self, states: Tensor) -> Tensor:
        """The pre-norm of the architecture."""
        return rms_norm(states) if self.architecture.norm == "rms" else states

    def states(self, contexts: Contexts) -> tuple[Tensor, Tensor]:
        """Starting states of the test token (B, N) and the context (B, P, N) (eq 64).

        Raises:
            ValueError: if the teacher is averaged.
        """
        if isinstance(contexts.teacher, AveragedTeacher):
            raise ValueError(
                "teacher: averaged with model single_stream; allowed is sampled, because the "
                "prediction is not linear in the labels"
            )
        labels = contexts.teacher.labels(contexts.tokens)
        test = contexts.rotated(contexts.query.unsqueeze(1)) @ self.W_x.mT
        context = contexts.rotated(contexts.tokens) @ self.W_x.mT + labels @ self.W_y.mT
        return test.squeeze(1), context

    def updates(self, test: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """What each layer adds to the test state, times L (B, L, N), and its rows p_l (B, L, P).

        Eq 65-66 from the starting states (B, N) and (B, P, N).
        """
        keys, values = self.normalized(context), context @ self.W_v.mT
        normalize = self.architecture.norm == "rms"
        return layer_reads(test, keys, values, self.bilinear(), normalize)

    def layer_predictions(self, contexts: Contexts) -> Tensor:
        """f_l = z_0 + L (z_l - z_{l-1}) (eq 67-68), (B, L, 1)."""
        test, context = self.states(contexts)
        updates, _ = self.updates(test, context)
        return (test.unsqueeze(1) + updates) @ self.W_o.mT

    def prediction(self, contexts: Contexts) -> Tensor:
        return self.layer_predictions(contexts).mean(1)

    def test_attention(self, contexts: Contexts) -> Tensor:
        return self.updates(*self.states(contexts))[1].mean(1)


MODEL = SingleStream
