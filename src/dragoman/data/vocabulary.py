"""Strings to ids and back, with how often each occurred in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

PAD, UNK, BOS, EOS = 0, 1, 2, 3
BLANK = PAD  # CTC's blank symbol: PAD is in no target
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")


class Vocabulary:
    """The four special tokens, then a fixed list of distinct strings.

    The special tokens are ids, not strings: a text that happens to read ``</s>`` is an ordinary
    symbol with an id of its own.
    """

    def __init__(self, symbols: Sequence[str], counts: Sequence[int] | None = None) -> None:
        """``counts``: one for each id, special tokens included; all 0 if not given."""
        self.symbols = tuple(symbols)
        self.counts = tuple(counts) if counts is not None else (0,) * len(self)
        self._copies: tuple[str, ...] = ()
        self._ids = {symbol: position for position, symbol in enumerate(self.symbols, start=len(SPECIALS))}
        if len(self._ids) != len(self.symbols):
            raise ValueError("a vocabulary holds each symbol once")
        if len(self.counts) != len(self):
            raise ValueError(f"{len(self.counts)} counts for {len(self)} ids")

    @classmethod
    def build(
        cls, seen: Mapping[str, int], *, min_count: int = 1, size: int | None = None, always: Sequence[str] = ()
    ) -> Vocabulary:
        """Build a vocabulary, the most frequent symbols first, ties in code point order.

        Symbols that are left out count as UNK. ``size`` limits the number of ids, special tokens
        included; the symbols ``always`` come first, whatever their count.
        """
        ranked = sorted(
            (symbol for symbol, count in seen.items() if count >= min_count and symbol not in always),
            key=lambda symbol: (-seen[symbol], symbol),
        )
        limit = None if size is None else max(0, size - len(SPECIALS) - len(always))
        symbols = (*always, *ranked[:limit])
        counts = [seen.get(symbol, 0) for symbol in symbols]
        return cls(symbols, [0, sum(seen.values()) - sum(counts), 0, 0, *counts])

    def __len__(self) -> int:
        return len(SPECIALS) + len(self.symbols)

    def __contains__(self, symbol: object) -> bool:
        return symbol in self._ids

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self.symbols == other.symbols and self.counts == other.counts

    def __hash__(self) -> int:
        return hash((self.symbols, self.counts))

    def id(self, symbol: str) -> int:
        """Return the id of ``symbol``, or UNK."""
        return self._ids.get(symbol, UNK)

    def symbol(self, index: int) -> str:
        """Return the string of an id; for a special token, its name in angle brackets."""
        if index >= len(self):
            return self._copies[index - len(self)]
        return SPECIALS[index] if index < len(SPECIALS) else self.symbols[index - len(SPECIALS)]

    def with_copies(self, symbols: Sequence[str]) -> Vocabulary:
        """Return the vocabulary with strings for the ids after it, which copy symbols of a source."""
        other = copy(self)
        other._copies = tuple(symbols)
        return other

    def to_record(self) -> dict[str, Any]:
        """Return the vocabulary as plain values, for JSON."""
        return {"symbols": list(self.symbols), "counts": list(self.counts)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Vocabulary:
        """Make a vocabulary from what ``to_record`` returned.

        Raises ValueError for anything else.
        """
        symbols, counts = record.get("symbols"), record.get("counts")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise ValueError("'symbols' is not a list of strings")
        if not isinstance(counts, list) or not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError("'counts' is not a list of whole numbers")
        return cls(symbols, counts)


def word_dropout_rates(counts: Sequence[int], strength: float = 0.25) -> np.ndarray:
    """Return (V,) probabilities that training replaces a token by UNK.

    They are strength / (strength + count), and 0 for the special tokens. So UNK is trained on
    tokens like those it will stand for, the rare ones, and frequent ones are left alone
    (Kiperwasser & Goldberg 2016, section 4.3).
    """
    rates = np.float32(strength) / (np.float32(strength) + np.array(counts, dtype=np.float32))
    rates[: len(SPECIALS)] = 0.0
    return rates
