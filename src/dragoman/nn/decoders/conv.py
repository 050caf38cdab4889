"""Convolutional decoder: causal convolutions with attention in every layer (Gehring et al. 2017).

A layer sees the last ``kernel`` inputs. The carry holds the ``kernel - 1`` inputs before the next
token, so one call advances by any number of tokens. The score of a layer is (W h + g) · z, where g
is the token's vector (section 3.3).
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from dragoman.config import Section
from dragoman.nn.blocks.gated_convolution import SQRT_HALF, GatedConvolution
from dragoman.nn.blocks.layers import Dropout, Embedding, InferenceLinear
from dragoman.nn.blocks.positions import PositionKind, Positions
from dragoman.nn.contracts import Decoder, LoweredStep
from dragoman.nn.lowering import LoweredMemory, Lowering
from dragoman.types import Memory, State, Step


class Conv(Decoder):
    """A stack of causal convolutions; its state is a window of recent inputs for each layer."""

    reference = "Gehring et al. 2017"
    token_tables = ("embedding.weight", "project.weight", "project.bias")

    class Config(Section):
        width: int = Field(256, gt=0)
        layers: int = Field(4, gt=0)
        kernel: int = Field(3, gt=1)
        embedding: int = Field(256, gt=0)
        """Width of a token's vector."""
        positions: PositionKind = "learned"
        max_positions: int = Field(1024, gt=0)
        """Number of positions in the table. For learned positions only."""
        tie_embeddings: bool = True
        """Use the token vectors as the output layer's weights."""
        dropout: float = Field(0.1, ge=0.0, lt=1.0)

    def __init__(
        self,
        config: Config,
        *,
        vocabulary: int,
        memory_width: int | None,
        summary_shape: tuple[int, int, int] | None,
    ) -> None:
        super().__init__()
        self.vocabulary, self.width = vocabulary, config.width
        self.map_shape = (0, 0) if memory_width is None else (config.layers, 1)
        self.past = config.kernel - 1
        self.embedding = Embedding(vocabulary, config.embedding)
        self.positions = Positions(config.positions, config.embedding, config.max_positions)
        self.longest = self.positions.longest
        self.enter = InferenceLinear(config.embedding, config.width)
        self.layers = nn.ModuleList(GatedConvolution(config.width, config.kernel) for _ in range(config.layers))
        self.attentions = nn.ModuleList()
        if memory_width is not None:
            self.attentions.extend(
                _Attention(config.width, config.embedding, memory_width) for _ in range(config.layers)
            )
        self.dropout = Dropout(config.dropout)
        self.feature_width = config.embedding if config.tie_embeddings else config.width
        self.leave = InferenceLinear(config.width, self.feature_width)
        self.project = InferenceLinear(self.feature_width, vocabulary)
        nn.init.zeros_(self.project.bias)
        if config.tie_embeddings:
            self.project.weight = self.embedding.weight

    def start(self, memory: Memory | None, sources: int) -> State:
        """Return a state whose windows are zeros."""
        weight = self.project.weight
        carry: dict[str, Any] = {
            str(index): weight.new_zeros(sources, self.past, self.width) for index in range(len(self.layers))
        }
        carry["position"] = torch.zeros(sources, dtype=torch.long, device=weight.device)
        fixed: dict[str, Any] = {}
        if memory is not None:
            values = memory.states if memory.values is None else memory.values
            fixed = {"keys": memory.states, "values": values, "padding": ~memory.mask}
        return State(sources, fixed, carry)

    def forward(self, tokens: Tensor, state: State, need_attention: bool = False) -> Step:
        """Advance by ``tokens`` (N, T)."""
        fixed: Any = state.fixed
        carry: Any = state.carry
        begin = int(carry["position"][0])  # all rows of a state have read the same number of tokens
        vectors = self.embedding(tokens)
        vectors = self.dropout(vectors + self.positions(begin, tokens.shape[1], vectors))  # g: (N, T, E)
        x = self.enter(vectors)
        carried: dict[str, Any] = {"position": carry["position"] + tokens.shape[1]}
        maps = []
        for index, layer in enumerate(self.layers):
            name = str(index)
            wide = torch.cat([carry[name], x], 1)  # (N, kernel - 1 + T, D)
            carried[name] = wide[:, -self.past :]
            out = layer(self.dropout(wide))
            if fixed:
                context, weights = self.attentions[index](out, vectors, fixed, state.sources)
                out = (out + context) * SQRT_HALF
                maps.append(weights)
            x = (out + x) * SQRT_HALF
        features = self.dropout(self.leave(x))
        attention = torch.stack(maps, 2) if need_attention and maps else None  # (N, T, L, S)
        return Step(features, self.project, State(state.sources, fixed, carried), attention)

    def lower(self, program: Lowering, memory: LoweredMemory | None) -> LoweredStep:
        if memory is not None:
            program.fix(memory.states)
            program.fix(memory.read)
        program.begin_step()
        embedded = program.add("embed", "token", weights=[program.parameter(self.embedding.weight)])
        vectors = self.positions.lower(program, embedded)
        x = program.linear(self.enter, vectors)
        maps: list[str] = []
        for index, layer in enumerate(self.layers):
            wide = program.add("join", f"window.{index}", x)
            after = program.add("slice", wide, begin=-self.past, count=self.past)
            program.slot(f"window.{index}", self.width, self.past, "", after)
            out = layer.lower(program, wide)  # type: ignore[operator]
            if memory is not None:
                context, weights = self.attentions[index].lower(program, out, vectors, memory)  # type: ignore[operator]
                out = program.add("add", out, context, factor=SQRT_HALF)
                maps.append(weights)
            x = program.add("add", out, x, factor=SQRT_HALF)
        return LoweredStep(program.linear(self.project, program.linear(self.leave, x)), tuple(maps))


class _Attention(nn.Module):
    """The attention of one layer."""

    def __init__(self, width: int, embedding: int, memory_width: int) -> None:
        super().__init__()
        self.query = InferenceLinear(width, memory_width)
        self.vector = (
            InferenceLinear(embedding, memory_width, bias=False) if embedding != memory_width else nn.Identity()
        )
        self.back = InferenceLinear(memory_width, width)

    def forward(self, x: Tensor, vectors: Tensor, fixed: dict[str, Tensor], sources: int) -> tuple[Tensor, Tensor]:
        """Return the contexts (N, T, D) and weights (N, T, S) of x (N, T, D)."""
        rows, length, _ = x.shape
        query = (self.query(x) + self.vector(vectors)) * SQRT_HALF
        query = query.view(sources, -1, query.shape[-1])  # (B, k * T, M)
        scores = torch.bmm(query, fixed["keys"].transpose(1, 2))
        weights = torch.softmax(scores.masked_fill(fixed["padding"][:, None], float("-inf")), dim=-1)
        context = torch.bmm(weights, fixed["values"]).view(rows, length, -1)
        return self.back(context), weights.view(rows, length, -1)

    def lower(self, program: Lowering, x: str, vectors: str, memory: LoweredMemory) -> tuple[str, str]:
        """Add the operations for x (1, D); return the context and the weights (1, S)."""
        query, vector = program.linear(self.query, x), program.linear(self.vector, vectors)
        query = program.add("add", query, vector, factor=SQRT_HALF)
        context, weights = program.add_all("cross_attention", query, memory.states, memory.read)
        return program.linear(self.back, context), weights
