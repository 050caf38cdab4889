"""Transformer decoder: attention to earlier tokens and to the memory (Vaswani et al. 2017, 3.1).

The history holds the keys and values of all tokens that the rows of a source have read (a cache,
``nn/blocks/cache.py``), so one call advances by any number of tokens. Keys and values of the memory
are projected once per source, and the k hypotheses of a source are k * T queries of one product.
Without memory it is a causal language model.

The carry says which entries of the cache are a row's own. It is empty as long as each source has
one row that sees everything in the cache. Where rows of different lengths were read, positions
count real entries only.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from dragoman.nn import kernels
from dragoman.nn.blocks.cache import (
    FEW_QUERIES,
    attend,
    attend_in_parts,
    by_head,
    drop_unseen,
    hide_others,
    hide_padding,
    padded_columns,
)
from dragoman.nn.blocks.layers import Dropout, Embedding, InferenceLinear, Linear
from dragoman.nn.blocks.rotary import lower_rotate, rotate
from dragoman.nn.blocks.transformer import (
    BlockConfig,
    FeedForward,
    Sublayer,
    check_heads,
    make_positions,
    weights_of,
)
from dragoman.nn.contracts import LoweredStep, ReadingDecoder
from dragoman.nn.init import draw_xavier
from dragoman.nn.lowering import LoweredMemory, Lowering
from dragoman.types import Growing, Memory, Padded, State, Step

MANY = 64  # entries of a cache, from which on those that no row sees are dropped


class Transformer(ReadingDecoder):
    """A stack of blocks with causal self-attention and attention to the memory."""

    reference = "Vaswani et al. 2017; rotary positions: Su et al. 2021"
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
        self.enter = InferenceLinear(vector, config.width) if vector != config.width else nn.Identity()
        self.positions = make_positions(config)
        self.is_rotary = config.positions == "rotary"
        self.longest = self.positions.longest
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(_Block(config, memory_width) for _ in range(config.layers))
        self.last_norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()
        tied = config.tie_embeddings
        self.leave = InferenceLinear(config.width, vector) if tied and vector != config.width else nn.Identity()
        self.feature_width = vector if tied else config.width
        self.project = InferenceLinear(self.feature_width, vocabulary, bias=False)  # section 3.4: no bias
        draw_xavier(self.project)
        if tied:
            self.project.weight = self.embedding.weight

    def start(self, memory: Memory | None, sources: int) -> State:
        """Return a state with an empty cache and the projected memory."""
        names = [str(index) for index in range(len(self.blocks))]
        empty = self.project.weight.new_zeros(sources, self.heads, 0, self.width // self.heads)
        history = {name: {"keys": Growing(empty), "values": Growing(empty)} for name in names}
        fixed: dict[str, Any] = {}
        if memory is not None:
            fixed = {name: block.prepare(memory) for name, block in zip(names, self.blocks, strict=True)}  # type: ignore[operator]
            positions = memory.mask.shape[1]
            if fixed["0"]["keys"].shape[2] > positions or torch.is_grad_enabled() or not bool(memory.mask.all()):
                fixed["padding"] = ~memory.mask
        return State(sources, fixed, {}, history)

    def forward(self, tokens: Tensor, state: State, need_attention: bool = False) -> Step:
        """Advance by ``tokens`` (N, T)."""
        return self._advance(self.embedding(tokens), state, need_attention)

    def read(self, vectors: Padded, state: State) -> tuple[Tensor, State]:
        """Advance by vectors (N, S, E) instead of tokens."""
        step = self._advance(vectors.data, state, False)  # padding comes last, so the causal mask hides it here
        after = step.state
        if not bool(vectors.mask.all()):
            entries = self._entries(after, len(vectors.mask))
            read = vectors.data.shape[1]
            entries = torch.cat([entries[:, :-read], entries[:, -read:].masked_fill(~vectors.mask, -1)], 1)
            after = replace(after, carry={"entries": entries, "position": (entries >= 0).sum(1)})
        return step.features, after

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
        history: Any = state.history
        x = self.enter(vectors * self.scale)  # (N, T, D)
        past = history["0"]["keys"].length
        vectors = self._position_vectors(past, carry, x)
        x = self.dropout(x if self.is_rotary else x + vectors)
        turns = vectors if self.is_rotary else None
        rows, length, _ = x.shape
        each = rows // state.sources
        if carry and past >= MANY and past // each % 8 == 0:
            history, entries = drop_unseen(history, carry["entries"], state.sources)
            past, carry = history["0"]["keys"].length, {**carry, "entries": entries}
        carried = self._extend(carry, past, x, each)
        hidden = None  # what a row must not see in the cache, (B, 1, k, P); -inf hides
        steps = length == 1 and not (self.training or torch.is_grad_enabled())  # ``_Block.step``
        if not steps and carry:
            hidden = hide_others(carry["entries"], past, state.sources, x)
        elif steps and (past or each > 1):
            hidden = self._hide(carried, past + each, state.sources, x, collected)
        padding = fixed["padding"][:, None] if "padding" in fixed else None  # (B, 1, S)
        if padding is not None and not torch.is_grad_enabled():
            padding = hide_padding(padding[:, 0], fixed["0"]["keys"].shape[2], x)
        cache: dict[str, Any] = {}
        maps: list[Tensor] | None = [] if need_attention else None
        for index, block in enumerate(self.blocks):
            name = str(index)
            advance: Any = block.step if steps else block
            given = (history[name], hidden, turns, fixed.get(name), padding)
            x, cache[name] = advance(x, state.sources, *given, collected, maps)
        features = self.leave(self.last_norm(x))
        attention = torch.cat(maps, 2) if maps else None  # (N, T, L * H, S)
        if attention is not None and "padding" in fixed:
            attention = attention[..., : fixed["padding"].shape[1]]
        return Step(features, self.project, State(state.sources, fixed, carried, cache), attention)

    def _hide(self, carry: Any, count: int, sources: int, x: Tensor, collected: list[Tensor] | None) -> Tensor | None:
        """Return what one token of each row must not see of ``count`` entries, itself included."""
        # weights that somebody wants to see are over the entries alone
        wider = collected is None and x.device.type == "cpu"
        columns = padded_columns(count, len(x)) if wider else count
        if carry:
            return hide_others(carry["entries"], columns, sources, x)
        if columns == count:
            return None
        hidden = x.new_zeros(1, 1, 1, columns)
        hidden[..., count:] = -torch.inf
        return hidden

    def _extend(self, carry: Any, past: int, x: Tensor, each: int) -> dict[str, Tensor]:
        """Return the carry after the tokens x (N, T, D), which are entries from ``past`` on; k = ``each``."""
        rows, length, _ = x.shape
        if not carry and each == 1:
            return {}
        places = torch.arange(past, past + each * length, device=x.device).view(each, length)
        places = places.expand(rows // each, -1, -1).reshape(rows, length)  # (N, T)
        before = carry["entries"] if carry else torch.arange(past, device=x.device).expand(rows, -1)
        extended = {"entries": torch.cat([before, places], 1)}
        if "position" in carry:
            extended["position"] = carry["position"] + length
        return extended

    def _entries(self, state: State, rows: int) -> Tensor:
        """Return the numbers of the entries that each row sees, (N, t)."""
        carry: Any = state.carry
        history: Any = state.history
        everything = torch.arange(history["0"]["keys"].length, device=self.project.weight.device)
        return carry["entries"] if carry else everything.expand(rows, -1)

    def lower(self, program: Lowering, memory: LoweredMemory | None, read: str | None = None) -> LoweredStep:
        caches = [("", "")] * len(self.blocks)
        if read is not None:
            program.begin = read
            x = program.linear(self.enter, program.add("affine", read, factor=self.scale))
            x = x if self.is_rotary else self.positions.lower(program, x)
            for index, block in enumerate(self.blocks):
                x, caches[index] = block.lower_read(program, x)  # type: ignore[operator]
        prepared = [None if memory is None else block.lower_prepare(program, memory) for block in self.blocks]  # type: ignore[operator]
        program.begin_step()
        x = program.add("embed", "token", weights=[program.parameter(self.embedding.weight)], scale=self.scale)
        x = program.linear(self.enter, x)
        x = x if self.is_rotary else self.positions.lower(program, x)
        maps: list[str] = []
        for index, block in enumerate(self.blocks):
            x = block.lower(program, x, f"cache.{index}", caches[index], prepared[index], maps)  # type: ignore[operator]
        features = program.linear(self.leave, program.layer_norm(self.last_norm, x))
        return LoweredStep(program.linear(self.project, features), tuple(maps))

    def _position_vectors(self, past: int, carry: Any, x: Tensor) -> Tensor:
        """Return position vectors for x, (T, D), or (N, T, D) if rows have read unequal numbers of tokens.

        Those of rotary positions are as wide as a head.
        """
        if "position" not in carry:
            return self.positions(carry["entries"].shape[1] if carry else past, x.shape[1], x)
        positions = carry["position"][:, None] + torch.arange(x.shape[1], device=x.device)  # (N, T)
        return self.positions(0, int(positions.max()) + 1, x)[positions]


class _Block(nn.Module):
    """Self-attention, attention to the memory and feed-forward, each with a residual connection."""

    def __init__(self, config: BlockConfig, memory_width: int | None) -> None:
        super().__init__()
        width, self.heads, self.is_rotary = config.width, config.heads, config.positions == "rotary"
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
        """Project the memory to this block's keys and values, (B, H, S, D / H) each."""
        values = memory.states if memory.values is None else memory.values
        prepared = {"keys": self.keys(memory.states), "values": self.values(values)}
        prepared = {name: by_head(x, self.heads) for name, x in prepared.items()}
        if torch.is_grad_enabled():  # the kernel copies them by itself
            return prepared
        behind = padded_columns(memory.mask.shape[1], len(memory.mask)) - memory.mask.shape[1]
        # copied once, for all tokens
        return {name: nn.functional.pad(x.contiguous(), (0, 0, 0, behind)) for name, x in prepared.items()}

    def forward(
        self,
        x: Tensor,
        sources: int,
        past: dict[str, Growing],
        hidden: Tensor | None,
        turns: Tensor | None,
        memory: dict[str, Tensor] | None,
        padding: Tensor | None,
        self_weights: list[Tensor] | None,
        cross_weights: list[Tensor] | None,
    ) -> tuple[Tensor, dict[str, Growing]]:
        """Return the transformed x (N, T, D) and the cache with these tokens.

        One token of each row, without gradients, is for ``step``. ``turns`` are the angles of rotary
        positions, (T, d) or (N, T, d). The lists collect attention weights, (N, H, T, P) and (N, T,
        H, S).
        """
        cache: dict[str, Growing] = {}

        def attend_to_past(y: Tensor) -> Tensor:
            projected = rotate(self.project(y), turns, self.heads)
            context, weights = self._attend_to_past(projected, sources, past, hidden, cache)
            if self_weights is not None:
                self_weights.append(weights)
            return self.join(context)

        def attend_to_memory(y: Tensor) -> Tensor:
            assert memory is not None
            context, weights = self._attend_to_memory(self.query(y), memory, padding)
            if cross_weights is not None:
                cross_weights.append(weights.transpose(1, 2).reshape(*y.shape[:2], self.heads, -1))
            return self.join_memory(context.reshape(y.shape))

        x = self.around_self(x, attend_to_past)
        if self.has_memory:
            x = self.around_memory(x, attend_to_memory)
        return self.around_feed_forward(x, self.feed_forward), cache

    def step(
        self,
        x: Tensor,
        sources: int,
        past: dict[str, Growing],
        hidden: Tensor | None,
        turns: Tensor | None,
        memory: dict[str, Tensor] | None,
        padding: Tensor | None,
        self_weights: list[Tensor] | None,
        cross_weights: list[Tensor] | None,
    ) -> tuple[Tensor, dict[str, Growing]]:
        """Do what ``forward`` does for one token of each row, x (N, 1, D), in as few operations as possible."""
        rows, _, width = x.shape
        linear = kernels.linear if rows > FEW_QUERIES else nn.functional.linear  # of few rows no product is large
        heads = self.heads
        layers: Any = self._modules  # as in ``weights_of``
        x = x.view(rows, width)

        projected = linear(layers["around_self"].enter(x), *weights_of(layers["project"]))
        if turns is not None:
            projected = rotate(projected[:, None], turns, heads)[:, 0]
        grouped = projected.view(sources, -1, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        query, keys, values = grouped.unbind(0)  # (B, H, k, D / H) each
        cache = {"keys": past["keys"].append(keys), "values": past["values"].append(values)}
        columns = 0 if hidden is None else hidden.shape[3]
        context, weights = attend(
            query, cache["keys"].padded(columns), cache["values"].padded(columns), hidden, self_weights is not None
        )
        if self_weights is not None and weights is not None:
            self_weights.append(weights.transpose(1, 2).reshape(rows, heads, 1, -1))
        context = context.transpose(1, 2).reshape(rows, width)
        x = layers["around_self"].leave(x, linear(context, *weights_of(layers["join"])))

        if memory is not None:
            query = linear(layers["around_memory"].enter(x), *weights_of(layers["query"]))
            query = query.view(sources, -1, heads, width // heads)
            needed = cross_weights is not None
            context, weights = attend(query.transpose(1, 2), memory["keys"], memory["values"], padding, needed)
            if cross_weights is not None and weights is not None:
                cross_weights.append(weights.transpose(1, 2).reshape(rows, 1, heads, -1))
            context = context.transpose(1, 2).reshape(rows, width)
            x = layers["around_memory"].leave(x, linear(context, *weights_of(layers["join_memory"])))

        around, inside = layers["around_feed_forward"], layers["feed_forward"]._modules
        y = torch.relu_(linear(around.enter(x), *weights_of(inside["inner"])))
        x = around.leave(x, linear(y, *weights_of(inside["outer"])))
        return x.view(rows, 1, width), cache

    def _attend_to_past(
        self,
        projected: Tensor,
        sources: int,
        past: dict[str, Growing],
        hidden: Tensor | None,
        cache: dict[str, Growing],
    ) -> tuple[Tensor, Tensor]:
        """Attend with Q, K and V side by side in ``projected`` (N, T, 3 D), which enter the ``cache``.

        Return the contexts (N, T, D) and the weights (N, H, T, P).
        """
        rows, length, _ = projected.shape
        width = self.join.in_features // self.heads
        _, keys, values = projected.view(sources, -1, 3, self.heads, width).permute(2, 0, 3, 1, 4)
        cache["keys"], cache["values"] = past["keys"].append(keys), past["values"].append(values)
        if not past["keys"].length:  # rows see their own tokens alone
            later = None
            if length > 1:
                later = torch.ones(length, length, dtype=torch.bool, device=projected.device).triu(1)[None]
            return kernels.multi_head_self_attention(projected, later, self.heads)
        own = projected.view(rows, length, 3, self.heads, width).permute(2, 0, 3, 1, 4)  # (3, N, H, T, D / H)
        earlier = past["keys"].tensor, past["values"].tensor
        context, weights = attend_in_parts(own[0], own[1], own[2], earlier, hidden)
        return context.transpose(1, 2).flatten(2), weights

    def _attend_to_memory(
        self, query: Tensor, memory: dict[str, Tensor], padding: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Attend with queries (N, T, D); return the contexts (B, k * T, D) and the weights (B, H, k * T, S)."""
        keys, values = memory["keys"], memory["values"]
        query = query.view(len(keys), -1, query.shape[-1])  # (B, k * T, D)
        if torch.is_grad_enabled():
            keys, values = (x.transpose(1, 2).flatten(2) for x in (keys, values))
            return kernels.multi_head_attention(query, keys, values, padding, self.heads)
        context, weights = attend(by_head(query, self.heads), keys, values, padding, True)
        assert weights is not None
        return context.transpose(1, 2), weights

    def lower_prepare(self, program: Lowering, memory: LoweredMemory) -> tuple[str, str]:
        """Add the operations of ``prepare`` and return the names of keys and values."""
        keys, values = program.linear(self.keys, memory.states), program.linear(self.values, memory.read)
        return program.fix(keys), program.fix(values)

    def lower_read(self, program: Lowering, x: str) -> tuple[str, tuple[str, str]]:
        """Add the operations over a whole sequence x (S, D); return its vectors, keys and values."""
        width = self.join.in_features
        cache: list[str] = []

        def attend_to_past(y: str) -> str:
            projected = lower_rotate(program, program.linear(self.project, y), self.is_rotary, self.heads)
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
            projected = lower_rotate(program, program.linear(self.project, y), self.is_rotary, self.heads)
            context, *added = program.add_all("cached_attention", projected, *slots, heads=self.heads)
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
