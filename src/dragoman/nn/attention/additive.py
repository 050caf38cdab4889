"""score(s, h) = v · tanh(W1 s + W2 h) (Bahdanau et al. 2015, appendix A.1.2)."""

from __future__ import annotations

from torch import Tensor

from dragoman.config import Section
from dragoman.nn import kernels
from dragoman.nn.blocks.layers import InferenceLinear, LoopLinear
from dragoman.nn.blocks.scored_attention import ScoredAttention
from dragoman.nn.init import drawn_vector
from dragoman.nn.lowering import Lowering


class Additive(ScoredAttention):
    """Scores by a hidden layer that adds query and key."""

    reference = "Bahdanau et al. 2015, A.1.2"

    class Config(Section):
        width: int | None = None
        """Width of the hidden layer. None: as wide as the decoder."""

    def __init__(self, config: Config, *, query_width: int, memory_width: int) -> None:
        super().__init__(config, query_width=query_width, memory_width=memory_width)
        hidden = config.width or query_width
        self.query = LoopLinear(query_width, hidden, bias=False)  # W1
        self.key = InferenceLinear(memory_width, hidden)  # W2
        self.vector = drawn_vector(hidden)  # v

    def keys(self, states: Tensor) -> Tensor:
        return self.key(states)

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        return kernels.loop_additive_score(self.query(query), keys, self.vector)

    def lower_keys(self, program: Lowering, states: str) -> str:
        return program.linear(self.key, states)

    def lower_score(self, program: Lowering, query: str, keys: str) -> str:
        projected = program.linear(self.query, query)
        return program.add("additive_scores", projected, keys, weights=[program.parameter(self.vector)])
