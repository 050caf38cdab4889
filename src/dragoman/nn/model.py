"""The whole model: frontends, encoders and a decoder.

It is the only module that knows both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from torch import Tensor, nn

from dragoman.errors import UserError
from dragoman.nn.blocks.copying import Copying
from dragoman.nn.blocks.joined_sources import JoinedSources
from dragoman.nn.contracts import Decoder, Encoder, Frontend
from dragoman.nn.lowering import LoweredMemory, Lowering
from dragoman.program.table import Program
from dragoman.types import Batch, Memory, Padded, State, Step


class Model(nn.Module):
    """An encoder-decoder model, or a language model.

    ``start`` and ``forward`` are those of the decoder, so a model can be searched like a decoder.
    """

    def __init__(
        self,
        frontends: Mapping[str, Frontend],
        encoders: Mapping[str, Encoder],
        decoder: Decoder,
        joined: JoinedSources | None = None,
    ) -> None:
        """Put the parts together. ``joined`` joins the sources if there are several."""
        super().__init__()
        if (len(encoders) > 1) != (joined is not None):
            raise ValueError("`joined` is for several sources, and they need it")
        self.frontends = nn.ModuleDict(frontends)
        self.encoders = nn.ModuleDict(encoders)
        self.joined = joined
        self.decoder = decoder
        self.ctc: nn.Linear | None = None  # states → logits of CTC; set where a recipe asks for it
        self.copying: Copying | None = None  # set where a recipe asks for it; there is one source then, a text

    @property
    def parameters_count(self) -> int:
        """Return the number of trained numbers; shared ones count once."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def longest_sequence(self) -> int | None:
        """Return the most positions that every part can read; None: any number."""
        parts: list[Encoder | Decoder] = [*self._encoders.values(), self.decoder]
        if self.joined is not None and self.joined.joint is not None:
            parts.append(self.joined.joint)
        return min((part.longest for part in parts if part.longest is not None), default=None)

    @property
    def self_attention_shape(self) -> tuple[int, int]:
        """Return the layers and heads of ``self_attention``; (0, 0): it is None."""
        encoder = self._last_encoder
        return (0, 0) if encoder is None else encoder.self_attention_shape

    @property
    def _encoders(self) -> Mapping[str, Encoder]:
        return cast(Mapping[str, Encoder], self.encoders)

    @property
    def _last_encoder(self) -> Encoder | None:
        """The encoder that sees everything: the only one, or of several sources the joint one."""
        if self.joined is not None:
            return self.joined.joint
        return next(iter(self._encoders.values()), None)

    def encode(self, sources: Mapping[str, Padded]) -> Memory | None:
        """Encode the padded inputs of each source into one memory; a language model has none."""
        memories = self._memories(sources)
        if self.joined is not None:
            return self.joined(memories)
        memory = next(iter(memories.values()), None)
        if memory is None or self.copying is None:
            return memory
        (source,) = sources.values()
        return replace(memory, copies=self.copying.targets(source.data))

    def _memories(self, sources: Mapping[str, Padded]) -> dict[str, Memory]:
        return {name: encoder(self.frontends[name](sources[name])) for name, encoder in self.encoders.items()}

    def self_attention(self, sources: Mapping[str, Padded]) -> Tensor | None:
        """Return the encoder's self-attention (B, L, H, S, S), or None if it has none.

        With several sources this is the joint encoder's: each of the others sees one source only.
        """
        encoder = self._last_encoder
        if encoder is None:
            return None
        if self.joined is not None:
            return encoder.self_attention(self.joined.join_states(self._memories(sources)))
        ((name, frontend),) = self.frontends.items()
        return encoder.self_attention(frontend(sources[name]))

    def start(self, memory: Memory | None, sources: int) -> State:
        """Return the decoder's state before the first token."""
        state = self.decoder.start(memory, sources)
        if memory is None or self.copying is None:
            return state
        fixed: Any = state.fixed
        return replace(state, fixed={**fixed, "copies": self.copying.prepare(memory)})

    def forward(self, tokens: Tensor, state: State, need_attention: bool = False) -> Step:
        """Advance the decoder by ``tokens`` (N, T)."""
        if self.copying is None:
            return self.decoder(tokens, state, need_attention)
        fixed: Any = state.fixed
        step = self.decoder(self.copying.read(tokens), state, need_attention)
        copied: Step = self.copying(step, fixed["copies"])
        return copied

    def lower(self) -> Program:
        """Return how the model computes in use, as a program for any engine."""
        if self.copying is not None:
            raise UserError(
                "a model that copies source tokens (copying = true) runs on torch only: its outputs are written with "
                "symbols of the source, which no other engine has; train with copying = false to export"
            )
        program = Lowering(self)
        memories = {
            name: encoder.lower(program, cast(Frontend, self.frontends[name]).lower(program, name))
            for name, encoder in self._encoders.items()
        }
        memory: LoweredMemory | None = next(iter(memories.values()), None)
        if self.joined is not None:
            memory = self.joined.lower(program, memories)
        if memory is not None:
            program.states = memory.states
            summary = [part for layer in memory.summary or () for part in layer]
            program.summary = program.join_columns(summary) if summary else program.add("mean", memory.states)
            if self.ctc is not None:
                program.ctc = program.linear(self.ctc, memory.states)
        step = self.decoder.lower(program, memory)
        return program.finish(self.decoder.vocabulary, step.logits, step.attention)

    def teach(self, batch: Batch, memory: Memory | None = None, need_attention: bool = False) -> Step:
        """Call the decoder with all gold tokens at once (teacher forcing).

        It begins at the start, or at the state of the batch. A caller that needs the result of
        ``encode`` too computes it before and passes it as ``memory``.
        """
        state = batch.state
        if state is None:
            state = self.start(self.encode(batch.sources) if memory is None else memory, len(batch.inputs))
        return self(batch.inputs, state, need_attention)
