"""The generalized models: each relaxes one assumption of the controlled one (Appendix C)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from inverse_depth.attention import attention_weights, rms_norm
from inverse_depth.context_updates import context_update_loss, token_weights
from inverse_depth.contexts import AveragedTeacher, Contexts
from inverse_depth.controlled import AttentionModel, NonlinearAttention, gaussian
from inverse_depth.run import Architecture
from inverse_depth.single_stream import layer_reads


class LayerValues(NonlinearAttention):
    """The nonlinear model with a value matrix of its own in every layer (eq 71-72)."""

    def __init__(self, architecture: Architecture, d: int, generator: torch.Generator):
        super().__init__(architecture, d, generator)
        values = torch.eye(architecture.N).repeat(architecture.L, 1, 1)
        self.W_v = nn.Parameter(values, requires_grad=self.W_v.requires_grad)

    def gains(self) -> Tensor:
        """A gain for every layer, (L,) (eq 72)."""
        return (self.W_o @ self.W_v @ self.W_y).flatten()

    def gain(self) -> Tensor:
        return self.gains().mean()


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


class SingleStream(AttentionModel):
    """One state H^0 = W_x X + W_y y feeds queries, keys and values (eq 64-66).

    Under the mask M(0) context states stay as they are, so each layer's keys come from the same
    normalized states and only the test token moves. Its query depends on the labels it has read,
    so the prediction is not linear in them and the teacher has to be sampled.

    W_x starts orthogonal to the label direction W_y, so that the readout starts without input
    in it and the gain is one.
    """

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


class SingleStreamMLP(SingleStream):
    """The single stream with a residual MLP block after each attention block.

    Each block adds W_2 gelu(W_1 norm(H)) / L to the states of all tokens, so that context states
    change token by token and keys and values follow. It starts at zero.

    Attributes:
        W_1: (L, 4N, N). W_2: (L, N, 4N). One layer of each when tied.
    """

    def __init__(self, architecture: Architecture, d: int, generator: torch.Generator):
        super().__init__(architecture, d, generator)
        layers, N = self.W_q.shape[:2]
        self.W_1 = gaussian(layers, 4 * N, N, scale=1.0, generator=generator)
        self.W_2 = nn.Parameter(torch.zeros(layers, N, 4 * N))

    def updates(self, test: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        shape = (self.depth, -1, -1)
        updates, rows = [], []
        for matrix, W_1, W_2 in zip(
            self.bilinear(), self.W_1.expand(shape), self.W_2.expand(shape), strict=True
        ):
            query = self.normalized(test) @ matrix.mT
            row = attention_weights(query.unsqueeze(1), self.normalized(context))
            read = (row @ context @ self.W_v.mT).squeeze(1)
            hidden = self.normalized(test + read / self.depth) @ W_1.mT
            update = read + gelu(hidden) @ W_2.mT
            test = test + update / self.depth
            context = context + gelu(self.normalized(context) @ W_1.mT) @ W_2.mT / self.depth
            updates.append(update)
            rows.append(row)
        return torch.stack(updates, dim=1), torch.cat(rows, dim=1)
