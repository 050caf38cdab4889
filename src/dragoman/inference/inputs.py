"""Read the inputs of ``predict``: texts, files, lists of files, and tables, which are read as tables.

A table of inputs may be the very table that a run was trained or is tested on: its columns of
sources are found, and the target is not read. Every row needs an answer, so that none is dropped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from dragoman.data.audit.audit import Refusal
from dragoman.data.media import content_kind, file_of, suffix_kind
from dragoman.data.reading.column_files import column_format, column_table
from dragoman.data.reading.columns import ColumnName
from dragoman.data.reading.headers import SOURCE_NAMES, usual_column
from dragoman.data.reading.lines import answered_lines
from dragoman.data.reading.memory import memory_table
from dragoman.data.reading.rows import SAMPLE
from dragoman.data.reading.table import Table
from dragoman.data.reading.text_files import guess_format, is_blank, suffix, text_table
from dragoman.errors import UserError
from dragoman.inference.input_columns import (
    InputColumns,
    find_input_columns,
    no_columns,
    wanted_sources,
)

if TYPE_CHECKING:
    from dragoman.inference.system import System


STANDARD_INPUT = "standard input"  # as messages call it


class Input(NamedTuple):
    """One input, which gives one line of output."""

    raw: str | dict[str, str]  # empty if there is a problem: then the output is empty too
    problem: str | None = None
    place: str | None = None  # where it was read, if anywhere


class InputReader:
    """Reads the inputs of one system."""

    def __init__(
        self,
        system: System,
        *,
        lines: bool = False,
        source: Sequence[ColumnName] = (),
        option: str = "--source",
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``lines``: a line is an input, whatever is in it. ``source``: columns to read. ``note`` gets decisions.

        ``option`` is what messages call the way to give ``source``.
        """
        if lines and source:
            raise UserError("--lines takes lines as they are, and --source names columns of a table; give one of them")
        self.system = system
        self.as_lines = lines
        self.selected = bool(source)
        self.option = option
        self.wanted = wanted_sources(system, source, option)
        self.note = note
        self.damaged: list[str] = []  # places of lines that are not UTF-8
        self.files = [each.name for each in self.wanted if each.is_file]

    def read(self, arguments: Sequence[str]) -> Iterator[Input]:
        """Yield the inputs that the arguments of the command line name; ``-`` is standard input."""
        if len(self.wanted) == 1 and self.files:
            for argument in arguments:
                if argument != "-" and (suffix_kind(argument) or content_kind(argument)):
                    yield Input(argument)
                else:
                    yield from self._read_file(argument)
            return
        if len(arguments) > 1:
            names = ", ".join(each.name for each in self.wanted)
            what = "a file" if len(self.wanted) < 2 else f"a table with the columns {names}"
            raise UserError(f"{arguments[1]}: give one input file at a time; this run reads {what}")
        yield from self._read_file(arguments[0])

    def read_table(self, data: object) -> Iterator[Input]:
        """Yield the inputs in the rows of a table in memory."""
        yield from self._read_rows(memory_table(data), "", SAMPLE)

    def _read_file(self, file: str) -> Iterator[Input]:
        label = STANDARD_INPUT if file == "-" else file
        folder = "" if file == "-" else os.path.dirname(file)
        if not self.as_lines and (format := column_format(file)) is not None:
            yield from self._read_rows(column_table(file, format), folder, SAMPLE)
            return
        lines = answered_lines(file, self.damaged)
        sample = 1 if file == "-" else SAMPLE  # what is typed is answered before more is read
        head: list[str | Refusal] = []
        readable: list[str] = []
        for line in lines:
            head.append(line)
            readable += [line] if isinstance(line, str) and not is_blank(line) else []
            if len(readable) >= sample:
                break
        text_format = self._text_format(file, readable)
        lines = chain(head, lines)
        if text_format is not None:
            yield from self._read_rows(text_table(label, text_format, lines, sample), folder, sample)
            return
        for number, line in enumerate(lines, 1):
            place = f"{label}:{number}"
            yield Input("", line.reason, place) if isinstance(line, Refusal) else self._input(line, folder, place)

    def _text_format(self, file: str, lines: Sequence[str]) -> str | None:
        """Return the format of a table in a text file, by its name and first lines; None for an input on each line.

        Where a run reads one text, a file is a table if its name says so, or if most lines have a
        tab. A language model's prompts have tabs where they want.
        """
        if self.as_lines and len(self.wanted) == 1:
            return None
        first = lines[0] if lines else ""
        guess = guess_format(file, first)
        if guess is None and self._is_csv_header(first):
            return "csv"
        if guess == "tsv" and self.system.recipe.data.format == "csv":
            guess = "csv"
        is_named = suffix(file) in (".tsv", ".csv", ".json", ".jsonl", ".ndjson")
        if len(self.wanted) > 1 or self.files or is_named:
            return guess or "tsv"
        if guess == "jsonl" and self._has_key(first):
            return "jsonl"
        tabbed = sum("\t" in line for line in lines)
        return "tsv" if tabbed * 2 > len(lines) and not self.system.is_language_model else None

    def _is_csv_header(self, line: str) -> bool:
        """Tell whether a line without tabs names all sources of a run with several, separated as in CSV."""
        if len(self.wanted) < 2 or "\t" in line:
            return False
        cells = next(text_table("", "csv", iter([line])).rows)[1]
        return not isinstance(cells, Refusal) and all(not {*each.names}.isdisjoint(cells) for each in self.wanted)

    def _has_key(self, line: str) -> bool:
        """Tell whether a line is an object with a key for the source."""
        record = next(text_table("", "jsonl", iter([line])).rows)[1]
        if not isinstance(record, Mapping):
            return False
        known = {name for each in self.wanted for name in each.names}
        return not known.isdisjoint(record) or usual_column(list(record), SOURCE_NAMES) is not None

    def _read_rows(self, table: Table, folder: str, sample: int) -> Iterator[Input]:
        """Yield the inputs in the rows of a table."""
        rows = table.rows
        head: list[Any] = []
        readable: list[Any] = []
        for row in rows:
            head.append(row)
            readable += [row] if not isinstance(row[1], Refusal) else []
            if len(readable) >= sample:
                break
        columns = self._find(table, readable) if readable else None
        empty: str | dict[str, str] = dict.fromkeys((each.name for each in self.wanted), "")
        empty = "" if len(empty) == 1 else empty
        for number, record in chain(head, rows):
            place = table.place(number)
            if isinstance(record, Refusal):
                yield Input(empty, None if record.category == "blank_line" else record.reason, place)
                continue
            if columns is None:  # the rows so far did not have the sources
                columns = self._find(table, [(number, record)])
            if columns is not None and columns.header == number:
                continue
            picked = no_columns(record, self.wanted) if columns is None else columns.pick(record, self.wanted)
            yield Input(empty, picked, place) if isinstance(picked, str) else self._input(picked, folder, place)

    def _find(self, table: Table, sample: Sequence[Any]) -> InputColumns | None:
        header = self.system.recipe.data.header
        columns = find_input_columns(table, sample, self.wanted, header, self.selected, self.option)
        if columns is not None and (said := columns.describe()) is not None:
            advice = "; --lines reads whole lines" if table.format == "tsv" and len(self.wanted) == 1 else ""
            had_header = any(place.name for place in self.system.columns.values())
            is_input = had_header and columns.names is None and table.label != STANDARD_INPUT
            first = "; the first row is an input, because it does not have the names of the sources" * is_input
            self.note(f"{table.label}: {said}{advice}{first}")
        return columns

    def _input(self, texts: str | dict[str, str], folder: str, place: str) -> Input:
        """Return an input, with the paths of its files as they are reached from the current folder."""
        if isinstance(texts, str):
            return Input(_resolve(texts, folder) if self.files else texts, None, place)
        texts = texts | {name: _resolve(texts[name], folder) for name in self.files}
        return Input(texts if len(texts) > 1 else next(iter(texts.values())), None, place)


def _resolve(path: str, folder: str) -> str:
    """Return a path from the current folder or, if that does not exist, from the table's folder."""
    beside = os.path.join(folder, path)
    return beside if os.path.exists(file_of(beside)) and not os.path.exists(file_of(path)) else path
