"""Convolutional decoder: causal gated convolutions, attention in every layer (Gehring et al. 2017, section 3).

A layer sees the last ``kernel`` inputs; the carry holds the ``kernel - 1`` before the next token, so one call
advances by any number of tokens. The score of a layer is (W h + g) · z, with g the token's vector.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from dragoman.config import Section
from dragoman.contracts import Decoder
from dragoman.nn.gated import HALF, GatedConvolution
from dragoman.nn.layers import Dropout, Embedding
from dragoman.nn.positions import PositionKind, Positions
from dragoman.types import Memory, State, Step


class Conv(Decoder):
    reference = "Gehring et al. 2017"

    class Config(Section):
        width: int = Field(256, gt=0)
        layers: int = Field(4, gt=0)
        kernel: int = Field(3, gt=1)
        embedding: int = Field(256, gt=0)  # width of a token's vector
        positions: PositionKind = "learned"
        max_positions: int = Field(1024, gt=0)  # learned positions only
        tie_embeddings: bool = True  # the output layer uses the token vectors
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
        self.maps = 0 if memory_width is None else config.layers
        self.past = config.kernel - 1
        self.embedding = Embedding(vocabulary, config.embedding)
        self.positions = Positions(config.positions, config.embedding, config.max_positions)
        self.enter = nn.Linear(config.embedding, config.width)
        self.layers = nn.ModuleList(GatedConvolution(config.width, config.kernel) for _ in range(config.layers))
        self.attentions = nn.ModuleList()
        if memory_width is not None:
            self.attentions.extend(
                _Attention(config.width, config.embedding, memory_width) for _ in range(config.layers)
            )
        self.dropout = Dropout(config.dropout)
        feature_width = config.embedding if config.tie_embeddings else config.width
        self.leave = nn.Linear(config.width, feature_width)
        self.project = nn.Linear(feature_width, vocabulary)
        nn.init.zeros_(self.project.bias)
        if config.tie_embeddings:
            self.project.weight = self.embedding.weight

    def start(self, memory: Memory | None, sources: int) -> State:
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
        fixed: Any = state.fixed
        carry: Any = state.carry
        begin = int(carry["position"][0])  # all rows of a state have read as many tokens
        vectors = self.embedding(tokens)
        vectors = self.dropout(vectors + self.positions(begin, tokens.shape[1], vectors))  # g: (N, T, E)
        x = self.enter(vectors)
        carried: dict[str, Any] = {"position": carry["position"] + tokens.shape[1]}
        maps = []
        for index, layer in enumerate(self.layers):
            name = str(index)
            wide = torch.cat([carry[name], x], 1)  # (N, kernel - 1 + T, D)
            carried[name] = wide[:, -self.past :]
            made = layer(self.dropout(wide))
            if fixed:
                looked, weights = self.attentions[index](made, vectors, fixed, state.sources)
                made = (made + looked) * HALF
                maps.append(weights)
            x = (made + x) * HALF
        features = self.dropout(self.leave(x))
        attention = torch.stack(maps, 2) if need_attention and maps else None  # (N, T, L, S)
        return Step(features, self.project, State(state.sources, fixed, carried), attention)


class _Attention(nn.Module):
    def __init__(self, width: int, embedding: int, memory_width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, memory_width)
        self.vector = nn.Linear(embedding, memory_width, bias=False) if embedding != memory_width else nn.Identity()
        self.back = nn.Linear(memory_width, width)

    def forward(self, x: Tensor, vectors: Tensor, fixed: dict[str, Tensor], sources: int) -> tuple[Tensor, Tensor]:
        """x (N, T, D) → what it looked at (N, T, D), weights (N, T, S)."""
        rows, length, _ = x.shape
        asked = (self.query(x) + self.vector(vectors)) * HALF
        asked = asked.view(sources, -1, asked.shape[-1])  # (B, k * T, M)
        scores = torch.bmm(asked, fixed["keys"].transpose(1, 2))
        weights = torch.softmax(scores.masked_fill(fixed["padding"][:, None], float("-inf")), dim=-1)
        context = torch.bmm(weights, fixed["values"]).view(rows, length, -1)
        return self.back(context), weights.view(rows, length, -1)
