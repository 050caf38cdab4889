"""Recurrent decoder that gets the source as its first state, at every step, or by attention.

    context = "initial"     the source's summary is the first state            s_t = g(y_{t-1}, s_{t-1})
    context = "every-step"  and it is fed to every step as well (Cho 2014)      s_t = g(y_{t-1}, s_{t-1}, c)
    context = "attention"   a context a step                                    c_t = Σ_j α_tj h_j
        timing = "before"   Bahdanau et al. 2015: the score uses s_{t-1}, c_t enters the cell
        timing = "after"    Luong et al. 2015: the score uses s_t, o_t = tanh(W1 s_t + W2 c_t); with input feeding
                            o_{t-1} enters the cell
        selection = "hard"  one-hot α: drawn in training, the likeliest position otherwise (Xu et al. 2015)
        context_gate        β_t c_t in place of c_t, β_t = sigmoid(W s): how much a step looks at all (section 4.2.1)

Where no step needs an output of the step before (no attention, or timing "after" without input feeding and with an
attention that does not look back at its last weights) all tokens of a call run through whole-sequence kernels;
otherwise a loop, out of which everything that can be is hoisted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator
from torch import Tensor, nn

from dragoman.config import ConfigError, Section
from dragoman.contracts import Attended, Attention, ReadingDecoder
from dragoman.nn.deferred import LoopLinear, deferred_gradients
from dragoman.nn.joined_steps import steps_of
from dragoman.nn.layers import Dropout, Embedding, fast_tanh
from dragoman.nn.recurrent import Cell, Stack
from dragoman.nn.selection import Selection, by_row, choose
from dragoman.parts import kind_of, parse, part
from dragoman.types import Choices, Memory, Padded, State, Step

AttentionConfig = Annotated[SerializeAsAny[Section], BeforeValidator(lambda value: parse("attention", value))]


class RNN(ReadingDecoder):
    reference = "Sutskever et al. 2014; Cho et al. 2014; Bahdanau et al. 2015; Luong et al. 2015; Xu et al. 2015"
    endless = True

    class Config(Section):
        cell: Cell = "lstm"
        width: int = Field(256, gt=0)
        layers: int = Field(1, gt=0)
        embedding: int = Field(128, gt=0)  # width of a token's vector
        context: Literal["initial", "every-step", "attention"] = "attention"
        attention: AttentionConfig = Field(default={"kind": "additive"}, validate_default=True)
        timing: Literal["before", "after"] = "after"
        input_feeding: bool = False  # timing "after": the last output vector enters the cell
        selection: Selection = "soft"  # hard: one position a step, trained by REINFORCE (training.reinforce)
        context_gate: bool = False  # each step decides how much of what attention sees counts
        bridge: Literal["auto", "copy", "dense", "zero"] = "auto"  # from the source's summary to the first state
        deep_output: bool = False  # the last token's vector joins the output layer
        tie_embeddings: bool = True  # the output layer uses the token vectors
        dropout: float = Field(0.0, ge=0.0, lt=1.0)  # on token vectors, between layers, before the output layer

        @model_validator(mode="after")
        def _combination(self) -> Any:
            if self.input_feeding and (self.context != "attention" or self.timing != "after"):
                raise ValueError(
                    "input_feeding feeds the vector made after attention: it needs context = 'attention' and "
                    "timing = 'after'"
                )
            if self.selection == "hard" and self.context != "attention":
                raise ValueError("selection = 'hard' chooses where attention looks: it needs context = 'attention'")
            if self.context_gate and self.context != "attention":
                raise ValueError("context_gate weighs what attention sees: it needs context = 'attention'")
            return self

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
        self.context = config.context if memory_width is not None else None
        self.before = self.context == "attention" and config.timing == "before"
        self.after = self.context == "attention" and config.timing == "after"
        self.feeding = self.after and config.input_feeding
        self.loops = self.before or self.feeding
        self.hard = self.context == "attention" and config.selection == "hard"
        self.deep_output = config.deep_output
        self.embedding = Embedding(vocabulary, config.embedding, config.dropout)
        self.dropout = Dropout(config.dropout)

        self.attention: Attention | None = None
        self.maps = 0
        context_width = 0
        if self.context == "attention":
            build = part("attention", kind_of(config.attention))
            self.attention = build(config.attention, query_width=config.width, memory_width=memory_width)
            context_width, self.maps = self.attention.width, self.attention.maps
            self.loops = self.loops or self.attention.recurrent
        elif self.context == "every-step":
            if summary_shape is None:
                raise ConfigError("decoder.context = 'every-step' needs an encoder with a summary of the source")
            context_width = summary_shape[2]

        has_vector = context_width > 0 or config.deep_output  # o_t, the vector behind the state
        feature_width = config.embedding if config.tie_embeddings else config.width
        fed = feature_width if self.feeding else context_width if not self.after else 0
        self.stack = Stack(config.cell, config.embedding + fed, config.width, config.layers, config.dropout)
        joined = config.width + context_width + (config.embedding if config.deep_output else 0)
        self.output_vector: nn.Linear | None = None
        if has_vector:
            self.output_vector = LoopLinear(joined, feature_width)
        elif feature_width != config.width:
            self.output_vector = LoopLinear(config.width, feature_width, bias=False)
        self.squash = has_vector
        self.feature_width = feature_width
        self.project = nn.Linear(feature_width, vocabulary)
        if config.tie_embeddings:
            self.project.weight = self.embedding.weight
        else:
            nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)
        self.bridge = self._make_bridge(config.bridge if memory_width is not None else "zero", summary_shape)
        if self.context == "initial" and self.bridge is None and not self.copies:
            raise ConfigError(
                "decoder.context = 'initial' gives the source to the decoder as its first state only: it needs an "
                "encoder with a summary, and a bridge other than 'zero'"
            )
        gated = self.context == "attention" and config.context_gate
        self.context_gate = LoopLinear(config.width, 1) if gated else None

    def _make_bridge(self, kind: str, shape: tuple[int, int, int] | None) -> nn.Linear | None:
        own = (self.stack.depth, self.stack.parts, self.width)
        if shape is None and kind not in ("auto", "zero"):
            raise ConfigError(f"decoder.bridge = {kind!r} needs an encoder with a summary of the source")
        self.copies = shape == own and kind in ("auto", "copy")
        if kind == "copy" and not self.copies:
            raise ConfigError(
                f"decoder.bridge = 'copy' needs both sides alike, but the encoder ends in (layers, parts, width) = "
                f"{shape} and the decoder starts with {own}; use bridge = 'dense'"
            )
        if shape is None or kind == "zero" or self.copies:
            return None
        layers, parts, width = shape
        return nn.Linear(layers * parts * width, own[0] * own[1] * own[2])

    def start(self, memory: Memory | None, sources: int) -> State:
        weight = self.project.weight
        shape = (sources, self.stack.depth, self.stack.parts, self.width)
        fixed: dict[str, Any] = {}
        hidden = weight.new_zeros(shape)
        if memory is not None:
            if self.copies and memory.summary is not None:
                hidden = memory.summary
            elif self.bridge is not None and memory.summary is not None:
                hidden = torch.tanh(self.bridge(memory.summary.flatten(1))).view(shape)
            if self.attention is not None:
                fixed["memory"] = self.attention.prepare(memory)
            elif self.context == "every-step" and memory.summary is not None:
                fixed["context"] = memory.summary[:, -1, 0]  # (B, D) the top layer's last hidden state
        carry = {"hidden": hidden}
        if self.feeding:
            carry["fed"] = weight.new_zeros(sources, self.feature_width)
        if memory is not None and self.attention is not None and self.attention.recurrent:
            carry["weights"] = weight.new_zeros(sources, self.maps, memory.mask.shape[1])  # nothing was looked at
        return State(sources, fixed, carry)

    def forward(self, tokens: Tensor, state: State, need_attention: bool = False) -> Step:
        embedded = self.embedding(tokens)  # (N, T, E)
        run = self._loop if self.loops else self._whole
        return run(embedded, state, need_attention)

    def read(self, vectors: Padded, state: State) -> tuple[Tensor, State]:
        carry: Any = state.carry
        lengths = None if bool(vectors.mask.all()) else vectors.mask.sum(1).cpu()
        outputs, hidden = self.stack(vectors.data, carry["hidden"], lengths)  # (N, S, H)
        features = self.dropout(self._features(outputs, None, vectors.data))
        return features, State(state.sources, state.fixed, {"hidden": hidden})

    def _whole(self, embedded: Tensor, state: State, need_attention: bool) -> Step:
        fixed: Any = state.fixed
        carry: Any = state.carry
        inputs, context, attention, choices = embedded, None, None, None
        if self.context == "every-step":
            rows = len(embedded) // state.sources
            context = fixed["context"].repeat_interleave(rows, 0)[:, None].expand(-1, embedded.shape[1], -1)
            inputs = torch.cat([embedded, context], -1)
        outputs, hidden = self.stack(inputs, carry["hidden"])  # (N, T, H)
        if self.attention is not None:
            query = outputs.reshape(state.sources, -1, self.width)  # (B, k * T, H): queries do not see each other
            attended, drawn = self._look(query, fixed["memory"])
            context = attended.context.view(*outputs.shape[:2], -1)
            choices = None if drawn is None else by_row([drawn], len(outputs))
            if need_attention:
                attention = attended.weights.view(*outputs.shape[:2], *attended.weights.shape[2:])
        features = self._features(outputs, context, embedded)
        after = State(state.sources, state.fixed, {"hidden": hidden})
        return Step(self.dropout(features), self.project, after, attention, choices)

    def _loop(self, embedded: Tensor, state: State, need_attention: bool) -> Step:
        fixed: Any = state.fixed
        carry: Any = state.carry
        assert self.attention is not None
        memory = fixed["memory"]
        known, weights = self.stack.hoist(embedded)  # (T, N, G*H): the tokens' share of the gates
        hidden = [tuple(layer.unbind(1)) for layer in carry["hidden"].unbind(1)]  # L of P of (N, H)
        fed, last = carry.get("fed"), carry.get("weights")
        outputs, contexts, maps, drawn = [], [], [], []
        # dropout of the vector that is fed back is drawn per step, as the vector itself is
        with deferred_gradients():
            for t, projected in enumerate(steps_of(known)):
                if self.before:
                    attended = self._attend(hidden[-1][0], memory, state.sources, last)
                    fed = attended[0]
                hidden = self.stack.step(projected, fed, hidden, weights)
                top = hidden[-1][0]  # (N, H)
                if self.after:
                    attended = self._attend(top, memory, state.sources, last)
                    vector = self.dropout(self._features(top, attended[0], embedded[:, t]))
                    fed = vector if self.feeding else None
                    outputs.append(vector)
                else:
                    outputs.append(top)
                    contexts.append(attended[0])
                if last is not None:
                    last = attended[1]
                if need_attention:
                    maps.append(attended[1])
                if attended[2] is not None:
                    drawn.append(attended[2])
        features = torch.stack(outputs, 1)
        if self.before:
            features = self.dropout(self._features(features, torch.stack(contexts, 1), embedded))
        carried = {"hidden": torch.stack([torch.stack(layer, 1) for layer in hidden], 1)}
        if self.feeding and fed is not None:
            carried["fed"] = fed
        if last is not None:
            carried["weights"] = last
        attention = torch.stack(maps, 1) if need_attention else None  # (N, T, A, S)
        after = State(state.sources, state.fixed, carried)
        return Step(features, self.project, after, attention, by_row(drawn, len(features)))

    def _attend(
        self, query: Tensor, memory: Any, sources: int, last: Tensor | None
    ) -> tuple[Tensor, Tensor, Choices | None]:
        """query (N, H) → context (N, D), weights (N, A, S); the k rows of a source are k queries of it."""
        previous = None if last is None else last.view(sources, -1, *last.shape[1:])
        attended, drawn = self._look(query.view(sources, -1, self.width), memory, previous)
        return attended.context.flatten(0, 1), attended.weights.flatten(0, 1), drawn

    def _look(self, query: Tensor, memory: Any, previous: Tensor | None = None) -> tuple[Attended, Choices | None]:
        """query (B, Q, H) → what attention sees; with hard selection, of one position alone."""
        assert self.attention is not None
        drawn = None
        if self.hard:
            weights, drawn = choose(self.attention.weigh(query, memory, previous), draw=self.training)
            attended = Attended(self.attention.read(weights, memory), weights)
        else:
            attended = self.attention(query, memory, previous)
        if self.context_gate is not None:
            share = torch.sigmoid(self.context_gate(query))  # (B, Q, 1)
            attended = replace(attended, context=attended.context * share)
        return attended, drawn

    def _features(self, outputs: Tensor, context: Tensor | None, embedded: Tensor) -> Tensor:
        """o = tanh(W [s; c; e]) (Luong et al. 2015, eq. 5), or the state itself where there is nothing to join."""
        pieces = [outputs] if context is None else [outputs, context]
        if self.deep_output:
            pieces.append(embedded)
        joined = pieces[0] if len(pieces) == 1 else torch.cat(pieces, -1)
        if self.output_vector is None:
            return joined
        vector = self.output_vector(joined)
        return fast_tanh(vector) if self.squash else vector
