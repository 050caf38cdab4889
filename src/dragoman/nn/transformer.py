"""What both Transformer sides share (Vaswani et al. 2017): multi-head attention, feed-forward, norm.

Attention is two batched products and a softmax: at the lengths people train on a CPU with, that is faster than the
fused kernel, and the weights are there for whoever wants to see them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from dragoman.config import ConfigError, Section
from dragoman.nn.layers import Dropout, Linear
from dragoman.nn.positions import PositionKind
from dragoman.nn.precision import trains_here
from dragoman.nn.trained_attention import TrainedAttention


class BlockConfig(Section):
    """Settings of the blocks, alike on both sides."""

    width: int = Field(256, gt=0)
    layers: int = Field(4, gt=0)
    heads: int = Field(4, gt=0)
    feed_forward: int = Field(512, gt=0)
    norm: Literal["pre", "post"] = "pre"  # post: as published
    positions: PositionKind = "sinusoidal"
    max_positions: int = Field(1024, gt=0)  # learned positions only
    dropout: float = Field(0.1, ge=0.0, lt=1.0)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, D) → (B * H, T, D / H)."""
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2).reshape(batch * heads, length, width // heads)


def join_heads(x: Tensor, heads: int) -> Tensor:
    """The inverse of ``split_heads``."""
    rows, length, width = x.shape
    return x.view(rows // heads, heads, length, width).transpose(1, 2).reshape(rows // heads, length, heads * width)


def attend(query: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None, heads: int) -> tuple[Tensor, Tensor]:
    """softmax(Q Kᵀ / sqrt(d)) V, eq. 1, for every head. query (B, Q, D); keys, values (B, S, D).

    ``hidden`` is True where a query must not look, broadcastable to (B, Q, S); None: it may look everywhere.
    Returns the joined contexts (B, Q, D) and the weights (B, H, Q, S).
    """
    if trains_here(query) and keys.shape[1]:
        return TrainedAttention.apply(heads, hidden, query, keys, values)
    batch, asked, width = query.shape
    scale = (width // heads) ** -0.5
    scores = torch.bmm(split_heads(query * scale, heads), split_heads(keys, heads).transpose(1, 2))
    scores = scores.view(batch, heads, asked, -1)
    if hidden is not None:
        scores = scores.masked_fill(hidden[:, None], float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    context = torch.bmm(weights.view(batch * heads, asked, -1), split_heads(values, heads))
    return join_heads(context, heads), weights


def attend_within(projected: Tensor, hidden: Tensor | None, heads: int) -> tuple[Tensor, Tensor]:
    """``attend`` of Q, K and V (B, T, 3 D) that one product has left side by side."""
    if trains_here(projected):
        return TrainedAttention.apply(heads, hidden, projected)
    query, keys, values = projected.chunk(3, -1)
    return attend(query, keys, values, hidden, heads)


class Sublayer(nn.Module):
    """Residual, dropout and layer norm round a function: ``x + f(norm(x))`` (pre) or ``norm(x + f(x))`` (post)."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.dropout = Dropout(config.dropout)
        self.is_pre = config.norm == "pre"

    def forward(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        if self.is_pre:
            return self.dropout.added(x, function(self.norm(x)))
        return self.norm(self.dropout.added(x, function(x)))


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2, eq. 2."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.inner = Linear(config.width, config.feed_forward)
        self.outer = Linear(config.feed_forward, config.width)
        self.dropout = Dropout(config.dropout)
        start(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout.rectified(self.inner(x)))


def check_heads(config: BlockConfig, side: str) -> None:
    if config.width % config.heads:
        raise ConfigError(
            f"{side}.width = {config.width} cannot be shared among heads = {config.heads}; use a multiple"
        )


def start(module: nn.Module) -> None:
    """Xavier for weights, zero for biases."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
