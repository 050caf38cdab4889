"""score(s, h) = w2 · tanh(W1 [h; s]), additive with one matrix (Luong et al. 2015, eq. 8, "concat").

W1 is one parameter. Its left columns multiply h, once per source; its right columns multiply s.
"""

from __future__ import annotations

from torch import Tensor, nn

from dragoman.config import Section
from dragoman.nn import kernels
from dragoman.nn.blocks.scored_attention import ScoredAttention
from dragoman.nn.init import drawn_vector
from dragoman.nn.lowering import Lowering, to_array


class Concat(ScoredAttention):
    """Scores by a hidden layer over key and query side by side."""

    reference = "Luong et al. 2015, eq. 8"

    class Config(Section):
        width: int | None = None
        """Width of the hidden layer. None: as wide as the decoder."""

    def __init__(self, config: Config, *, query_width: int, memory_width: int) -> None:
        super().__init__(config, query_width=query_width, memory_width=memory_width)
        hidden = config.width or query_width
        self.joint = nn.Linear(memory_width + query_width, hidden, bias=False)  # W1
        self.vector = drawn_vector(hidden)  # w2

    def keys(self, states: Tensor) -> Tensor:
        return nn.functional.linear(states, self.joint.weight[:, : self.width])

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        projected = nn.functional.linear(query, self.joint.weight[:, self.width :])
        return kernels.loop_additive_score(projected, keys, self.vector)

    def lower_keys(self, program: Lowering, states: str) -> str:
        columns = to_array(self.joint.weight)[:, : self.width]
        return program.add("linear", states, weights=[program.parameter(self.joint.weight, ".states", columns)])

    def lower_score(self, program: Lowering, query: str, keys: str) -> str:
        columns = to_array(self.joint.weight)[:, self.width :]
        projected = program.add("linear", query, weights=[program.parameter(self.joint.weight, ".query", columns)])
        return program.add("additive_scores", projected, keys, weights=[program.parameter(self.vector)])
