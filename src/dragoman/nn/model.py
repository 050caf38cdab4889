"""Encoders and a decoder joined: the only module that knows both sides."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from dragoman.contracts import Decoder, Encoder, Frontend
from dragoman.nn.joining import Joined
from dragoman.types import Batch, Memory, Padded, State, Step


class Model(nn.Module):
    """``start`` and ``forward`` are the decoder's own, so a model is searched as a decoder is."""

    def __init__(
        self,
        frontends: Mapping[str, Frontend],
        encoders: Mapping[str, Encoder],
        decoder: Decoder,
        joined: Joined | None = None,
    ) -> None:
        """``joined``: where there are several sources."""
        super().__init__()
        if (len(encoders) > 1) != (joined is not None):
            raise ValueError("several sources, and they alone, are joined")
        self.frontends = nn.ModuleDict(frontends)
        self.encoders = nn.ModuleDict(encoders)
        self.joined = joined
        self.decoder = decoder
        self.ctc: nn.Linear | None = None  # states → what each says; put here where a recipe asks

    @property
    def parameters_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def encode(self, sources: Mapping[str, Padded]) -> Memory | None:
        memories = self._memories(sources)
        if self.joined is not None:
            return self.joined(memories)
        return next(iter(memories.values()), None)

    def _memories(self, sources: Mapping[str, Padded]) -> dict[str, Memory]:
        return {name: encoder(self.frontends[name](sources[name])) for name, encoder in self.encoders.items()}

    def self_attention(self, sources: Mapping[str, Padded]) -> Tensor | None:
        """Of the encoder, (B, L, H, S, S), where there is one and it has any. Of several the joint one is meant: the
        others look each at their own source.
        """
        if self.joined is not None:
            joint = self.joined.joint
            return None if joint is None else joint.self_attention(self.joined.side_by_side(self._memories(sources)))
        if not self.encoders:
            return None
        ((name, encoder),) = self.encoders.items()
        return encoder.self_attention(self.frontends[name](sources[name]))  # type: ignore[operator]

    def start(self, memory: Memory | None, sources: int) -> State:
        return self.decoder.start(memory, sources)

    def forward(self, tokens: Tensor, state: State, need_attention: bool = False) -> Step:
        return self.decoder(tokens, state, need_attention)

    def teach(self, batch: Batch, memory: Memory | None = None, need_attention: bool = False) -> Step:
        """Teacher forcing: the decoder's call with all gold tokens, from the start or from a state carried on.

        ``memory`` is what ``encode`` makes of the sources, for a caller that needs it too.
        """
        state = batch.state
        if state is None:
            state = self.start(self.encode(batch.sources) if memory is None else memory, len(batch.inputs))
        return self(batch.inputs, state, need_attention)
