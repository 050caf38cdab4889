"""The engine that runs the trained model itself, with torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dragoman.data.vocabulary import BLANK, BOS, EOS
from dragoman.inference.engine.contract import Arrays, SelfAttention, label_log_probs, missing_ctc
from dragoman.inference.engine.single import Inputs, SingleEngine
from dragoman.nn.model import Model
from dragoman.search.ctc_prefix import CTCPrefix
from dragoman.search.rows import SearchDecoder
from dragoman.types import Padded


class TorchEngine(SingleEngine):
    """One model and the inputs of its run. The model must be in evaluation mode whenever it is asked."""

    name = "torch"

    def __init__(self, model: Model, inputs: Inputs) -> None:
        super().__init__(inputs)
        self._model = model
        self.has_attention = bool(model.decoder.maps)
        self.chunk = None if model.decoder.has_bounded_state else inputs.chunk

    @property
    def device(self) -> torch.device:
        return next(self._model.parameters()).device

    @property
    def decoder(self) -> SearchDecoder:
        return self._model

    def ctc_decoder(self) -> SearchDecoder:
        if self._model.ctc is None:
            raise missing_ctc(self.inputs.name)
        readout = self._model.ctc
        dtype = readout.weight.dtype
        return CTCPrefix(lambda states: readout(states.to(dtype)), blank=BLANK, bos=BOS, eos=EOS)

    @property
    def has_ctc(self) -> bool:
        return self._model.ctc is not None

    def ctc_log_probs(self, rows: Sequence[Arrays]) -> list[np.ndarray]:
        readout = self._model.ctc
        if readout is None:
            raise missing_ctc(self.inputs.name)
        with torch.inference_mode():
            memory = self._model.encode(self._pad(rows))
            assert memory is not None
            logits = readout(memory.states.to(readout.weight.dtype)).float().cpu().numpy()  # (B, S, V)
            lengths = memory.mask.sum(1).tolist()
        return [label_log_probs(row[:length]) for row, length in zip(logits, lengths, strict=True)]

    def encode(self, rows: Sequence[Arrays]) -> Any:
        return self._model.encode(self._pad(rows))

    def represent(self, rows: Sequence[Arrays]) -> tuple[np.ndarray, str]:
        with torch.inference_mode():
            memory = self._model.encode(self._pad(rows))
            assert memory is not None
            if memory.summary is not None:
                return memory.summary.flatten(1).float().cpu().numpy(), "the encoder's summary of the source"
            real = memory.mask[..., None].to(memory.states.dtype)  # (B, S, 1)
            mean = (memory.states * real).sum(1) / real.sum(1)  # (B, D)
            return mean.float().cpu().numpy(), "the mean of the encoder's states"

    def self_attention(self, row: Arrays, outputs: Sequence[Sequence[int]]) -> SelfAttention:
        with torch.inference_mode():
            padded = self._pad([row])
            state = self._model.start(self._model.encode(padded), 1)
            maps = []
            for tokens in outputs:
                read = torch.tensor([[BOS, *tokens[:-1]]], device=self.device)  # (1, T)
                maps.append(_only_row(self._model.decoder.self_attention(read, state)))
            return SelfAttention(_only_row(self._model.self_attention(padded)), tuple(maps))

    def _pad(self, rows: Sequence[Arrays]) -> dict[str, Padded]:
        return {
            name: Padded.from_numpy(*modality.collate([row[name] for row in rows])).to(self.device)
            for name, modality in self.inputs.modalities.items()
        }


def _only_row(weights: Tensor | None) -> np.ndarray | None:
    return None if weights is None else weights[0].float().cpu().numpy()
