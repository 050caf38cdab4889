"""The base of attention scores: mask, softmax, weighted sum (Bahdanau et al. 2015, eq. 5 and 6)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dragoman.config import ConfigError
from dragoman.nn import kernels
from dragoman.nn.contracts import Attention
from dragoman.nn.lowering import LoweredMemory, Lowering, cannot_lower
from dragoman.types import Memory, Tree


class ScoredAttention(Attention):
    """``weights_ij = softmax_j(score(query_i, key_j))``, ``context_i = sum_j weights_ij value_j``.

    A score defines what a key is (``keys``, computed once per source) and how a query is compared
    with it (``score``).
    """

    def __init__(self, config: Any, *, query_width: int, memory_width: int) -> None:
        super().__init__()
        self.width = memory_width

    def keys(self, states: Tensor) -> Tensor:
        """Return the keys (B, S, K) of states (B, S, D)."""
        return states

    @abstractmethod
    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the scores (B, Q, S) of queries (B, Q, query_width) and keys (B, S, K)."""

    def prepare(self, memory: Memory) -> Tree:
        """Return keys, values and padding of a memory."""
        values = memory.states if memory.values is None else memory.values
        return {"keys": self.keys(memory.states), "values": values, "padding": ~memory.mask}

    def weigh(self, query: Tensor, prepared: Any, previous: Tensor | None = None) -> Tensor:
        """Return the softmax of the scores over real positions, (B, Q, 1, S)."""
        scores = self.score(query, prepared["keys"])  # (B, Q, S)
        weights = torch.softmax(scores.masked_fill(prepared["padding"][:, None], float("-inf")), dim=-1)
        return weights[:, :, None]

    def read(self, weights: Tensor, prepared: Any) -> Tensor:
        """Return the weighted sum of the values, (B, Q, D)."""
        return kernels.loop_weighted_sum(weights.squeeze(2), prepared["values"])

    def lower_keys(self, program: Lowering, states: str) -> str:
        """Add the operations of ``keys`` for states (S, D)."""
        return states

    def lower_score(self, program: Lowering, query: str, keys: str) -> str:
        """Add the operations of ``score`` for one query (1, query_width); return the scores (1, S)."""
        raise cannot_lower(self)

    def lower_prepare(self, program: Lowering, memory: LoweredMemory) -> Mapping[str, str]:
        keys = self.lower_keys(program, memory.states)
        return {"keys": program.fix(keys), "values": program.fix(memory.read)}

    def lower_weigh(self, program: Lowering, query: str, prepared: Mapping[str, str], previous: str | None) -> str:
        return program.add("softmax", self.lower_score(program, query, prepared["keys"]))

    def lower_read(self, program: Lowering, weights: str, prepared: Mapping[str, str]) -> str:
        return program.add("weighted_sum", weights, prepared["values"])


def require_equal_widths(name: str, query_width: int, memory_width: int) -> None:
    """Refuse a score that multiplies queries with states where their widths differ."""
    if query_width != memory_width:
        raise ConfigError(
            f"decoder.attention: {name} needs a decoder as wide as the encoder's states, "
            f"but the decoder has width {query_width} and the states have width {memory_width}; "
            f"set decoder.width={memory_width}, or use kind 'bilinear' or 'additive', which join any two widths"
        )
