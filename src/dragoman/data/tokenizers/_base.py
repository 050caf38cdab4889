"""The contract of tokenisers, and the settings they share."""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from pydantic import Field, field_validator, model_validator

from dragoman.config import ConfigError, Section, nearest
from dragoman.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary
from dragoman.errors import UserError
from dragoman.files import LARGE, damaged_file, read_json, write_json
from dragoman.parts import module_names, only_class
from dragoman.types import Spelling

UNKNOWN = "⁇"  # an unknown token in decoded text
SPACE_MARK = "▁"  # a space in pictures and JSON
FORMAT = 1
MISSING = "no such file; a folder with a saved model has this file"
ADVICE = "restore the file from a copy of its folder, or train again"

# Returns the ids of all texts in a row, and the number of ids of each text.
SampleAll: TypeAlias = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]

_SURROGATES = re.compile("[\ud800-\udfff]")


def kinds() -> list[str]:
    """Return every kind of tokeniser: the files of this package."""
    return module_names("dragoman.data.tokenizers")


def tokenizer_class(kind: str) -> type[Tokenizer]:
    """Return the ``Tokenizer`` that the file of this kind defines."""
    return only_class(f"dragoman.data.tokenizers.{kind}", Tokenizer)


class TokenizerConfig(Section):
    """How text is split into tokens.

    A setting that has no meaning for the kind is refused, not ignored.
    """

    kind: str = "auto"
    """"auto", or the name of a file in the folder of tokenizers."""
    size: int | None = Field(default=None, ge=8)
    """Size of the vocabulary, special tokens included. A goal for subwords, an upper limit for
    words."""
    min_count: int = Field(default=1, ge=1)
    """characters, words, symbols: rarer ones are left out of the vocabulary."""
    model: Literal["bpe", "unigram"] = "bpe"
    """subwords: the model that sentencepiece fits."""
    drop: float = Field(default=0.0, ge=0.0, lt=1.0)
    """subwords: the probability that training leaves out a merge of a word (BPE dropout)."""
    normalize: Literal["none", "nfc"] = "none"
    """Unicode normalisation before tokenization."""

    @field_validator("kind")
    @classmethod
    def _kind_exists(cls, kind: str) -> str:
        choices = ["auto", *kinds()]
        if kind not in choices:
            raise ValueError(f"there is no such tokenizer; {nearest(kind, choices)}")
        return kind

    @model_validator(mode="after")
    def _settings_are_used(self) -> Self:
        if self.drop and self.model != "bpe":
            raise ValueError("'drop' leaves out merges, of which a unigram model has none; choose model = 'bpe'")
        if self.kind == "auto":
            return self
        used = tokenizer_class(self.kind).settings
        for name, field in type(self).model_fields.items():
            if name != "kind" and name not in used and getattr(self, name) != field.default:
                raise ValueError(f"{name!r} has no meaning for {self.kind}; leave it out or choose another kind")
        return self

    def resolved(self, kind: str) -> TokenizerConfig:
        """Return the settings for a kind chosen in place of "auto": those that it uses."""
        used = tokenizer_class(kind).settings
        return TokenizerConfig(kind=kind, **self.model_dump(include=set(used)))


@dataclass(frozen=True)
class LoweredTokenizer:
    """A tokeniser as plain data, for programs that have its method but not its code."""

    method: Literal["bytes", "characters", "symbols", "words", "bpe", "unigram"]
    strings: tuple[str, ...] = ()  # of the ids after the special tokens and the bytes
    scores: tuple[float, ...] = ()  # bpe, unigram: one for each string
    word_characters: str = ""  # words: the characters of words, as a class of a regular expression


