"""score(s, h) = β cos(s, h) (Graves et al. 2014, eq. 5 and 6).

A cosine lies in [-1, 1], so its softmax is nearly flat. The paper's key strength β, learned here,
sharpens it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dragoman.config import Section
from dragoman.nn.blocks.scored_attention import ScoredAttention, require_equal_widths
from dragoman.nn.lowering import Lowering


class Cosine(ScoredAttention):
    """Scores by the cosine of query and key, times a learned strength."""

    reference = "Graves et al. 2014, eq. 5 and 6"

    class Config(Section):
        strength: float = 5.0
        """Initial value of β."""

    def __init__(self, config: Config, *, query_width: int, memory_width: int) -> None:
        super().__init__(config, query_width=query_width, memory_width=memory_width)
        require_equal_widths("cosine", query_width, memory_width)
        self.log_strength = nn.Parameter(torch.tensor(math.log(config.strength)))

    def keys(self, states: Tensor) -> Tensor:
        return nn.functional.normalize(states, dim=-1)

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        directions = nn.functional.normalize(query, dim=-1) * self.log_strength.exp()
        return torch.bmm(directions, keys.transpose(1, 2))

    def lower_keys(self, program: Lowering, states: str) -> str:
        return program.add("normalize", states)

    def lower_score(self, program: Lowering, query: str, keys: str) -> str:
        return program.add(
            "dot_scores", program.add("normalize", query), keys, scale=float(self.log_strength.detach().exp())
        )
