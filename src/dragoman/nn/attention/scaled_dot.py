"""score(s, h) = s · h / sqrt(D) (Vaswani et al. 2017, eq. 1)."""

from __future__ import annotations

import torch
from torch import Tensor

from dragoman.config import Section
from dragoman.nn.blocks.scored_attention import ScoredAttention, require_equal_widths
from dragoman.nn.lowering import Lowering


class ScaledDot(ScoredAttention):
    """Scores by the dot product of query and key, divided by sqrt(D)."""

    reference = "Vaswani et al. 2017, eq. 1"

    class Config(Section):
        pass

    def __init__(self, config: Config, *, query_width: int, memory_width: int) -> None:
        super().__init__(config, query_width=query_width, memory_width=memory_width)
        require_equal_widths("scaled_dot", query_width, memory_width)

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        return torch.bmm(query * query.shape[-1] ** -0.5, keys.transpose(1, 2))

    def lower_score(self, program: Lowering, query: str, keys: str) -> str:
        return program.add("dot_scores", query, keys, scale=float(self.width**-0.5))
