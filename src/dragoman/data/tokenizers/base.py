"""What every tokeniser does, and the settings they share."""

from __future__ import annotations

import importlib
import pkgutil
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from dragoman.config import ConfigError, Section, nearest
from dragoman.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary, damaged, read_json
from dragoman.files import write_json

UNKNOWN = "⁇"  # how decoded text shows a token that is not known
SPACE_MARK = "▁"  # how a picture shows a space
FORMAT = 1

CutAll = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]  # ids, how many of them each text has

_SURROGATES = re.compile("[\ud800-\udfff]")


def kinds() -> list[str]:
    """The files of this folder that are tokenisers: the filename is the name."""
    names = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return sorted(name for name in names if name != "base" and not name.startswith("_"))


def tokenizer_class(kind: str) -> type[Tokenizer]:
    """The one ``Tokenizer`` of the file ``kind``.py."""
    module = importlib.import_module(f"{__package__}.{kind}")
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Tokenizer) and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise TypeError(f"{module.__name__} must define one Tokenizer, it defines {len(found)}")
    return found[0]


class TokenizerConfig(Section):
    """How text is cut into tokens. A setting that the kind does not heed is refused, not ignored."""

    kind: str = "auto"  # "auto", or the name of a file here
    size: int | None = Field(default=None, ge=8)  # ids, specials included: subwords aim at it, words are capped by it
    min_count: int = Field(default=1, ge=1)  # characters, words, symbols: rarer ones are left out
    model: Literal["bpe", "unigram"] = "bpe"  # subwords
    drop: float = Field(default=0.0, ge=0.0, lt=1.0)  # subwords: chance that training leaves out a merge of a word
    normalize: Literal["none", "nfc"] = "none"  # Unicode normalisation before all else

    @field_validator("kind")
    @classmethod
    def _kind_exists(cls, kind: str) -> str:
        choices = ["auto", *kinds()]
        if kind not in choices:
            raise ValueError(f"there is no such tokenizer; {nearest(kind, choices)}")
        return kind

    @model_validator(mode="after")
    def _settings_are_heeded(self) -> Self:
        if self.drop and self.model != "bpe":
            raise ValueError("'drop' leaves out merges, of which a unigram model has none; choose model = 'bpe'")
        if self.kind == "auto":
            return self
        heeded = tokenizer_class(self.kind).settings
        for name, field in type(self).model_fields.items():
            if name != "kind" and name not in heeded and getattr(self, name) != field.default:
                raise ValueError(f"{name!r} has no meaning for {self.kind}; leave it out or choose another kind")
        return self

    def resolved(self, kind: str) -> TokenizerConfig:
        """These settings for a kind chosen in place of "auto"; what that kind does not heed is left out."""
        heeded = tokenizer_class(kind).settings
        return TokenizerConfig(kind=kind, **self.model_dump(include=set(heeded)))


