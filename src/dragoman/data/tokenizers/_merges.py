"""Byte-pair encoding by hand, with merges left out by chance: BPE-dropout (Provilkov et al. 2020).

A word seen in other pieces each time teaches what its pieces have in common, which a small corpus shows too seldom.
sentencepiece can do this too, but not from a given seed, and training must go on exactly where it stopped.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from random import Random

import numpy as np

DRAWS = 32  # ways to cut a word that are drawn once; every use takes one of them
LONGEST = 24  # characters that are cut as one: scripts without spaces have words of any length
KEPT = 2**17  # words that are remembered


class Merges:
    """``ranks``: the pieces by their age, the oldest merge first. ``drop``: chance that a merge is left out."""

    def __init__(self, ranks: Mapping[str, int], drop: float, ids: Callable[[str], tuple[int, ...]]) -> None:
        """``ids`` tells the numbers of a piece; of a character that is none, those of its bytes."""
        self.ranks, self.drop, self.ids = ranks, drop, ids
        self.draws = lru_cache(KEPT)(self._draws)

    def cut(self, words: list[str], chance: np.random.Generator) -> list[int]:
        """The ids of one behind the other, each cut by chance."""
        parts = self.parts(words)
        chosen = chance.integers(DRAWS, size=len(parts)).tolist()
        return list(chain.from_iterable(self.draws(part)[draw] for part, draw in zip(parts, chosen, strict=True)))

    def merged(self, word: str, random: Random | None = None) -> list[str]:
        """The pieces of a word; all merges are done where there is no chance."""
        pieces = list(word)
        while True:
            best, place = None, 0
            for at in range(len(pieces) - 1):
                rank = self.ranks.get(pieces[at] + pieces[at + 1])
                if rank is None or (random is not None and random.random() < self.drop):
                    continue
                if best is None or rank < best:
                    best, place = rank, at
            if best is None:
                return pieces
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]

    def _draws(self, word: str) -> list[tuple[int, ...]]:
        """Depends on the word alone, not on which words came before it."""
        random = Random(zlib.crc32(word.encode("utf-8", "surrogatepass")))
        known: dict[tuple[str, ...], tuple[int, ...]] = {}  # most draws are alike: kept once
        found = []
        for _ in range(DRAWS):
            pieces = tuple(self.merged(word, random))
            if pieces not in known:
                known[pieces] = tuple(chain.from_iterable(map(self.ids, pieces)))
            found.append(known[pieces])
        return found

    def parts(self, words: Iterable[str]) -> list[str]:
        """What is cut as one."""
        return [part for word in words for part in self._parts(word)]

    def _parts(self, word: str) -> list[str]:
        """A very long word at borders of its pieces, so that the time it takes grows with its length alone."""
        if len(word) <= LONGEST:
            return [word]
        parts = [""]
        for start in range(0, len(word), 4 * LONGEST):
            for piece in self.merged(word[start : start + 4 * LONGEST]):
                if parts[-1] and len(parts[-1]) + len(piece) > LONGEST:
                    parts.append("")
                parts[-1] += piece
        return parts


class TooManyWords(Exception):
    """To have all their cuts in memory."""


class Cuts:
    """Texts with all the ways to cut their words laid out in arrays: cutting them anew takes hardly any time.

    Words are numbered; of each, the ids of its ways stand one behind the other in one pool.
    """

    def __init__(self, merges: Merges, texts: Iterable[list[str]], closing: int) -> None:
        """``texts``: the words of each. ``closing``: the id that ends every text. Raises ``TooManyWords`` rather than
        laying out more than are remembered."""
        numbers: dict[str, int] = {}
        rows = []
        for words in texts:
            rows.append([numbers.setdefault(part, len(numbers)) for part in merges.parts(words)])
            if len(numbers) > KEPT:
                raise TooManyWords
        end = len(numbers)  # a word of its own, with one way to cut it
        self.words = np.array([word for row in rows for word in (*row, end)], dtype=np.int32)
        self.last = np.cumsum([len(row) + 1 for row in rows], dtype=np.int64) - 1  # of each text, its last word's place
        pool = array("i")
        begins, lengths = np.zeros((2, end + 1, DRAWS), np.int32)
        everything: Iterator[Sequence[tuple[int, ...]]] = chain(map(merges.draws, numbers), [[(closing,)] * DRAWS])
        for number, ways in enumerate(everything):
            known: dict[tuple[int, ...], int] = {}  # where each way stands in the pool
            for draw, way in enumerate(ways):
                if way not in known:
                    known[way] = len(pool)
                    pool.extend(way)
                begins[number, draw], lengths[number, draw] = known[way], len(way)
        self.pool, self.begins, self.lengths = np.frombuffer(pool, dtype=np.int32), begins, lengths

    def draw(self, chance: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts one behind the other, and how many each has."""
        chosen = self.words, chance.integers(DRAWS, size=len(self.words))
        lengths = self.lengths[chosen]  # of each word
        ends = np.cumsum(lengths)
        within = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
        ids = self.pool[np.repeat(self.begins[chosen], lengths) + within]
        return ids.astype(np.int64), np.diff(ends[self.last], prepend=0)
