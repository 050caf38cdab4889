"""v · tanh(q + k) for all pairs of queries and keys, fast on a CPU.

tanh(x) = 2 sigmoid(2x) - 1, and torch's sigmoid is four times as fast as its tanh there. The big tensor
(B, Q, S, K) is touched three times forward and three times backward, and lives once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dragoman.nn.precision import full_precision


def start_vector(width: int) -> nn.Parameter:
    vector = torch.empty(width)
    nn.init.uniform_(vector, -(width**-0.5), width**-0.5)
    return nn.Parameter(vector)


class _MLPScore(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
        summed = (query[:, :, None] + keys[:, None]).mul_(2)  # (B, Q, S, K)
        gates = summed.sigmoid_()
        ctx.save_for_backward(gates, vector)
        scores = gates.view(-1, gates.shape[-1]) @ (2 * vector)
        return scores.view(gates.shape[:-1]) - vector.sum()  # (B, Q, S)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gates, vector = ctx.saved_tensors
        flat = gradient.reshape(-1)
        # d tanh / d x = 4 gates (1 - gates); d score / d v = 2 gates - 1
        to_vector = 2 * (flat @ gates.view(-1, gates.shape[-1])) - flat.sum()
        slope = torch.addcmul(gates, gates, gates, value=-1)
        slope = slope.mul_(gradient[..., None]).mul_(4 * vector)  # (B, Q, S, K)
        to_query = slope.sum(2)
        to_keys = slope[:, 0] if slope.shape[1] == 1 else slope.sum(1)
        return to_query, to_keys, to_vector


@full_precision
def mlp_score(query: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """(B, Q, K), (B, S, K), (K,) → (B, Q, S)."""
    return _MLPScore.apply(query, keys, vector)