class Tokenizer(ABC):
    """Text to ids and back. Knows nothing of BOS and EOS beyond skipping them.

    Laws: ``decode(encode(text))`` is ``text`` (after ``canonical``) when ``unknown(text)`` is 0; every id is in
    ``range(size)``; no text raises; ``encode`` never gives PAD, BOS or EOS; fitting twice on the same texts gives
    the same tokeniser; saving and loading changes nothing; all of this holds for ``vary`` too.
    """

    kind: ClassVar[str]
    settings: ClassVar[frozenset[str]]  # of TokenizerConfig, those that this kind heeds

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__module__.rpartition(".")[2]

    def __init__(self, vocabulary: Vocabulary, normalize: str = "none") -> None:
        self.vocabulary = vocabulary
        self.normalize = normalize
        self.notes: list[str] = []  # what a person should be told about the fit

    @classmethod
    @abstractmethod
    def fit(cls, config: TokenizerConfig, texts: Iterable[str]) -> Self:
        """Learn from ``texts``, which can be gone through more than once."""

    @property
    def size(self) -> int:
        """The number of ids, specials included."""
        return len(self.vocabulary)

    @property
    def counts(self) -> Sequence[int]:
        """How often each id stands in the texts it was fitted on."""
        return self.vocabulary.counts

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, without BOS and EOS; UNK for what is not known."""
        return self._encode(clean(text, self.normalize))

    @property
    def varies(self) -> bool:
        """Is ``vary`` anything but ``encode``?"""
        return False

    def vary(self, text: str, chance: np.random.Generator) -> list[int]:
        """The ids of ``text`` cut in one of the ways that training sees it in."""
        return self.encode(text)

    def cuts(self, texts: Sequence[str], closing: int) -> CutAll:
        """``vary`` of many texts at once, as often as it is called: their ids one behind the other, each text closed by
        ``closing``, and how many ids each has."""

        def cut(chance: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
            rows = [[*self.vary(text, chance), closing] for text in texts]
            return np.array(list(chain.from_iterable(rows)), dtype=np.int64), np.array([len(row) for row in rows])

        return cut

    def with_drop(self, drop: float, texts: Iterable[str]) -> Tokenizer:
        """The same tokens, cut in training as another run on ``texts`` wants it."""
        if drop:
            raise ConfigError(
                f"tokenizer.drop = {drop:g}: {self.kind} have no merges that could be left out; set it to 0"
            )
        return self

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids``; PAD, BOS and EOS are skipped wherever they stand, UNK is shown as ⁇."""
        return self._decode([index for index in self._checked(ids) if index not in (PAD, BOS, EOS)])

    def canonical(self, text: str) -> str:
        """The text that a round trip gives back: ``text``, Unicode-normalised when so configured."""
        return clean(text, self.normalize)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """One printable string an id, for pictures and JSON. Not meant to be joined: ``decode`` does that."""
        return [SPECIALS[index] if index < len(SPECIALS) else self._piece(index) for index in self._checked(ids)]

    def unknown(self, text: str) -> int:
        """How many tokens of ``text`` are out of vocabulary."""
        return self.encode(text).count(UNK)

    def save(self, folder: Path, name: str) -> None:
        record = {"format": FORMAT, "kind": self.kind, "normalize": self.normalize, **self._save(folder, name)}
        write_json(record_path(folder, name), {**record, **self.vocabulary.to_record()})

    @classmethod
    def load(cls, folder: Path, name: str) -> Tokenizer:
        """What ``save`` wrote, of whatever kind; called on a kind, of that kind only."""
        path = record_path(folder, name)
        record = read_json(path)
        kind, normalize = record.get("kind"), record.get("normalize")
        if record.get("format") != FORMAT:
            raise damaged(path, f"format {record.get('format')!r} is not {FORMAT}")
        if kind not in kinds() or not issubclass(tokenizer_class(kind), cls):
            raise damaged(path, f"there is no such kind of tokenizer here: {kind!r}")
        if normalize not in ("none", "nfc"):
            raise damaged(path, f"'normalize' is {normalize!r}")
        try:
            vocabulary = Vocabulary.from_record(record)
            return tokenizer_class(kind)._load(record, vocabulary, folder, name)
        except ValueError as error:
            raise damaged(path, str(error)) from None

    def _checked(self, ids: Iterable[int]) -> Iterator[int]:
        for index in map(int, ids):
            if not 0 <= index < self.size:
                raise ValueError(f"id {index} is outside the vocabulary of {self.size}")
            yield index

    @abstractmethod
    def _encode(self, text: str) -> list[int]: ...

    @abstractmethod
    def _decode(self, ids: list[int]) -> str:
        """``ids`` holds UNK, but no other special."""

    def _piece(self, index: int) -> str:
        return printable(self.vocabulary.symbol(index))

    def _save(self, folder: Path, name: str) -> dict[str, Any]:
        """Files and fields beyond the vocabulary."""
        return {}

    @classmethod
    def _load(cls, record: Mapping[str, Any], vocabulary: Vocabulary, folder: Path, name: str) -> Self:
        """ValueError when the record does not hold together."""
        return cls(vocabulary, record["normalize"])


def record_path(folder: Path, name: str) -> Path:
    return Path(folder) / f"{name}.tokenizer.json"


def clean(text: str, normalize: str) -> str:
    """A lone surrogate (JSON can carry one) is not text: it is read as U+FFFD, as a decoder of UTF-8 would."""
    text = _SURROGATES.sub("\ufffd", text)
    return unicodedata.normalize("NFC", text) if normalize == "nfc" else text


def printable(text: str) -> str:
    """``text`` with nothing invisible in it: spaces as ▁, a leading combining mark on ◌, control characters escaped."""
    shown = "".join(
        SPACE_MARK if character == " " else character if character.isprintable() else _escape(character)
        for character in text
    )
    return "◌" + shown if text and unicodedata.category(text[0]).startswith("M") else shown


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
