"""What of a source has to occur in its outputs: the terms of a glossary, and what is kept as it is."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import regex

from dragoman.errors import UserError
from dragoman.search.constraints.phrases import Required, is_bounded

MOST_PHRASES = 100  # that one output has to contain
MOST_PATTERN = 1_000  # characters of a pattern
SECONDS = 1.0  # that looking for what is kept in one input may take
BEGINNING = 3  # characters by which terms are looked up


class Glossary:
    """Source phrases with the target phrases that have to occur where they do.

    Of phrases that overlap in a source, the one that begins first is taken, and of those the longest.
    """

    def __init__(self, terms: Mapping[str, Sequence[str]]) -> None:
        self.terms = {source: tuple(variants) for source, variants in terms.items()}

    @cached_property
    def _lengths(self) -> dict[str, list[int]]:
        """The lengths of the terms by how they begin, the longest first."""
        lengths: dict[str, set[int]] = defaultdict(set)
        for term in self.terms:
            lengths[term[:BEGINNING]].add(len(term))
        return {beginning: sorted(own, reverse=True) for beginning, own in lengths.items()}

    def find(self, text: str) -> list[str]:
        """Return the terms that occur in a text, each once."""
        found: dict[str, None] = {}
        begin = 0
        while begin < len(text):
            term = next(self._at(text, begin), None)
            if term is not None:
                found[term] = None
            begin += 1 if term is None else len(term)
        return list(found)

    def _at(self, text: str, begin: int) -> Iterator[str]:
        """Yield the terms at one place of a text, the longest first."""
        for size in range(BEGINNING, 0, -1):
            for length in self._lengths.get(text[begin : begin + size], ()):
                term = text[begin : begin + length]
                if term in self.terms and _is_word(text, begin, begin + length):
                    yield term


def _is_word(text: str, begin: int, end: int) -> bool:
    """Tell whether a stretch of a text begins and ends where words do."""
    before, after = text[begin - 1 : begin], text[end : end + 1]
    left = not before or not is_bounded(text[begin]) or not regex.match(r"\w", before)
    return left and (not after or not is_bounded(text[end - 1]) or not regex.match(r"\w", after))


def compile_kept(patterns: Sequence[str]) -> list[regex.Pattern[str]]:
    """Return the patterns of what is kept."""
    compiled = []
    for pattern in patterns:
        if len(pattern) > MOST_PATTERN:
            raise UserError(f"keep: the pattern has {len(pattern):,} characters, at most {MOST_PATTERN:,} are read")
        try:
            compiled.append(regex.compile(pattern))
        except (regex.error, ValueError, OverflowError, RecursionError) as error:
            raise UserError(f"keep: {pattern!r} is not a regular expression: {error}; correct it") from None
    return compiled


def find_kept(patterns: Sequence[regex.Pattern[str]], text: str) -> Counter[str]:
    """Return what is kept of a text, with how often it occurs there."""
    kept: Counter[str] = Counter()
    until = time.monotonic() + SECONDS
    for pattern in patterns:
        try:
            left = max(0.001, until - time.monotonic())
            own = Counter(match.group() for match in pattern.finditer(text, timeout=left) if match.group())
        except TimeoutError:
            raise UserError(
                f"keep: {pattern.pattern!r} takes more than {SECONDS:g} s on this input; write it without repetitions "
                "inside repetitions"
            ) from None
        kept |= own
    return kept


def required_phrases(
    texts: Sequence[str], glossary: Glossary | None, kept: Sequence[regex.Pattern[str]]
) -> tuple[Required, ...]:
    """Return what the outputs of an input have to contain. Raise a ``UserError`` if that is too much."""
    terms = dict.fromkeys(term for text in texts for term in (glossary.find(text) if glossary else ()))
    required = [Required(glossary.terms[term]) for term in terms if glossary]
    counts: Counter[str] = Counter()
    for text in texts:
        counts |= find_kept(kept, text)
    required += [Required((found,), times) for found, times in counts.items()]
    if (count := sum(each.times for each in required)) > MOST_PHRASES:
        raise UserError(
            f"glossary, keep: {count:,} phrases would have to occur in the output of this input, at most "
            f"{MOST_PHRASES} can; ask for fewer, or split the input"
        )
    return tuple(dict.fromkeys(required))
