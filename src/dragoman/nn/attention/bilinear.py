"""score(s, h) = s W h, sides of any widths (Luong et al. 2015, eq. 8, "general")."""

from __future__ import annotations

import torch
from torch import Tensor

from dragoman.config import Section
from dragoman.nn.blocks.layers import InferenceLinear
from dragoman.nn.blocks.scored_attention import ScoredAttention
from dragoman.nn.lowering import Lowering


class Bilinear(ScoredAttention):
    """Scores by a learned matrix between query and key."""

    reference = "Luong et al. 2015, eq. 8"

    class Config(Section):
        pass

    def __init__(self, config: Config, *, query_width: int, memory_width: int) -> None:
        super().__init__(config, query_width=query_width, memory_width=memory_width)
        self.project = InferenceLinear(memory_width, query_width, bias=False)

    def keys(self, states: Tensor) -> Tensor:
        return self.project(states)  # W h, once per source

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        return torch.bmm(query, keys.transpose(1, 2))

    def lower_keys(self, program: Lowering, states: str) -> str:
        return program.linear(self.project, states)

    def lower_score(self, program: Lowering, query: str, keys: str) -> str:
        return program.add("dot_scores", query, keys)
