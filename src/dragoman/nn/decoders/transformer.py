"""Transformer decoder (Vaswani et al. 2017, section 3.1): self-attention to the past, cross-attention to the memory.

The carry holds keys and values of all tokens so far (a cache), so one call advances by any number of tokens. Keys
and values of the memory are projected once per source; the k hypotheses of a source ask as k * T queries of one
product. Without memory it is a causal language model. Where it has read rows of different length, the carry says
which entries of the cache are padding (``gaps``): nobody looks there, and positions count real entries only.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from dragoman.contracts import ReadingDecoder
from dragoman.nn.layers import Dropout, Embedding, Linear
from dragoman.nn.positions import Positions
from dragoman.nn.transformer import BlockConfig, FeedForward, Sublayer, attend, attend_within, check_heads, start
from dragoman.types import Memory, Padded, State, Step


class Transformer(ReadingDecoder):
    reference = "Vaswani et al. 2017"

    class Config(BlockConfig):
        embedding: int | None = Field(None, gt=0)  # width of a token's vector; as wide as the decoder if not said
        tie_embeddings: bool = True  # the output layer uses the token vectors

    def __init__(
        self,
        config: Config,
        *,
        vocabulary: int,
        memory_width: int | None,
        summary_shape: tuple[int, int, int] | None,
    ) -> None:
        super().__init__()
        check_heads(config, "decoder")
        vector = config.embedding or config.width
        self.vocabulary, self.width, self.heads = vocabulary, config.width, config.heads
        self.maps = 0 if memory_width is None else config.layers * config.heads
        self.scale = math.sqrt(vector)
        self.embedding = Embedding(vocabulary, vector)
        self.enter = nn.Linear(vector, config.width) if vector != config.width else nn.Identity()
        self.positions = Positions(config.positions, config.width, config.max_positions)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(_Block(config, memory_width) for _ in range(config.layers))
        self.last_norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()
        tied = config.tie_embeddings
        self.leave = nn.Linear(config.width, vector) if tied and vector != config.width else nn.Identity()
        self.project = nn.Linear(vector if tied else config.width, vocabulary, bias=False)  # section 3.4: no bias
        start(self.project)
        if tied:
            self.project.weight = self.embedding.weight

    def start(self, memory: Memory | None, sources: int) -> State:
        empty = self.project.weight.new_zeros(sources, 0, self.width)
        carry = {str(index): {"keys": empty, "values": empty} for index in range(len(self.blocks))}
        fixed: dict[str, Any] = {}
        if memory is not None:
            fixed = {str(index): block.prepare(memory) for index, block in enumerate(self.blocks)}  # type: ignore[operator]
            fixed["padding"] = ~memory.mask
        return State(sources, fixed, carry)

    def forward(self, tokens: Tensor, state: State, need_attention: bool = False) -> Step:
        return self._advance(self.embedding(tokens), state, need_attention)

    def read(self, vectors: Padded, state: State) -> tuple[Tensor, State]:
        step = self._advance(vectors.data, state, False)  # padding stands behind, so causality hides it here
        carry: Any = step.state.carry
        if not bool(vectors.mask.all()):
            before = carry["0"]["keys"].shape[1] - vectors.data.shape[1]
            earlier = carry.get("gaps", vectors.mask[:, :0])
            earlier = nn.functional.pad(earlier, (0, before - earlier.shape[1]))
            carry = {**carry, "gaps": torch.cat([earlier, ~vectors.mask], 1)}  # (N, P) True = padding
        return step.features, State(state.sources, state.fixed, carry)

    def self_attention(self, tokens: Tensor, state: State) -> Tensor:
        seen: list[Tensor] = []
        self._advance(self.embedding(tokens), state, False, seen)
        return torch.stack(seen, 1)  # (N, L, H, T, P)

    def _advance(self, vectors: Tensor, state: State, need_attention: bool, seen: list[Tensor] | None = None) -> Step:
        """vectors (N, T, E), of tokens or read; ``seen`` collects the self-attention of each layer, (N, H, T, P)."""
        fixed: Any = state.fixed
        carry: Any = state.carry
        past = carry["0"]["keys"].shape[1]
        gaps = carry.get("gaps")
        x = self.enter(vectors * self.scale)  # (N, T, D)
        length = x.shape[1]
        x = self.dropout(x + self._places(past, gaps, x))
        future = None  # what a position must not look at: later ones, and gaps
        if length > 1:
            future = torch.ones(length, past + length, dtype=torch.bool, device=x.device).triu(past + 1)[None]
        if gaps is not None:
            nothing = nn.functional.pad(gaps, (0, past + length - gaps.shape[1]))[:, None]  # (N, 1, past + T)
            future = nothing if future is None else future | nothing
        padding = fixed["padding"][:, None] if "padding" in fixed else None  # (B, 1, S)
        carried: dict[str, Any] = {} if gaps is None else {"gaps": gaps}
        maps: list[Tensor] | None = [] if need_attention else None
        for index, block in enumerate(self.blocks):
            name = str(index)
            x, carried[name] = block(x, carry[name], fixed.get(name), future, padding, seen, maps)
        features = self.leave(self.last_norm(x))
        attention = torch.cat(maps, 2) if maps else None  # (N, T, L * H, S)
        return Step(features, self.project, State(state.sources, fixed, carried), attention)

    def _places(self, past: int, gaps: Tensor | None, x: Tensor) -> Tensor:
        """Vectors of the positions of x: (T, D), or (N, T, D) where rows have read different numbers of tokens."""
        if gaps is None:
            return self.positions(past, x.shape[1], x)
        begin = past - gaps.sum(1, keepdim=True)  # (N, 1)
        places = begin + torch.arange(x.shape[1], device=x.device)  # (N, T)
        return self.positions(0, int(places.max()) + 1, x)[places]


class _Block(nn.Module):
    def __init__(self, config: BlockConfig, memory_width: int | None) -> None:
        super().__init__()
        width, self.heads = config.width, config.heads
        self.project = Linear(width, 3 * width)  # Q, K and V in one product
        self.join = Linear(width, width)
        self.around_self = Sublayer(config)
        self.has_memory = memory_width is not None
        if memory_width is not None:
            self.query = Linear(width, width)
            self.keys = Linear(memory_width, width)
            self.values = Linear(memory_width, width)
            self.join_memory = Linear(width, width)
            self.around_memory = Sublayer(config)
        self.feed_forward = FeedForward(config)
        self.around_feed_forward = Sublayer(config)
        start(self)
        for part in self.project.weight.data.chunk(3):
            nn.init.xavier_uniform_(part)

    def prepare(self, memory: Memory) -> dict[str, Tensor]:
        values = memory.states if memory.values is None else memory.values
        return {"keys": self.keys(memory.states), "values": self.values(values)}

    def forward(
        self,
        x: Tensor,
        past: dict[str, Tensor],
        memory: dict[str, Tensor] | None,
        future: Tensor | None,
        padding: Tensor | None,
        looks_back: list[Tensor] | None,
        looks_across: list[Tensor] | None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """x (N, T, D) → x, the cache with these tokens. The lists collect weights, (N, H, T, P) and (N, T, H, S)."""
        rows, length, width = x.shape
        cache: dict[str, Tensor] = {}

        def look_back(y: Tensor) -> Tensor:
            projected = self.project(y)
            query, cache["keys"], cache["values"] = projected.chunk(3, -1)
            if past["keys"].shape[1]:
                cache.update({name: torch.cat([past[name], cache[name]], 1) for name in cache})
                context, weights = attend(query, cache["keys"], cache["values"], future, self.heads)
            else:
                context, weights = attend_within(projected, future, self.heads)
            if looks_back is not None:
                looks_back.append(weights)
            return self.join(context)

        def look_across(y: Tensor) -> Tensor:
            assert memory is not None
            sources = len(memory["keys"])
            query = self.query(y).view(sources, -1, width)  # (B, k * T, D)
            context, weights = attend(query, memory["keys"], memory["values"], padding, self.heads)
            if looks_across is not None:
                looks_across.append(weights.transpose(1, 2).reshape(rows, length, self.heads, -1))
            return self.join_memory(context.view(rows, length, width))

        x = self.around_self(x, look_back)
        if self.has_memory:
            x = self.around_memory(x, look_across)
        return self.around_feed_forward(x, self.feed_forward), cache
