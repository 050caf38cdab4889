"""Pyramidal recurrent encoder: higher layers read pairs of steps, which shortens long recordings.

    h_i^j = BLSTM(h_{i-1}^j, [h_{2i}^{j-1}; h_{2i+1}^{j-1}])          (Chan et al. 2016, eq. 5)

A last step without a partner is paired with zeros, as padding is. So the real positions,
ceil(S / stride) of them, do not depend on how much padding follows.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from dragoman.config import Section
from dragoman.nn.blocks.layers import Dropout
from dragoman.nn.blocks.recurrent import Cell, lower_layer, make_layer, run_layer, state_parts
from dragoman.nn.contracts import Encoder
from dragoman.nn.lowering import LoweredMemory, Lowering
from dragoman.types import Memory, Padded


class Pyramid(Encoder):
    """Bidirectional layers, of which all but the first may halve the sequence."""

    reference = "Chan et al. 2016, eq. 5"

    class Config(Section):
        cell: Cell = "lstm"
        width: int = Field(256, gt=0)
        """Width of one direction."""
        layers: int = Field(4, gt=0)
        halvings: int | None = Field(None, ge=0)
        """Number of layers that read pairs of steps, from the second layer on. None: all of those."""
        dropout: float = Field(0.0, ge=0.0, lt=1.0)
        """Dropout between layers."""

        @model_validator(mode="after")
        def _has_layers(self) -> Any:
            if self.halvings is not None and self.halvings > self.layers - 1:
                raise ValueError(
                    f"halvings = {self.halvings} needs at least {self.halvings + 1} layers: the first reads every step"
                )
            return self

    def __init__(self, config: Config, *, input_width: int) -> None:
        super().__init__()
        self.halvings = config.layers - 1 if config.halvings is None else config.halvings
        self.stride = 2**self.halvings
        self.width = 2 * config.width
        self.summary_shape = (config.layers, state_parts(config.cell), self.width)
        widths = [input_width]
        widths += [self.width * (2 if index <= self.halvings else 1) for index in range(1, config.layers)]
        self.layers = nn.ModuleList(make_layer(config.cell, w, config.width, bidirectional=True) for w in widths)
        self.dropout = Dropout(config.dropout)

    def forward(self, source: Padded) -> Memory:
        """Encode ``source`` (B, S, input_width)."""
        x, mask = source.data, source.mask
        lengths = None if bool(mask.all()) else mask.sum(1).cpu()
        summaries = []
        for index, layer in enumerate(self.layers):
            if 1 <= index <= self.halvings:
                x, mask = pair_steps(x), mask[:, ::2]  # a pair is real if its first step is
                lengths = None if lengths is None else torch.div(lengths + 1, 2, rounding_mode="floor")
            x = self.dropout(x) if index else x
            x, last = run_layer(layer, x, None, lengths)  # type: ignore[arg-type]
            summaries.append(last.transpose(1, 2).flatten(2))  # (B, P, 2 * H)
        return Memory(x, mask, summary=torch.stack(summaries, 1))

    def lower(self, program: Lowering, x: str) -> LoweredMemory:
        summary = []
        for index, layer in enumerate(self.layers):
            if 1 <= index <= self.halvings:
                x = program.add("pair", x)
            x, last = lower_layer(program, layer, x)  # type: ignore[arg-type]
            summary.append(last)
        return LoweredMemory(x, self.width, summary=tuple(summary))


def pair_steps(x: Tensor) -> Tensor:
    """Concatenate neighbouring steps: (B, S, D), zero on padding → (B, ceil(S / 2), 2 * D)."""
    if x.shape[1] % 2:
        x = nn.functional.pad(x, (0, 0, 0, 1))
    return x.reshape(len(x), -1, 2 * x.shape[2])