class Tokenizer(ABC):
    """Text to ids and back. Knows nothing of BOS and EOS except that decoding skips them.

    Laws: ``decode(encode(text))`` is ``text`` (after ``canonical``) where ``unknown(text)`` is 0;
    every id is in ``range(size)``; no text raises; ``encode`` never gives PAD, BOS or EOS; fitting
    twice on the same texts gives the same tokeniser; saving and loading changes nothing; all of
    this holds for ``sample`` too.
    """

    kind: ClassVar[str]
    settings: ClassVar[frozenset[str]]  # the settings of TokenizerConfig that this kind uses
    splits_at_spaces: ClassVar[bool] = False  # tokens are words, or other symbols between spaces
    order_matters: ClassVar[bool] = False  # the same symbols in another order tokenise a text differently
    has_unknown: ClassVar[bool] = False  # a symbol may be unknown; then it can be copied from a source

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__module__.rpartition(".")[2]

    def __init__(self, vocabulary: Vocabulary, normalize: str = "none") -> None:
        self.vocabulary = vocabulary
        self.normalize = normalize
        self.notes: list[str] = []  # what a person should know about the fit
        self.slots = 0  # ids after the vocabulary, which copy symbols of a source

    @classmethod
    @abstractmethod
    def fit(cls, config: TokenizerConfig, texts: Iterable[str]) -> Self:
        """Learn a tokeniser from ``texts``, which can be iterated more than once."""

    @property
    def size(self) -> int:
        """The size of the vocabulary, special tokens and slots included."""
        return len(self.vocabulary) + self.slots

    def with_slots(self, slots: int) -> Tokenizer:
        """Return the tokeniser with slots for copies of source symbols, if symbols can be unknown to it."""
        other = self.with_copies([UNKNOWN] * slots)
        other.slots = slots if self.has_unknown else 0
        return other

    def with_copies(self, symbols: Sequence[str]) -> Tokenizer:
        """Return the tokeniser with what its slots are written as; a slot that has nothing is unknown."""
        other = copy(self)
        rest = [UNKNOWN] * (self.slots - len(symbols))
        other.vocabulary = self.vocabulary.with_copies([*map(self._copied, symbols), *rest])
        other.__dict__.pop("_shown", None)
        return other

    def strings(self, text: str) -> list[str]:
        """Return the string of each token of ``text``, of unknown ones too."""
        return [self.vocabulary.symbol(index) for index in self.encode(text)]

    def _copied(self, symbol: str) -> str:
        """Return a symbol of a source as a token here."""
        return symbol.strip(" ") or symbol

    @property
    def counts(self) -> Sequence[int]:
        """How often each id occurs in the texts that the tokeniser was fitted on; slots do not."""
        return (*self.vocabulary.counts, *[0] * self.slots) if self.slots else self.vocabulary.counts

    @property
    def units(self) -> str:
        """What a person calls the tokens, in the plural."""
        return self.kind

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``, without BOS and EOS; UNK for what is not known."""
        return self._encode(clean(text, self.normalize))

    @property
    def varies(self) -> bool:
        """Whether ``sample`` gives more than one segmentation."""
        return False

    def sample(self, text: str, generator: np.random.Generator) -> list[int]:
        """Return the ids of ``text`` in a segmentation drawn at random, for training."""
        return self.encode(text)

    def sampler(self, texts: Sequence[str], end: int) -> SampleAll:
        """Return a function that samples all texts at once, each closed by the token ``end``."""

        def sample_all(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
            rows = [[*self.sample(text, generator), end] for text in texts]
            return np.array(list(chain.from_iterable(rows)), dtype=np.int64), np.array([len(row) for row in rows])

        return sample_all

    def with_drop(self, drop: float, texts: Iterable[str]) -> Tokenizer:
        """Return the same tokeniser with another ``drop``, for a run on ``texts``."""
        if drop:
            raise ConfigError(
                f"tokenizer.drop = {drop:g}: {self.kind} have no merges that could be left out; set it to 0"
            )
        return self

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ``ids``.

        PAD, BOS and EOS are skipped wherever they are; UNK is shown as ⁇.
        """
        return self._decode([index for index in self._checked(ids) if index not in (PAD, BOS, EOS)])

    def spans(self, ids: Iterable[int]) -> list[tuple[int, int]]:
        """Return which characters of ``decode(ids)`` each id stands for: from ``begin`` to before ``end``.

        Law: spans are in order, within the text, and every character is in one. An id without
        characters of its own, such as the end symbol, has an empty span. The bytes of one character
        share it.
        """
        read: list[int] = []
        spans: list[tuple[int, int]] = []
        end = 0
        for index in self._checked(ids):
            if index in (PAD, BOS, EOS):
                spans.append((end, end))
                continue
            read.append(index)
            after = len(self._decode(read))
            spans.append((end, after) if after > end else (max(0, after - 1), after))
            end = after
        ordered: list[tuple[int, int]] = []
        for begin, after in spans:  # a text may become shorter again where an escape is completed
            first, last = ordered[-1] if ordered else (0, 0)
            ordered.append((max(min(begin, end), first), max(min(after, end), last)))
        return ordered

    def canonical(self, text: str) -> str:
        """Return what encoding and decoding make of ``text``, such as its normalisation."""
        return clean(text, self.normalize)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return a printable string for each id, for pictures and JSON.

        To get the text, use ``decode``.
        """
        shown = self._shown
        for index in (found := list(self._checked(ids))):
            if index not in shown:
                shown[index] = SPECIALS[index] if index < len(SPECIALS) else self._piece(index)
        return [shown[index] for index in found]

    @cached_property
    def _shown(self) -> dict[int, str]:
        """What ``pieces`` has returned for each id so far."""
        return {}

    def lower(self) -> LoweredTokenizer:
        """Return the tokeniser as plain data, for exports.

        Law: the native library encodes and decodes with it as this class does.
        """
        raise UserError(
            f"the tokenizer {self.kind!r} has no `lower` method, so a model with it runs with Python only; "
            "write one (CONTRIBUTING.md), or train with another kind"
        )

    def spelling(self) -> Spelling:
        """Return what each token adds to the bytes of a text, for constraints on outputs.

        Law: the bytes of the ids of an output are the UTF-8 of what ``decode`` makes of them, where these bytes are
        valid UTF-8 without noncharacters.
        """
        raise UserError(
            f"the tokenizer {self.kind!r} has no `spelling` method, so outputs cannot be constrained; write one "
            "(CONTRIBUTING.md), or train with another kind"
        )

    def unknown(self, text: str) -> int:
        """Return how many tokens of ``text`` are not in the vocabulary."""
        return self.encode(text).count(UNK)

    def save(self, folder: Path, name: str) -> list[str]:
        """Write the tokeniser into a folder, as ``name``, and return the names of its files."""
        own, names = self._save(folder, name)
        path = record_path(folder, name)
        record = {"format": FORMAT, "kind": self.kind, "normalize": self.normalize, **own}
        write_json(path, {**record, **self.vocabulary.to_record()})
        return [path.name, *names]

    @classmethod
    def load(cls, folder: Path, name: str) -> Tokenizer:
        """Read what ``save`` wrote, whatever its kind; a subclass reads its own kind only."""
        path = record_path(folder, name)
        record = read_json(path, MISSING, ADVICE, LARGE)
        kind, normalize = record.get("kind"), record.get("normalize")
        if record.get("format") != FORMAT:
            raise damaged_file(path, f"format {record.get('format')!r} is not {FORMAT}", ADVICE)
        if kind not in kinds() or not issubclass(tokenizer_class(kind), cls):
            raise damaged_file(path, f"there is no such kind of tokenizer here: {kind!r}", ADVICE)
        if normalize not in ("none", "nfc"):
            raise damaged_file(path, f"'normalize' is {normalize!r}", ADVICE)
        try:
            vocabulary = Vocabulary.from_record(record)
            return tokenizer_class(kind)._load(record, vocabulary, folder, name)
        except ValueError as error:
            raise damaged_file(path, str(error), ADVICE) from None

    def _checked(self, ids: Iterable[int]) -> Iterator[int]:
        size = self.size
        for index in map(int, ids):
            if not 0 <= index < size:
                raise ValueError(f"id {index} is outside the vocabulary of {size}")
            yield index

    @abstractmethod
    def _encode(self, text: str) -> list[int]:
        """Return the ids of a text that ``clean`` has prepared."""

    @abstractmethod
    def _decode(self, ids: list[int]) -> str:
        """Return the text of ids, among which UNK is the only special token."""

    def _piece(self, index: int) -> str:
        return printable(self.vocabulary.symbol(index))

    def _save(self, folder: Path, name: str) -> tuple[dict[str, Any], list[str]]:
        """Write files of this kind; return fields of the record beyond the vocabulary, and the files' names."""
        return {}, []

    @classmethod
    def _load(cls, record: Mapping[str, Any], vocabulary: Vocabulary, folder: Path, name: str) -> Self:
        """Make a tokeniser from its record.

        Raises ValueError for a record that contradicts itself.
        """
        return cls(vocabulary, record["normalize"])


def record_path(folder: Path, name: str) -> Path:
    return Path(folder) / f"{name}.tokenizer.json"


def clean(text: str, normalize: str) -> str:
    """Normalise a text, and replace lone surrogates (from JSON) by U+FFFD as UTF-8 decoders do."""
    text = _SURROGATES.sub("\ufffd", text)
    return unicodedata.normalize("NFC", text) if normalize == "nfc" else text


def printable(text: str) -> str:
    """Make everything visible: spaces as ▁, a leading combining mark on ◌, the rest escaped."""
    shown = "".join(
        SPACE_MARK if character == " " else character if character.isprintable() else _escape(character)
        for character in text
    )
    return "◌" + shown if text and unicodedata.category(text[0]).startswith("M") else shown


def spelled_alike(strings: Iterable[str | bytes]) -> Spelling:
    """Return the spelling of tokens that add the same bytes wherever they are, none the beginning of another's.

    The strings begin with that of UNK.
    """
    added = [text.encode("utf-8") if isinstance(text, str) else text for text in strings]
    spelled = (None, added[0], None, None, *added[1:])
    return Spelling((spelled,), np.zeros((1, len(spelled)), np.int8), is_unique=True)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
