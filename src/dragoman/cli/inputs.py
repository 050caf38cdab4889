"""Read the inputs of ``predict``: texts, files, lists of files, tables of several sources."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dragoman.data.audit.audit import Refusal
from dragoman.data.media import content_kind, file_of, suffix_kind
from dragoman.data.reading.lines import answered_lines
from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.inference.system import System

Columns: TypeAlias = Mapping[str, str | int | None]  # source → its column in the training data, if one was named


class Input(NamedTuple):
    """One input, which gives one line of output."""

    raw: str | dict[str, str]  # empty if there is a problem: then the output is empty too
    problem: str | None = None


def read_inputs(system: System, arguments: Sequence[str], damaged: list[str]) -> Iterator[Input]:
    """Yield the inputs that the arguments of the command line name; ``-`` is standard input.

    The places of lines that are not UTF-8 are appended to ``damaged``.
    """
    sources = system.recipe.sources
    if len(sources) == 1 and next(iter(system.modalities.values())).is_file:
        for argument in arguments:
            if argument != "-" and (suffix_kind(argument) or content_kind(argument)):
                yield Input(argument)
            else:
                yield from _read_table(argument, system, damaged)
        return
    if len(arguments) > 1:
        what = "a file" if len(sources) < 2 else f"a table with the columns {', '.join(sources)}"
        raise UserError(f"{arguments[1]}: give one input file at a time; this run reads {what}")
    if len(sources) > 1:
        yield from _read_table(arguments[0], system, damaged)
    else:
        for number, line in enumerate(answered_lines(arguments[0], damaged), 1):
            if isinstance(line, Refusal):
                yield Input("", f"{arguments[0]}:{number}: {line.reason}")
            else:
                yield Input(line)


def _read_table(file: str, system: System, damaged: list[str]) -> Iterator[Input]:
    """Yield the rows of JSON lines, or of a TSV with columns in a header or in a known order.

    For a run on files, the table may be like the one it was trained on: its column of files is
    used.
    """
    columns = _training_columns(system)
    file_sources = [name for name, modality in system.modalities.items() if modality.is_file]
    folder = "" if file == "-" else os.path.dirname(file)
    label = "standard input" if file == "-" else file
    empty = dict.fromkeys(columns, "")
    is_json: bool | None = None  # unknown before the first line that is not blank
    places: dict[str, int] | None = None  # source → index of its cell
    for number, line in enumerate(answered_lines(file, damaged), 1):
        if isinstance(line, Refusal):
            yield Input(empty, f"{label}:{number}: {line.reason}")
            continue
        if not line.strip():
            yield Input(empty)
            continue
        cells = line.split("\t")
        if is_json is None:
            is_json = line.lstrip().startswith("{")
            if not is_json and (places := _find_by_header([cell.strip() for cell in cells], columns)) is not None:
                continue
            if not is_json and file_sources and len(columns) == 1 < len(cells) and not _has_file(cells, folder):
                continue  # a header with other names above a column of files
        places = places or _find_by_order(cells, columns) or (_find_by_suffix(cells, columns) if file_sources else None)
        row = _parse_json(line, columns) if is_json else _pick_cells(cells, places, columns)
        if isinstance(row, str):
            yield Input(empty, f"{label}:{number}: {row}")
        else:
            row |= {name: _resolve(row[name], folder) for name in file_sources}
            yield Input(row if len(row) > 1 else next(iter(row.values())))


def _training_columns(system: System) -> Columns:
    """Return the column of each source in the training data, if it was named."""
    sources = system.recipe.reading.column_selection().sources or {}
    return {name: sources.get(name) for name in system.modalities}


def _find_by_header(cells: Sequence[str], columns: Columns) -> dict[str, int] | None:
    """Return the place of each source if the cells are a header that names them all."""
    places = {}
    for name, column in columns.items():
        names = [key for key in (column, name) if key in cells]
        if not names:
            return None
        places[name] = cells.index(str(names[0]))
    return places


def _find_by_order(cells: Sequence[str], columns: Columns) -> dict[str, int] | None:
    """Return the place of each source if there are as many cells, else by its number in training."""
    if len(cells) == len(columns):
        return {name: place for place, name in enumerate(columns)}
    numbers = [int(column) for column in columns.values() if str(column or "").isdecimal()]  # type: ignore[arg-type]
    if len(numbers) == len(columns) and max(numbers) <= len(cells):
        return {name: number - 1 for name, number in zip(columns, numbers, strict=True)}
    return None


def _find_by_suffix(cells: Sequence[str], columns: Columns) -> dict[str, int] | None:
    """Return the place of a single source if only one cell is the name of a file."""
    places = [place for place, cell in enumerate(cells) if suffix_kind(cell.strip())]
    return {next(iter(columns)): places[0]} if len(columns) == len(places) == 1 else None


def _has_file(cells: Sequence[str], folder: str) -> bool:
    return any(suffix_kind(cell.strip()) or os.path.exists(_resolve(cell, folder)) for cell in cells if cell.strip())


def _resolve(path: str, folder: str) -> str:
    """Return a path from the current folder or, if that does not exist, from the table's folder."""
    beside = os.path.join(folder, path)
    return beside if os.path.exists(file_of(beside)) and not os.path.exists(file_of(path)) else path


def _pick_cells(cells: Sequence[str], places: Mapping[str, int] | None, columns: Columns) -> dict[str, str] | str:
    """Return the cell of each source, or what is wrong with the row."""
    if places is None or max(places.values()) >= len(cells):
        count = f"{len(cells)} column{'s' * (len(cells) != 1)}"
        return f"{count}, but the run reads {', '.join(columns)}; give these, in this order or under a header"
    return {name: cells[place] for name, place in places.items()}


def _parse_json(line: str, columns: Columns) -> dict[str, str] | str:
    """Return the text of each source, or what is wrong with the row."""
    try:
        value = json.loads(line)
    except ValueError as error:
        return f"not valid JSON ({error})"
    if not isinstance(value, dict):
        return "not a JSON object"
    row: dict[str, str] = {}
    for name, column in columns.items():
        text = value.get(str(column), value.get(name))
        if not isinstance(text, str):
            return f"no text under the key {name!r}"
        row[name] = text
    return row
