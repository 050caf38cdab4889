"""Vectors for positions, sinusoidal or learned."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from dragoman.config import TooLong
from dragoman.nn.lowering import Lowering

PositionKind = Literal["sinusoidal", "learned"]


class Positions(nn.Module):
    """Position vectors, learned or PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(…)."""

    def __init__(self, kind: PositionKind, width: int, max_positions: int) -> None:
        """Make vectors of a width. ``max_positions`` is the size of a learned table."""
        super().__init__()
        self.width = width
        self.longest = max_positions if kind == "learned" else None  # None: any number
        self.table = nn.Parameter(torch.randn(max_positions, width) * width**-0.5) if kind == "learned" else None

    def forward(self, begin: int, length: int, like: Tensor) -> Tensor:
        """Return the vectors (length, D) of the positions from ``begin`` on."""
        if self.table is None or self.longest is None:
            if torch.is_grad_enabled():
                return sinusoids(begin, length, self.width).to(like)
            return kept_sinusoids(begin + length, self.width)[begin : begin + length].to(like)
        if begin + length > self.longest:
            raise TooLong(
                f"a sequence of {begin + length} positions is longer than max_positions = {self.longest}; "
                "cut it, or train with a larger max_positions or with positions = 'sinusoidal'"
            )
        return self.table[begin : begin + length]

    def lower(self, program: Lowering, x: str) -> str:
        """Add the position vectors to x (n, D)."""
        weights = [] if self.table is None else [program.parameter(self.table)]
        return program.add("positions", x, weights=weights)


_kept: dict[int, Tensor] = {}  # by width: the sinusoids of the first positions


def kept_sinusoids(length: int, width: int) -> Tensor:
    """Return sinusoids of at least ``length`` positions, which are computed once: a search needs a row per token."""
    table = _kept.get(width)
    if table is None or len(table) < length:
        table = _kept[width] = sinusoids(0, max(256, 2 * length), width)
    return table


def sinusoids(begin: int, length: int, width: int) -> Tensor:
    """Return sinusoidal position vectors (length, width) (Vaswani et al. 2017, section 3.5)."""
    positions = torch.arange(begin, begin + length, dtype=torch.float)[:, None]
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float) * (-math.log(10000.0) / width))
    angles = positions * rates  # (length, width / 2)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]
