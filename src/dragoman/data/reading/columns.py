"""Which column, or key, is which side: selected by name or number, or inferred and noted.

Inference is conservative. A first line is taken for a header only if the columns were selected by
names that are in it, or if exactly one of its cells is a usual name for a source and exactly one a
usual name for a target and neither cell occurs in that column again, or if it has no path where the
lines below have paths of files. A single column of paths is the source. The audit notes whatever is
decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from dragoman.config import nearest
from dragoman.data.examples import SOURCE, TARGET
from dragoman.data.media import recognise
from dragoman.errors import UserError

ColumnName: TypeAlias = "int | str"
Header = Literal["auto", "yes", "no"]

# fmt: off
SOURCE_NAMES = frozenset((
    "source", "src", "input", "x", "question", "word", "words", "grapheme", "graphemes", "spelling", "lemma",
    "text", "sentence", "article", "document", "source_text", "input_text", "prompt",
))
TARGET_NAMES = frozenset((
    "target", "tgt", "trg", "output", "y", "answer", "phoneme", "phonemes", "phones", "pronunciation",
    "transcription", "ipa", "form", "inflected", "label", "class", "translation", "summary", "correction",
    "target_text", "output_text", "response",
))
# Usual names of the target beside a file, best first; "text" is a source only where there is no file.
FILE_TARGET_NAMES = ("caption", "captions", "transcript", "text", "sentence", "words", "description", "name")
# fmt: on
HOW = "say which with --set data.source=… --set data.target=…"


@dataclass(frozen=True, slots=True)
class ColumnSelection:
    """The columns that the config selects.

    ``sources`` is None where they are to be inferred, and empty where there is no source.
    """

    sources: Mapping[str, ColumnName] | None
    target: ColumnName | None

    def columns(self) -> list[ColumnName]:
        """Return all selected columns."""
        wanted = [] if self.sources is None else list(self.sources.values())
        return wanted if self.target is None else [*wanted, self.target]

    def names(self) -> list[str]:
        """Return the columns selected by name. A number written as text is a number."""
        return [column for column in self.columns() if isinstance(column, str) and not column.isdecimal()]


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Which columns of a TSV file are the sides."""

    sources: tuple[str, ...]  # names
    columns: tuple[int, ...]  # from 0: one for each source, then the target
    width: int  # columns every row must have
    header: int | None  # line number of the header
    notes: tuple[str, ...]


def usual_column(names: Sequence[str], usual: frozenset[str]) -> int | None:
    """Return the column with a usual name for this side, if there is exactly one."""
    columns = [index for index, name in enumerate(names) if name.strip().casefold() in usual]
    return columns[0] if len(columns) == 1 else None


def find_layout(
    sample: Sequence[tuple[int, str]], first: int, selection: ColumnSelection, header: Header, file: str
) -> TableLayout:
    """Infer the layout of a TSV file from its first readable lines (line number, text).

    ``first`` is the number of the first line that is not blank, readable or not: only that can be a
    header.

    The number of columns is the header's, or else that of most lines (of those with a tab). Every
    row must have it, even if only some columns are selected: in a row with an extra tab nobody can
    tell which cell moved.
    """
    table = [(number, text.split("\t")) for number, text in sample]
    widths = Counter(len(cells) for _, cells in table)
    wants_source = selection.sources is None or bool(selection.sources)
    if wants_source and widths[1] * 2 > len(table):
        _refuse_one_column(sample, widths[1], file)
    usual = max(widths, key=lambda width: (width > 1, widths[width]))

    number, cells = table[0]
    names = [cell.strip() for cell in cells]
    where = f"{file}:{number}"
    if header == "no" or (header == "auto" and number != first):
        has_header = False
    elif header == "yes":
        if number != first:
            raise UserError(f"{file}:{first}: the header cannot be read: not UTF-8; repair it or set data.header=no")
        has_header = True
    elif selection.names():
        for name in selection.names():
            if name not in names:
                raise UserError(f"{where}: no column is called {name!r}; {_nearest(name, names)}")
        has_header = True
    else:
        has_header = len(cells) == usual and (_has_usual_names(table) or _is_above_files(table))

    if selection.names() and not has_header:
        raise UserError(
            f"{where}: column {selection.names()[0]!r} is asked for by name, but there is no header; use its number"
        )
    width = len(cells) if has_header else usual
    rows = [row for _, row in table[has_header:] if len(row) == width]
    files = _file_columns([[row[column] for row in rows] for column in range(width)])
    columns, sides = _choose(selection, names if has_header else None, width, where, files)
    notes = [
        f"tab-separated, {width} column{'s' * (width != 1)}; {_describe(sides, columns, names if has_header else None)}"
    ]
    if has_header:
        notes.append(
            f"line {number} is a header, not a row"
            + ("" if header == "yes" else "; if it is data: --set data.header=no")
        )
    elif header == "auto":
        shown = ", ".join(name if len(name) <= 20 else f"{name[:19]}…" for name in names[:3])
        notes.append(f"line {number} is a row ({shown}); if it names the columns: --set data.header=yes")
    return TableLayout(sides[:-1], columns, width, number if has_header else None, tuple(notes))


def _has_usual_names(table: Sequence[tuple[int, list[str]]]) -> bool:
    """Tell whether the first line has usual names that do not occur below it."""
    cells = table[0][1]
    source, target = usual_column(cells, SOURCE_NAMES), usual_column(cells, TARGET_NAMES)
    if source is None or target is None or len(table) == 1:
        return False
    below = [row for _, row in table[1:] if len(row) == len(cells)]
    return not any(row[at] == cells[at] for row in below for at in (source, target))


