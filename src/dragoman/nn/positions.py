"""Vectors that tell a position: fixed waves, or learned."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from dragoman.config import TooLong

PositionKind = Literal["sinusoidal", "learned"]


class Positions(nn.Module):
    """Vectors that say where: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(…); or learned ones."""

    def __init__(self, kind: PositionKind, width: int, most: int) -> None:
        super().__init__()
        self.width, self.most = width, most
        self.table = nn.Parameter(torch.randn(most, width) * width**-0.5) if kind == "learned" else None

    def forward(self, begin: int, length: int, like: Tensor) -> Tensor:
        """(length, D) for the positions from ``begin`` on."""
        if self.table is None:
            return sinusoids(begin, length, self.width).to(like)
        if begin + length > self.most:
            raise TooLong(
                f"a sequence of {begin + length} positions is longer than max_positions = {self.most}; "
                "cut it, or train with a larger max_positions or with positions = 'sinusoidal'"
            )
        return self.table[begin : begin + length]


def sinusoids(begin: int, length: int, width: int) -> Tensor:
    places = torch.arange(begin, begin + length, dtype=torch.float)[:, None]
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float) * (-math.log(10000.0) / width))
    angles = places * rates  # (length, width / 2)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]
