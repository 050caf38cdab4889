"""Pieces of words, learnt by sentencepiece (byte-pair encoding, or a unigram model).

Unseen characters become bytes. Decoding gives back every text exactly. As in ``words``, a text is
read as if it began with a space, so that a word is split the same way at the start of a text and
inside it. sentencepiece writes a space as U+2581 and drops training lines with U+2585 in them:
these two are escaped, see ``escape``.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np

from dragoman.config import ConfigError
from dragoman.data.tokenizers._base import (
    ADVICE,
    MISSING,
    SPACE_MARK,
    UNKNOWN,
    LoweredTokenizer,
    SampleAll,
    Tokenizer,
    TokenizerConfig,
    clean,
    printable,
)
from dragoman.data.tokenizers._bpe_dropout import BPEDropout, SampleTable, TooManyWords
from dragoman.data.tokenizers._sentencepiece import check_settings
from dragoman.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary
from dragoman.errors import UserError
from dragoman.files import LARGE, damaged_file, read_regular, write_run_file
from dragoman.types import Spelling

_FIXED = len(SPECIALS) + 256  # ids that exist before anything is learnt
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_LARGEST_DEFAULT = 32_000
_CHUNK = 10_000  # characters of a line that sentencepiece gets at once

# Noncharacters stand for the two reserved characters; a noncharacter in the text itself gets _ESCAPE in front.
_ESCAPE = "\ufdd1"
_ESCAPES = {SPACE_MARK: "\ufdd0", "\u2585": "\ufdd2"} | {c: _ESCAPE + c for c in ("\ufdd0", _ESCAPE, "\ufdd2")}
_UNESCAPES = {escaped: character for character, escaped in _ESCAPES.items()}
_ESCAPE_TABLE = str.maketrans(_ESCAPES)
_ESCAPED = re.compile("\ufdd1[\ufdd0-\ufdd2]|\ufdd0|\ufdd2")


class Subwords(Tokenizer):
    settings = frozenset({"size", "model", "drop", "normalize"})
    order_matters = True

    def __init__(self, vocabulary: Vocabulary, normalize: str, model: bytes, drop: float = 0.0) -> None:
        super().__init__(vocabulary, normalize)
        self._model, self.drop = model, drop
        self._processor = _processor(model)
        self._spelled = [UNKNOWN.encode("utf-8") if index == UNK else b"" for index in range(len(SPECIALS))]
        # The bytes come first, so a learnt piece that reads <0x41> is not taken for one of them.
        self._spelled += [bytes([value]) for value in range(256)]
        self._spelled += [piece.replace(SPACE_MARK, " ").encode("utf-8") for piece in vocabulary.symbols[256:]]

    @classmethod
    def fit(cls, config: TokenizerConfig, texts: Iterable[str]) -> Self:
        characters: Counter[str] = Counter()
        words: Counter[str] = Counter()
        for text in _lines(texts, config.normalize):
            characters.update(text)
            words.update(text.split(" "))
        size = config.size or default_size(characters, words)
        free = size - _FIXED
        if free < 2:
            raise UserError(
                f"tokenizer.size = {size}: subwords need at least {_FIXED + 2}, of which {_FIXED} are "
                "the single bytes and the specials; ask for more, or choose kind = 'bytes'"
            )
        notes = []
        rare: list[str] = []
        if len(characters) > free:
            # The space is always needed, whatever its rank.
            ranked = sorted(characters, key=lambda character: (character != " ", -characters[character], character))
            rare = ranked[free:]
            notes.append(
                f"{size} subwords hold only the {free} most frequent of {len(characters)} characters; "
                "the others are spelled as bytes"
            )
        model = _train(_lines(texts, config.normalize), size, config.model, rare)
        processor = _processor(model)
        symbols = [processor.id_to_piece(index) for index in range(len(SPECIALS), processor.get_piece_size())]
        blank = Vocabulary(symbols, [0] * processor.get_piece_size())
        tokenizer = cls(blank, config.normalize, model, config.drop)._counted(texts)
        if config.size is not None and tokenizer.size < config.size:
            notes.append(f"{tokenizer.size} subwords were learnt from the text; {config.size} were asked for")
        tokenizer.notes = notes
        return tokenizer

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._processor.encode(escape(text))
        return ids

    def lower(self) -> LoweredTokenizer:
        learnt = range(_FIXED, self.size)
        symbols = tuple(self._processor.id_to_piece(index) for index in range(len(SPECIALS), self.size))
        if symbols != self.vocabulary.symbols or any(map(self._processor.is_unused, learnt)):
            raise UserError("the vocabulary of the subwords is not that of their sentencepiece model; train again")
        method = check_settings(self._model)
        spelled = tuple(piece.replace(SPACE_MARK, " ") for piece in symbols[256:])
        return LoweredTokenizer(method, spelled, tuple(map(self._processor.get_score, learnt)))

    def spelling(self) -> Spelling:
        # A piece with half of an escape in it has no bytes of its own.
        pieces = [unescape_whole(piece) for piece in self._spelled[_FIXED:]]
        later = (None, self._spelled[UNK], None, None, *self._spelled[len(SPECIALS) : _FIXED], *pieces)
        first = tuple(added if added is None else added.removeprefix(b" ") for added in later)
        return Spelling((later, first), np.zeros((2, len(later)), np.int8), start=1)

    @property
    def varies(self) -> bool:
        return self.drop > 0

    def with_drop(self, drop: float, texts: Iterable[str]) -> Subwords:
        if drop == self.drop:
            return self
        if drop and self._processor.get_score(_FIXED) != 0.0:  # a merge's rank; log-probabilities are below 0
            raise ConfigError(f"tokenizer.drop = {drop:g}: a unigram model has no merges to leave out; set it to 0")
        return Subwords(self.vocabulary, self.normalize, self._model, drop)._counted(texts)

    def _counted(self, texts: Iterable[str]) -> Self:
        """Return this tokeniser with token counts over ``texts``, samples included."""
        counts = [0] * self.size
        generator = np.random.default_rng(0)
        for text in texts:
            for index in chain(self.encode(text), self.sample(text, generator) if self.varies else ()):
                counts[index] += 1
        return type(self)(Vocabulary(self.vocabulary.symbols, counts), self.normalize, self._model, self.drop)

    def sample(self, text: str, generator: np.random.Generator) -> list[int]:
        if not self.varies:
            return self.encode(text)
        return self._dropout.sample(self._words(text), generator)

    def sampler(self, texts: Sequence[str], end: int) -> SampleAll:
        if not self.varies:
            return super().sampler(texts, end)
        try:
            return SampleTable(self._dropout, map(self._words, texts), end).sample
        except TooManyWords:
            return super().sampler(texts, end)

    def _words(self, text: str) -> list[str]:
        escaped = escape(clean(text, self.normalize))
        return [SPACE_MARK + word for word in escaped.split(" ")[1:]]

    @cached_property
    def _dropout(self) -> BPEDropout:
        pieces = [self._processor.id_to_piece(index) for index in range(self.size)]
        numbers = {piece: index for index, piece in enumerate(pieces) if index >= _FIXED}

        def ids(piece: str) -> tuple[int, ...]:
            number = numbers.get(piece)
            spelled = (len(SPECIALS) + byte for byte in piece.encode("utf-8"))
            return tuple(spelled) if number is None else (number,)

        # pieces are numbered in the order of their merges
        ranks = {piece: number for piece, number in numbers.items() if len(piece) > 1}
        return BPEDropout(ranks, self.drop, ids)

    def _decode(self, ids: list[int]) -> str:
        return unescape(b"".join(self._spelled[index] for index in ids).decode("utf-8", errors="replace"))

    def _piece(self, index: int) -> str:
        piece = self.vocabulary.symbol(index)
        return piece if _is_byte(index) else printable(_ESCAPED.sub(_unescape_one, piece))

    def _save(self, folder: Path, name: str) -> tuple[dict[str, Any], list[str]]:
        path = _model_path(folder, name)
        write_run_file(path, self._model)
        return {"model_sha256": hashlib.sha256(self._model).hexdigest(), "drop": self.drop}, [path.name]

    @classmethod
    def _load(cls, record: Mapping[str, Any], vocabulary: Vocabulary, folder: Path, name: str) -> Self:
        path = _model_path(folder, name)
        model = read_regular(path, LARGE, MISSING)
        if hashlib.sha256(model).hexdigest() != record.get("model_sha256"):
            raise damaged_file(path, "its contents are not what was saved", ADVICE)
        drop = record.get("drop", 0.0)
        if not isinstance(drop, (int, float)) or not 0 <= drop < 1:
            raise ValueError(f"'drop' is {drop!r}")
        tokenizer = cls(vocabulary, record["normalize"], model, drop)
        if tokenizer._processor.get_piece_size() != tokenizer.size:
            raise ValueError(f"'symbols' do not belong to {path.name}")
        return tokenizer


def default_size(characters: Mapping[str, int], words: Mapping[str, int]) -> int:
    """Return a vocabulary size that grows with the square root of the amount of text.

    It is about 8,000 for 30,000 sentences and 2,500 for 3,000. There are no more pieces than
    distinct words of ordinary length (more would only fit accidents), at least enough for the
    characters, and at most 32,000.
    """
    word_count = sum(characters.values()) / 6  # also for scripts without spaces
    grown = 13.5 * math.sqrt(word_count)
    useful = _FIXED + len(characters) + sum(math.ceil(len(word) / 8) for word in words)
    fitting = min(grown, useful, _LARGEST_DEFAULT)
    return math.ceil(max(fitting, _FIXED + 1.2 * len(characters) + 32) / 8) * 8


def escape(text: str) -> str:
    """Put a space before a text, unless it is empty, and escape what sentencepiece reserves."""
    return " " + text.translate(_ESCAPE_TABLE) if text else ""


def unescape(text: str) -> str:
    """Undo ``escape``."""
    return _ESCAPED.sub(_unescape_one, text.removeprefix(" "))


def unescape_whole(piece: bytes) -> bytes | None:
    """Return what a piece of an escaped text means by itself; None if a part of it is escaped from outside."""
    text = _ESCAPED.sub(_unescape_one, piece.decode("utf-8"))
    return text.encode("utf-8") if escape(text) == " " + piece.decode("utf-8") else None


def _unescape_one(match: re.Match[str]) -> str:
    return _UNESCAPES[match.group()]


def _lines(texts: Iterable[str], normalize: str) -> Iterator[str]:
    return (escape(clean(text, normalize)) for text in texts if text)


def _is_byte(index: int) -> bool:
    return len(SPECIALS) <= index < _FIXED


def _model_path(folder: Path, name: str) -> Path:
    return Path(folder) / f"{name}.spm"


def _processor(model: bytes) -> Any:
    import sentencepiece  # late: slow to import, and only this kind needs it

    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise ValueError(f"not a sentencepiece model ({error})") from None


def _train(lines: Iterator[str], size: int, model: str, rare: list[str]) -> bytes:
    """Train a model, with one thread, so that the same text gives the same model.

    Nothing is written to disk.
    """
    import sentencepiece

    without_rare = str.maketrans(dict.fromkeys(rare, " "))
    # sentencepiece aborts the process at a word of 65,536 characters. It learns from words alone, so dividing very long
    # lines breaks a word here and there and loses no text.
    chunks = (line[start : start + _CHUNK] for line in lines for start in range(0, len(line), _CHUNK))
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(chunk.translate(without_rare) for chunk in chunks) if rare else chunks,
        model_writer=written,
        model_type=model,
        vocab_size=size,
        hard_vocab_limit=False,
        byte_fallback=True,
        character_coverage=1.0,
        pad_id=PAD,
        unk_id=UNK,
        bos_id=BOS,
        eos_id=EOS,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        max_sentence_length=2**30,  # bytes; longer lines would be skipped
        num_threads=1,
        minloglevel=2,
    )
    return written.getvalue()