def _is_above_files(table: Sequence[tuple[int, list[str]]]) -> bool:
    """Tell whether the first line has no path where the lines below have paths of files."""
    cells = table[0][1]
    below = [row for _, row in table[1:] if len(row) == len(cells)]
    files = _file_columns([[row[column] for row in below] for column in range(len(cells))])
    return bool(files) and not any(set("./\\") & set(cells[column]) for column in files)


def _file_columns(columns: Sequence[Sequence[str]]) -> list[int]:
    return [number for number, values in enumerate(columns) if recognise(values)]


def _file_and_partner(names: Sequence[str], file: int) -> tuple[int | None, int | None]:
    """Return source and target of a table with one column of files; None where unclear."""
    target = usual_column(names, TARGET_NAMES)
    for name in FILE_TARGET_NAMES:
        target = usual_column(names, frozenset((name,))) if target is None else target
    texts = [column for column, name in enumerate(names) if name.strip().casefold() in SOURCE_NAMES]
    return (None if set(texts) - {file, target} else file), target


def _choose(
    selection: ColumnSelection,
    names: Sequence[str] | None,
    width: int,
    where: str,
    files: Sequence[int],
    what: str = "columns",
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the column numbers (from 0) and names of the sides, the target last.

    ``files`` are the columns of paths.
    """
    source, usual_target = usual_column(names or [], SOURCE_NAMES), usual_column(names or [], TARGET_NAMES)
    if len(files) == 1:
        source, usual_target = _file_and_partner(names or [], files[0])
    sources = {name: _locate(column, names, width, where) for name, column in (selection.sources or {}).items()}
    target = None if selection.target is None else _locate(selection.target, names, width, where)
    table = f"{where}: {width} {what}" + (f" ({', '.join(names)})" if names else "")
    if selection.sources is None and target is None:
        if source is None or usual_target is None:
            if width != 2:
                raise UserError(f"{table}, and which are source and target is not clear; {HOW}")
            source = 0 if len(files) != 1 else files[0]
            usual_target = 1 - source
        return (source, usual_target), (SOURCE, TARGET)
    if selection.sources is None:
        sources = {SOURCE: _other([target], source, table, width, SOURCE)}
    if target is None:
        target = _other(list(sources.values()), usual_target, table, width, TARGET)
    return (*sources.values(), target), (*sources, TARGET)


def _other(taken: Sequence[int | None], usual: int | None, table: str, width: int, side: str) -> int:
    """Return the column of the side that was not selected."""
    if usual is not None and usual not in taken:
        return usual
    free = [column for column in range(width) if column not in taken]
    if len(free) != 1:
        raise UserError(f"{table}, and which is the {side} is not clear; {HOW}")
    return free[0]


def _locate(column: ColumnName, names: Sequence[str] | None, width: int, where: str) -> int:
    if isinstance(column, str) and names and column in names:
        if names.count(column) > 1:
            raise UserError(f"{where}: {names.count(column)} columns are called {column!r}; use a number")
        return names.index(column)
    if isinstance(column, str) and not column.isdecimal():
        raise UserError(f"{where}: no column is called {column!r}; {_nearest(column, list(names or []))}")
    if not 1 <= int(column) <= width:
        raise UserError(f"{where}: column {column} is asked for, but there are {width}; count from 1")
    return int(column) - 1


def _describe(sides: Sequence[str], columns: Sequence[int], names: Sequence[str] | None) -> str:
    return ", ".join(
        f"{side} = column {column + 1}" + (f" ({names[column]})" if names else "")
        for side, column in zip(sides, columns, strict=True)
    )


def _refuse_one_column(sample: Sequence[tuple[int, str]], count: int, file: str) -> None:
    number, text = next((number, text) for number, text in sample if "\t" not in text)
    if text.lstrip().startswith("{"):
        hint = "it looks like JSON lines: --set data.format=jsonl"
    elif "|||" in text:
        hint = "the sides seem to be parted by '|||'; put a tab there"
    elif "," in text or ";" in text:
        hint = "if it is CSV, save it with tabs instead"
    else:
        hint = "put a tab between source and target"
    raise UserError(
        f"{file}:{number}: no tab: {count:,} of the first {len(sample):,} lines have one column only; {hint}, "
        f"or give two parallel files; for a language model of plain text: --preset lm-rnn"
    )


def find_keys(
    objects: Sequence[Mapping[str, object]], selection: ColumnSelection, where: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the sides and their keys in a JSONL file, the target last.

    What is not selected is inferred from the keys with text that most of its first objects have.
    """
    known = list(dict.fromkeys(key for record in objects for key in record))
    for column in selection.columns():
        if not isinstance(column, str):
            raise UserError(f"{where}: column {column} is asked for, but JSON lines have keys; name the key")
        if column not in known:
            raise UserError(f"{where}: no key is called {column!r}; {_nearest(column, known)}")
    texts = Counter(tuple(key for key, value in record.items() if isinstance(value, str)) for record in objects)
    names = list(dict.fromkeys([*max(texts, key=texts.__getitem__), *map(str, selection.columns())]))
    files = _file_columns([[str(record[name]) for record in objects if name in record] for name in names])
    columns, sides = _choose(selection, names, len(names), where, files, "keys with text")
    return sides, tuple(names[column] for column in columns)


def _nearest(name: str, names: Sequence[str]) -> str:
    """Return a hint for a misspelt name. Long names, which may be data, are shortened."""
    return nearest(name, [other if len(other) <= 40 else other[:39] + "…" for other in names[:20]])
