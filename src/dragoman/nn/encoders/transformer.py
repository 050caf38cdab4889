"""Transformer encoder (Vaswani et al. 2017, section 3.1): every position sees all of the source.

The summary, for decoders that start from one, is the mean of the states.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dragoman.nn import kernels
from dragoman.nn.blocks.layers import Dropout, InferenceLinear, Linear
from dragoman.nn.blocks.rotary import lower_rotate, rotate
from dragoman.nn.blocks.transformer import BlockConfig, FeedForward, Sublayer, check_heads, make_positions
from dragoman.nn.contracts import Encoder
from dragoman.nn.init import draw_xavier
from dragoman.nn.lowering import LoweredMemory, Lowering
from dragoman.types import Memory, Padded


class Transformer(Encoder):
    """A stack of self-attention blocks."""

    reference = "Vaswani et al. 2017; rotary positions: Su et al. 2021"

    class Config(BlockConfig):
        pass

    def __init__(self, config: Config, *, input_width: int) -> None:
        super().__init__()
        check_heads(config, "encoder")
        self.width = config.width
        self.summary_shape = (1, 1, config.width)
        self.scale = math.sqrt(input_width)  # section 3.4
        self.enter = InferenceLinear(input_width, config.width) if input_width != config.width else nn.Identity()
        self.positions = make_positions(config)
        self.is_rotary = config.positions == "rotary"
        self.longest = self.positions.longest
        self.self_attention_shape = (config.layers, config.heads)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.layers))
        self.last_norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()

    def forward(self, source: Padded) -> Memory:
        """Encode ``source`` (B, S, input_width)."""
        return self._run(source, None)

    def self_attention(self, source: Padded) -> Tensor:
        """Return where each position looks, (B, L, H, S, S)."""
        collected: list[Tensor] = []
        self._run(source, collected)
        return torch.stack(collected, 1)

    def _run(self, source: Padded, collected: list[Tensor] | None) -> Memory:
        """Encode ``source``; ``collected`` gets the weights of each layer, (B, H, S, S)."""
        padding = None if bool(source.mask.all()) else ~source.mask[:, None]  # (B, 1, S)
        x = self.enter(source.data * self.scale)
        vectors = self.positions(0, x.shape[1], x) if self.is_rotary else self.positions.of(source, x)
        x = self.dropout(x if self.is_rotary else x + vectors)
        for block in self.blocks:
            x = block(x, padding, vectors if self.is_rotary else None, collected)
        states = self.last_norm(x)  # (B, S, D)
        real = source.mask[:, :, None].to(states.dtype)
        mean = (states * real).sum(1) / real.sum(1)
        return Memory(states, source.mask, summary=mean[:, None, None])

    def lower(self, program: Lowering, x: str) -> LoweredMemory:
        counted = program.counted.get(x)
        x = program.linear(self.enter, program.add("affine", x, factor=self.scale))
        x = x if self.is_rotary else self.positions.lower(program, x, counted)
        for block in self.blocks:
            x = block.lower(program, x)  # type: ignore[operator]
        states = program.layer_norm(self.last_norm, x)
        return LoweredMemory(states, self.width, summary=((program.add("mean", states),),))


class _Block(nn.Module):
    """Self-attention and feed-forward, each within a residual connection."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.heads, self.is_rotary = config.heads, config.positions == "rotary"
        self.project = Linear(config.width, 3 * config.width)  # Q, K and V in one product
        self.join = Linear(config.width, config.width)
        self.around_attention = Sublayer(config)
        self.feed_forward = FeedForward(config)
        self.around_feed_forward = Sublayer(config)
        draw_xavier(self.join)
        for part in self.project.weight.data.chunk(3):
            nn.init.xavier_uniform_(part)
        nn.init.zeros_(self.project.bias)

    def forward(
        self, x: Tensor, padding: Tensor | None, turns: Tensor | None, collected: list[Tensor] | None
    ) -> Tensor:
        """Transform x (B, S, D); ``turns`` (S, d) are the angles of rotary positions."""
        x = self.around_attention(x, lambda y: self._attention(y, padding, turns, collected))
        return self.around_feed_forward(x, self.feed_forward)

    def _attention(
        self, x: Tensor, padding: Tensor | None, turns: Tensor | None, collected: list[Tensor] | None
    ) -> Tensor:
        projected = rotate(self.project(x), turns, self.heads)
        context, weights = kernels.multi_head_self_attention(projected, padding, self.heads)
        if collected is not None:
            collected.append(weights)
        return self.join(context)

    def lower(self, program: Lowering, x: str) -> str:
        """Add the operations for x (S, D)."""

        def attend(y: str) -> str:
            projected = lower_rotate(program, program.linear(self.project, y), self.is_rotary, self.heads)
            context = program.add("self_attention", projected, heads=self.heads)
            return program.linear(self.join, context)

        x = self.around_attention.lower(program, x, attend)
        return self.around_feed_forward.lower(program, x, lambda y: self.feed_forward.lower(program, y))
