"""Transformer decoder: attention to earlier tokens and to the memory (Vaswani et al. 2017, 3.1).

The carry holds the keys and values of all tokens so far (a cache), so one call advances by any
number of tokens. Keys and values of the memory are projected once per source, and the k hypotheses
of a source are k * T queries of one product. Without memory it is a causal language model. Where it
has read rows of different lengths, the carry tells which entries of the cache are padding
(``gaps``). No token looks there, and positions count real entries only.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from dragoman.nn import kernels
from dragoman.nn.blocks.layers import Dropout, Embedding, Linear
from dragoman.nn.blocks.positions import Positions
from dragoman.nn.blocks.transformer import BlockConfig, FeedForward, Sublayer, check_heads
from dragoman.nn.contracts import LoweredStep, ReadingDecoder
from dragoman.nn.init import draw_xavier
from dragoman.nn.lowering import LoweredMemory, Lowering
from dragoman.types import Memory, Padded, State, Step


class Transformer(ReadingDecoder):
    """A stack of blocks with causal self-attention and attention to the memory."""

    reference = "Vaswani et al. 2017"
    token_tables = ("embedding.weight", "project.weight", "project.bias")

    class Config(BlockConfig):
        embedding: int | None = Field(None, gt=0)
        """Width of a token's vector. None: as wide as the decoder."""
        tie_embeddings: bool = True
        """Use the token vectors as the output layer's weights."""

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
        self.self_attention_shape = (config.layers, config.heads)
        self.map_shape = (0, 0) if memory_width is None else (config.layers, config.heads)
        self.scale = math.sqrt(vector)
        self.embedding = Embedding(vocabulary, vector)
        self.enter = nn.Linear(vector, config.width) if vector != config.width else nn.Identity()
        self.positions = Positions(config.positions, config.width, config.max_positions)
        self.longest = self.positions.longest
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(_Block(config, memory_width) for _ in range(config.layers))
        self.last_norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()
        tied = config.tie_embeddings
        self.leave = nn.Linear(config.width, vector) if tied and vector != config.width else nn.Identity()
        self.project = nn.Linear(vector if tied else config.width, vocabulary, bias=False)  # section 3.4: no bias
        draw_xavier(self.project)
        if tied:
            self.project.weight = self.embedding.weight

    def start(self, memory: Memory | None, sources: int) -> State:
        """Return a state with an empty cache and the projected memory."""
        empty = self.project.weight.new_zeros(sources, 0, self.width)
        carry = {str(index): {"keys": empty, "values": empty} for index in range(len(self.blocks))}
        fixed: dict[str, Any] = {}
        if memory is not None:
            fixed = {str(index): block.prepare(memory) for index, block in enumerate(self.blocks)}  # type: ignore[operator]
            fixed["padding"] = ~memory.mask
        return State(sources, fixed, carry)

    def forward(self, tokens: Tensor, state: State, need_attention: bool = False) -> Step:
        """Advance by ``tokens`` (N, T)."""
        return self._advance(self.embedding(tokens), state, need_attention)

    def read(self, vectors: Padded, state: State) -> tuple[Tensor, State]:
        """Advance by vectors (N, S, E) instead of tokens."""
        step = self._advance(vectors.data, state, False)  # padding comes last, so the causal mask hides it here
        carry: Any = step.state.carry
        if not bool(vectors.mask.all()):
            before = carry["0"]["keys"].shape[1] - vectors.data.shape[1]
            earlier = carry.get("gaps", vectors.mask[:, :0])
            earlier = nn.functional.pad(earlier, (0, before - earlier.shape[1]))
            carry = {**carry, "gaps": torch.cat([earlier, ~vectors.mask], 1)}  # (N, P) True = padding
        return step.features, State(state.sources, state.fixed, carry)

    def self_attention(self, tokens: Tensor, state: State) -> Tensor:
        """Return where each token looks back, (N, L, H, T, P)."""
        collected: list[Tensor] = []
        self._advance(self.embedding(tokens), state, False, collected)
        return torch.stack(collected, 1)

    def _advance(
        self, vectors: Tensor, state: State, need_attention: bool, collected: list[Tensor] | None = None
    ) -> Step:
        """Advance by vectors (N, T, E); ``collected`` gets each layer's self-attention (N, H, T, P)."""
        fixed: Any = state.fixed
        carry: Any = state.carry
        past = carry["0"]["keys"].shape[1]
        gaps = carry.get("gaps")
        x = self.enter(vectors * self.scale)  # (N, T, D)
        length = x.shape[1]
        x = self.dropout(x + self._position_vectors(past, gaps, x))
        masked = None  # where a token must not look: at later tokens and gaps
        if length > 1:
            masked = torch.ones(length, past + length, dtype=torch.bool, device=x.device).triu(past + 1)[None]
        if gaps is not None:
            all_gaps = nn.functional.pad(gaps, (0, past + length - gaps.shape[1]))[:, None]  # (N, 1, past + T)
            masked = all_gaps if masked is None else masked | all_gaps
        padding = fixed["padding"][:, None] if "padding" in fixed else None  # (B, 1, S)
        carried: dict[str, Any] = {} if gaps is None else {"gaps": gaps}
        maps: list[Tensor] | None = [] if need_attention else None
        for index, block in enumerate(self.blocks):
            name = str(index)
            x, carried[name] = block(x, carry[name], fixed.get(name), masked, padding, collected, maps)
        features = self.leave(self.last_norm(x))
        attention = torch.cat(maps, 2) if maps else None  # (N, T, L * H, S)
        return Step(features, self.project, State(state.sources, fixed, carried), attention)

    def lower(self, program: Lowering, memory: LoweredMemory | None, read: str | None = None) -> LoweredStep:
        caches = [("", "")] * len(self.blocks)
        if read is not None:
            program.begin = read
            x = program.linear(self.enter, program.add("affine", read, factor=self.scale))
            x = self.positions.lower(program, x)
            for index, block in enumerate(self.blocks):
                x, caches[index] = block.lower_read(program, x)  # type: ignore[operator]
        prepared = [None if memory is None else block.lower_prepare(program, memory) for block in self.blocks]  # type: ignore[operator]
        program.begin_step()
        x = program.add("embed", "token", weights=[program.parameter(self.embedding.weight)], scale=self.scale)
        x = self.positions.lower(program, program.linear(self.enter, x))
        maps: list[str] = []
        for index, block in enumerate(self.blocks):
            x = block.lower(program, x, f"cache.{index}", caches[index], prepared[index], maps)  # type: ignore[operator]
        features = program.linear(self.leave, program.layer_norm(self.last_norm, x))
        return LoweredStep(program.linear(self.project, features), tuple(maps))

    def _position_vectors(self, past: int, gaps: Tensor | None, x: Tensor) -> Tensor:
        """Return position vectors for x: (T, D), or (N, T, D) if rows have read unequal numbers of tokens."""
        if gaps is None:
            return self.positions(past, x.shape[1], x)
        begin = past - gaps.sum(1, keepdim=True)  # (N, 1)
        positions = begin + torch.arange(x.shape[1], device=x.device)  # (N, T)
        return self.positions(0, int(positions.max()) + 1, x)[positions]


