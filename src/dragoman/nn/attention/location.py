"""Attention that sees where it looked in the previous step, so that it moves through a recording.

    e_ij = v · tanh(W s_{i-1} + V h_j + U f_ij + b),   f_i = F * α_{i-1}          (Chorowski et al. 2015, eq. 8 and 9)

F are filters over positions. Before the first step the weights are 0, so f_1 = 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from dragoman.config import Section
from dragoman.nn import kernels
from dragoman.nn.blocks.layers import InferenceLinear, LoopLinear
from dragoman.nn.blocks.scored_attention import ScoredAttention
from dragoman.nn.init import drawn_vector
from dragoman.nn.lowering import Lowering, to_array


class Location(ScoredAttention):
    """Additive scores that also see the weights of the previous step."""

    reference = "Chorowski et al. 2015, eq. 8 and 9"
    recurrent = True

    class Config(Section):
        width: int | None = None
        """Width of the hidden layer. None: as wide as the decoder."""
        filters: int = Field(10, gt=0)
        """Number of convolution filters over the last step's weights."""
        kernel: int = Field(31, gt=0)
        """Positions that a filter sees. Odd, so that it sees as many on the left as on the right."""

        @field_validator("kernel")
        @classmethod
        def _odd(cls, kernel: int) -> int:
            if kernel % 2 == 0:
                raise ValueError("must be odd, so that a filter sees as far to its left as to its right")
            return kernel

    def __init__(self, config: Config, *, query_width: int, memory_width: int) -> None:
        super().__init__(config, query_width=query_width, memory_width=memory_width)
        hidden = config.width or query_width
        self.query = LoopLinear(query_width, hidden, bias=False)  # W
        self.key = InferenceLinear(memory_width, hidden)  # V and b
        self.vector = drawn_vector(hidden)  # v
        self.filters = nn.Conv1d(1, config.filters, config.kernel, padding=config.kernel // 2, bias=False)  # F
        self.place = LoopLinear(config.filters, hidden, bias=False)  # U

    def keys(self, states: Tensor) -> Tensor:
        return self.key(states)

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        return kernels.additive_score(self.query(query), keys, self.vector)

    def weigh(self, query: Tensor, prepared: Any, previous: Tensor | None = None) -> Tensor:
        if previous is None:
            return super().weigh(query, prepared)
        batch, queries, _, length = previous.shape
        features = self.filters(previous.reshape(batch * queries, 1, length))  # (B * Q, filters, S)
        keys = prepared["keys"][:, None] + self.place(features.transpose(1, 2)).view(batch, queries, length, -1)
        # every query has its own keys: B * Q sources with one query each
        scores = self.score(query.reshape(batch * queries, 1, -1), keys.flatten(0, 1)).view(batch, queries, length)
        return torch.softmax(scores.masked_fill(prepared["padding"][:, None], float("-inf")), dim=-1)[:, :, None]

    def lower_keys(self, program: Lowering, states: str) -> str:
        return program.linear(self.key, states)

    def lower_score(self, program: Lowering, query: str, keys: str) -> str:
        projected = program.linear(self.query, query)
        return program.add("additive_scores", projected, keys, weights=[program.parameter(self.vector)])

    def lower_weigh(self, program: Lowering, query: str, prepared: Mapping[str, str], previous: str | None) -> str:
        assert previous is not None
        filters = program.parameter(self.filters.weight, ".filters", to_array(self.filters.weight)[:, 0])  # (F, k)
        weights = [filters, program.parameter(self.place.weight)]
        keys = program.add("locate", previous, prepared["keys"], weights=weights)
        return program.add("softmax", self.lower_score(program, query, keys))
