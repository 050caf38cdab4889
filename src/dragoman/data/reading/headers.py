"""Names of columns: usual ones, those in a header, and whether a first row is one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dragoman.data.media import recognise
from dragoman.data.reading.values import to_text

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
LONGEST_NAME = 40  # characters of a column's name; what is longer in a first line is data


def usual_column(names: Sequence[str], usual: frozenset[str]) -> int | None:
    """Return the column with a usual name for this side, if there is exactly one."""
    columns = [index for index, name in enumerate(names) if name.strip().casefold() in usual]
    return columns[0] if len(columns) == 1 else None


def as_names(cells: Iterable[object]) -> list[str]:
    """Return the cells of a first row as names of columns."""
    return [text.strip() if isinstance(text := to_text(cell, ""), str) else "" for cell in cells]


def look_like_names(cells: Sequence[object], below: Sequence[Sequence[object]]) -> bool:
    """Tell whether the cells of a first row could be names: short, distinct and not in their columns again."""
    names = as_names(cells)
    if len(set(names)) < len(names) or not all(
        0 < len(name) <= LONGEST_NAME and not name.isdecimal() for name in names
    ):
        return False
    return bool(below) and not any(row[at] == cell for row in below for at, cell in enumerate(cells) if at < len(row))


def is_header(rows: Sequence[Sequence[object]]) -> bool:
    """Tell whether the first of some rows is a header: by usual names, or because files are below it."""
    return _has_usual_names(rows) or _is_above_files(rows)


def _has_usual_names(rows: Sequence[Sequence[object]]) -> bool:
    """Tell whether the first row has usual names that do not occur below it."""
    cells = as_names(rows[0])
    source, target = usual_column(cells, SOURCE_NAMES), usual_column(cells, TARGET_NAMES)
    if source is None or target is None or len(rows) == 1:
        return False
    below = [row for row in rows[1:] if len(row) == len(cells)]
    return not any(row[at] == rows[0][at] for row in below for at in (source, target))


def _is_above_files(rows: Sequence[Sequence[object]]) -> bool:
    """Tell whether the first row has no path where the rows below have paths of files."""
    cells = as_names(rows[0])
    below = [row for row in rows[1:] if len(row) == len(cells)]
    files = file_columns(below, len(cells))
    return bool(files) and not any(set("./\\") & set(cells[column]) for column in files)


def file_columns(rows: Sequence[Sequence[object]], width: int) -> list[int]:
    """Return the columns whose values are paths of files."""
    values = ([row[column] for row in rows if isinstance(row[column], str)] for column in range(width))
    return [number for number, texts in enumerate(values) if recognise(texts)]  # type: ignore[arg-type]
