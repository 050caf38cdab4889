"""Stacked recurrent encoder, run forward, backward or in both directions.

``backward`` is the reversed source of Sutskever et al. 2014; each state stays at the position it
belongs to. ``both`` concatenates the two directions at every position of every layer (Schuster &
Paliwal 1997).
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import nn

from dragoman.config import Section
from dragoman.nn.blocks.layers import Dropout
from dragoman.nn.blocks.recurrent import Cell, lower_layer, make_layer, run_layer, state_parts
from dragoman.nn.contracts import Encoder
from dragoman.nn.lowering import LoweredMemory, Lowering
from dragoman.nn.padding import reorder_positions, reversed_order
from dragoman.types import Memory, Padded


class RNN(Encoder):
    """A stack of recurrent layers. The summary holds the last state of each layer."""

    reference = "Sutskever et al. 2014; Schuster & Paliwal 1997"

    class Config(Section):
        cell: Cell = "lstm"
        width: int = Field(256, gt=0)
        """Width of one direction."""
        layers: int = Field(1, gt=0)
        direction: Literal["forward", "backward", "both"] = "both"
        dropout: float = Field(0.0, ge=0.0, lt=1.0)
        """Dropout between layers."""

    def __init__(self, config: Config, *, input_width: int) -> None:
        super().__init__()
        self.direction = config.direction
        both = config.direction == "both"
        self.width = config.width * (2 if both else 1)
        self.summary_shape = (config.layers, state_parts(config.cell), self.width)
        widths = [input_width] + [self.width] * (config.layers - 1)
        self.layers = nn.ModuleList(make_layer(config.cell, w, config.width, bidirectional=both) for w in widths)
        self.dropout = Dropout(config.dropout)

    def forward(self, source: Padded) -> Memory:
        """Encode ``source`` (B, S, input_width)."""
        x, mask = source.data, source.mask
        full = bool(mask.all())
        lengths = None if full else mask.sum(1).cpu()
        order = None
        if self.direction == "backward":
            order = reversed_order(mask)
            x = reorder_positions(x, order)
        summaries = []
        for index, layer in enumerate(self.layers):
            x = self.dropout(x) if index else x
            x, last = run_layer(layer, x, None, lengths)  # type: ignore[arg-type]
            summaries.append(last.transpose(1, 2).flatten(2))  # (B, P, directions * H)
        if order is not None:
            x = reorder_positions(x, order)
        return Memory(x, mask, summary=torch.stack(summaries, 1))

    def lower(self, program: Lowering, x: str) -> LoweredMemory:
        summary = []
        for layer in self.layers:
            x, last = lower_layer(program, layer, x, backward=self.direction == "backward")  # type: ignore[arg-type]
            summary.append(last)
        return LoweredMemory(x, self.width, summary=tuple(summary))
