"""Tables in memory: frames of pandas and polars, tables of Arrow, data sets, and rows of Python.

A table is known by the library of its class, so that none of these libraries is imported for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from dragoman.data.audit.audit import Refusal
from dragoman.data.reading.column_files import arrow_rows
from dragoman.data.reading.table import IN_MEMORY, Row, Table
from dragoman.errors import UserError

_BATCH = 1000
_TABLES = {
    "pandas": ("DataFrame",),
    "polars": ("DataFrame", "LazyFrame"),
    "pyarrow": ("Table", "RecordBatch", "RecordBatchReader"),
    "datasets": ("Dataset", "IterableDataset", "DatasetDict", "IterableDatasetDict"),
}
_ACCEPTED = (
    "give files, a DataFrame of pandas or polars, a pyarrow Table, a datasets.Dataset, or rows as tuples or dicts"
)


def is_frame(data: object) -> bool:
    """Tell whether data is a table of a library, with columns of its own."""
    return type(data).__name__ in _TABLES.get(_library(data), ())


def memory_table(data: object) -> Table:
    """Return the table of a value in memory."""
    library, name = _library(data), type(data).__name__
    label = f"the {name}"
    if library == "pandas" and name == "DataFrame":
        return _named(label, map(str, data.columns), _pandas_rows(data))  # type: ignore[attr-defined]
    if library == "polars" and name in ("DataFrame", "LazyFrame"):
        frame: Any = data.collect() if name == "LazyFrame" else data  # type: ignore[attr-defined]
        return _named(label, frame.columns, _polars_rows(frame))
    if library == "pyarrow" and name in ("Table", "RecordBatch", "RecordBatchReader"):
        return _arrow(label, data)
    if library == "datasets":
        return _dataset(label, data)
    if library in ("pandas", "polars", "pyarrow"):
        raise UserError(f"{label}: this {library} object is no table with columns; {_ACCEPTED}")
    if isinstance(data, (str, bytes, Mapping, Path)) or not isinstance(data, Iterable):
        raise UserError(f"{label}: not a table; {_ACCEPTED}")
    return _python_rows(label, iter(data))


def _library(data: object) -> str:
    return type(data).__module__.partition(".")[0]


def _named(label: str, names: Iterable[str], rows: Iterator[Sequence[object]]) -> Table:
    numbered: Iterator[Row] = enumerate(rows, 1)
    description = f"a table in memory ({label.removeprefix('the ')})"
    return Table(label, IN_MEMORY, description, numbered, tuple(names), typed=True, unit="row", may_have_header=False)


def _pandas_rows(frame: Any) -> Iterator[Sequence[object]]:
    for begin in range(0, len(frame), _BATCH):
        part = frame.iloc[begin : begin + _BATCH]
        columns = [part.iloc[:, index] for index in range(part.shape[1])]
        yield from zip(*(_few_bits(each) or each.tolist() for each in columns), strict=True)


def _polars_rows(frame: Any) -> Iterator[Sequence[object]]:
    for part in frame.iter_slices(_BATCH):
        columns = part.get_columns()
        yield from zip(*(_few_bits(each) or each.to_list() for each in columns), strict=True)


def _few_bits(column: Any) -> list[object] | None:
    """Return floats of few bits as numpy has them, which know their own digits; None for other columns."""
    return list(column.to_numpy()) if str(column.dtype).lower() in ("float16", "float32") else None


def _arrow(label: str, data: Any) -> Table:
    batches = [data] if type(data).__name__ == "RecordBatch" else data
    batches = data.to_batches(_BATCH) if type(data).__name__ == "Table" else batches
    return _named(label, data.schema.names, (cells for _, cells in arrow_rows(iter(batches))))  # type: ignore[misc]


def _dataset(label: str, data: Any) -> Table:
    """Return the table of a data set of the library ``datasets``."""
    if isinstance(data, Mapping):
        splits = ", ".join(map(repr, data))
        raise UserError(f"{label}: this has several splits; give one of them: {splits}")
    plain = data.with_format(None)
    if plain.column_names is None:  # of a stream, known when its rows arrive
        return _python_rows(label, iter(plain))

    def rows() -> Iterator[Sequence[object]]:
        for part in plain.iter(_BATCH):
            yield from zip(*(part[name] for name in plain.column_names), strict=True)

    return _named(label, plain.column_names, rows())


def _python_rows(label: str, rows: Iterator[Any]) -> Table:
    """Return the table of rows that are tuples, or dicts."""
    first = next(rows, None)
    keyed = isinstance(first, Mapping)
    if first is not None and not keyed and not _is_row(first):
        raise UserError(
            f"row 1 of {label}: of type {type(first).__name__}, but a row is a tuple (source, target) or a dict; "
            f"{_ACCEPTED}"
        )
    kind = "a dict" if keyed else "a tuple"

    def checked() -> Iterator[Row]:
        for number, row in enumerate(chain([] if first is None else [first], rows), 1):
            if (keyed and isinstance(row, Mapping)) or (not keyed and _is_row(row)):
                yield number, row
            else:
                yield number, Refusal("wrong_columns", f"of type {type(row).__name__}, not {kind} as the first row")

    description = f"rows in memory ({label.removeprefix('the ')})"
    return Table(label, IN_MEMORY, description, checked(), keyed=keyed, typed=True, unit="row", may_have_header=False)


def _is_row(row: object) -> bool:
    return isinstance(row, Sequence) and not isinstance(row, (str, bytes))
