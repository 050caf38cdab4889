"""The contract of a modality: one kind of input, from raw values to padded arrays.

Each file of ``modalities/`` implements it, and ``tests/laws/test_modalities.py`` holds each of them
to its laws.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dragoman.config import Section
from dragoman.data.media import MediaError, Probe
from dragoman.data.tokenizers import Tokenizer
from dragoman.data.vocabulary import PAD
from dragoman.types import Axis, Layout, PaddedArrays

ATTENDED_STATES = 60  # number of states that attention handles well


class EncoderChoice(NamedTuple):
    """The encoder that ``auto`` chooses for a source, and why."""

    settings: Mapping[str, Any]
    reason: str  # in words, without the source's name; "" if there is nothing to explain
    stride: int = 1  # positions per state


class Modality(ABC):
    """One kind of input: the only part that knows its raw data and the labels of its positions.

    A raw value is always a string: a text, or where ``is_file`` the path of a file. Nothing here
    needs torch: a modality gives numpy arrays, and its trained end is the frontend that
    ``frontend_kind`` names.

    Laws: a sequence is never empty, whatever the input; ``array`` is deterministic; ``length`` is
    cheap and is the length of ``array``; ``axis`` has one label for each state of an encoder;
    ``collate`` pads on the right, and what it pads has no influence; a modality that was saved and
    loaded, from the folder alone, behaves the same.
    """

    Config: ClassVar[type[Section]]
    reference: ClassVar[str] = ""  # the paper it comes from
    is_file: ClassVar[bool] = False  # raw values are paths of files
    has_tokenizer: ClassVar[bool] = False  # reads text; then it is made as ``Kind(config, tokenizer)``
    is_timed: ClassVar[bool] = False  # positions follow each other in time, as in a recording
    is_drawn_over: ClassVar[bool] = False  # attention is drawn over the input itself: a picture, or a spectrogram
    gives: ClassVar[Layout] = "sequence"  # how the positions of an array are arranged
    frontend_kind: ClassVar[str]  # a file of nn/frontends

    # Of files: how they are recognised, and how the audit shows them.
    suffixes: ClassVar[tuple[str, ...]] = ()  # of file names, lower case, with the dot
    marks: ClassVar[tuple[bytes, ...]] = ()  # regular expressions; one of them matches the first bytes of a file
    file_noun: ClassVar[str] = "a file"  # what one file is
    file_title: ClassVar[str] = "Files"  # what many files are
    count_titles: ClassVar[Mapping[str, str]] = {}  # what ``counts`` counts, in words
    uniform_count: ClassVar[str] = ""  # the one of ``counts`` that must be the same in all files of a source

    config: Any  # of the class Config
    tokenizer: Tokenizer | None = None  # where ``has_tokenizer``

    @staticmethod
    def file_of(raw: str) -> str:
        """Return the path of the file.

        A raw value may also be one entry of a file that holds many: FILE#ENTRY.
        """
        return raw

    @classmethod
    def probe(cls, raw: str) -> Probe:
        """Read the header of a file, or raise ``MediaError``. Must be cheap."""
        raise MediaError("values of this kind are not files")

    @classmethod
    def examine(cls, raw: str) -> Probe:
        """Probe a file, and check what a header cannot tell: that it is whole, its values finite.

        For the audit, which examines each file once. Raises ``MediaError`` for a file that cannot
        be used.
        """
        return cls.probe(raw)

    @classmethod
    def measures(cls, probe: Probe) -> Mapping[str, float]:
        """Return sizes of a file, each above 0, by title; the audit shows distributions."""
        return {}

    @classmethod
    def counts(cls, probe: Probe) -> Mapping[str, int]:
        """Return properties with few values, by name; the audit counts the files that have each."""
        return {}

    @classmethod
    def default_settings(cls, embedding: int, dropout: float) -> Mapping[str, Any]:
        """Return the settings that ``auto`` chooses, for token vectors of this width."""
        return {}

    @classmethod
    def default_encoder(cls, positions: int, width: int) -> EncoderChoice:
        """Return the encoder that ``auto`` chooses, for vectors of this width.

        ``positions``: length of a long input; 0 for text. What is long is halved on the way up, so
        that attention has some dozens of states to choose from.
        """
        halvings = next((n for n in range(3) if positions <= ATTENDED_STATES * 2**n), 3)
        about = f"{cls.__module__.rpartition('.')[2]} of up to about {positions:,} frames"
        if halvings == 0:
            layers = {"kind": "rnn", "cell": "lstm", "width": width, "layers": 1, "direction": "both"}
            return EncoderChoice(layers, f"{about}, short enough to read each" if positions else "")
        layers = {"kind": "pyramid", "cell": "lstm", "width": width, "layers": 1 + halvings, "dropout": 0.2}
        times = f"{halvings} time{'s' * (halvings > 1)}"
        reason = f"{about}, halved {times} on the way up, so that attention has fewer states to choose from"
        return EncoderChoice(layers, reason, 2**halvings)

    @classmethod
    @abstractmethod
    def fit(cls, config: Any, raw: Sequence[str], name: str) -> Modality:
        """Learn a vocabulary, a normalisation or the like from the training side of a source."""

    @property
    def notes(self) -> list[str]:
        """What a person should know about what was learnt, in sentences."""
        return []

    @abstractmethod
    def array(self, raw: str) -> np.ndarray:
        """Return (S,) token ids, (S, D) vectors, or (H, W, C) pixels."""

    def augmented(self, raw: str, generator: np.random.Generator) -> np.ndarray:
        """Return ``array`` changed at random in a way that keeps its meaning, for training."""
        return self.array(raw)

    def augmenting(self, raws: Sequence[str]) -> Callable[[np.random.Generator], Sequence[np.ndarray]]:
        """Return a function that augments all of ``raws`` at once, called once for each epoch."""
        return lambda generator: [self.augmented(raw, generator) for raw in raws]

    @property
    def varies(self) -> bool:
        """Whether ``augmented`` changes anything. If not, arrays can be cached."""
        return type(self).augmented is not Modality.augmented

    def length(self, raw: str) -> int:
        """Return how many positions of a batch the input takes.

        Where ``is_file``, read no more than the header.
        """
        return len(self.array(raw))

    @abstractmethod
    def collate(self, arrays: Sequence[np.ndarray]) -> PaddedArrays:
        """Pad arrays: return the data (B, ...) and the mask of real positions."""

    @abstractmethod
    def frontend_options(self) -> Mapping[str, Any]:
        """Return the arguments that the frontend is built with: plain values and numpy arrays."""

    @abstractmethod
    def axis(self, array: np.ndarray, stride: int = 1) -> Axis:
        """Return the labels of the positions after an encoder of this stride."""

    def spans(self, array: np.ndarray, stride: int = 1) -> tuple[str, list[tuple[int, int]]] | None:
        """Return a text and which of its characters each position stands for; None if it reads no text.

        Law: there is one span for each label of ``axis``.
        """
        return None

    def describe_reading(self) -> Mapping[str, Any]:
        """Return what a program in another language has to know to make the same arrays, as plain data.

        The kinds that studio/runtime reads say how; ``tests/native/test_wasm.py`` compares the arrays.
        """
        return {}

    def as_described(self) -> tuple[Modality, str]:
        """Return the modality that knows no more than ``describe_reading`` says, and what it does otherwise.

        The second is a sentence. It is empty if ``describe_reading`` says everything, as it mostly does.
        """
        return self, ""

    @property
    def has_tags(self) -> bool:
        """Whether some tokens are tags: features of the row in angle brackets, such as ``<V>``."""
        return False

    @abstractmethod
    def save(self, folder: Path, name: str) -> list[str]:
        """Write what was learnt about the source ``name`` into a run's folder; return the names of the files."""

    @classmethod
    @abstractmethod
    def load(cls, config: Any, folder: Path, name: str) -> Modality:
        """Read back what ``save`` wrote."""


def pad_tokens(sequences: Sequence[np.ndarray]) -> PaddedArrays:
    """Pad sequences of token ids."""
    return pad_sequences(sequences, PAD)


def pad_sequences(sequences: Sequence[np.ndarray], padding: float = 0) -> PaddedArrays:
    """Pad sequences (S, ...) on the right: the data (B, S, ...), and the mask (B, S)."""
    lengths = np.array([len(sequence) for sequence in sequences])
    mask = np.arange(lengths.max()) < lengths[:, None]  # (B, S)
    data = np.full((*mask.shape, *sequences[0].shape[1:]), padding, dtype=sequences[0].dtype)
    data[mask] = np.concatenate(sequences)
    return data, mask
