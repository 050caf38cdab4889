"""The contract of engines: from the strings of an input to a memory, and a decoder over it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from dragoman.data.corpus.files import PendingFile
from dragoman.errors import UserError
from dragoman.search.ctc_prefix import WithCTC
from dragoman.search.options import SearchConfig
from dragoman.search.rows import SearchDecoder

# Of one input, by source; files are read when they are needed.
Features: TypeAlias = Mapping[str, "np.ndarray | PendingFile"]
Arrays: TypeAlias = Mapping[str, np.ndarray]  # the same, with all files read


@dataclass(frozen=True, slots=True)
class SelfAttention:
    """Where the states of a model look within their own side. None: the side has no self-attention."""

    encoder: np.ndarray | None  # (L, H, S, S); with several sources, of the encoder that reads them together
    outputs: tuple[np.ndarray | None, ...]  # of the decoder, (L, H, T, P) for each output that was asked about;
    # ``predictions.self_attention_columns`` says what the columns are


class Engine(ABC):
    """What computes for one system.

    Laws: an engine never changes, and many threads may ask it at once; a row is encoded and decoded the same whatever
    else is in its batch.
    """

    has_attention: bool  # does the decoder tell where it looks in the source?
    chunk: int | None  # running text: tokens that are read together; None: the decoder's state is carried on for ever

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device that tokens have to be on."""

    @property
    @abstractmethod
    def decoder(self) -> SearchDecoder:
        """The decoder whose log-probabilities are the system's own."""

    @abstractmethod
    def ctc_decoder(self) -> SearchDecoder:
        """Return the CTC head of the encoder as a decoder. Raise a ``UserError`` if the system has none."""

    def search_decoder(self, config: SearchConfig) -> SearchDecoder:
        """Return the decoder to search with.

        If it is not ``decoder``, its scores are for ranking only: ``Hypothesis.score`` and the trace hold them, while
        the ``log_probs`` of an output stay the system's own.
        """
        return WithCTC(self.decoder, self.ctc_decoder(), config.ctc) if config.ctc else self.decoder

    @abstractmethod
    def prepare(self, texts: Mapping[str, str]) -> Features:
        """Turn the strings of one input, by source, into what ``encode`` reads."""

    @abstractmethod
    def length_limit(self, features: Features) -> int:
        """Return how many tokens an output of this input may have."""

    @abstractmethod
    def encode(self, rows: Sequence[Arrays]) -> Any:
        """Encode a batch of inputs and return their memory, which ``decoder.start`` takes."""

    def own_arrays(self, arrays: Arrays) -> Arrays:
        """Return the arrays by the names of the sources. Engines of several runs have some of each."""
        return arrays

    @abstractmethod
    def represent(self, rows: Sequence[Arrays]) -> tuple[np.ndarray, str]:
        """Return one vector per input, (B, D), and what the vectors are, in words."""

    @abstractmethod
    def self_attention(self, row: Arrays, outputs: Sequence[Sequence[int]]) -> SelfAttention:
        """Return the self-attention of both sides for one input and the tokens of some of its outputs."""

    @abstractmethod
    def describe_members(self) -> str | None:
        """Name the runs that this engine combines. None: it is one run, which can be saved."""


def missing_ctc(name: str) -> UserError:
    """Return the error for a search that asks for CTC where there is none."""
    return UserError(f"search.ctc: {name} was trained without CTC (training.ctc) and has none to ask; set it to 0")
