"""Tables in text files: TSV, CSV, JSON lines and JSON arrays."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from dragoman.data.audit.audit import Refusal
from dragoman.data.reading.lines import LINE_LIMIT
from dragoman.data.reading.table import Row, Table
from dragoman.data.reading.values import JsonNumber
from dragoman.errors import UserError

_SUFFIXES = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_SEPARATORS = {";": "semicolon-separated", ",": "comma-separated", "\t": "tab-separated"}  # in order of preference
_SNIFFED = 100  # records that tell the separator of a CSV file
_ARRAY = re.compile(r"\s*\[\s*(\{|$)")
_SPACE = re.compile(r"[ \t\n\r]*")
_QUOTED_SHARE = 0.9  # of the cells that are in quotes: then all are meant to be
_KINDS = {type(None): "null", bool: "a truth value", JsonNumber: "a number", list: "a list", str: "a text"}


def suffix(path: str | Path) -> str:
    """Return the suffix of a file name in lower case, without that of gzip."""
    path = Path(path)
    return (Path(path.stem) if path.suffix == ".gz" else path).suffix.lower()


def is_blank(text: str) -> bool:
    """Tell whether a line is blank. Tabs alone are a row whose sides are empty."""
    return not text or (text.isspace() and "\t" not in text)


def guess_format(path: str | Path, text: str) -> str | None:
    """Return the format that the name of a file or its first line tells, or None."""
    known = suffix(path)
    if known == ".json":
        return "json" if text.lstrip().startswith("[") else "jsonl"
    if known in _SUFFIXES:
        return _SUFFIXES[known]
    if "\t" in text:
        return None
    return "jsonl" if text.lstrip().startswith('{"') else "json" if _ARRAY.match(text) else None


def text_table(label: str, format: str, lines: Iterator[str | Refusal], sniffed: int = _SNIFFED) -> Table:
    """Return the table in the lines of a file. ``sniffed``: how many records may be read to know the separator."""
    if format == "csv":
        return _csv_table(label, lines, sniffed)
    if format == "jsonl":
        objects = ((number, _parse_line(line)) for number, line in enumerate(lines, 1))
        return Table(label, format, "JSON lines", objects, keyed=True, typed=True, may_have_header=False)
    if format == "json":
        array = _array_rows(label, lines)
        return Table(label, format, "a JSON array", array, keyed=True, typed=True, unit="row", may_have_header=False)
    rows = ((number, _split_tabs(line)) for number, line in enumerate(lines, 1))
    return Table(label, "tsv", "tab-separated", rows)


# ---- TSV


def _split_tabs(line: str | Refusal) -> list[str] | Refusal:
    if isinstance(line, Refusal):
        return line
    return Refusal("blank_line", "nothing in this line") if is_blank(line) else line.split("\t")


def are_quoted(rows: Sequence[Sequence[object]]) -> bool:
    """Tell whether nearly every cell of a table is in double quotes."""
    cells = [cell for row in rows for cell in row if isinstance(cell, str)]
    quoted = sum(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in cells)
    return bool(cells) and quoted >= _QUOTED_SHARE * len(cells)


# ---- CSV


class _CountedLines:
    """The lines of a CSV file as its reader takes them: a record may have several."""

    def __init__(self, lines: Iterator[str | Refusal]) -> None:
        self.lines = lines
        self.number = 0  # of the last line taken
        self.problem: Refusal | None = None  # of a line of the record that is being read

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self.lines)
        self.number += 1
        if isinstance(line, Refusal):
            self.problem = self.problem or line
            return line.text + "\n"
        return line + "\n"

    def take_problem(self) -> Refusal | None:
        """Return the first problem since the last call."""
        problem, self.problem = self.problem, None
        return problem


def _csv_table(label: str, lines: Iterator[str | Refusal], sniffed: int) -> Table:
    head: list[str | Refusal] = []
    for line in lines:
        head.append(line)
        if sum(not isinstance(each, Refusal) and not is_blank(each) for each in head) >= sniffed:
            break
    separator = _find_separator(head)
    rows = _csv_rows(label, chain(head, lines), separator)
    return Table(label, "csv", _SEPARATORS[separator], rows)


def _find_separator(head: Sequence[str | Refusal]) -> str:
    """Return the separator that gives most records the same number of cells, of two or more."""

    def agreement(separator: str) -> float:
        lines = [line + "\n" for line in head if isinstance(line, str) and not is_blank(line)]
        widths: Counter[int] = Counter()
        with suppress(csv.Error):
            widths.update(len(cells) for cells in csv.reader(lines, delimiter=separator))
        width, count = max(widths.items(), key=lambda item: (item[0] > 1, item[1]), default=(1, 0))
        return count / widths.total() if width > 1 else 0.0

    found = max(_SEPARATORS, key=agreement)
    return found if agreement(found) else ","


def _csv_rows(label: str, lines: Iterator[str | Refusal], separator: str) -> Iterator[Row]:
    """Yield the records, each with the number of the line on which it begins (RFC 4180)."""
    counted = _CountedLines(lines)
    reader = csv.reader(counted, delimiter=separator, strict=True)
    while True:
        begin = counted.number + 1
        limit = csv.field_size_limit(LINE_LIMIT)
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end" in str(error):
                raise UserError(
                    f"{label}:{begin}: a quote is opened in this record and never closed; close it, and write a quote "
                    'inside a quoted cell twice: ""'
                ) from None
            yield begin, counted.take_problem() or Refusal("invalid_csv", _explain_csv(str(error)))
            continue
        finally:
            csv.field_size_limit(limit)
        if (problem := counted.take_problem()) is not None:
            yield begin, problem
        elif not cells or (len(cells) == 1 and is_blank(cells[0])):
            yield begin, Refusal("blank_line", "nothing in this line")
        else:
            yield begin, cells


def _explain_csv(error: str) -> str:
    if "expected after" in error:
        return "text follows the closing quote of a cell"
    if "field limit" in error:
        return f"a cell has more than {LINE_LIMIT:,} characters; is a quote never closed?"
    return "a carriage return is inside a cell without quotes" if "new-line" in error else error


# ---- JSON


class _Twice(ValueError):
    """An object has the same key twice, of which Python would silently take the last."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    distinct = dict(pairs)
    if len(distinct) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _Twice(f"the key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice")
    return distinct


