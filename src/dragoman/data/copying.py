"""Copies of source symbols in targets: which target token a source token writes, and what a slot stands for.

Tokens of the two sides are matched by their strings. A position of the source whose string is no
target token has a slot: the i-th such position is slot i, an id after the target's vocabulary. The
end symbol of a source writes nothing. Nor does a token that the source's tokeniser knows, if no
target of the training rows has it, such as a tag.
"""

from __future__ import annotations

import numpy as np

from dragoman.data.tokenizers import Tokenizer
from dragoman.data.vocabulary import BOS, EOS, PAD, UNK
from dragoman.types import NOTHING, SLOT


class Copier:
    """Knows what the positions of a source text write into the target."""

    def __init__(self, source: Tokenizer, target: Tokenizer) -> None:
        self.source, self.target = source, target
        self._own = source.kind != target.kind  # spaces around a word belong to its string only within one kind
        known = {self._key(target.vocabulary.symbol(index)): index for index in self._ordinary(target)}
        # a target's token may be unknown if rare ones were left out of its vocabulary; else all of them are known
        missing = SLOT if target.vocabulary.counts[UNK] else NOTHING
        self.table = np.full(len(source.vocabulary), SLOT, dtype=np.int64)  # target tokens, SLOT or NOTHING
        for index in self._ordinary(source):
            self.table[index] = known.get(self._key(source.vocabulary.symbol(index)), missing)
        self.table[[PAD, BOS, EOS]] = NOTHING

    def symbols(self, text: str) -> list[str]:
        """Return the string of each slot of a source text."""
        ids, strings = self.source.encode(text), self.source.strings(text)
        unknown = [string for index, string in zip(ids, strings, strict=True) if self.table[index] == SLOT]
        return unknown[: self.target.slots]

    def writer(self, text: str) -> Tokenizer:
        """Return the target's tokeniser, which writes slots as the symbols of this source text."""
        return self.target.with_copies(self.symbols(text))

    def encode(self, source: str, target: str) -> list[int]:
        """Return the ids of a target text, with slots for unknown symbols that are in its source."""
        ids = self.target.encode(target)
        if UNK not in ids:
            return ids
        slots: dict[str, int] = {}
        for number, symbol in enumerate(self.symbols(source)):
            slots.setdefault(symbol.strip(" "), len(self.target.vocabulary) + number)
        strings = self.target.strings(target)
        return [
            slots.get(string.strip(" "), UNK) if index == UNK else index
            for index, string in zip(ids, strings, strict=True)
        ]

    def _key(self, symbol: str) -> str:
        return symbol.strip(" ") or symbol if self._own else symbol

    @staticmethod
    def _ordinary(tokenizer: Tokenizer) -> range:
        return range(max(PAD, UNK, BOS, EOS) + 1, len(tokenizer.vocabulary))
