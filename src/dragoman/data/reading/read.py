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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from dragoman.data.audit.audit import CATEGORIES, Audit, Refusal, fate, title
from dragoman.data.audit.cells import check_cells
from dragoman.data.audit.files import attach_files
from dragoman.data.examples import SOURCE, Example, name_place
from dragoman.data.media import file_kinds, recognise
from dragoman.data.options import DataConfig
from dragoman.data.reading.lines import LINE_LIMIT, label
from dragoman.data.reading.memory import memory_table
from dragoman.data.reading.rows import (
    BLANK,
    ColumnPlace,
    TextRows,
    advice,
    file_rows,
    is_parallel,
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

    examples: list[Example]
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
    on_row: Callable[[int], None] | None = None,
) -> Corpus:
    """Read a table in a file or in memory, a text file, or two parallel files (source, target).

    Text files may be compressed with gzip; ``-`` is standard input. ``kinds`` are the modalities of
    sources, by name; those of other sources are recognised. ``on_row`` is called with the number of
    rows read so far.
    """
    config = config or DataConfig()
    paths = as_paths(data)
    audit, (names, rows, columns) = _open(data, paths, config)
    file, unit = audit.files[0], audit.unit
    examples: list[Example] = []
    longest = LINE_LIMIT if config.running else config.max_characters
    for line, cells in rows:
        audit.rows += 1
        if on_row is not None:
            on_row(audit.rows)
        is_settled = isinstance(cells, Refusal) or (config.running and cells == BLANK)
        checked = cells if is_settled else check_cells(cells, names, line, longest, audit)  # type: ignore[arg-type]
        if isinstance(checked, Refusal):
            audit.drop(line, checked.category, checked.reason, checked.file)
        else:
            examples.append(Example(dict(zip(names, checked, strict=False)), checked[-1], line, file, unit))
    if not examples:
        raise _nothing_usable(audit)
    all_kinds = {name: (kinds or {}).get(name) or _recognise_kind(examples, name, audit) for name in names}
    files = {name: kind for name, kind in all_kinds.items() if kind in file_kinds()}
    if files:
        folder = _root(paths[0] if paths else "-", config)
        examples = attach_files(examples, files, folder, audit)
        if not examples:
            raise _nothing_usable(audit, f"paths start from {folder}; say another folder with --root")
    audit.describe(examples)
    return Corpus(examples, audit, all_kinds, columns)


def _open(data: DataSource, paths: list[str | Path] | None, config: DataConfig) -> tuple[Audit, TextRows]:
    """Open files or a table in memory, with an audit that records what is decided."""
    if paths is None:
        table = memory_table(data)
        audit = Audit((table.label,))
        if config.format != "auto":
            audit.notes.append(f"data.format={config.format} is not used: {table.label} is no file")
        return audit, table_rows(table, config, audit)
    audit = Audit(tuple(label(path) for path in paths))
    if not is_parallel(paths, config):
        return audit, file_rows(paths[0], config, audit)
    audit.format = "parallel"
    audit.notes.append("two parallel files, line by line: source, target")
    if config.source is not None or config.target is not None:
        audit.notes.append("data.source and data.target are not used: parallel files have no columns")
    return audit, TextRows((SOURCE,), parallel_rows(paths, audit), {})


def _recognise_kind(examples: Sequence[Example], name: str, audit: Audit) -> str:
    kind = recognise([example.sources[name] for example in examples])
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
