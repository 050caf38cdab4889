"""score(s, h) = w2 · tanh(W1 [h; s]): the additive score written with one matrix (Luong et al. 2015, eq. 8, "concat").

W1 is one parameter; its left columns meet h and are applied once per source, its right columns meet s.
"""

from __future__ import annotations

from torch import Tensor, nn

from dragoman.config import Section
from dragoman.nn.mlp_score import loop_mlp_score, start_vector
from dragoman.nn.scoring import ScoredAttention


class Concat(ScoredAttention):
    reference = "Luong et al. 2015, eq. 8"

    class Config(Section):
        width: int | None = None  # of the hidden layer; as wide as the decoder if not said

    def __init__(self, config: Config, *, query_width: int, memory_width: int) -> None:
        super().__init__(config, query_width=query_width, memory_width=memory_width)
        hidden = config.width or query_width
        self.joint = nn.Linear(memory_width + query_width, hidden, bias=False)  # W1
        self.vector = start_vector(hidden)  # w2

    def keys(self, states: Tensor) -> Tensor:
        return nn.functional.linear(states, self.joint.weight[:, : self.width])

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        projected = nn.functional.linear(query, self.joint.weight[:, self.width :])
        return loop_mlp_score(projected, keys, self.vector)
