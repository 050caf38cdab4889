"""One Unicode code point is one token.

Combining marks are tokens of their own: a base and a mark never seen together are still both known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Self

from dragoman.data.tokenizers._base import UNKNOWN, LoweredTokenizer, Tokenizer, TokenizerConfig, clean, spelled_alike
from dragoman.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from dragoman.types import Spelling


class Characters(Tokenizer):
    settings = frozenset({"min_count", "normalize"})

    @classmethod
    def fit(cls, config: TokenizerConfig, texts: Iterable[str]) -> Self:
        seen: Counter[str] = Counter()
        for text in texts:
            seen.update(clean(text, config.normalize))
        return cls(Vocabulary.build(seen, min_count=config.min_count), config.normalize)

    def lower(self) -> LoweredTokenizer:
        return LoweredTokenizer("characters", self.vocabulary.symbols)

    def spelling(self) -> Spelling:
        return spelled_alike([UNKNOWN, *self.vocabulary.symbols])

    def _encode(self, text: str) -> list[int]:
        return [self.vocabulary.id(character) for character in text]

    def _decode(self, ids: list[int]) -> str:
        return "".join(UNKNOWN if index == UNK else self.vocabulary.symbol(index) for index in ids)

    def spans(self, ids: Iterable[int]) -> list[tuple[int, int]]:
        spans = []
        end = 0
        for index in self._checked(ids):
            begin, end = end, end + (index not in (PAD, BOS, EOS))
            spans.append((begin, end))
        return spans
