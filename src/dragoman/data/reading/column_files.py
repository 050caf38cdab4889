"""Tables in files with columns and types: Parquet, Arrow and Feather, Excel.

Their libraries are imported when such a file is read. Nothing in a file is executed: Excel's
formulas are read as the values that they had when the file was saved.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

from dragoman.data.audit.audit import Refusal
from dragoman.data.reading.lines import label
from dragoman.data.reading.table import Row, Table
from dragoman.errors import MissingExtra, UserError
from dragoman.files import open_regular

_BATCH = 1024  # rows in memory at a time
_MARKS = {b"PAR1": "parquet", b"ARROW1": "arrow", b"FEA1": "arrow"}
_SUFFIXES = {
    ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".xlsx": "xlsx",
    ".xlsm": "xlsx",
}  # fmt: skip
FORMATS = ("parquet", "arrow", "xlsx")
_UNPACKED = 1 << 30  # bytes; the most that the parts of a workbook may have together


def column_format(path: str | Path) -> str | None:
    """Return the format of a file with columns and types, by its first bytes or its name; None for text."""
    if str(path) == "-" or "\x00" in str(path):
        return None
    try:
        with open_regular(path) as file:
            head = file.read(8)
    except (OSError, UserError):
        return None  # whoever opens it as text says why
    for mark, format in _MARKS.items():
        if head.startswith(mark):
            return format
    known = _SUFFIXES.get(Path(path).suffix.lower())
    return known if known != "xlsx" or head.startswith(b"PK") else None


def column_table(path: str | Path, format: str) -> Table:
    """Open a file with columns and types."""
    if str(path) == "-":
        raise UserError(f"<stdin>: data.format={format} cannot be read from standard input; give a file")
    if format == "xlsx":
        return _workbook_table(path)
    return _parquet_table(path) if format == "parquet" else _arrow_table(path)


@contextmanager
def _explained(path: str | Path, noun: str) -> Iterator[None]:
    """Report what a library finds wrong with a file in a sentence."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{label(path)}: no such file; check the name and the folder") from None
    except IsADirectoryError:
        raise UserError(f"{label(path)}: this is a folder; give the file in it") from None
    except PermissionError:
        raise UserError(f"{label(path)}: no permission to read this file") from None
    except UserError:
        raise
    except Exception as error:  # a damaged file makes these libraries raise whatever comes, or ask for all memory
        reason = " ".join(str(error).split()) or type(error).__name__
        reason = reason if len(reason) <= 120 else reason[:119] + "…"
        raise UserError(f"{label(path)}: cannot be read as {noun} ({reason}); write the file again") from None


# ---- Parquet and Arrow


def _parquet_table(path: str | Path) -> Table:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise MissingExtra("pyarrow", "tables", f"{label(path)}: reading Parquet files") from None

    with _explained(path, "Parquet"):
        file = parquet.ParquetFile(path)
        names = tuple(file.schema_arrow.names)

    def rows() -> Iterator[Row]:
        with _explained(path, "Parquet"), file:
            yield from arrow_rows(file.iter_batches(_BATCH))

    return Table(label(path), "parquet", "Parquet", rows(), names, typed=True, unit="row", may_have_header=False)


def _arrow_table(path: str | Path) -> Table:
    try:
        import pyarrow
        from pyarrow import feather, ipc
    except ImportError:
        raise MissingExtra("pyarrow", "tables", f"{label(path)}: reading Arrow files") from None

    with _explained(path, "Arrow"):
        with open_regular(path) as file:
            mark = file.read(8)
        if mark.startswith(b"FEA1"):  # the first version of Feather, which cannot be streamed
            table = feather.read_table(path, memory_map=False)
            names, batches = tuple(table.column_names), iter(table.to_batches(_BATCH))
        elif mark.startswith(b"ARROW1"):
            reader = ipc.open_file(pyarrow.OSFile(os.fspath(path)))
            names = tuple(reader.schema.names)
            batches = (reader.get_batch(index) for index in range(reader.num_record_batches))
        else:
            stream = ipc.open_stream(pyarrow.OSFile(os.fspath(path)))
            names, batches = tuple(stream.schema.names), iter(stream)

    def rows() -> Iterator[Row]:
        with _explained(path, "Arrow"):
            yield from arrow_rows(batches)

    return Table(label(path), "arrow", "Arrow", rows(), names, typed=True, unit="row", may_have_header=False)