_DECODER = json.JSONDecoder(
    object_pairs_hook=_distinct,
    parse_float=JsonNumber,
    parse_int=JsonNumber,
    parse_constant=lambda name: None if name == "NaN" else JsonNumber(name),
)


def _check_object(value: object) -> dict[str, Any] | Refusal:
    if isinstance(value, dict):
        return value
    return Refusal("invalid_json", f"{_KINDS.get(type(value), 'a text')}, not an object")


def _parse_line(line: str | Refusal) -> dict[str, Any] | Refusal:
    """Return the object of a line, or why there is none."""
    if isinstance(line, Refusal):
        return line
    if is_blank(line):
        return Refusal("blank_line", "nothing in this line")
    try:
        return _check_object(_DECODER.decode(line))
    except json.JSONDecodeError as error:
        return Refusal("invalid_json", f"not valid JSON: {error.msg} at character {error.pos + 1}")
    except RecursionError:
        return Refusal("invalid_json", "nested too deeply")
    except ValueError as error:  # a key twice
        return Refusal("invalid_json", str(error))


def _array_rows(label: str, lines: Iterator[str | Refusal]) -> Iterator[Row]:
    """Yield the objects of a JSON array one by one, without holding all of it in memory."""
    text = _ArrayText(label, lines)
    text.expect("[", "an array of objects")
    number = 0
    while True:
        if text.peek() == "]":
            if number and text.after_comma:
                raise text.error("a comma, and no object after it")
            text.expect("]", "]")
            break
        number += 1
        yield number, text.read_object()
        if text.peek() == "]":
            text.expect("]", "]")
            break
        text.expect(",", "a comma or ]")
        text.after_comma = True
    if text.peek():
        raise text.error("text after the end of the array")


class _ArrayText:
    """The text of a JSON array, read as far as it is needed."""

    def __init__(self, label: str, lines: Iterator[str | Refusal]) -> None:
        self.label = label
        self.lines = lines
        self.text = ""
        self.line = 0  # the last that was read
        self.after_comma = False

    def error(self, problem: str) -> UserError:
        return UserError(
            f"{self.label}:{self.line}: not valid JSON: {problem}; nothing of the file was used; repair it, "
            "or write one JSON object a line (.jsonl)"
        )

    def _read_more(self) -> bool:
        """Read as many characters again as are there, and at least a line."""
        wanted, before = 2 * len(self.text), len(self.text)
        pieces = [self.text]
        for line in self.lines:
            self.line += 1
            if isinstance(line, Refusal):
                raise self.error(line.reason)
            pieces.append(line + "\n")
            before += len(line) + 1
            if before > wanted:
                break
        longer = len(pieces) > 1
        self.text = "".join(pieces)
        return longer

    def peek(self) -> str:
        """Return the next character that is not white space, or nothing at the end."""
        while True:
            match = _SPACE.match(self.text)
            self.text = self.text[match.end() :] if match else self.text
            if self.text or not self._read_more():
                return self.text[:1]

    def expect(self, character: str, what: str) -> None:
        found = self.peek()
        if found != character:
            raise self.error(
                f"{what} is expected, and there is {found!r}" if found else f"{what} is missing at the end"
            )
        self.text = self.text[1:]

    def read_object(self) -> dict[str, Any] | Refusal:
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text)
                if end < len(self.text):  # else a number could go on
                    self.text = self.text[end:]
                    return _check_object(value)
                problem = "it ends inside the array"
            except json.JSONDecodeError as error:
                problem = error.msg
            except RecursionError:
                raise self.error("nested too deeply") from None
            except ValueError as error:  # a key twice
                raise self.error(str(error)) from None
            if len(self.text) > LINE_LIMIT or not self._read_more():
                raise self.error(problem)
