"""Vectors for positions, sinusoidal or learned."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from dragoman.config import TooLong
from dragoman.nn.lowering import Lowering, to_array
from dragoman.types import Padded

PositionKind = Literal["sinusoidal", "learned"]
LOWERED_POSITIONS = 512  # most positions of a program that counts them, if there is no table
COUNTING = "positions.one"  # the weight by which a program counts positions itself
SHARPNESS = 64.0  # a neighbour's weight is exp(-32)


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

    def of(self, source: Padded, like: Tensor) -> Tensor:
        """Return the vectors of all positions of a source, (S, D), or (B, S, D) if some are not counted.

        A position that is not counted has a vector of zeros.
        """
        vectors = self(0, source.mask.shape[1], like)
        if source.numbers is None:
            return vectors
        return vectors[source.numbers.clamp_min(0)] * (source.numbers >= 0)[..., None]

    def lower(self, program: Lowering, x: str, counted: str | None = None) -> str:
        """Add the position vectors to x (n, D). ``counted`` (n, 1) is 0 for rows that take no position."""
        if counted is None:
            weights = [] if self.table is None else [program.parameter(self.table)]
            return program.add("positions", x, weights=weights)
        return program.add("add", x, self._lower_numbered(program, counted))

    def _lower_numbered(self, program: Lowering, counted: str) -> str:
        """Return the vectors (n, D) of positions that have to be counted first, with no operation of its own.

        A recurrent layer adds up how many are counted so far, c. The softmax over j of a (c j - j² / 2)
        is 1 where j = c and as good as 0 elsewhere, so a product with the table reads its row c.
        """
        table = sinusoids(0, LOWERED_POSITIONS, self.width) if self.table is None else self.table
        most, kept = len(table), f"positions.{len(table)}"
        one = program.weight(COUNTING, np.ones((1, 1), np.float32))
        # an operation that refuses more rows than there are in the table
        checked = program.add("positions", counted, weights=[program.weight(f"{kept}.zeros", np.zeros((most, 1)))])
        zero = program.weight("positions.zero", np.zeros(1, np.float32))
        sums = program.add("recurrent", checked, weights=[one, one, zero], cell="relu")
        row = np.arange(1, most + 1, dtype=np.float32)
        scores = [
            program.weight(f"{kept}.slopes", SHARPNESS * row[:, None]),
            program.weight(f"{kept}.offsets", -SHARPNESS / 2 * row**2),
        ]
        chosen = program.add("softmax", program.add("linear", sums, weights=scores))
        columns = np.ascontiguousarray(to_array(table).T)  # (D, M)
        if self.table is None:
            name = program.weight(f"{kept}.sinusoids.{self.width}", columns)
        else:
            name = program.parameter(self.table, ".columns", columns)
        return program.add("multiply", program.add("linear", chosen, weights=[name]), counted)


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
