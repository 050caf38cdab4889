"""Try in a process of its own, with little memory and time, whether llguidance can build a format.

A short schema may need any amount of memory. llguidance counts the steps of its automaton, but not all of what it
allocates, and what cannot be allocated ends a process. This file is also the script of that process, so it imports
nothing of the package.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

END = 0  # the number that llguidance knows the end symbol by; the tokens of the views come after it
NO_TEXT = b"\xffnone"  # the byte FF is in no text
BYTES = 1_500_000_000  # of memory, all told
SECONDS = 3  # of the processor
PATIENCE = 60  # seconds, on a busy machine
LONG = 1_000  # characters of a regular expression; longer ones are tried first, as are those with large numbers


class TokenBytes:
    """A vocabulary as llguidance reads it."""

    bos_token_id = None
    eos_token_id = END

    def __init__(self, tokens: Sequence[bytes | None]) -> None:
        self.tokens = [b"\xffend", *(added or NO_TEXT for added in tokens)]
        self.special_token_ids = [index for index, added in enumerate(self.tokens) if added[:1] == b"\xff"]

    def __call__(self, text: bytes) -> list[int]:
        return []  # asked only for how forced bytes would be divided, which ``Format.next_tokens`` decides


def make_tokenizer(library: Any, tokens: Sequence[bytes | None]) -> Any:
    """Return the vocabulary of some tokens, each the bytes that it adds; None: it has no place in a text."""
    return library.LLTokenizer(library.TokenizerWrapper(TokenBytes(tokens)))


def make_grammar(library: Any, kind: str, text: str) -> str:
    """Return a format as llguidance writes it down. Raise a ``ValueError`` if it is none."""
    make = {
        "match": library.LLMatcher.grammar_from_regex,
        "grammar": library.LLMatcher.grammar_from_lark,
        "json_schema": library.LLMatcher.grammar_from_json_schema,
    }[kind]
    return str(make(text))


def make_matcher(library: Any, tokenizer: Any, grammar: str) -> Any:
    """Return what follows a text in a grammar. Its limits are llguidance's own, in steps of its automaton."""
    limits = library.LLParserLimits(verbose_errors=False)
    return library.LLMatcher(tokenizer, grammar, log_level=0, limits=limits)


def is_suspect(kind: str, text: str) -> bool:
    """Tell whether a format may be large: it can intersect others, is long, or has large numbers."""
    return kind != "match" or len(text) > LONG or re.search(r"\d{4}", text) is not None


def can_be_built(kind: str, text: str) -> bool:
    """Tell whether a format can be built within the limits. Where no other process can be started, it is believed."""
    if not sys.executable or not Path(__file__).is_file():
        return True
    command = [sys.executable, "-P", __file__]  # -P: nothing is imported from the current folder
    given = json.dumps([kind, text, BYTES, SECONDS]).encode()
    try:
        done = subprocess.run(command, input=given, capture_output=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return False
    except OSError:
        return True
    return done.returncode == 0


def _try() -> None:
    """Build the format that standard input names. A mistake in it is none here: the caller finds it as well."""
    kind, text, most_bytes, most_seconds = json.load(sys.stdin)
    try:
        import resource

        limits = {resource.RLIMIT_AS: most_bytes, resource.RLIMIT_CPU: most_seconds, resource.RLIMIT_CORE: 0}
        for which, most in limits.items():
            _, highest = resource.getrlimit(which)
            most = most if highest < 0 else min(most, highest)
            resource.setrlimit(which, (most, most))
    except (ImportError, ValueError, OSError):
        pass  # the time that the caller waits is the only limit here
    import llguidance

    try:
        grammar = make_grammar(llguidance, kind, text)
    except ValueError:
        return
    tokenizer = make_tokenizer(llguidance, [bytes([value]) for value in range(256)])
    matcher = make_matcher(llguidance, tokenizer, grammar)
    if not matcher.get_error():
        matcher.compute_bitmask()


if __name__ == "__main__":
    _try()
