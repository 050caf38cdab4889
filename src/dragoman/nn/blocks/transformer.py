"""What the Transformer's encoder and decoder share: sublayers and feed-forward (Vaswani et al. 2017).

Multi-head attention itself is ``kernels.multi_head_attention``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from dragoman.config import ConfigError, Section
from dragoman.nn.blocks.layers import Dropout, Linear
from dragoman.nn.blocks.positions import Positions
from dragoman.nn.init import draw_xavier
from dragoman.nn.lowering import Lowering


class BlockConfig(Section):
    """The settings of the blocks, the same for encoder and decoder."""

    width: int = Field(256, gt=0)
    layers: int = Field(4, gt=0)
    heads: int = Field(4, gt=0)
    feed_forward: int = Field(512, gt=0)
    norm: Literal["pre", "post"] = "pre"
    """Layer normalisation before or after each sublayer. post: as published."""
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """Vectors added to the tokens, or rotary: attention turns queries and keys by their positions, so
    that it sees distances (Su et al. 2021)."""
    max_positions: int = Field(1024, gt=0)
    """Number of positions in the table. For learned positions only."""
    dropout: float = Field(0.1, ge=0.0, lt=1.0)


class Sublayer(nn.Module):
    """Residual, dropout and layer norm around a function f.

    ``x + dropout(f(norm(x)))`` (pre) or ``norm(x + dropout(f(x)))`` (post).
    """

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.dropout = Dropout(config.dropout)
        self.is_pre = config.norm == "pre"

    def forward(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply the function to x (B, T, D) within the residual connection."""
        if self.is_pre:
            return self.dropout.add(x, function(self.norm(x)))
        return self.norm(self.dropout.add(x, function(x)))

    def enter(self, x: Tensor) -> Tensor:
        """Return what the function gets, outside training."""
        if not self.is_pre:
            return x
        norm: Any = self._modules["norm"]  # as in ``weights_of``
        return torch.layer_norm(x, norm.normalized_shape, *weights_of(norm), norm.eps)

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the result for the x that came in and what the function made of it, outside training.

        y is overwritten.
        """
        return y.add_(x) if self.is_pre else self.norm(y.add_(x))

    def lower(self, program: Lowering, x: str, function: Callable[[str], str]) -> str:
        """Add the operations; ``function`` adds those within the residual connection."""
        if self.is_pre:
            return program.add("add", x, function(program.layer_norm(self.norm, x)))
        return program.layer_norm(self.norm, program.add("add", x, function(x)))


def weights_of(layer: Any) -> tuple[Tensor, Tensor]:
    """Return the weight and the bias of a layer.

    ``layer.weight`` is found by a function of Python, which takes longer than the work that a
    single row needs. A search asks for dozens of them for every token.
    """
    parameters = layer._parameters
    return parameters["weight"], parameters["bias"]


class FeedForward(nn.Module):
    """The feed-forward sublayer, max(0, x W1 + b1) W2 + b2 (eq. 2)."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.inner = Linear(config.width, config.feed_forward)
        self.outer = Linear(config.feed_forward, config.width)
        self.dropout = Dropout(config.dropout)
        draw_xavier(self)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position of x (B, T, D)."""
        return self.outer(self.dropout.relu(self.inner(x)))

    def lower(self, program: Lowering, x: str) -> str:
        """Add the operations for x (n, D)."""
        return program.linear(self.outer, program.linear(self.inner, x, "relu"))


def check_heads(config: BlockConfig, side: str) -> None:
    """Refuse a width that the heads cannot share equally.

    ``side`` names the settings in the message.
    """
    if config.width % config.heads:
        raise ConfigError(
            f"{side}.width = {config.width} cannot be shared among heads = {config.heads}; use a multiple"
        )
    if config.positions == "rotary" and config.width // config.heads % 2:
        raise ConfigError(
            f"{side}.positions = 'rotary' turns pairs of numbers, but a head of {side}.width = {config.width} and "
            f"heads = {config.heads} has {config.width // config.heads}; make it even"
        )


def make_positions(config: BlockConfig) -> Positions:
    """Return the position vectors of the tokens, or of rotary positions those of a head, which tell its angles."""
    if config.positions == "rotary":
        return Positions("sinusoidal", config.width // config.heads, config.max_positions)
    return Positions(config.positions, config.width, config.max_positions)
