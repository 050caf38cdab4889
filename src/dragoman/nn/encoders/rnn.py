"""Stacked recurrent encoder, read forward, backward or both ways.

``backward`` is the reversed source of Sutskever et al. 2014: states stay at the positions they belong to.
``both`` concatenates the two directions at every position of every layer (Schuster & Paliwal 1997; system E).
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import nn

from dragoman.config import Section
from dragoman.contracts import Encoder
from dragoman.nn.layers import Dropout
from dragoman.nn.recurrent import Cell, make_layer, parts_of, reorder_steps, reversal, run_layer
from dragoman.types import Memory, Padded


class RNN(Encoder):
    reference = "Sutskever et al. 2014; Schuster & Paliwal 1997"

    class Config(Section):
        cell: Cell = "lstm"
        width: int = Field(256, gt=0)  # of one direction
        layers: int = Field(1, gt=0)
        direction: Literal["forward", "backward", "both"] = "both"
        dropout: float = Field(0.0, ge=0.0, lt=1.0)  # between layers

    def __init__(self, config: Config, *, input_width: int) -> None:
        super().__init__()
        self.direction = config.direction
        both = config.direction == "both"
        self.width = config.width * (2 if both else 1)
        self.summary_shape = (config.layers, parts_of(config.cell), self.width)
        widths = [input_width] + [self.width] * (config.layers - 1)
        self.layers = nn.ModuleList(make_layer(config.cell, w, config.width, bidirectional=both) for w in widths)
        self.dropout = Dropout(config.dropout)

    def forward(self, source: Padded) -> Memory:
        x, mask = source.data, source.mask
        full = bool(mask.all())
        lengths = None if full else mask.sum(1).cpu()
        order = None
        if self.direction == "backward":
            order = reversal(mask)
            x = reorder_steps(x, order)
        summaries = []
        for index, layer in enumerate(self.layers):
            x = self.dropout(x) if index else x
            x, last = run_layer(layer, x, None, lengths)  # type: ignore[arg-type]
            summaries.append(last.transpose(1, 2).flatten(2))  # (B, P, directions * H)
        if order is not None:
            x = reorder_steps(x, order)
        return Memory(x, mask, summary=torch.stack(summaries, 1))