class _Block(nn.Module):
    """Self-attention, attention to the memory and feed-forward, each with a residual connection."""

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
        draw_xavier(self)
        for part in self.project.weight.data.chunk(3):
            nn.init.xavier_uniform_(part)

    def prepare(self, memory: Memory) -> dict[str, Tensor]:
        """Project the memory to this block's keys and values."""
        values = memory.states if memory.values is None else memory.values
        return {"keys": self.keys(memory.states), "values": self.values(values)}

    def forward(
        self,
        x: Tensor,
        past: dict[str, Tensor],
        memory: dict[str, Tensor] | None,
        masked: Tensor | None,
        padding: Tensor | None,
        self_weights: list[Tensor] | None,
        cross_weights: list[Tensor] | None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the transformed x (N, T, D) and the cache with these tokens.

        The lists collect attention weights, (N, H, T, P) and (N, T, H, S).
        """
        rows, length, width = x.shape
        cache: dict[str, Tensor] = {}

        def attend_to_past(y: Tensor) -> Tensor:
            projected = self.project(y)
            query, cache["keys"], cache["values"] = projected.chunk(3, -1)
            if past["keys"].shape[1]:
                cache.update({name: torch.cat([past[name], cache[name]], 1) for name in cache})
                context, weights = kernels.multi_head_attention(
                    query, cache["keys"], cache["values"], masked, self.heads
                )
            else:
                context, weights = kernels.multi_head_self_attention(projected, masked, self.heads)
            if self_weights is not None:
                self_weights.append(weights)
            return self.join(context)

        def attend_to_memory(y: Tensor) -> Tensor:
            assert memory is not None
            sources = len(memory["keys"])
            query = self.query(y).view(sources, -1, width)  # (B, k * T, D)
            context, weights = kernels.multi_head_attention(
                query, memory["keys"], memory["values"], padding, self.heads
            )
            if cross_weights is not None:
                cross_weights.append(weights.transpose(1, 2).reshape(rows, length, self.heads, -1))
            return self.join_memory(context.view(rows, length, width))

        x = self.around_self(x, attend_to_past)
        if self.has_memory:
            x = self.around_memory(x, attend_to_memory)
        return self.around_feed_forward(x, self.feed_forward), cache

    def lower_prepare(self, program: Lowering, memory: LoweredMemory) -> tuple[str, str]:
        """Add the operations of ``prepare`` and return the names of keys and values."""
        keys, values = program.linear(self.keys, memory.states), program.linear(self.values, memory.read)
        return program.fix(keys), program.fix(values)

    def lower_read(self, program: Lowering, x: str) -> tuple[str, tuple[str, str]]:
        """Add the operations over a whole sequence x (S, D); return its vectors, keys and values."""
        width = self.join.in_features
        cache: list[str] = []

        def attend_to_past(y: str) -> str:
            projected = program.linear(self.project, y)
            cache.extend(
                program.add("slice", projected, axis="columns", begin=part * width, count=width) for part in (1, 2)
            )
            context = program.add("self_attention", projected, heads=self.heads, causal=1)
            return program.linear(self.join, context)

        x = self.around_self.lower(program, x, attend_to_past)
        x = self.around_feed_forward.lower(program, x, lambda y: self.feed_forward.lower(program, y))
        return x, (cache[0], cache[1])

    def lower(
        self,
        program: Lowering,
        x: str,
        name: str,
        begin: tuple[str, str],
        memory: tuple[str, str] | None,
        maps: list[str],
    ) -> str:
        """Add the operations of one token x (1, D).

        ``name`` is that of the cache, ``begin`` its keys and values before the first token, and
        ``maps`` collects the weights of attention to the memory.
        """
        width = self.join.in_features

        def attend_to_past(y: str) -> str:
            slots = (f"{name}.keys", f"{name}.values")
            context, *added = program.add_all(
                "cached_attention", program.linear(self.project, y), *slots, heads=self.heads
            )
            for slot, before, new in zip(slots, begin, added, strict=True):
                program.slot(slot, width, 0, before, new, grows=True)
            return program.linear(self.join, context)

        def attend_to_memory(y: str) -> str:
            assert memory is not None
            scale = (width // self.heads) ** -0.5
            query = program.linear(self.query, y)
            context, weights = program.add_all("cross_attention", query, *memory, heads=self.heads, scale=scale)
            maps.append(weights)
            return program.linear(self.join_memory, context)

        x = self.around_self.lower(program, x, attend_to_past)
        if self.has_memory:
            x = self.around_memory.lower(program, x, attend_to_memory)
        return self.around_feed_forward.lower(program, x, lambda y: self.feed_forward.lower(program, y))
