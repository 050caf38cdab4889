"""score(s, h) = s · h (Luong et al. 2015, eq. 8, "dot")."""

from __future__ import annotations

import torch
from torch import Tensor

from dragoman.config import Section
from dragoman.nn.blocks.scored_attention import ScoredAttention, require_equal_widths
from dragoman.nn.lowering import Lowering


class Dot(ScoredAttention):
    """Scores by the dot product of query and key."""

    reference = "Luong et al. 2015, eq. 8"

    class Config(Section):
        pass

    def __init__(self, config: Config, *, query_width: int, memory_width: int) -> None:
        super().__init__(config, query_width=query_width, memory_width=memory_width)
        require_equal_widths("dot", query_width, memory_width)

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        return torch.bmm(query, keys.transpose(1, 2))

    def lower_score(self, program: Lowering, query: str, keys: str) -> str:
        return program.add("dot_scores", query, keys)
