"""What ``predict`` reads: texts, files, lists of files, tables with a column a source. One input, one line out."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dragoman.data.lines import answered_lines
from dragoman.data.media import content_kind, file_of, suffix_kind


class Input(NamedTuple):
    raw: str | dict[str, str]  # empty where there is a problem, which has an empty output
    problem: str | None = None


def read_inputs(system: Any, arguments: Sequence[str], damaged: list[str]) -> Iterator[Input]:
    """The inputs of a run, from the arguments of the command line; ``-`` is standard input.

    ``damaged`` is told the places of lines that are not UTF-8.
    """
    from dragoman.errors import UserError

    sources = system.recipe.sources
    if len(sources) == 1 and next(iter(system.modalities.values())).is_file:
        for argument in arguments:
            if argument != "-" and (suffix_kind(argument) or content_kind(argument)):
                yield Input(argument)
            else:
                yield from _table(argument, system, damaged)
        return
    if len(arguments) > 1:
        what = "a file" if len(sources) < 2 else f"a table with the columns {', '.join(sources)}"
        raise UserError(f"{arguments[1]}: one input file at a time; this run reads {what}")
    if len(sources) > 1:
        yield from _table(arguments[0], system, damaged)
    else:
        for line in answered_lines(arguments[0], damaged):
            yield Input(line)


def example_call(run: str, is_file: Mapping[str, bool], seen: Mapping[str, str]) -> str:
    """A command to try. ``is_file``: of each source; ``seen``: an input of the run, where one is at hand."""
    run = shlex.quote(run)
    if len(is_file) > 1:
        return f"dragoman predict {run} table.tsv, with the columns {', '.join(is_file)}"
    for name in (name for name, file in is_file.items() if file):
        return f"dragoman predict {run} {shlex.quote(seen[name]) if name in seen else 'FILE'}"
    return f'echo "some text" | dragoman predict {run}'


def _table(file: str, system: Any, damaged: list[str]) -> Iterator[Input]:
    """A TSV with a column a source, by a header or in their order, or JSON lines.

    Of the table that a run on files was trained on, the column with files is taken, as in training.
    """
    columns = _columns(system)
    files = [name for name, modality in system.modalities.items() if modality.is_file]
    folder = "" if file == "-" else os.path.dirname(file)
    label = "standard input" if file == "-" else file
    empty = dict.fromkeys(columns, "")
    is_json: bool | None = None  # not known before the first line that is not blank
    places: dict[str, int] | None = None
    for number, line in enumerate(answered_lines(file, damaged), 1):
        if not line.strip():
            yield Input(empty)
            continue
        cells = line.split("\t")
        if is_json is None:
            is_json = line.lstrip().startswith("{")
            if not is_json and (places := _header([cell.strip() for cell in cells], columns)) is not None:
                continue
            if not is_json and files and len(columns) == 1 < len(cells) and not _names_files(cells, folder):
                continue  # it stands above files, as a header does
        places = places or _by_number(cells, columns) or (_by_file(cells, columns) if files else None)
        found = _from_json(line, columns) if is_json else _from_cells(cells, places, columns)
        if isinstance(found, str):
            yield Input(empty, f"{label}:{number}: {found}")
        else:
            found |= {name: _there(found[name], folder) for name in files}
            yield Input(found if len(found) > 1 else next(iter(found.values())))


def _columns(system: Any) -> dict[str, str | int | None]:
    """Where each source stood in the training data."""
    asked = system.recipe.reading.asked().sources or {}
    return {name: asked.get(name) for name in system.modalities}


def _header(cells: Sequence[str], columns: Mapping[str, str | int | None]) -> dict[str, int] | None:
    """The places of the sources, if the first line names them all."""
    found = {}
    for name, column in columns.items():
        named = [key for key in (column, name) if key in cells]
        if not named:
            return None
        found[name] = cells.index(str(named[0]))
    return found


def _by_number(cells: Sequence[str], columns: Mapping[str, str | int | None]) -> dict[str, int] | None:
    """Without a header: as many columns as sources, or the numbers of the training data."""
    if len(cells) == len(columns):
        return {name: place for place, name in enumerate(columns)}
    numbers = [int(column) for column in columns.values() if str(column or "").isdecimal()]  # type: ignore[arg-type]
    if len(numbers) == len(columns) and max(numbers) <= len(cells):
        return {name: number - 1 for name, number in zip(columns, numbers, strict=True)}
    return None


def _by_file(cells: Sequence[str], columns: Mapping[str, str | int | None]) -> dict[str, int] | None:
    """Of one source, the only column with the name of a file."""
    found = [place for place, cell in enumerate(cells) if suffix_kind(cell.strip())]
    return {next(iter(columns)): found[0]} if len(columns) == len(found) == 1 else None


def _names_files(cells: Sequence[str], folder: str) -> bool:
    return any(suffix_kind(cell.strip()) or os.path.exists(_there(cell, folder)) for cell in cells if cell.strip())


def _there(path: str, folder: str) -> str:
    """A path from the current folder or, where nothing is there, from that of the table."""
    beside = os.path.join(folder, path)
    return beside if os.path.exists(file_of(beside)) and not os.path.exists(file_of(path)) else path


def _from_cells(
    cells: Sequence[str], places: Mapping[str, int] | None, columns: Mapping[str, Any]
) -> dict[str, str] | str:
    if places is None or max(places.values()) >= len(cells):
        what = f"{len(cells)} column{'s' * (len(cells) != 1)}"
        return f"{what}, but the run reads {', '.join(columns)}; give these, in this order or under a header"
    return {name: cells[place] for name, place in places.items()}


def _from_json(line: str, columns: Mapping[str, str | int | None]) -> dict[str, str] | str:
    try:
        value = json.loads(line)
    except ValueError as error:
        return f"not valid JSON ({error})"
    if not isinstance(value, dict):
        return "not a JSON object"
    found: dict[str, str] = {}
    for name, column in columns.items():
        text = value.get(str(column), value.get(name))
        if not isinstance(text, str):
            return f"no text under the key {name!r}"
        found[name] = text
    return found
