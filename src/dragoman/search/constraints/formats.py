"""Outputs that match a regular expression, a grammar or a JSON schema, by llguidance (extra ``constraints``).

llguidance computes which tokens may follow from the bytes of each token. A token that adds other bytes in another view
is another token to it: the vocabulary is repeated for each view.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cache, cached_property
from typing import Any

import numpy as np

from dragoman.errors import MissingExtra, UserError
from dragoman.files.reading import parse_json
from dragoman.search.constraints.trial import (
    BYTES,
    SECONDS,
    can_be_built,
    is_suspect,
    make_grammar,
    make_matcher,
    make_tokenizer,
)
from dragoman.search.rules import Bans, Rule
from dragoman.types import Spelling

DIGITS = 20  # after the decimal point of a multipleOf
MOST_MULTIPLE = 100_000  # of multipleOf: llguidance has a state for each remainder


class Format:
    """A regular expression, a grammar or a JSON schema that outputs have to match as a whole.

    It never changes, and many searches may use it at once.
    """

    def __init__(self, kind: str, text: str, spelling: Spelling) -> None:
        """``kind`` is ``match``, ``grammar`` or ``json_schema``, and ``text`` what was given for it."""
        library = import_llguidance()
        self.kind, self.spelling = kind, spelling
        if kind == "match":
            text = without_anchors(text)
        refuse_unbounded(kind, text)
        if is_suspect(kind, text) and not can_be_built(kind, text):
            raise UserError(
                f"{kind}: building this takes more than {BYTES / 1e9:g} GB of memory or {SECONDS} s; write it with "
                "smaller numbers, or shorter"
            )
        try:
            self._grammar = make_grammar(library, kind, text)
        except ValueError as error:
            raise UserError(f"{kind}: {_first_lines(str(error))}; correct it") from None
        self._texts = make_tokenizer(library, [bytes([value]) for value in range(256)])
        self._tokens = make_tokenizer(library, [added for spelled in spelling.spelled for added in spelled])
        problem = self._matcher(self._texts).get_error()
        if problem:
            raise UserError(
                f"{kind}: this cannot be used for outputs: {_first_lines(problem)}; see docs/constraints.md for what "
                "can be expressed"
            )
        self._start = self._matcher(self._tokens)

    def _matcher(self, tokenizer: Any) -> Any:
        return make_matcher(import_llguidance(), tokenizer, self._grammar)

    def begin(self) -> Any:
        """Return a matcher that has read nothing."""
        return self._start.deep_copy()

    def next_tokens(self, matcher: Any, view: int) -> np.ndarray:
        """Return the tokens that a matcher may read next, apart from those that add nothing."""
        count = len(self.spelling.spelled[view])
        first = 1 + view * count  # the number by which llguidance knows the first token of the view
        if matcher.is_stopped():
            return np.zeros(0, np.int64)
        forced = matcher.compute_ff_bytes()
        if forced:  # of these bytes, a mask would have but one division into tokens
            return np.array(sorted(self._forced_tokens(matcher, view, first, forced)), np.int64)
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        if matcher.is_error():
            return np.zeros(0, np.int64)
        return np.flatnonzero(bits[first : first + count])

    def _forced_tokens(self, matcher: Any, view: int, first: int, forced: bytes) -> Iterator[int]:
        """Yield the tokens that spell a beginning of the forced bytes, or all of them and what may follow."""
        strings, tokens = self._sorted[view]
        longest = max(map(len, strings), default=0)  # a million bytes may be forced
        for end in range(1, min(len(forced), longest) + 1):
            for place in range(bisect_left(strings, forced[:end]), bisect_right(strings, forced[:end])):
                yield tokens[place]
        for place in range(bisect_right(strings, forced), len(strings)):
            if not strings[place].startswith(forced):
                return
            if matcher.validate_tokens([first + tokens[place]]):
                yield tokens[place]

    @cached_property
    def _sorted(self) -> list[tuple[list[bytes], list[int]]]:
        """The bytes of all tokens in order, with the tokens, for each view."""
        pairs = [
            sorted((added, token) for token, added in enumerate(spelled) if added) for spelled in self.spelling.spelled
        ]
        return [([added for added, _ in view], [token for _, token in view]) for view in pairs]

    def accepts(self, text: str) -> bool:
        """Tell whether a text matches as a whole."""
        matcher = self._matcher(self._texts)
        data = text.encode("utf-8", "replace")
        return bool(matcher.consume_tokens([1 + byte for byte in data]) if data else True) and _may_end(matcher)


class FormatRule(Rule):
    """Allow what can still become a match, and the end only after one."""

    hard = True

    def __init__(self, required: Format, eos: int) -> None:
        self._format, self._eos = required, eos
        spelled = required.spelling.spelled
        # tokens that add nothing in a view, such as a join: they do not move the matcher
        self._silent = [np.flatnonzero([added == b"" for added in view]) for view in spelled]

    def start(self, sources: Sequence[int], prefixes: np.ndarray) -> None:
        matcher = self._format.begin()
        self._rows: list[tuple[Any, int] | None] = [(matcher, self._format.spelling.start)] * len(prefixes)
        for column in prefixes.T:
            self.advance(np.arange(len(prefixes)), column)

    def advance(self, parents: np.ndarray, tokens: np.ndarray) -> None:
        before = self._rows
        self._rows = [
            self._read(before[parent], token) for parent, token in zip(parents.tolist(), tokens.tolist(), strict=True)
        ]

    def _read(self, row: tuple[Any, int] | None, token: int) -> tuple[Any, int] | None:
        """Return the row with one more token; None if it has left the format."""
        if row is None or token == self._eos:
            return None
        matcher, view = row
        spelling = self._format.spelling
        added = spelling.spelled[view][token]
        if added is None:
            return None
        if added:
            matcher = matcher.deep_copy()
            if not matcher.consume_token(1 + view * len(spelling.spelled[view]) + token):
                return None
        return matcher, int(spelling.after[view, token])

    def bans(self) -> Bans:
        allowed = [self._allowed(row) for row in self._rows]
        lengths = [len(tokens) for tokens in allowed]
        return Bans(
            restricted=np.arange(len(allowed)),
            allowed_rows=np.repeat(np.arange(len(allowed)), lengths),
            allowed_tokens=np.concatenate(allowed),
        )

    def _allowed(self, row: tuple[Any, int] | None) -> np.ndarray:
        if row is None:
            return np.zeros(0, np.int64)
        matcher, view = row
        ends = [self._eos] if _may_end(matcher) else []
        return np.unique(
            np.concatenate([self._format.next_tokens(matcher, view), self._silent[view], ends]).astype(int)
        )


def without_anchors(pattern: str) -> str:
    """Return a pattern without ^ at its begin and $ at its end, which say what holds anyway. Refuse others."""
    pattern = pattern.removeprefix("^")
    if pattern.endswith("$") and (len(pattern) - len(pattern[:-1].rstrip("\\")) - 1) % 2 == 0:
        pattern = pattern[:-1]
    plain = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "", pattern, flags=re.DOTALL)  # without escapes and classes
    if "^" in plain or "$" in plain:
        raise UserError(
            "match: ^ and $ can stand at the begin and the end of the whole pattern only, which matches whole outputs "
            "in any case; leave them out"
        )
    return pattern


def refuse_unbounded(kind: str, text: str) -> None:
    """Refuse what llguidance builds without a limit of memory: multiples of large numbers."""
    if kind == "grammar" and "%json" in text and re.search(r"multipleOf|\\u", text):
        raise UserError("grammar: multipleOf and \\u are not read inside of %json; give the schema as json_schema")
    if kind != "json_schema":
        return
    try:
        schema = parse_json(text.encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"json_schema: is not JSON that can be read: {error}; correct it") from None
    multiples = [abs(Decimal(str(number)).normalize()) for number in _find_multiples(schema)]
    digits = max((-int(number.as_tuple().exponent) for number in multiples), default=0)  # after the decimal point
    is_large = digits > DIGITS or any(number > MOST_MULTIPLE for number in multiples)
    whole = [] if is_large else [int(number * 10 ** max(0, digits)) for number in multiples]
    if is_large or max(sum(whole), math.lcm(*whole)) > MOST_MULTIPLE:
        raise UserError(
            "json_schema: multipleOf takes memory for every remainder; the sum of these numbers and their least common "
            f"multiple, written without a decimal point, are {MOST_MULTIPLE:,} at most: leave some of them out"
        )


def _find_multiples(schema: Any) -> Iterator[int | float]:
    """Yield the numbers of multipleOf anywhere in a schema."""
    places = [schema]
    while places:
        place = places.pop()
        if isinstance(place, dict):
            number = place.get("multipleOf")
            if type(number) is int or (type(number) is float and math.isfinite(number)):
                yield number
            places += place.values()
        elif isinstance(place, list):
            places += place


def _may_end(matcher: Any) -> bool:
    return not matcher.is_error() and bool(matcher.is_accepting())


@cache
def import_llguidance() -> Any:
    """Return the library, or say how to get it."""
    try:
        import llguidance
    except ImportError:
        raise MissingExtra("llguidance", "constraints", "an output format (match, grammar, json_schema)") from None
    return llguidance


def _first_lines(text: str) -> str:
    """Return what a message of llguidance says, without the state that it may print after it, on one line."""
    said = text.partition("<state>")[0].strip()
    if "error: " in said:
        said = said.rpartition("error: ")[2].partition("\n")[0]
    return " ".join(said.split())[:400]