def arrow_rows(batches: Iterator[Any]) -> Iterator[Row]:
    """Yield the rows of record batches of Arrow, whose buffers are checked first."""
    number = 0
    for batch in batches:
        batch.validate(full=True)
        for cells in zip(*(_arrow_cells(column) for column in batch.columns), strict=True):
            number += 1
            yield number, cells


def _arrow_cells(column: Any) -> list[object]:
    """Return the values of a column; floats of few bits as numpy has them, which know their own digits."""
    import pyarrow

    if pyarrow.types.is_float16(column.type) or pyarrow.types.is_float32(column.type):
        return list(column.to_numpy(zero_copy_only=False))
    if pyarrow.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pyarrow.timestamp("us", column.type.tz), safe=False)  # Python has no nanoseconds
    values: list[object] = column.to_pylist()
    return values


# ---- Excel


def _workbook_table(path: str | Path) -> Table:
    """Open the first sheet of a workbook."""
    try:
        import openpyxl
    except ImportError:
        raise MissingExtra("openpyxl", "tables", f"{label(path)}: reading Excel files") from None

    with _explained(path, "Excel"):
        _check_size(path, os.path.getsize(path))
        content = io.BytesIO(Path(path).read_bytes())  # so that no file stays open
        with zipfile.ZipFile(content) as archive:
            _check_size(path, sum(member.file_size for member in archive.infolist()))
        book = openpyxl.load_workbook(content, read_only=True, data_only=True, keep_links=False)
        sheets = book.worksheets
        if not sheets:
            raise UserError(f"{label(path)}: this workbook has no sheet with cells")

    def rows() -> Iterator[Row]:
        with _explained(path, "Excel"):
            try:
                yield from _sheet_rows(sheets[0])
            finally:
                book.close()

    others = f", the first of {len(sheets)} sheets; the others are not read" if len(sheets) > 1 else ""
    description = f"Excel, sheet {sheets[0].title!r}{others}"
    return Table(label(path), "xlsx", description, rows(), typed=True, unit="row")


def _check_size(path: str | Path, size: int) -> None:
    if size > _UNPACKED:
        raise UserError(
            f"{label(path)}: unpacked, this workbook has {size >> 20:,} MB, over the limit of {_UNPACKED >> 20:,}; "
            "save it as CSV"
        )


def _sheet_rows(sheet: Any) -> Iterator[Row]:
    """Yield the rows of a sheet, filled up to the width of the widest of its first rows."""
    rows = _stripped_rows(sheet)
    head = list(islice(rows, _BATCH))
    width = max((len(cells) for _, cells in head if not isinstance(cells, Refusal)), default=0)
    for number, cells in chain(head, rows):
        yield number, cells if isinstance(cells, Refusal) else [*cells, *[None] * (width - len(cells))]


def _stripped_rows(sheet: Any) -> Iterator[tuple[int, list[object] | Refusal]]:
    """Yield the rows of a sheet without the empty cells at their ends. Blank rows at its end are none."""
    blank: list[int] = []
    for number, values in enumerate(sheet.iter_rows(values_only=True), 1):
        cells = list(values)
        while cells and (cells[-1] is None or cells[-1] == ""):
            cells.pop()
        if not cells:
            blank.append(number)
            continue
        yield from ((empty, Refusal("blank_line", "nothing in this row")) for empty in blank)
        blank.clear()
        yield number, cells
