"""Phrases that an output has to contain: the tokens that lead to them, and how many are still needed.

This is lexically constrained decoding (Hokamp & Liu 2017) with the beam divided by how much of the phrases a hypothesis
has (Post & Vilar 2018). Here a phrase is text, so the model divides it into tokens as it likes. A phrase that begins or
ends with a letter or a digit occurs only where the word begins or ends too, except in scripts without spaces, and in
runs that cannot write a space.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import regex

from dragoman.types import Spelling

WORD = regex.compile(r"\w")
SPACELESS = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]"
)  # fmt: skip
IMPOSSIBLE = 1_000_000_000  # tokens
SLACK = 4  # tokens that are kept free beside those that phrases need: to complete a character


class Required(NamedTuple):
    """Something that an output has to contain: one of these variants, so many times."""

    variants: tuple[str, ...]
    times: int = 1


class Status(NamedTuple):
    """What a hypothesis still needs."""

    need: int  # fewest tokens until every phrase is there
    reserve: int  # tokens that have to be left for it, whatever is written next
    unmet: int  # phrases that are missing
    proposals: tuple[int, ...]  # tokens that lead to one of them


class Target:
    """One variant of a phrase, with the fewest tokens that spell the rest of it from each byte."""

    def __init__(self, text: str, writer: PhraseWriter) -> None:
        self.bytes = b" " + text.encode("utf-8")
        self.left = writer.has_spaces and is_bounded(text[0])
        self.fewest = writer.fewest_tokens(self.bytes)  # by byte and view
        self.full = self.fewest[0 if writer.has_spaces else 1][0]  # tokens that write it anywhere
        self.next: dict[tuple[int, int], list[int]] = {}  # the tokens that were found to come next, likewise


class Phrase:
    """A ``Required`` that the vocabulary can spell."""

    def __init__(self, required: Required, writer: PhraseWriter) -> None:
        self.times = required.times
        targets = [(text, Target(text, writer)) for text in required.variants]
        written = [(text, target) for text, target in targets if target.full < IMPOSSIBLE]
        self.targets = [target for _, target in written]
        texts = tuple(text for text, _ in written)
        self.pattern = occurrence_pattern(texts, writer.has_spaces) if written else None
        self.full = min((target.full for target in self.targets), default=IMPOSSIBLE)
        self.name = required.variants[0]

    def count(self, text: str) -> int:
        """Return how often the phrase occurs in a text."""
        return 0 if self.pattern is None else len(self.pattern.findall(text))

    def is_in(self, text: str) -> bool:
        """Tell whether a text has the phrase as often as it has to."""
        return self.count(text) >= self.times


class PhraseWriter:
    """What a vocabulary can spell. It belongs to a run and never changes but for what it remembers."""

    def __init__(self, spelling: Spelling) -> None:
        self.spelling = spelling
        self.phrase = lru_cache(maxsize=20_000)(self._phrase)

    def _phrase(self, required: Required) -> Phrase:
        return Phrase(required, self)

    @cached_property
    def _tokens(self) -> list[dict[bytes, list[int]]]:
        """The tokens by the bytes that they add, for each view."""
        tables = []
        for spelled in self.spelling.spelled:
            table: dict[bytes, list[int]] = defaultdict(list)
            for token, added in enumerate(spelled):
                if added is not None:
                    table[added].append(token)
            tables.append(dict(table))
        return tables

    @cached_property
    def has_spaces(self) -> bool:
        """Whether outputs have words. The outputs of a run that cannot write a space are one word each."""
        return any(b" " in added for table in self._tokens for added in table)

    @cached_property
    def _longest(self) -> int:
        return max(len(added) for table in self._tokens for added in table)

    @cached_property
    def continuations(self) -> list[list[int]]:
        """The tokens that add one byte inside a character, for each view."""
        return [
            [token for byte in range(0x80, 0xC0) for token in table.get(bytes([byte]), ())] for table in self._tokens
        ]

    def fewest_tokens(self, text: bytes) -> list[list[int]]:
        """Return how many tokens spell the rest of a text at least, by its first byte and the view before it."""
        views = range(len(self._tokens))
        fewest = [[IMPOSSIBLE for _ in views] for _ in text]
        fewest.append([0 for _ in views])
        for begin in range(len(text) - 1, -1, -1):
            for _ in views:  # tokens that add nothing lead to another view at the same byte
                for view in views:
                    costs = [
                        1 + fewest[end][int(self.spelling.after[view, token])]
                        for end in range(begin, min(len(text), begin + self._longest) + 1)
                        for token in self._tokens[view].get(text[begin:end], ())
                    ]
                    fewest[begin][view] = min([fewest[begin][view], *costs])
        return fewest

    def next_tokens(self, target: Target, begin: int, view: int) -> list[int]:
        """Return the tokens that spell a beginning of the rest of a target, as far as it can be spelled after them."""
        if (begin, view) in target.next:
            return target.next[begin, view]
        text, after = target.bytes, self.spelling.after
        found = []
        for end in range(begin, min(len(text), begin + self._longest) + 1):
            for token in self._tokens[view].get(text[begin:end], ()):
                rest = target.fewest[end][int(after[view, token])]
                if rest < IMPOSSIBLE and (end > begin or rest < target.fewest[begin][view]):
                    found.append(token)
        target.next[begin, view] = found
        return found

    def status(self, phrases: Sequence[Phrase], text: bytes, view: int) -> Status:
        """Return what a text still needs of some phrases."""
        partial = _partial_bytes(text)
        shown = text[: len(text) - partial].decode("utf-8", "replace")
        whole, reserve, unmet = 0, 0, 0
        savings: list[int] = []
        proposals: dict[int, None] = {}
        for phrase in phrases:
            lacking = max(0, phrase.times - phrase.count(shown))
            if not lacking:
                if not phrase.is_in(shown + "x"):  # what comes next may still spoil it
                    reserve += phrase.full
                continue
            unmet += lacking
            whole += lacking * phrase.full
            for target in phrase.targets:
                for begin in _beginnings(target, text, shown, partial):
                    savings.append(phrase.full - target.fewest[begin][view])
                    proposals.update(dict.fromkeys(self.next_tokens(target, begin, view)))
        if partial and not savings:  # first the character has to be completed
            savings = [partial - _length(text[-partial])]
            proposals = dict.fromkeys(self.continuations[view])
        need = whole - max(savings) if unmet else 0
        return Status(need, reserve + whole + (1 + SLACK if reserve + whole else 0), unmet, tuple(proposals))


def _beginnings(target: Target, text: bytes, shown: str, partial: int) -> list[int]:
    """Return from which bytes of a target, a space before it included, a text can go on with it.

    ``partial`` bytes at the end of the text are the beginning of a character, and ``shown`` is the text before them.
    """
    found = []
    goal = target.bytes
    for begun in range(min(len(goal) - 2, len(text)), max(1, partial) - 1, -1):
        if text.endswith(goal[1 : 1 + begun]):
            before = text[: len(text) - begun].decode("utf-8", "replace")
            if not target.left or not before or not WORD.match(before[-1]):
                found.append(1 + begun)
                break
    if not partial and (not shown or not target.left or not WORD.match(shown[-1])):
        found.append(1)
    if not partial and shown and shown[-1] != " " and target.fewest[0][0] < IMPOSSIBLE:
        found.append(0)
    return found


def is_bounded(character: str) -> bool:
    """Tell whether a phrase that begins or ends with this character begins or ends a word."""
    return bool(WORD.match(character)) and not SPACELESS.match(character)


def occurrence_pattern(texts: Sequence[str], has_words: bool = True) -> regex.Pattern[str]:
    """Return the pattern of an occurrence of one of some texts, none of which is empty.

    ``has_words``: what begins or ends with a letter or a digit begins or ends a word.
    """
    parts = []
    for text in sorted(texts, key=len, reverse=True):
        left = r"(?<!\w)" if has_words and is_bounded(text[0]) else ""
        right = r"(?!\w)" if has_words and is_bounded(text[-1]) else ""
        parts.append(left + regex.escape(text) + right)
    return regex.compile("|".join(parts))


def _partial_bytes(text: bytes) -> int:
    """Return how many bytes at the end of a text are the beginning of a character."""
    for back in range(1, min(3, len(text)) + 1):
        byte = text[-back]
        if byte >= 0xC0:
            return back if back < _length(byte) else 0
        if byte < 0x80:
            return 0
    return 0


def _length(first: int) -> int:
    """Return how many bytes the character has that begins with this byte."""
    return 2 if first < 0xE0 else 3 if first < 0xF0 else 4 if first < 0xF8 else 1
