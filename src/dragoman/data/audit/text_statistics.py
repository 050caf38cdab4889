"""Statistics of the texts of one side, for the report and for choosing a tokeniser and a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import Any

_SPACES = [chr(code) for code in range(0x3001) if chr(code).isspace()]  # there is none beyond U+3000
SHORT_SYMBOL = 4  # most characters of a phone with its diacritics; words are longer on average


@dataclass(frozen=True, slots=True)
class LengthStatistics:
    """A distribution of lengths.

    ``histogram`` counts by powers of two: key 8 holds the lengths 5 to 8.
    """

    minimum: int
    median: float
    mean: float
    p95: int  # the smallest length that 95 % of the rows do not exceed
    maximum: int
    histogram: dict[int, int]

    @classmethod
    def of(cls, counts: Counter[int]) -> LengthStatistics:
        """Describe lengths, given how often each occurs."""
        total = counts.total()
        if not total:
            return cls(0, 0.0, 0.0, 0, 0, {})
        ordered = sorted(counts.items())

        def ranked(rank: int) -> int:
            """Return the length at ``rank`` (from 0) in sorted order."""
            for length, count in ordered:
                if rank < count:
                    return length
                rank -= count
            raise IndexError(rank)

        histogram: Counter[int] = Counter()
        for length, count in ordered:
            histogram[1 << max(length - 1, 0).bit_length()] += count
        mean = sum(length * count for length, count in ordered) / total
        median = (ranked((total - 1) // 2) + ranked(total // 2)) / 2
        p95 = ranked(-(-total * 95 // 100) - 1)
        return cls(ordered[0][0], median, mean, p95, ordered[-1][0], dict(sorted(histogram.items())))


@dataclass(frozen=True, slots=True)
class TextStatistics:
    """The texts of one side of the usable rows. White space separates words, or symbols."""

    rows: int
    characters: LengthStatistics  # Unicode code points of a row
    words: LengthStatistics  # words of a row
    total_words: int
    distinct_characters: int  # white space included
    distinct_words: int
    words_once: int  # distinct words that occur only once
    one_word_share: float  # rows of a single word
    spaced_share: float  # rows of two or more symbols, none longer than SHORT_SYMBOL: phones, spelled-out letters
    mean_word_length: float  # characters of a word, over all words

    @property
    def distinct_symbols(self) -> int:
        """Another name for ``distinct_words``, for texts of symbols that are not words."""
        return self.distinct_words

    @property
    def mean_symbol_length(self) -> float:
        """Another name for ``mean_word_length``."""
        return self.mean_word_length

    @classmethod
    def of(cls, texts: Iterable[str]) -> TextStatistics:
        """Describe texts."""
        characters: Counter[int] = Counter()
        words_of_rows: Counter[int] = Counter()
        words: Counter[str] = Counter()
        spaces: set[str] = set()
        spaced = 0
        # In chunks: counting a long list at once is several times faster than many short ones.
        for chunk in _chunks(texts, 1000):
            rows_of_words = list(map(str.split, chunk))
            characters.update(map(len, chunk))
            words_of_rows.update(map(len, rows_of_words))
            words.update(chain.from_iterable(rows_of_words))
            joined = "".join(chunk)
            spaces.update(space for space in _SPACES if space in joined)
            spaced += sum(map(_is_spaced, rows_of_words))
        alphabet = spaces.union(*words)
        rows = characters.total()
        total_words = words.total()
        letters = sum(len(word) * count for word, count in words.items())
        return cls(
            rows=rows,
            characters=LengthStatistics.of(characters),
            words=LengthStatistics.of(words_of_rows),
            total_words=total_words,
            distinct_characters=len(alphabet),
            distinct_words=len(words),
            words_once=sum(count == 1 for count in words.values()),
            one_word_share=words_of_rows[1] / rows if rows else 0.0,
            spaced_share=spaced / rows if rows else 0.0,
            mean_word_length=letters / total_words if total_words else 0.0,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as plain values."""
        return asdict(self)


def _is_spaced(symbols: list[str]) -> bool:
    # The ends first: they decide nearly all rows of running text.
    ends_short = len(symbols) > 1 and len(symbols[0]) <= SHORT_SYMBOL and len(symbols[-1]) <= SHORT_SYMBOL
    return ends_short and len(max(symbols, key=len)) <= SHORT_SYMBOL


def _chunks(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    texts = iter(texts)
    while chunk := list(islice(texts, size)):
        yield chunk
