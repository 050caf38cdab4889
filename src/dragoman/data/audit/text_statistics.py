"""Statistics of the texts of one side, for the report and for choosing a tokeniser and a model."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import Any

_SPACES = [chr(code) for code in range(0x3001) if chr(code).isspace()]  # there is none beyond U+3000
_TAG = re.compile(r"<[^<>\s]+>")
TAGGED_SHARE = 0.95  # rows that have a tag, at least, where tags are features of the rows
MOST_TAGS, TAG_REPEATS = 500, 10  # distinct tags; how often each of them occurs on average, at least
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
    estimated: bool = False  # the numbers of distinct words, because there are too many to hold them all
    tagged_share: float = 0.0  # rows with a tag: a word in angle brackets
    total_tags: int = 0
    distinct_tags: int = 0

    @property
    def has_tags(self) -> bool:
        """Whether nearly all rows have tags of a small closed set, as inflection has (``<V> <PST> s i n g``)."""
        most = min(MOST_TAGS, self.total_tags / TAG_REPEATS)
        return self.tagged_share >= TAGGED_SHARE and 0 < self.distinct_tags <= most

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
        counts = TextCounts()
        counts.add(texts)
        return counts.statistics()

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> TextStatistics:
        """Make statistics from what ``to_json`` returned."""
        lengths = {}
        for name in ("characters", "words"):
            values = dict(record[name])
            values["histogram"] = {int(length): count for length, count in values["histogram"].items()}
            lengths[name] = LengthStatistics(**values)
        return cls(**{**record, **lengths})


class TextCounts:
    """What statistics are made of: counts of texts, which may be added and merged.

    Of more than ``most`` distinct words, only those are held whose hash ends in as many zero bits as
    needed. Their share is known, so the numbers of distinct words are estimated, to about 0.3 %
    (adaptive sampling: Flajolet 1990). All other counts stay exact.
    """

    def __init__(self, most: int | None = None) -> None:
        """``most``: distinct words that are held; without a limit, nothing is estimated."""
        self.most = most
        self.bits = 0  # zero bits that the hash of a word has to end in
        self.characters: Counter[int] = Counter()
        self.words_of_rows: Counter[int] = Counter()
        self.words: Counter[str] = Counter()
        self.spaced = self.tagged = 0
        self.tags: Counter[str] = Counter()
        self.alphabet: set[str] = set()  # of white space, and of words that are not held any more
        self.total = self.letters = 0  # of the words that are not held any more

    def add(self, texts: Iterable[str]) -> None:
        """Count texts."""
        # In chunks: counting a long list at once is several times faster than many short ones.
        for chunk in _chunks(texts, 1000):
            rows_of_words = list(map(str.split, chunk))
            self.characters.update(map(len, chunk))
            self.words_of_rows.update(map(len, rows_of_words))
            self.words.update(chain.from_iterable(rows_of_words))
            joined = "".join(chunk)
            self.alphabet.update(space for space in _SPACES if space in joined)
            self.spaced += sum(map(_is_spaced, rows_of_words))
            if "<" in joined:
                self._add_tags(rows_of_words)
        self._thin()

    def merge(self, other: TextCounts) -> None:
        """Add the counts of other texts."""
        self.bits = max(self.bits, other.bits)
        self.characters.update(other.characters)
        self.words_of_rows.update(other.words_of_rows)
        self.words.update(other.words)
        self.spaced += other.spaced
        self.tagged += other.tagged
        self.tags.update(other.tags)
        self.alphabet |= other.alphabet
        self.total += other.total
        self.letters += other.letters
        self._thin()

    def statistics(self) -> TextStatistics:
        """Return the statistics of all texts that were counted."""
        if self.bits:
            self._let_go()
        rows = self.characters.total()
        total_words = self.total + self.words.total()
        letters = self.letters + sum(len(word) * count for word, count in self.words.items())
        return TextStatistics(
            rows=rows,
            characters=LengthStatistics.of(self.characters),
            words=LengthStatistics.of(self.words_of_rows),
            total_words=total_words,
            distinct_characters=len(self.alphabet.union(*self.words)),
            distinct_words=len(self.words) << self.bits,
            words_once=sum(count == 1 for count in self.words.values()) << self.bits,
            one_word_share=self.words_of_rows[1] / rows if rows else 0.0,
            spaced_share=self.spaced / rows if rows else 0.0,
            mean_word_length=letters / total_words if total_words else 0.0,
            estimated=self.bits > 0,
            tagged_share=self.tagged / rows if rows else 0.0,
            total_tags=self.tags.total(),
            distinct_tags=len(self.tags),
        )

    def _add_tags(self, rows_of_words: list[list[str]]) -> None:
        """Count tags, as long as they can be a small set."""
        for words in rows_of_words:
            tags = [word for word in words if is_tag(word)]
            self.tagged += bool(tags)
            if len(self.tags) <= MOST_TAGS:
                self.tags.update(tags)

    def _thin(self) -> None:
        while self.most is not None and len(self.words) > self.most:
            if self.bits:
                self._let_go()  # words that came back
            if len(self.words) > self.most // 2:
                self.bits += 1
                self._let_go()

    def _let_go(self) -> None:
        """Hold only the words whose hash ends in enough zero bits. These were never let go before."""
        mask = (1 << self.bits) - 1
        held: Counter[str] = Counter()
        for word, count in self.words.items():
            if zlib.crc32(word.encode("utf-8", "surrogatepass")) & mask:
                self.total += count
                self.letters += len(word) * count
                self.alphabet.update(word)
            else:
                held[word] = count
        self.words = held


def is_tag(word: str) -> bool:
    """Return whether a word is in angle brackets."""
    return _TAG.fullmatch(word) is not None


def _is_spaced(symbols: list[str]) -> bool:
    # The ends first: they decide nearly all rows of running text.
    ends_short = len(symbols) > 1 and len(symbols[0]) <= SHORT_SYMBOL and len(symbols[-1]) <= SHORT_SYMBOL
    return ends_short and len(max(symbols, key=len)) <= SHORT_SYMBOL


def _chunks(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    texts = iter(texts)
    while chunk := list(islice(texts, size)):
        yield chunk
