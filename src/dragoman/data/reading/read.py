"""Read data: examples and their audit. Nothing is dropped, shortened or changed without a record.

What happens to a row, in this order; the first reason to drop it is the one recorded:

- a byte order mark at the start of a line, and the CR of CR LF, are removed (repaired);
- a line that is not UTF-8, is blank, has the wrong number of columns, is no CSV record or JSON
  object, or lacks a key: dropped;
- a cell that is not a text becomes one as ``values`` says; one that cannot: dropped;
- line breaks inside a cell become spaces, because a text is one line everywhere else (repaired);
- NUL and all other control characters (C0 and C1; a tab is none where it separates no columns):
  dropped. They are never data in running text, and neither deleting them nor replacing them by a
  space is always right;
- white space around a text is removed (repaired); a side with nothing left is empty, and so is a
  missing value: dropped;
- a side of more than ``max_characters``: dropped;
- a source that is a file which is missing, damaged, cut off or too large: dropped. A column is one
  of files if a setting says so, or if most of its values end like names of files of some modality.

Running text (``running``) is one text: there a blank line is a line like any other, and lines may
have any length.

Quotes in TSV, backslashes, "NA" and "null" are data. Text is not Unicode-normalised; what is not
NFC is counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from dragoman.data.audit.audit import CATEGORIES, Audit, Refusal, fate, title
from dragoman.data.audit.cells import check_cells
from dragoman.data.audit.files import attach_files
from dragoman.data.audit.records import merge_audits, read_audit
from dragoman.data.corpus.mapped.collecting import MEMORY_ROWS, RowCollector, open_rows
from dragoman.data.corpus.mapped.describing import describe_rows
from dragoman.data.corpus.mapped.folder import CorpusFolder, Workspace, describe_inputs, find_complete
from dragoman.data.corpus.mapped.rows import MappedRows, RowLayout, sample_numbers
from dragoman.data.examples import SOURCE, Example, name_place
from dragoman.data.media import file_kinds, recognise
from dragoman.data.options import DataConfig
from dragoman.data.reading.lines import LINE_LIMIT, label
from dragoman.data.reading.memory import memory_table
from dragoman.data.reading.parts import Part, find_parts
from dragoman.data.reading.rows import (
    BLANK,
    ColumnPlace,
    TextRows,
    advice,
    file_rows,
    parallel_rows,
    table_rows,
)
from dragoman.errors import UserError

# Files (a path, or two parallel ones), or a table in memory: a frame of pandas or polars, a table of
# pyarrow, a datasets.Dataset, or rows as tuples or dicts in a list or from a generator.
DataSource: TypeAlias = object


@dataclass(frozen=True, slots=True)
class Corpus:
    """The usable rows in file order, and the audit of all rows."""

    examples: Sequence[Example]  # a list, or rows on disk
    audit: Audit
    kinds: dict[str, str] = field(default_factory=dict)  # of every source: a kind of modality
    columns: Mapping[str, ColumnPlace] = field(default_factory=dict)  # where each side was, if in a table


def as_paths(data: DataSource) -> list[str | Path] | None:
    """Return the files that data names: a path, or a list of paths; None for a table in memory."""
    if isinstance(data, (str, Path)):
        return [data]
    if isinstance(data, (list, tuple)) and all(isinstance(each, (str, Path)) for each in data):
        return list(data)
    return None


def read(
    data: DataSource,
    config: DataConfig | None = None,
    kinds: Mapping[str, str] | None = None,
    on_row: Callable[[int], object] | None = None,
    workspace: Workspace | None = None,
) -> Corpus:
    """Read tables in files or in memory, text files, or two parallel files (source, target).

    Text files may be compressed with gzip; ``-`` is standard input. ``kinds`` are the modalities of
    sources, by name; those of other sources are recognised. ``on_row`` is called with the number of
    rows read so far. With a ``workspace``, many rows are put on disk, as ``config.store`` says.
    """
    config = config or DataConfig()
    paths = as_paths(data)
    parts = find_parts(paths, config) if paths is not None else []
    files = [path for part in parts for path in part]
    if config.store == "memory":
        workspace = None
    inputs = describe_inputs(files, config, kinds or {}) if workspace is not None and files else None
    if workspace is not None and (folder := find_complete(workspace, inputs)) is not None:
        return _read_prepared(folder)
    opened = (_open_part(part, config) for part in parts) if paths is not None else iter([_open_table(data, config)])
    most = 0 if config.store == "disk" else MEMORY_ROWS
    collector = RowCollector(workspace, inputs, most)
    try:
        audit, columns = _collect(opened, config, collector, on_row)
        examples = collector.finish()
    finally:
        collector.close()
    if not len(examples):
        raise _nothing_usable(audit)
    names = collector.names
    all_kinds = {name: (kinds or {}).get(name) or _recognise_kind(examples, name, audit) for name in names}
    file_sources = {name: kind for name, kind in all_kinds.items() if kind in file_kinds()}
    if file_sources:
        root = _root(files[0] if files else "-", config)
        examples = attach_files(list(examples), file_sources, root, audit)
        if not examples:
            raise _nothing_usable(audit, f"paths start from {root}; say another folder with --root")
    if isinstance(examples, MappedRows):
        describe_rows(audit, examples)
        examples.folder.complete(_record(examples, audit, all_kinds, columns))
    else:
        audit.describe(examples)
    return Corpus(examples, audit, all_kinds, columns)


def _collect(
    opened: Iterator[tuple[Audit, TextRows]],
    config: DataConfig,
    collector: RowCollector,
    on_row: Callable[[int], object] | None,
) -> tuple[Audit, Mapping[str, ColumnPlace]]:
    """Add the usable rows of all parts to the collector; return the audit and the columns."""
    audits: list[Audit] = []
    notes: list[str] = []
    columns: Mapping[str, ColumnPlace] = {}
    longest = LINE_LIMIT if config.running else config.max_characters
    rows_before = 0
    for number, (audit, (names, rows, found)) in enumerate(opened):
        if not audits:
            notes, columns = audit.notes, found
        elif names != collector.names:
            raise UserError(
                f"{audit.files[0]}: its sources are {', '.join(names) or 'none'}, but those of {audits[0].files[0]} "
                f"are {', '.join(collector.names) or 'none'}; give files with the same columns"
            )
        elif found != columns:
            notes.append(f"{audit.files[0]} has other columns: {audit.notes[0] if audit.notes else audit.format}")
        collector.begin_file(names, audit.files[0], audit.unit)
        audits.append(audit)
        for line, cells in rows:
            audit.rows += 1
            if on_row is not None:
                on_row(rows_before + audit.rows)
            is_settled = isinstance(cells, Refusal) or (config.running and cells == BLANK)
            checked = cells if is_settled else check_cells(cells, names, line, longest, audit)  # type: ignore[arg-type]
            if isinstance(checked, Refusal):
                audit.drop(line, checked.category, checked.reason, checked.file)
            else:
                collector.add(checked, line, number)
        rows_before += audit.rows
    if len(audits) > 1:
        notes.append(f"{len(audits):,} files, read one after the other")
    return merge_audits(audits, notes), columns


def _open_table(data: DataSource, config: DataConfig) -> tuple[Audit, TextRows]:
    """Open a table in memory, with an audit that records what is decided."""
    table = memory_table(data)
    audit = Audit((table.label,))
    if config.format != "auto":
        audit.notes.append(f"data.format={config.format} is not used: {table.label} is no file")
    return audit, table_rows(table, config, audit)


def _open_part(part: Part, config: DataConfig) -> tuple[Audit, TextRows]:
    """Open a file, or two parallel ones, with an audit that records what is decided."""
    audit = Audit(tuple(label(path) for path in part))
    if len(part) == 1:
        return audit, file_rows(part[0], config, audit)
    audit.format = "parallel"
    audit.notes.append("two parallel files, line by line: source, target")
    if config.source is not None or config.target is not None:
        audit.notes.append("data.source and data.target are not used: parallel files have no columns")
    return audit, TextRows((SOURCE,), parallel_rows(part, audit), {})


def _record(
    rows: MappedRows, audit: Audit, kinds: Mapping[str, str], columns: Mapping[str, ColumnPlace]
) -> dict[str, object]:
    """Return what is to be known of a prepared corpus."""
    layout = rows.layout
    return {
        "rows": rows.stored,
        "names": list(layout.names),
        "files": list(layout.files),
        "units": list(layout.units),
        "kinds": dict(kinds),
        "columns": {side: list(place) for side, place in columns.items()},
        "audit": audit.to_json(),
    }


def _read_prepared(folder: CorpusFolder) -> Corpus:
    """Open a corpus that was prepared earlier."""
    record = folder.manifest
    assert record is not None
    audit = read_audit(record["audit"])
    layout = RowLayout(folder.path, tuple(record["names"]), tuple(record["files"]), tuple(record["units"]))
    rows = open_rows(folder, layout, record["rows"], audit.statistics)
    return Corpus(rows, audit, record["kinds"], {side: ColumnPlace(*at) for side, at in record["columns"].items()})


def _recognise_kind(examples: Sequence[Example], name: str, audit: Audit) -> str:
    sample = sample_numbers(len(examples), MEMORY_ROWS if isinstance(examples, MappedRows) else len(examples))
    kind = recognise([examples[row].sources[name] for row in sample])
    if kind is not None:
        audit.notes.append(f"{name}: paths of files ({kind}), as their names say")
    return kind or "text"


def _root(path: str | Path, config: DataConfig) -> str:
    """Return the folder that relative paths start from."""
    if config.root is None:
        return os.path.realpath("" if str(path) == "-" else os.path.dirname(path))
    if not os.path.isdir(config.root):
        raise UserError(
            f"{label(config.root)}: no such folder; data.root (--root) is where paths in the data start from"
        )
    return os.path.realpath(config.root)


def _nothing_usable(audit: Audit, hint: str = "") -> UserError:
    if not audit.rows:
        has_header = audit.format in ("tsv", "csv", "xlsx")
        return UserError(
            f"{name_place(audit.files[0], 1, audit.unit)}: {'a header and no rows' if has_header else 'it is empty'}; "
            "add rows"
        )
    categories = [category for category in CATEGORIES if fate(category) == "dropped" and audit.count(category)]
    categories.sort(key=audit.count, reverse=True)
    place = audit.findings[categories[0]].places[0]
    counts = ", ".join(f"{title(category)} {audit.count(category):,}" for category in categories)
    return UserError(
        f"{place}; none of the {audit.rows:,} rows can be used ({counts}); {hint or advice(categories[0])}"
    )
