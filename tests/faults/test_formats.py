"""Formats from strangers, by the command line: each is used or refused with a sentence, in little time and memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llguidance", reason="llguidance is an extra")

MOST_SECONDS, MOST_MEMORY = 120.0, 1_600_000_000  # of a busy machine; of all processes that were started
DEEP = '{"not": ' * 60 + "{}" + "}" * 60
PATTERNS = [
    "(a|aa)+" * 50, "((a{100}){100}){100}", "(.*a){40}b", "a{1000000}", "(a{1,1000}){1,1000}", "[a-h]{0,99999}" * 20,
    "|".join("ab" * number for number in range(1, 200)), r"\p{L}{1000}" * 50, "(a?){500}a{500}", "." * 90_000,
]  # fmt: skip
SCHEMAS: list[Any] = [
    {"multipleOf": 999_999_937},
    {"type": "integer", "multipleOf": 99_999_999_999},
    {"multipleOf": 1e300},
    {"multipleOf": 1e-300},
    {"allOf": [{"multipleOf": 9_973}, {"multipleOf": 9_967}]},
    {"type": "object", "properties": {str(number): {"multipleOf": 9_000 + number} for number in range(500)}},
    {"anyOf": [{"multipleOf": 3}, {"items": {"not": {"multipleOf": 10**400}}}]},
    {"type": "string", "minLength": 10**9},
    {"type": "array", "items": {"type": "integer"}, "minItems": 10**9},
    {"type": "integer", "minimum": -(10**300), "maximum": 10**300},
    {"enum": ["ab" * number for number in range(300)]},
    {"$ref": "#"},
    {"type": "string", "pattern": "((a{100}){100}){100}"},
    {"allOf": [{"pattern": f"a{{{number},}}b{{0,{number}}}"} for number in range(50)]},
]
TEXTS = [DEEP, '{"multiple\\u004ff": 999999937}', '{"a": ' * 2_000]
GRAMMARS = [
    'start: %json {"multipleOf": 999999937}', 'start: %json {"multiple\\u004ff": 999999937}', "start: start",
    "start: " + "(" * 500 + '"a"' + ")?" * 500, "start: " + " ".join(f"r{n}" for n in range(3_000)) + "\n" + "\n".join(
        f'r{n}: "a"?' for n in range(3_000)), 'start: ("a"{1000}){1000}', "start: /(.*a){40}b/ start start | ",
]  # fmt: skip


def test_formats_from_strangers_do_no_harm(
    tiny_run: Any, tmp_path: Path, start: Callable[..., Any], amount: Callable[[int, int], int],
    record: Callable[[str, dict[str, Any]], None],
) -> None:  # fmt: skip
    cases = [("match", pattern) for pattern in PATTERNS]
    cases += [("json-schema", json.dumps(schema)) for schema in SCHEMAS] + [("json-schema", text) for text in TEXTS]
    cases += [("grammar", grammar) for grammar in GRAMMARS]
    chosen = cases[:: max(1, len(cases) // amount(8, len(cases)))]
    (tmp_path / "stdin").write_text("abc\nhgfed\n")
    longest, largest, problems = 0.0, 0, []
    for option, text in chosen:
        given: object = text
        if option != "match":
            given = tmp_path / "format"
            given.write_text(text)
        arguments = ("predict", tiny_run.folder, f"--{option}", given, "--max-length", "20")
        child = start(tmp_path / "output", *arguments, stdin=tmp_path / "stdin").finish(2 * MOST_SECONDS)
        longest, largest = max(longest, child.seconds), max(largest, child.memory)
        outcome = [
            "took too long" if child.seconds > MOST_SECONDS else "",
            "took too much memory" if child.memory > MOST_MEMORY else "",
            "a traceback" if "Traceback" in child.text else "",
            "no sentence" if child.code not in (0, 1, 2) else "",
        ]
        if any(outcome):
            seen = f"{child.seconds:.1f} s, {child.memory / 1e6:.0f} MB, code {child.code}"
            problems.append(f"{option} {text[:80]}: {', '.join(filter(None, outcome))} ({seen})\n{child.text[-800:]}")
    assert not problems, f"{len(problems)} of {len(chosen)}\n" + "\n".join(problems)
    figures = {"cases": len(chosen), "longest (s)": round(longest, 1), "most memory (MB)": round(largest / 1e6)}
    record("hostile formats", figures)
