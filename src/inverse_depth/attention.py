"""Attention with fixed context states as pure functions, in their fast exact forms.

Because the context states never change, only the test token's row of each attention matrix
matters: a depth-L network is one cross-attention of L queries u_l = W_k^T W_q x_test on P keys,
whose L rows are averaged with the weights g_l / L (eq 59-60).
"""

from collections.abc import Callable

import torch
from torch import Tensor

aten = torch.ops.aten

NORM_EPSILON = 1e-12

# Logits of one chunk of contexts: half of a core's L2 cache, or what fills a GPU.
CHUNK_BYTES = {"cpu": 2**20, "cuda": 2**28}
# Queries, or keys, of one block of contexts, which bounds the memory of deep models.
BLOCK_BYTES = {"cpu": 2**24, "cuda": 2**28}


def rms_norm(states: Tensor) -> Tensor:
    """States (..., N) divided by their root mean square over N; no learned scale."""
    return torch.nn.functional.rms_norm(states, states.shape[-1:], eps=NORM_EPSILON)


def layer_queries(query: Tensor, bilinear: Tensor) -> Tensor:
    """The L queries (B, L, N) of one normalized test state (B, N) under W_k^T W_q (L, N, N)."""
    return (query @ bilinear.flatten(0, 1).mT).unflatten(-1, bilinear.shape[:2])


def attention_weights(queries: Tensor, keys: Tensor) -> Tensor:
    """Softmax over the P context tokens (eq 10): (B, L, N), (B, P, N) -> (B, L, P)."""
    return torch.softmax(queries @ keys.mT, dim=-1)


