"""Attention with fixed context states as pure functions, in their fast exact forms.

Because the context states never change, only the test token's row of each attention matrix
matters: a depth-L network is one cross-attention of L queries u_l = W_k^T W_q x_test on P keys,
whose L rows are averaged with the weights g_l / L (eq 59-60).
"""

import torch
from torch import Tensor

aten = torch.ops.aten

# Logits of one chunk of contexts: half of a core's L2 cache, or what fills a GPU.
CHUNK_BYTES = {"cpu": 2**20, "cuda": 2**28}
# Queries of one block of contexts, which bounds the memory of deep models.
BLOCK_BYTES = {"cpu": 2**24, "cuda": 2**28}


def rms_norm(states: Tensor) -> Tensor:
    """States (..., N) divided by their root mean square over N; no learned scale."""
    return torch.nn.functional.rms_norm(states, states.shape[-1:], eps=1e-12)


def layer_queries(query: Tensor, bilinear: Tensor) -> Tensor:
    """The L queries (B, L, N) of one normalized test state (B, N) under W_k^T W_q (L, N, N)."""
    return (query @ bilinear.flatten(0, 1).mT).unflatten(-1, bilinear.shape[:2])


def attention_weights(queries: Tensor, keys: Tensor) -> Tensor:
    """Softmax over the P context tokens (eq 10): (B, L, N), (B, P, N) -> (B, L, P)."""
    return torch.softmax(queries @ keys.mT, dim=-1)


def chunk_size(depth: int, tokens: int, element_bytes: int, device: torch.device) -> int:
    """How many contexts' logits fit the device's chunk."""
    return max(1, CHUNK_BYTES[device.type] // (depth * tokens * element_bytes))


class _EnsembleLoss(torch.autograd.Function):
    """Loss of the averaged prediction and all its gradients in one pass over chunks.

    Contexts go by in blocks, whose queries (block, L, N) meet the weights in one large product,
    and inside of them in chunks, whose logits (chunk, L, P) stay in cache between forward and
    backward. Their buffers are the only things of those sizes.
    """

    @staticmethod
    def forward(ctx, query, keys, bilinear, gains, values, target):
        batch, P, N = keys.shape
        L = bilinear.shape[0]
        flat = bilinear.flatten(0, 1)
        # The factor of each layer's row, g_l / L, goes where it costs least.
        shared = gains.numel() == 1
        row_weights = torch.full_like(bilinear[:, 0, 0], 1 / L) if shared else gains / L
        loss = keys.new_zeros(())
        d_query, d_keys = torch.empty_like(query), torch.empty_like(keys)
        d_flat, d_gains = torch.zeros_like(flat), torch.zeros_like(gains)
        chunk = min(batch, chunk_size(L, P, keys.element_size(), keys.device))
        block = min(batch, max(chunk, BLOCK_BYTES[keys.device.type] // (4 * L * N)))
        logits_buffer, p_buffer = keys.new_empty(2, chunk, L, P)
        d_queries = keys.new_empty(block, L, N)
        for first in range(0, batch, block):
            queries = layer_queries(query[first : first + block], bilinear)
            for start in range(first, min(first + block, batch), chunk):
                part = slice(start, min(start + chunk, first + block))
                k, Y, u = keys[part], values[part], queries[start - first :][:chunk]
                logits, p = logits_buffer[: len(u)], p_buffer[: len(u)]
                torch.bmm(u, k.mT, out=logits)
                aten._softmax.out(logits, -1, False, out=p)
                mean_p = torch.bmm(row_weights.expand(len(u), 1, L), p).squeeze(1)
                prediction = torch.bmm(mean_p.unsqueeze(1), Y).squeeze(1)
                residual = (gains * prediction if shared else prediction) - target[part]
                loss += residual.square().sum()
                d_mean = torch.bmm(Y, 2 * residual.unsqueeze(-1)).squeeze(-1)
                if shared:
                    d_gains += (mean_p * d_mean).sum()
                    d_mean = gains * d_mean / L
                else:
                    d_gains += torch.bmm(p, d_mean.unsqueeze(-1)).sum((0, 2)) / L
                    u = u * row_weights[:, None]
                d_logits = aten._softmax_backward_data.out(
                    d_mean.unsqueeze(1).expand_as(p), p, -1, p.dtype, grad_input=logits
                )
                torch.bmm(d_logits, k, out=d_queries[start - first :][: len(u)])
                torch.bmm(d_logits.mT, u, out=d_keys[part])
            here = slice(first, first + block)
            d_block = d_queries[: len(query[here])]
            if not shared:
                d_block *= row_weights[:, None]
            d_flat.addmm_(d_block.flatten(1).mT, query[here])
            torch.mm(d_block.flatten(1), flat, out=d_query[here])
        ctx.save_for_backward(d_query, d_keys, d_flat.view_as(bilinear), d_gains)
        ctx.batch = batch
        return loss / batch

    @staticmethod
    def backward(ctx, d_loss):
        scale = d_loss / ctx.batch
        return *(scale * gradient for gradient in ctx.saved_tensors), None, None


def ensemble_loss(
    query: Tensor, keys: Tensor, bilinear: Tensor, gains: Tensor, values: Tensor, target: Tensor
) -> Tensor:
    """Mean over contexts of |sum_l (g_l / L) p_l Y - t|^2, summed over label channels (eq 12, 60).

    Args:
        query: (B, N) normalized test states.
        keys: (B, P, N) normalized context states.
        bilinear: (L, N, N) products W_k^T W_q.
        gains: (1,) the gain shared by all layers, or (L,) one a layer.
        values: (B, P, m) label channels of the context tokens; not differentiated.
        target: (B, m) label channels of the target; not differentiated.
    """
    return _EnsembleLoss.apply(query, keys, bilinear, gains, values, target)
