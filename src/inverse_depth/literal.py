"""The oracle: every model straight from its equations, over all P + 1 tokens with the full mask.

Slow on purpose and used only to judge the fast forms. All functions take one label channel at a
time: X (B, d, P + 1) with the test token last, y_in (B, 1, P + 1) with zero in the test slot.
"""

import torch
from torch import Tensor
from torch.nn.functional import gelu


def context_mask(P: int, context_to_context: float | Tensor) -> Tensor:
    """M (P + 1, P + 1): `context_to_context` block, test row one, test column zero (eq 75-77)."""
    mask = torch.zeros(P + 1, P + 1, dtype=torch.float64)
    mask[P, :P] = 1.0
    block = torch.zeros_like(mask)
    block[:P, :P] = 1.0
    return mask + block * context_to_context


def masked_softmax(scores: Tensor) -> Tensor:
    """Softmax of each row over the P context tokens, the test column excluded (eq 10)."""
    scores = scores.clone()
    scores[..., -1] = -torch.inf
    return torch.softmax(scores, dim=-1)


def pre_norm(states: Tensor, norm: str) -> Tensor:
    """RMS norm over the hidden dimension N of (B, N, P + 1) states, without learned scale."""
    if norm == "none":
        return states
    return states / (states.square().mean(-2, keepdim=True) + 1e-12).sqrt()


def input_stream(W_x: Tensor, X: Tensor) -> Tensor:
    """H_x = W_x X (eq 8)."""
    return W_x @ X


def layer(weights: Tensor, index: int) -> Tensor:
    """The matrix of one layer from (L, N, N), tied (1, N, N) or shared (N, N) weights."""
    if weights.dim() == 2:
        return weights
    return weights[index % weights.shape[0]]


def two_stream(
    parameters: dict[str, Tensor], depth: int, norm: str, X: Tensor, y_in: Tensor
) -> Tensor:
    """Predictions (B,) of the nonlinear model, of layer values, and of context updates.

    Eq 8-10 and 12, with W_v per layer (eq 71) where `W_v` is (L, N, N), and the learned scalar
    `m` in the mask (eq 77) where it is a parameter.
    """
    P = X.shape[-1] - 1
    normalized = pre_norm(input_stream(parameters["W_x"], X), norm)
    mask = context_mask(P, parameters.get("m", 0.0)).to(X)
    H_y = parameters["W_y"] @ y_in
    for index in range(depth):
        Q = layer(parameters["W_q"], index) @ normalized
        K = layer(parameters["W_k"], index) @ normalized
        V = layer(parameters["W_v"], index) @ H_y
        A = mask * masked_softmax(Q.mT @ K)
        H_y = H_y + V @ A.mT / depth
    return (parameters["W_o"] @ H_y)[:, 0, -1]


def linear(parameters: dict[str, Tensor], depth: int, X: Tensor, y_in: Tensor) -> Tensor:
    """Predictions (B,) of linear attention (eq 8, 11, 12, 75)."""
    P, N = X.shape[-1] - 1, parameters["W_x"].shape[0]
    H_x = input_stream(parameters["W_x"], X)
    mask = context_mask(P, -1.0).to(X)
    H_y = parameters["W_y"] @ y_in
    for index in range(depth):
        Q = layer(parameters["W_q"], index) @ H_x
        K = layer(parameters["W_k"], index) @ H_x
        V = layer(parameters["W_v"], index) @ H_y
        A = mask * (Q.mT @ K) / (P * N)
        H_y = H_y + V @ A.mT / depth
    return (parameters["W_o"] @ H_y)[:, 0, -1]


def single_stream(
    parameters: dict[str, Tensor], depth: int, norm: str, X: Tensor, y_in: Tensor
) -> Tensor:
    """Test-token readouts z_0 ... z_L (B, L + 1) of the single-stream model (eq 64-67).

    With weights `W_1` and `W_2`, a residual MLP block follows each attention block.
    """
    P = X.shape[-1] - 1
    H = parameters["W_x"] @ X + parameters["W_y"] @ y_in
    mask = context_mask(P, 0.0).to(X)
    readouts = [(parameters["W_o"] @ H)[:, 0, -1]]
    for index in range(depth):
        normalized = pre_norm(H, norm)
        Q = layer(parameters["W_q"], index) @ normalized
        K = layer(parameters["W_k"], index) @ normalized
        V = layer(parameters["W_v"], index) @ H
        A = mask * masked_softmax(Q.mT @ K)
        H = H + V @ A.mT / depth
        if "W_1" in parameters:
            hidden = layer(parameters["W_1"], index) @ pre_norm(H, norm)
            H = H + layer(parameters["W_2"], index) @ gelu(hidden) / depth
        readouts.append((parameters["W_o"] @ H)[:, 0, -1])
    return torch.stack(readouts, dim=-1)
