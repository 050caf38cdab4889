"""One byte of UTF-8 is one token: 256 ids and the specials, nothing is ever unknown.

Ids that do not spell valid UTF-8 decode to U+FFFD.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from dragoman.data.tokenizers._base import (
    UNKNOWN,
    LoweredTokenizer,
    Tokenizer,
    TokenizerConfig,
    clean,
    printable,
    spelled_alike,
)
from dragoman.data.vocabulary import SPECIALS, UNK, Vocabulary
from dragoman.types import Spelling

_SYMBOLS = tuple(f"<0x{value:02X}>" for value in range(256))
_FIRST = len(SPECIALS)


class Bytes(Tokenizer):
    settings = frozenset({"normalize"})

    @classmethod
    def fit(cls, config: TokenizerConfig, texts: Iterable[str]) -> Self:
        seen: Counter[int] = Counter()
        for text in texts:
            seen.update(clean(text, config.normalize).encode("utf-8"))
        counts = [0] * _FIRST + [seen[value] for value in range(256)]
        return cls(Vocabulary(_SYMBOLS, counts), config.normalize)

    def lower(self) -> LoweredTokenizer:
        return LoweredTokenizer("bytes")

    def spelling(self) -> Spelling:
        return spelled_alike([UNKNOWN, *(bytes([value]) for value in range(256))])

    def _encode(self, text: str) -> list[int]:
        return [_FIRST + value for value in text.encode("utf-8")]

    def _decode(self, ids: list[int]) -> str:
        spelled = (UNKNOWN.encode("utf-8") if index == UNK else bytes([index - _FIRST]) for index in ids)
        return b"".join(spelled).decode("utf-8", errors="replace")

    def _piece(self, index: int) -> str:
        value = index - _FIRST
        return printable(chr(value)) if 0x20 <= value < 0x7F else self.vocabulary.symbol(index)

    @classmethod
    def _load(cls, record: Mapping[str, Any], vocabulary: Vocabulary, folder: Path, name: str) -> Self:
        if vocabulary.symbols != _SYMBOLS:
            raise ValueError("'symbols' are not the 256 bytes")
        return super()._load(record, vocabulary, folder, name)
