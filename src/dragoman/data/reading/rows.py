"""The rows of a table or of two parallel files as texts: the sources in order, then the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias

from dragoman.data.audit.audit import Audit, Refusal, title
from dragoman.data.audit.cells import Cells
from dragoman.data.examples import TARGET, Unit, name_place
from dragoman.data.options import DataConfig
from dragoman.data.reading.column_files import FORMATS, column_format, column_table
from dragoman.data.reading.layout import TableLayout, find_layout
from dragoman.data.reading.lines import read_lines
from dragoman.data.reading.table import Record, Table
from dragoman.data.reading.text_files import guess_format, is_blank, suffix, text_table
from dragoman.data.reading.values import to_text
from dragoman.errors import UserError

SAMPLE = 1000  # rows that format, columns and header are recognised by
TABLE_SUFFIXES = (".tsv", ".csv", ".jsonl", ".ndjson", ".json", ".parquet", ".arrow", ".feather", ".xlsx")
BLANK: Cells = ("",)  # a blank line of running text

TextRow: TypeAlias = "tuple[int, Cells | Refusal]"


class ColumnPlace(NamedTuple):
    """Where a side was in the data: its column from 1, and the name of that, if it has one."""

    number: int
    name: str | None


class TextRows(NamedTuple):
    """The rows of the data as texts."""

    names: tuple[str, ...]  # of the sources
    rows: Iterator[TextRow]
    columns: Mapping[str, ColumnPlace]  # of every side, if they are columns


def parallel_rows(paths: Sequence[str | Path], audit: Audit) -> Iterator[TextRow]:
    """Yield the rows of two parallel files; raise a ``UserError`` if one of them is longer."""
    source_count = target_count = 0
    blank_rest = True  # the lines that one file has more than the other are all blank
    for line, (source, target) in enumerate(zip_longest(*(read_lines(path, audit) for path in paths)), 1):
        if source is None or target is None:
            extra = target if source is None else source
            blank_rest = blank_rest and isinstance(extra, str) and not extra.strip()
            if source is None:
                target_count = line
            else:
                source_count = line
            continue
        source_count = target_count = line
        if isinstance(source, Refusal):
            yield line, source
        elif isinstance(target, Refusal):
            yield line, target
        elif not source.strip() and not target.strip():
            yield line, Refusal("blank_line", "nothing in this line of either file")
        else:
            yield line, (source, target)
    if source_count != target_count:
        first, second = audit.files
        longer = first if source_count > target_count else second
        why = (
            "the lines too many are blank: remove them"
            if blank_rest
            else "somewhere the two went out of step: repair it"
        )
        line = min(source_count, target_count) + 1
        raise UserError(
            f"{longer}:{line}: this line has no partner: {first} has {source_count:,} lines, "
            f"{second} has {target_count:,}; {why}"
        )


def file_rows(path: str | Path, config: DataConfig, audit: Audit) -> TextRows:
    """Return the rows of one file: a table, or plain text."""
    format = column_format(path) or (None if config.format == "auto" else config.format)
    if format in FORMATS:
        return table_rows(column_table(path, format), config, audit)
    is_csv = format == "csv" or (format is None and suffix(path) == ".csv")
    lines = read_lines(path, audit, crlf_is_usual=is_csv)
    head = list(islice(lines, SAMPLE))
    if format is None:
        first = next((line for line in head if isinstance(line, str) and not is_blank(line)), "")
        format = guess_format(path, first)
        if (
            config.is_plain
            and config.target is None
            and (format is None or (format == "json" and suffix(path) != ".json"))
        ):
            format = "text"
    if format == "text":
        return _plain_rows(head, lines, config, audit)
    return table_rows(text_table(audit.files[0], format or "tsv", chain(head, lines)), config, audit)


def _plain_rows(
    head: Sequence[str | Refusal], lines: Iterator[str | Refusal], config: DataConfig, audit: Audit
) -> TextRows:
    """Return the rows of plain text: each is one line, and no source."""
    readable = [(number, line) for number, line in enumerate(head, 1) if isinstance(line, str) and not is_blank(line)]
    if not readable:
        _refuse_unreadable(list(enumerate(head, 1)), audit.files[0], "line")
    audit.format = "text"
    audit.notes.append(
        "plain text, one running text" if config.running else "plain text, one sequence a line, no source"
    )
    tabbed = sum("\t" in text for _, text in readable)
    if tabbed > 0.5 * len(readable):  # a file of pairs may have been read by mistake
        audit.notes.append(
            f"{tabbed:,} of the first {len(readable):,} lines have a tab, read as a character; one column: --target N"
        )
    if config.header == "yes":
        audit.notes.append("data.header=yes is not used: plain text has no header")

    def rows() -> Iterator[TextRow]:
        for number, line in enumerate(chain(head, lines), 1):
            if isinstance(line, Refusal):
                yield number, line
            elif is_blank(line):
                yield number, BLANK if config.running else Refusal("blank_line", "nothing in this line")
            else:
                yield number, (line,)

    return TextRows((), rows(), {})


def table_rows(table: Table, config: DataConfig, audit: Audit) -> TextRows:
    """Choose the columns of a table by its first rows, and return all its rows as texts."""
    audit.format, audit.unit = table.format, table.unit
    sample = list(islice(table.rows, SAMPLE))
    readable = [(number, record) for number, record in sample if not isinstance(record, Refusal)]
    if not readable:
        _refuse_unreadable(sample, table.label, table.unit)
    first = next(
        number for number, record in sample if not (isinstance(record, Refusal) and record.category == "blank_line")
    )
    layout = find_layout(table, readable, first, config.column_selection(), config.header)
    audit.notes.extend(layout.notes)
    if config.header == "yes" and not table.may_have_header:
        audit.notes.append(f"data.header=yes is not used: {table.label} has no header")
    pick = cell_picker(table, layout)

    def rows() -> Iterator[TextRow]:
        for number, record in chain(sample, table.rows):
            if isinstance(record, Refusal):
                is_pause = config.running and record.category == "blank_line"
                yield number, BLANK if is_pause else record
            elif number != layout.header:
                yield number, pick(record)

    names = layout.names
    columns = {
        side: ColumnPlace(column + 1, None if names is None else names[column])
        for side, column in zip((*layout.sources, TARGET), layout.columns, strict=True)
    }
    return TextRows(layout.sources, rows(), columns)


def cell_picker(table: Table, layout: TableLayout) -> Callable[[Record], Cells | Refusal]:
    """Return a function that makes the texts of the sides of a row, or says why it cannot."""
    columns, width, names = layout.columns, layout.width, layout.names
    if table.keyed:
        assert names is not None
        keys = [names[column] for column in columns]
        return lambda record: _pick_keys(record, keys)  # type: ignore[arg-type]
    if table.typed:
        titles = [repr(names[column]) if names else f"column {column + 1}" for column in columns]
        pairs = list(zip(columns, titles, strict=True))
        return lambda record: _pick_values(record, pairs, width)  # type: ignore[arg-type]
    pick: Callable[[Sequence[Any]], Cells] = (
        itemgetter(*columns) if len(columns) > 1 else lambda cells: (cells[columns[0]],)
    )
    return lambda record: pick(record) if len(record) == width else wrong_width(record, width)  # type: ignore[arg-type]


def wrong_width(record: Record, width: int) -> Refusal:
    """Return the refusal of a row that has not the columns of the table."""
    return Refusal("wrong_columns", f"{len(record)} column{'s' * (len(record) != 1)} instead of {width}")


def _pick_keys(record: Mapping[str, object], keys: Sequence[str]) -> Cells | Refusal:
    texts = []
    for key in keys:
        if key not in record:
            return Refusal("missing_key", f"no key {key!r}")
        text = to_text(record[key], f"the value of {key!r}")
        if isinstance(text, Refusal):
            return text
        texts.append(text)
    return tuple(texts)


def _pick_values(record: Sequence[object], columns: Sequence[tuple[int, str]], width: int) -> Cells | Refusal:
    if len(record) != width:
        return wrong_width(record, width)
    texts = []
    for column, name in columns:
        text = to_text(record[column], name)
        if isinstance(text, Refusal):
            return text
        texts.append(text)
    return tuple(texts)


def _refuse_unreadable(sample: Sequence[tuple[int, object]], file: str, unit: Unit) -> NoReturn:
    """Refuse a file of which no row at the beginning can be read."""
    if not sample:
        noun = "file" if unit == "line" else "table"
        raise UserError(f"{file}: the {noun} is empty; give a {noun} with at least one row")
    refused = [(number, item) for number, item in sample if isinstance(item, Refusal) and item.category != "blank_line"]
    if not refused:
        place = name_place(file, sample[0][0], unit)
        raise UserError(f"{place}: the first {len(sample):,} {unit}s are all blank; give a file with at least one row")
    number, item = refused[0]
    raise UserError(
        f"{name_place(file, number, unit)}: {title(item.category)} ({item.reason}); "
        f"none of the first {len(sample):,} {unit}s can be used; {advice(item.category)}"
    )


def advice(category: str) -> str:
    """Return what a person can do about rows of this category."""
    if category == "invalid_utf8":
        return "if the file is Latin-1 or Windows-1252, convert it: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW"
    if category == "invalid_json":
        return "write one JSON object a line, or for an array of objects: --set data.format=json"
    if category == "too_long":
        return "raise it with --set data.max_characters=… if the rows should be that long"
    return "repair the file, or name its format with --set data.format=…"