def chunk_size(depth: int, tokens: int, element_bytes: int, device: torch.device) -> int:
    """How many contexts' logits fit the device's chunk."""
    return max(1, CHUNK_BYTES[device.type] // (depth * tokens * element_bytes))


class _MeanLoss(torch.autograd.Function):
    """A mean over a batch whose gradients are computed along with it.

    `one_pass(tensors, *fixed)` returns the sum over the batch and its gradients with respect to
    the leading tensors; the others are not differentiated.
    """

    @staticmethod
    def forward(ctx, one_pass, batch, fixed, *tensors):
        total, gradients = one_pass(*tensors, *fixed)
        ctx.save_for_backward(*gradients)
        ctx.batch = batch
        return total / batch

    @staticmethod
    def backward(ctx, d_loss):
        scale = d_loss / ctx.batch
        return None, None, None, *(scale * gradient for gradient in ctx.saved_tensors)


def mean_loss(
    one_pass: Callable, batch: int, differentiated: tuple[Tensor, ...], fixed: tuple
) -> Tensor:
    """The mean of a loss that `one_pass` sums over a batch together with its gradients."""
    return _MeanLoss.apply(one_pass, batch, fixed, *differentiated)


def _normalized(states: Tensor, normalize: bool) -> tuple[Tensor, Tensor | None]:
    """States and what they were multiplied by, None without norm."""
    if not normalize:
        return states, None
    scale = torch.linalg.vector_norm(states, dim=-1, keepdim=True)
    scale = scale.square_().div_(states.shape[-1]).add_(NORM_EPSILON).rsqrt_()
    return states * scale, scale


def _through_norm(gradient: Tensor, normalized: Tensor, scale: Tensor | None) -> Tensor:
    """Gradient of the states before the norm from that of the normalized ones, in its place."""
    if scale is None:
        return gradient
    along = (gradient * normalized).sum(-1, keepdim=True) / normalized.shape[-1]
    return gradient.addcmul_(normalized, along, value=-1).mul_(scale)


def _ensemble_sum(encoder, bilinear, gains, query, tokens, values, target, normalize):
    """Sum of squared errors and its gradients for encoder, bilinear and gains, in one pass.

    Contexts go by in blocks, whose queries (block, L, N) and keys (block, P, N) meet the weights in
    large products, and inside of them in chunks, whose logits (chunk, L, P) stay in cache between
    forward and backward. Their buffers are the only things of those sizes.
    """
    batch, P, _ = tokens.shape
    L, N = bilinear.shape[:2]
    device, element = tokens.device, tokens.element_size()
    flat = bilinear.flatten(0, 1)
    # The factor of each layer's row, g_l / L, goes where it costs least.
    shared = gains.numel() == 1
    row_weights = torch.full_like(bilinear[:, 0, 0], 1 / L) if shared else gains / L
    loss = tokens.new_zeros(())
    d_encoder, d_flat, d_gains = map(torch.zeros_like, (encoder, flat, gains))
    chunk = min(batch, chunk_size(max(L, N), P, element, device))
    block = min(batch, max(chunk, BLOCK_BYTES[device.type] // (element * max(L, P) * N)))
    logits_buffer, p_buffer = tokens.new_empty(2, chunk, L, P)
    d_queries_buffer, d_keys_buffer = tokens.new_empty(block, L, N), tokens.new_empty(block, P, N)
    averages = row_weights.expand(chunk, 1, L).contiguous()
    for first in range(0, batch, block):
        here = slice(first, first + block)
        x = tokens[here]
        state, state_scale = _normalized(query[here] @ encoder.mT, normalize)
        keys, keys_scale = _normalized(x @ encoder.mT, normalize)
        queries = layer_queries(state, bilinear)
        d_queries, d_keys = d_queries_buffer[: len(x)], d_keys_buffer[: len(x)]
        for start in range(0, len(x), chunk):
            part = slice(start, start + chunk)
            u, k, Y, t = queries[part], keys[part], values[here][part], target[here][part]
            logits, p = logits_buffer[: len(u)], p_buffer[: len(u)]
            torch.bmm(u, k.mT, out=logits)
            aten._softmax.out(logits, -1, False, out=p)
            mean_p = torch.bmm(averages[: len(u)], p)
            prediction = torch.bmm(mean_p, Y)
            residual = (gains * prediction if shared else prediction) - t.unsqueeze(1)
            loss += residual.square().sum()
            d_mean = torch.bmm(2 * residual, Y.mT)
            if shared:
                d_gains += (mean_p * d_mean).sum()
                d_mean *= gains / L
            else:
                d_gains += torch.bmm(d_mean, p.mT).sum((0, 1)) / L
                u = u * row_weights[:, None]
            d_logits = aten._softmax_backward_data.out(
                d_mean.expand_as(p), p, -1, p.dtype, grad_input=logits
            )
            torch.bmm(d_logits, k, out=d_queries[part])
            torch.bmm(d_logits.mT, u, out=d_keys[part])
        d_keys = _through_norm(d_keys, keys, keys_scale)
        d_encoder.addmm_(d_keys.flatten(0, 1).mT, x.flatten(0, 1))
        if not shared:
            d_queries *= row_weights[:, None]
        d_flat.addmm_(d_queries.flatten(1).mT, state)
        d_state = _through_norm(d_queries.flatten(1) @ flat, state, state_scale)
        d_encoder.addmm_(d_state.mT, query[here])
    return loss, (d_encoder, d_flat.view_as(bilinear), d_gains)


def ensemble_loss(
    encoder: Tensor,
    bilinear: Tensor,
    gains: Tensor,
    query: Tensor,
    tokens: Tensor,
    values: Tensor,
    target: Tensor,
    normalize: bool,
) -> Tensor:
    """Mean over contexts of |sum_l (g_l / L) p_l Y - t|^2, summed over label channels (eq 12, 60).

    Args:
        encoder: (N, d) weights W_x.
        bilinear: (L, N, N) products W_k^T W_q.
        gains: (1,) the gain shared by all layers, or (L,) one a layer.
        query: (B, d) test inputs in the data basis.
        tokens: (B, P, d) context inputs in the data basis.
        values: (B, P, m) label channels of the context tokens.
        target: (B, m) label channels of the target.
        normalize: whether states are divided by their root mean square.

    The first three are differentiated.
    """
    fixed = (query, tokens, values, target, normalize)
    return mean_loss(_ensemble_sum, len(tokens), (encoder, bilinear, gains), fixed)
