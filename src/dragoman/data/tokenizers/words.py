"""Words and single punctuation marks, with the spacing kept exactly.

A space belongs to the token after it: "Hello, world" is " Hello" "," " world", as if every text
began with a space, so a word has the same token at the start of a text and inside it. Two tokens
always exist: a single space, and the join (stored as the empty string), which removes the space of
the token after it. With them, a word that was only seen after a space can be written without one
and the other way round, so that any spacing of known words survives encoding and decoding. An
unknown word is UNK, and its spacing is kept too.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from dragoman.data.tokenizers._base import (
    SPACE_MARK,
    UNKNOWN,
    LoweredTokenizer,
    Tokenizer,
    TokenizerConfig,
    clean,
    printable,
)
from dragoman.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from dragoman.types import Spelling

_SPACE, _JOIN = " ", ""
_ALWAYS = (_SPACE, _JOIN)


class Words(Tokenizer):
    settings = frozenset({"size", "min_count", "normalize"})
    splits_at_spaces = True

    def __init__(self, vocabulary: Vocabulary, normalize: str = "none") -> None:
        super().__init__(vocabulary, normalize)
        self._space, self._join = vocabulary.id(_SPACE), vocabulary.id(_JOIN)

    @classmethod
    def fit(cls, config: TokenizerConfig, texts: Iterable[str]) -> Self:
        seen: Counter[str] = Counter()
        for text in texts:
            seen.update(units(clean(text, config.normalize)))
        vocabulary = Vocabulary.build(seen, min_count=config.min_count, size=config.size, always=_ALWAYS)
        # A unit that was left out may still be written with two tokens: count what encoding gives.
        tokenizer = cls(vocabulary, config.normalize)
        counts = [0] * len(vocabulary)
        for unit, count in seen.items():
            for index in tokenizer._unit(unit):
                counts[index] += count
        return cls(Vocabulary(vocabulary.symbols, counts), config.normalize)

    def lower(self) -> LoweredTokenizer:
        return LoweredTokenizer("words", self.vocabulary.symbols, word_characters=_word_characters())

    def spelling(self) -> Spelling:
        # view 0: inside a text, 1: at its start, 2: after a join inside it, 3: after a join at its start
        strings = ["", " " + UNKNOWN, "", "", *self.vocabulary.symbols]
        spelled: list[tuple[bytes | None, ...]] = []
        after = np.zeros((4, len(strings)), np.int8)
        for view, (is_start, is_joined) in enumerate([(False, False), (True, False), (False, True), (True, True)]):
            parts = [text.removeprefix(" ") if is_joined else text for text in strings]
            added = [part.removeprefix(" ") if is_start else part for part in parts]
            spelled.append(tuple(None if index in (PAD, BOS, EOS) else own.encode() for index, own in enumerate(added)))
            after[view] = [int(is_start and not part) for part in parts]
            after[view, self._join] = 3 if is_start else 2
        return Spelling(tuple(spelled), after, start=1)

    def _encode(self, text: str) -> list[int]:
        return [index for unit in units(text) for index in self._unit(unit)]

    def _unit(self, unit: str) -> list[int]:
        index = self.vocabulary.id(unit)
        if index != UNK:
            return [index]
        if unit.startswith(" "):
            other = self.vocabulary.id(unit[1:])
            return [UNK] if other == UNK else [self._space, other]
        return [self._join, self.vocabulary.id(" " + unit)]

    def _decode(self, ids: list[int]) -> str:
        parts = []
        joined = False
        for index in ids:
            if index == self._join:
                joined = True
                continue
            part = " " + UNKNOWN if index == UNK else self.vocabulary.symbol(index)
            parts.append(part[1:] if joined and part.startswith(" ") else part)
            joined = False
        return "".join(parts).removeprefix(" ")

    def spans(self, ids: Iterable[int]) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        end, joined, is_first = 0, False, True
        for index in self._checked(ids):
            if index in (PAD, BOS, EOS, self._join):
                joined = joined or index == self._join
                spans.append((end, end))
                continue
            part = " " + UNKNOWN if index == UNK else self.vocabulary.symbol(index)
            part = part[1:] if joined and part.startswith(" ") else part
            length = len(part.removeprefix(" ") if is_first else part)
            spans.append((end, end + length))
            end += length
            joined, is_first = False, is_first and not part
        return spans

    def _piece(self, index: int) -> str:
        if index == self._join:
            return "￭"
        return printable(self.vocabulary.symbol(index).removeprefix(" ")) or SPACE_MARK

    @classmethod
    def _load(cls, record: Mapping[str, Any], vocabulary: Vocabulary, folder: Path, name: str) -> Self:
        if vocabulary.symbols[:2] != _ALWAYS:
            raise ValueError("the space and the join are missing from 'symbols'")
        return super()._load(record, vocabulary, folder, name)


def units(text: str) -> list[str]:
    """Split a text into words and single other characters, each with the space before it.

    Joined, the units are the text with a space before it; an empty text has none.
    """
    return _unit_pattern().findall(" " + text) if text else []


@cache
def _unit_pattern() -> re.Pattern[str]:
    return re.compile(rf" ?(?:{_word_characters()}+|.)", re.DOTALL)


@cache
def _word_characters() -> str:
    # Python's \w has no combining marks, without which the words of many scripts fall apart. The joiners U+200C
    # and U+200D occur inside words too. Above U+1FFFF, the only marks are variation selectors.
    marks = "".join(
        character for character in map(chr, range(0x300, 0x20000)) if unicodedata.category(character).startswith("M")
    )
    selectors = f"{chr(0xE0100)}-{chr(0xE01EF)}"
    return rf"[\w\u200c\u200d{marks}{selectors}]"
