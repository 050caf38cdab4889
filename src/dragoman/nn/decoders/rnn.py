"""Recurrent decoder that gets the source as its first state, at every step, or by attention.

    context = "initial"     the source's summary is the first state        s_t = g(y_{t-1}, s_{t-1})
    context = "every-step"  and every step reads it as well (Cho 2014)      s_t = g(y_{t-1}, s_{t-1}, c)
    context = "attention"   each step has its own context                   c_t = Σ_j α_tj h_j
        timing = "before"   Bahdanau et al. 2015: the score uses s_{t-1}, and c_t enters the cell
        timing = "after"    Luong et al. 2015: the score uses s_t, and o_t = tanh(W1 s_t + W2 c_t); with
                            input feeding o_{t-1} enters the cell
        selection = "hard"  one-hot α: drawn in training, otherwise the likeliest position (Xu et al.
                            2015)
        context_gate        β_t c_t instead of c_t, with β_t = sigmoid(W s): how much of the context a
                            step uses (section 4.2.1)

If no step needs an output of the previous one (no attention, or timing "after" without input
feeding and with an attention that does not use its last weights), all tokens of a call run through
the layers as whole sequences. Otherwise they run in a loop, and what does not depend on the
previous step is computed before it or after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator
from torch import Tensor, nn

from dragoman.config import ConfigError, Section
from dragoman.nn import kernels
from dragoman.nn.blocks.hard_attention import Selection, join_choices, select_positions
from dragoman.nn.blocks.layers import Dropout, Embedding, InferenceLinear, LoopLinear
from dragoman.nn.blocks.recurrent import Cell, RecurrentStack
from dragoman.nn.contracts import Attended, Attention, LoweredStep, ReadingDecoder
from dragoman.nn.lowering import LoweredMemory, Lowering
from dragoman.parts import kind_of, parse, part
from dragoman.types import Choices, Memory, Padded, State, Step

AttentionConfig = Annotated[SerializeAsAny[Section], BeforeValidator(lambda value: parse("attention", value))]


class RNN(ReadingDecoder):
    """A stack of recurrent layers, with or without attention to the source."""

    reference = "Sutskever et al. 2014; Cho et al. 2014; Bahdanau et al. 2015; Luong et al. 2015; Xu et al. 2015"
    has_bounded_state = True
    token_tables = ("embedding.weight", "project.weight", "project.bias")

    class Config(Section):
        cell: Cell = "lstm"
        width: int = Field(256, gt=0)
        layers: int = Field(1, gt=0)
        embedding: int = Field(128, gt=0)
        """Width of a token's vector."""
        context: Literal["initial", "every-step", "attention"] = "attention"
        """How the source reaches the decoder: as the first state, as an input of every step, or by
        attention."""
        attention: AttentionConfig = Field(default={"kind": "additive"}, validate_default=True)
        timing: Literal["before", "after"] = "after"
        """Whether attention is computed before or after the cell's step."""
        input_feeding: bool = False
        """With timing = "after", the last output vector enters the cell."""
        selection: Selection = "soft"
        """hard: read a single position at each step, trained with REINFORCE (training.reinforce)."""
        context_gate: bool = False
        """Each step decides how much of the attention context it uses."""
        bridge: Literal["auto", "copy", "dense", "zero"] = "auto"
        """How the source's summary becomes the first state."""
        deep_output: bool = False
        """Feed the last token's vector to the output layer too."""
        tie_embeddings: bool = True
        """Use the token vectors as the output layer's weights."""
        dropout: float = Field(0.0, ge=0.0, lt=1.0)
        """Dropout on token vectors, between layers and before the output layer."""

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
        self.context = config.context if memory_width is not None else None  # None: a language model
        self.attends_before = self.context == "attention" and config.timing == "before"
        self.attends_after = self.context == "attention" and config.timing == "after"
        self.feeds_output = self.attends_after and config.input_feeding
        self.loops = self.attends_before or self.feeds_output  # a step needs an output of the previous one
        self.hard = self.context == "attention" and config.selection == "hard"
        self.deep_output = config.deep_output
        self.embedding = Embedding(vocabulary, config.embedding, config.dropout)
        self.dropout = Dropout(config.dropout)

        self.attention: Attention | None = None
        context_width = 0
        if self.context == "attention":
            build = part("attention", kind_of(config.attention))
            self.attention = build(config.attention, query_width=config.width, memory_width=memory_width)
            context_width, self.map_shape = self.attention.width, (self.attention.maps, 1)
            self.loops = self.loops or self.attention.recurrent
        elif self.context == "every-step":
            if summary_shape is None:
                raise ConfigError("decoder.context = 'every-step' needs an encoder with a summary of the source")
            context_width = summary_shape[2]

        has_vector = context_width > 0 or config.deep_output  # o_t, the vector after the state
        feature_width = config.embedding if config.tie_embeddings else config.width
        fed = feature_width if self.feeds_output else context_width if not self.attends_after else 0
        self.stack = RecurrentStack(config.cell, config.embedding + fed, config.width, config.layers, config.dropout)
        joined = config.width + context_width + (config.embedding if config.deep_output else 0)
        self.output_vector: nn.Linear | None = None
        if has_vector:
            self.output_vector = LoopLinear(joined, feature_width)
        elif feature_width != config.width:
            self.output_vector = LoopLinear(config.width, feature_width, bias=False)
        self.squash = has_vector
        self.feature_width = feature_width
        self.project = InferenceLinear(feature_width, vocabulary)
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
        """Make the layer from the source's summary to the first state; None: a copy, or zeros."""
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
        """Return the first state: zeros, the source's summary, or a projection of it."""
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
        if self.feeds_output:
            carry["fed"] = weight.new_zeros(sources, self.feature_width)
        if memory is not None and self.attention is not None and self.attention.recurrent:
            carry["weights"] = weight.new_zeros(sources, self.maps, memory.mask.shape[1])  # no position was looked at
        return State(sources, fixed, carry)

    def forward(self, tokens: Tensor, state: State, need_attention: bool = False) -> Step:
        """Advance by ``tokens`` (N, T)."""
        embedded = self.embedding(tokens)  # (N, T, E)
        run = self._run_steps if self.loops else self._run_sequence
        return run(embedded, state, need_attention)

    def read(self, vectors: Padded, state: State) -> tuple[Tensor, State]:
        """Advance by vectors (N, S, E) instead of tokens."""
        carry: Any = state.carry
        lengths = None if bool(vectors.mask.all()) else vectors.mask.sum(1).cpu()
        outputs, hidden = self.stack(vectors.data, carry["hidden"], lengths)  # (N, S, H)
        features = self.dropout(self._features(outputs, None, vectors.data))
        return features, State(state.sources, state.fixed, {"hidden": hidden})

    def _run_sequence(self, embedded: Tensor, state: State, need_attention: bool) -> Step:
        """Advance by token vectors (N, T, E), all at once."""
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
            attended, drawn = self._attend_queries(query, fixed["memory"])
            context = attended.context.view(*outputs.shape[:2], -1)
            choices = None if drawn is None else join_choices([drawn], len(outputs))
            if need_attention:
                attention = attended.weights.view(*outputs.shape[:2], *attended.weights.shape[2:])
        features = self._features(outputs, context, embedded)
        after = State(state.sources, state.fixed, {"hidden": hidden})
        return Step(self.dropout(features), self.project, after, attention, choices)

    def _run_steps(self, embedded: Tensor, state: State, need_attention: bool) -> Step:
        """Advance by token vectors (N, T, E), one after the other."""
        fixed: Any = state.fixed
        carry: Any = state.carry
        assert self.attention is not None
        memory = fixed["memory"]
        alone = embedded.shape[1] == 1 and not (self.training or torch.is_grad_enabled())
        steps, weights = embedded.transpose(0, 1), list[tuple[Tensor, Tensor]]()
        if not alone:
            steps, weights = self.stack.project_inputs(embedded)  # (T, N, G * H): the tokens' part of the gates
        hidden = [tuple(layer.unbind(1)) for layer in carry["hidden"].unbind(1)]  # L of P of (N, H)
        fed, last = carry.get("fed"), carry.get("weights")  # the last output and the last attention weights
        outputs, contexts, maps, drawn = [], [], [], []
        # dropout on the vector that is fed back is drawn at each step, because the vector is made there
        with kernels.deferred_gradients():
            for t, projected in enumerate(kernels.unbind_steps(steps)):
                if self.attends_before:
                    context, step_weights, choices = self._attend(hidden[-1][0], memory, state.sources, last)
                    fed = context
                if alone:
                    hidden = self.stack.step_alone(projected, fed, hidden)
                else:
                    hidden = self.stack.step(projected, fed, hidden, weights)
                top = hidden[-1][0]  # (N, H)
                if self.attends_after:
                    context, step_weights, choices = self._attend(top, memory, state.sources, last)
                    vector = self.dropout(self._features(top, context, embedded[:, t]))
                    fed = vector if self.feeds_output else None
                    outputs.append(vector)
                else:
                    outputs.append(top)
                    contexts.append(context)
                if last is not None:
                    last = step_weights
                if need_attention:
                    maps.append(step_weights)
                if choices is not None:
                    drawn.append(choices)
        features = torch.stack(outputs, 1)
        if self.attends_before:
            features = self.dropout(self._features(features, torch.stack(contexts, 1), embedded))
        carried = {"hidden": torch.stack([torch.stack(layer, 1) for layer in hidden], 1)}
        if self.feeds_output and fed is not None:
            carried["fed"] = fed
        if last is not None:
            carried["weights"] = last
        attention = torch.stack(maps, 1) if need_attention else None  # (N, T, A, S)
        after = State(state.sources, state.fixed, carried)
        return Step(features, self.project, after, attention, join_choices(drawn, len(features)))

    def _attend(
        self, query: Tensor, memory: Any, sources: int, last: Tensor | None
    ) -> tuple[Tensor, Tensor, Choices | None]:
        """Return the context (N, D), the weights (N, A, S) and what was drawn, for queries (N, H).

        The k rows of a source are k queries of it.
        """
        previous = None if last is None else last.view(sources, -1, *last.shape[1:])
        attended, drawn = self._attend_queries(query.view(sources, -1, self.width), memory, previous)
        return attended.context.flatten(0, 1), attended.weights.flatten(0, 1), drawn

    def _attend_queries(
        self, query: Tensor, memory: Any, previous: Tensor | None = None
    ) -> tuple[Attended, Choices | None]:
        """Return contexts and weights of queries (B, Q, H), and what hard attention drew."""
        assert self.attention is not None
        drawn = None
        if self.hard:
            weights, drawn = select_positions(self.attention.weigh(query, memory, previous), draw=self.training)
            attended = Attended(self.attention.read(weights, memory), weights)
        else:
            attended = self.attention(query, memory, previous)
        if self.context_gate is not None:
            gate = torch.sigmoid(self.context_gate(query))  # (B, Q, 1)
            attended = replace(attended, context=attended.context * gate)
        return attended, drawn

    def _features(self, outputs: Tensor, context: Tensor | None, embedded: Tensor) -> Tensor:
        """Return o = tanh(W [s; c; e]) (Luong et al. 2015, eq. 5), or s if there is nothing to join."""
        pieces = [outputs] if context is None else [outputs, context]
        if self.deep_output:
            pieces.append(embedded)
        joined = pieces[0] if len(pieces) == 1 else torch.cat(pieces, -1)
        if self.output_vector is None:
            return joined
        vector = self.output_vector(joined)
        return kernels.quick_tanh(vector) if self.squash else vector

    def lower(self, program: Lowering, memory: LoweredMemory | None, read: str | None = None) -> LoweredStep:
        first = self._lower_first_state(program, memory)
        context, before, last = "", "", None
        prepared: Mapping[str, str] = {}
        if memory is not None and self.attention is not None:
            prepared = self.attention.lower_prepare(program, memory)
            before = program.add("zeros", memory.states) if self.attention.recurrent else ""
        elif memory is not None and self.context == "every-step" and memory.summary is not None:
            context = program.fix(memory.summary[-1][0])  # the top layer's last hidden state
        if read is not None:
            _, first = self.stack.lower(program, read, first)
        program.begin_step()
        names = [tuple(f"state.{index}.{part}" for part in range(len(parts))) for index, parts in enumerate(first)]
        embedded = program.add("embed", "token", weights=[program.parameter(self.embedding.weight)])
        weights, maps = "", []
        if before:
            last = "weights"
        if self.attends_before:
            context, weights = self._lower_attention(program, names[-1][0], prepared, last)
        fed = ["fed"] if self.feeds_output else [context] if context else []
        top, states = self.stack.lower(program, program.join_columns([embedded, *fed]), names)
        if self.attends_after:
            context, weights = self._lower_attention(program, top, prepared, last)
        features = self._lower_features(program, top, context, embedded)
        for slots, begins, ends in zip(names, first, states, strict=True):
            for slot, begin, end in zip(slots, begins, ends, strict=True):
                program.slot(slot, self.width, 1, begin, end)
        if self.feeds_output:
            program.slot("fed", self.feature_width, 1, "", features)
        if before:
            program.slot("weights", 0, 1, before, weights)
        if weights:
            maps.append(weights)
        return LoweredStep(program.linear(self.project, features), tuple(maps))

    def _lower_first_state(self, program: Lowering, memory: LoweredMemory | None) -> list[tuple[str, ...]]:
        """Return the values of the first state, "" for zeros: L of P."""
        depth, parts = self.stack.depth, self.stack.parts
        summary = None if memory is None else memory.summary
        if self.copies and summary is not None:
            return list(summary)
        if self.bridge is None or summary is None:
            return [("",) * parts] * depth
        flat = program.linear(self.bridge, program.join_columns([part for layer in summary for part in layer]), "tanh")
        pieces = [
            program.add("slice", flat, axis="columns", begin=index * self.width, count=self.width)
            for index in range(depth * parts)
        ]
        return [tuple(pieces[index * parts : (index + 1) * parts]) for index in range(depth)]

    def _lower_attention(
        self, program: Lowering, query: str, prepared: Mapping[str, str], last: str | None
    ) -> tuple[str, str]:
        """Return the context (1, D) and the weights (A, S) of a query (1, H)."""
        assert self.attention is not None
        weights = self.attention.lower_weigh(program, query, prepared, last)
        if self.hard:
            weights = program.add("select_best", weights)
        context = self.attention.lower_read(program, weights, prepared)
        if self.context_gate is not None:
            context = program.add("multiply", context, program.linear(self.context_gate, query, "sigmoid"))
        return context, weights

    def _lower_features(self, program: Lowering, top: str, context: str, embedded: str) -> str:
        pieces = [top, *([context] if context else []), *([embedded] if self.deep_output else [])]
        joined = program.join_columns(pieces)
        if self.output_vector is None:
            return joined
        return program.linear(self.output_vector, joined, "tanh" if self.squash else "none")
