"""JSON lines: one object per line, two or more of its values are texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from dragoman.data.audit.audit import Refusal
from dragoman.data.reading.columns import ColumnSelection, find_keys
from dragoman.errors import UserError

_KINDS = {
    type(None): "null",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


class _Twice(ValueError):
    """An object has the same key twice, of which Python would silently take the last."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    distinct = dict(pairs)
    if len(distinct) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _Twice(f"the key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice")
    return distinct


_decode = json.JSONDecoder(object_pairs_hook=_distinct).decode


def _parse_object(text: str) -> dict[str, Any] | Refusal:
    try:
        value = _decode(text)
    except json.JSONDecodeError as error:
        return Refusal("invalid_json", f"not valid JSON: {error.msg} at character {error.pos + 1}")
    except RecursionError:
        return Refusal("invalid_json", "nested too deeply")
    except ValueError as error:  # a key twice, a number of too many digits
        return Refusal("invalid_json", str(error))
    if not isinstance(value, dict):
        return Refusal("invalid_json", f"{_KINDS.get(type(value), 'a text')}, not an object")
    return value


def json_parser(
    sample: Sequence[tuple[int, str]], selection: ColumnSelection, file: str
) -> tuple[tuple[str, ...], Callable[[str], tuple[str, ...] | Refusal], str]:
    """Return the names of the sources, a parser of lines, and a note on what was decided."""
    parsed = [(number, _parse_object(text)) for number, text in sample]
    objects = [(number, value) for number, value in parsed if isinstance(value, dict)]
    if not objects:
        number, refusal = parsed[0]
        assert isinstance(refusal, Refusal)
        array = sample[0][1].lstrip().startswith("[")
        advice = (
            "a JSON array must become one object a line: jq -c '.[]' FILE > NEW"
            if array
            else "write one JSON object a line"
        )
        raise UserError(
            f"{file}:{number}: {refusal.reason}; no JSON object in the first {len(sample):,} lines; {advice}"
        )
    sides, keys = find_keys([value for _, value in objects], selection, f"{file}:{objects[0][0]}")

    def parse(text: str) -> tuple[str, ...] | Refusal:
        value = _parse_object(text)
        if isinstance(value, Refusal):
            return value
        cells = []
        for key in keys:
            cell = value.get(key)
            if not isinstance(cell, str):
                reason = (
                    f"the value of {key!r} is {_KINDS[type(cell)]}, not text" if key in value else f"no key {key!r}"
                )
                return Refusal("missing_key", reason)
            cells.append(cell)
        return tuple(cells)

    note = "JSON lines; " + ", ".join(f"{side} = {key!r}" for side, key in zip(sides, keys, strict=True))
    return sides[:-1], parse, note
