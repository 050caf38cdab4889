"""Encoders and a decoder joined: the only module that knows both sides."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from dragoman.contracts import Decoder, Encoder, Frontend
from dragoman.types import Batch, Memory, Padded, State, Step


class Model(nn.Module):
    """``start`` and ``forward`` are the decoder's own, so a model is searched as a decoder is."""

    def __init__(self, frontends: Mapping[str, Frontend], encoders: Mapping[str, Encoder], decoder: Decoder) -> None:
        super().__init__()
        if len(encoders) > 1:
            raise ValueError("one source at most")
        self.frontends = nn.ModuleDict(frontends)
        self.encoders = nn.ModuleDict(encoders)
        self.decoder = decoder
        self.ctc: nn.Linear | None = None  # states → what each says; put here where a recipe asks, for training alone

    @property
    def parameters_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def encode(self, sources: Mapping[str, Padded]) -> Memory | None:
        for name, encoder in self.encoders.items():
            return encoder(self.frontends[name](sources[name]))
        return None

    def self_attention(self, sources: Mapping[str, Padded]) -> Tensor | None:
        """Of the encoder, (B, L, H, S, S), where it has any."""
        for name, encoder in self.encoders.items():
            return encoder.self_attention(self.frontends[name](sources[name]))  # type: ignore[operator]
        return None

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
