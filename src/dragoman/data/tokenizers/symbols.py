"""Symbols between spaces, each one token: phones, tags, actions.

Only U+0020 separates. Decoding joins with one space, so encoding and decoding gives single spaces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Self

import numpy as np

from dragoman.data.tokenizers._base import UNKNOWN, LoweredTokenizer, Tokenizer, TokenizerConfig, clean
from dragoman.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary
from dragoman.types import Spelling

LONGEST_SYMBOL = 3  # characters on average; what is longer between spaces is called a word


class Symbols(Tokenizer):
    settings = frozenset({"min_count", "normalize"})
    splits_at_spaces = True
    has_unknown = True

    @classmethod
    def fit(cls, config: TokenizerConfig, texts: Iterable[str]) -> Self:
        seen: Counter[str] = Counter()
        for text in texts:
            seen.update(split(clean(text, config.normalize)))
        return cls(Vocabulary.build(seen, min_count=config.min_count), config.normalize)

    @property
    def units(self) -> str:
        """What a person calls the tokens: symbols if they are as short as phones and tags are, else words."""
        counts = self.vocabulary.counts[len(SPECIALS) :]
        letters = sum(len(symbol) * count for symbol, count in zip(self.vocabulary.symbols, counts, strict=True))
        return "words" if letters > LONGEST_SYMBOL * sum(counts) else "symbols"

    def canonical(self, text: str) -> str:
        return " ".join(split(super().canonical(text)))

    def lower(self) -> LoweredTokenizer:
        return LoweredTokenizer("symbols", self.vocabulary.symbols)

    def spelling(self) -> Spelling:
        inside = [f" {symbol}".encode() for symbol in (UNKNOWN, *self.vocabulary.symbols)]
        later = (None, inside[0], None, None, *inside[1:])  # with the space before it
        first = tuple(added if added is None else added[1:] for added in later)
        return Spelling((later, first), np.zeros((2, len(later)), np.int8), start=1, is_unique=True)

    def strings(self, text: str) -> list[str]:
        return split(clean(text, self.normalize))

    def _encode(self, text: str) -> list[int]:
        return [self.vocabulary.id(symbol) for symbol in split(text)]

    def _decode(self, ids: list[int]) -> str:
        return " ".join(UNKNOWN if index == UNK else self.vocabulary.symbol(index) for index in ids)

    def spans(self, ids: Iterable[int]) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        end = 0
        for index in self._checked(ids):
            if index in (PAD, BOS, EOS):
                spans.append((end, end))
                continue
            begin = end + bool(end)  # after a space, which is nobody's
            end = begin + len(UNKNOWN if index == UNK else self.vocabulary.symbol(index))
            spans.append((begin, end))
        return spans


def split(text: str) -> list[str]:
    """Split a text at its spaces."""
    return [symbol for symbol in text.split(" ") if symbol]
