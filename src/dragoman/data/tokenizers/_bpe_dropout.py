"""Byte-pair encoding that leaves out merges at random: BPE-dropout (Provilkov et al. 2020).

A word that is split into other pieces each time teaches what its pieces have in common, which a
small corpus shows too seldom. sentencepiece can do this too, but not from a given seed, and
training must resume exactly where it stopped.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from random import Random

import numpy as np

SAMPLES = 32  # segmentations of a word that are sampled once; every use takes one of them
LONGEST = 24  # characters that are segmented together: scripts without spaces have words of any length
MOST_WORDS = 2**17  # words whose samples are cached


class BPEDropout:
    """Samples segmentations of words."""

    def __init__(self, ranks: Mapping[str, int], drop: float, ids: Callable[[str], tuple[int, ...]]) -> None:
        """``ranks``: the rank of each merged piece, in the order the merges were learnt.

        ``drop``: the probability that a merge is left out. ``ids``: returns the ids of a piece; for
        a character that is no piece, those of its bytes.
        """
        self.ranks, self.drop, self.ids = ranks, drop, ids
        self.samples = lru_cache(MOST_WORDS)(self._samples)

    def sample(self, words: list[str], generator: np.random.Generator) -> list[int]:
        """Return the ids of all words in a row, each with a segmentation drawn at random."""
        parts = self.parts(words)
        drawn = generator.integers(SAMPLES, size=len(parts)).tolist()
        return list(chain.from_iterable(self.samples(part)[index] for part, index in zip(parts, drawn, strict=True)))

    def segment(self, word: str, random: Random | None = None) -> list[str]:
        """Return the pieces of a word. Without ``random`` no merge is left out."""
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

    def _samples(self, word: str) -> list[tuple[int, ...]]:
        """Return the sampled segmentations of a word.

        They depend on the word alone, not on words before it.
        """
        random = Random(zlib.crc32(word.encode("utf-8", "surrogatepass")))
        known: dict[tuple[str, ...], tuple[int, ...]] = {}  # most samples are equal: held once
        samples = []
        for _ in range(SAMPLES):
            pieces = tuple(self.segment(word, random))
            if pieces not in known:
                known[pieces] = tuple(chain.from_iterable(map(self.ids, pieces)))
            samples.append(known[pieces])
        return samples

    def parts(self, words: Iterable[str]) -> list[str]:
        """Return the words, very long ones divided into parts that are segmented one by one."""
        return [part for word in words for part in self._parts(word)]

    def _parts(self, word: str) -> list[str]:
        """Divide a very long word between its pieces, to take linear time in its length."""
        if len(word) <= LONGEST:
            return [word]
        parts = [""]
        for start in range(0, len(word), 4 * LONGEST):
            for piece in self.segment(word[start : start + 4 * LONGEST]):
                if parts[-1] and len(parts[-1]) + len(piece) > LONGEST:
                    parts.append("")
                parts[-1] += piece
        return parts


class TooManyWords(Exception):
    """There are more distinct words than a ``SampleTable`` may hold."""


class SampleTable:
    """The sampled segmentations of all words of some texts, in arrays.

    Sampling an epoch from it takes hardly any time. Words are numbered. The ids of all
    segmentations of all words are in one pool.
    """

    def __init__(self, dropout: BPEDropout, texts: Iterable[list[str]], end: int) -> None:
        """``texts``: the words of each text. ``end``: the id that closes every text.

        Raises ``TooManyWords`` where there are more words than are cached.
        """
        numbers: dict[str, int] = {}
        rows = []
        for words in texts:
            rows.append([numbers.setdefault(part, len(numbers)) for part in dropout.parts(words)])
            if len(numbers) > MOST_WORDS:
                raise TooManyWords
        closing = len(numbers)  # a word of its own, with one segmentation
        self.words = np.array([word for row in rows for word in (*row, closing)], dtype=np.int32)
        self.last = np.cumsum([len(row) + 1 for row in rows], dtype=np.int64) - 1  # index of the last word of each text
        pool = array("i")
        begins, lengths = np.zeros((2, closing + 1, SAMPLES), np.int32)
        every_word: Iterator[Sequence[tuple[int, ...]]] = chain(map(dropout.samples, numbers), [[(end,)] * SAMPLES])
        for number, samples in enumerate(every_word):
            known: dict[tuple[int, ...], int] = {}  # where each segmentation begins in the pool
            for index, ids in enumerate(samples):
                if ids not in known:
                    known[ids] = len(pool)
                    pool.extend(ids)
                begins[number, index], lengths[number, index] = known[ids], len(ids)
        self.pool, self.begins, self.lengths = np.frombuffer(pool, dtype=np.int32), begins, lengths

    def sample(self, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all texts in a row, and the number of ids of each text."""
        drawn = self.words, generator.integers(SAMPLES, size=len(self.words))
        lengths = self.lengths[drawn]  # of each word
        ends = np.cumsum(lengths)
        within = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
        ids = self.pool[np.repeat(self.begins[drawn], lengths) + within]
        return ids.astype(np.int64), np.diff(ends[self.last], prepend=0)
