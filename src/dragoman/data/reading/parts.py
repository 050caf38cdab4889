"""The files that the data is in: one, several with the same columns, or two parallel ones.

One argument is a file, or a pattern such as ``part-*.tsv.gz`` for several. Tables are read one
after the other, and so are the texts of a language model. Two other arguments are parallel: source
and target, or a pattern for each.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from dragoman.data.options import DataConfig
from dragoman.data.reading.lines import label
from dragoman.data.reading.rows import TABLE_SUFFIXES
from dragoman.data.reading.text_files import suffix
from dragoman.errors import UserError

Part: TypeAlias = "tuple[str | Path, ...]"  # one file, or a source and a target


def find_parts(paths: Sequence[str | Path], config: DataConfig) -> list[Part]:
    """Return the parts of the data, in the order in which they are read."""
    if not paths:
        raise UserError("no file given; give one table, or two parallel text files (source, target)")
    expanded = [_expand(path) for path in paths]
    names = [label(path) for files in expanded for path in files]
    twice = next((name for name in names if names.count(name) > 1), None) if len(names) < 10_000 else None
    if twice is not None:
        raise UserError(f"{twice}: given twice; give different files")
    if not _are_parallel(paths, config):
        return [(path,) for files in expanded for path in files]
    sources, targets = expanded
    if len(sources) != len(targets):
        raise UserError(
            f"{label(paths[0])}: {len(sources):,} files, but {label(paths[1])}: {len(targets):,}; each source needs "
            "its target"
        )
    return list(zip(sources, targets, strict=True))


def _are_parallel(paths: Sequence[str | Path], config: DataConfig) -> bool:
    """Tell whether two arguments are source and target; refuse what does not fit the format."""
    if config.format == "parallel" and len(paths) != 2:
        raise UserError(f"{label(paths[0])}: data.format=parallel needs two files: source, target")
    if config.format == "parallel" and config.is_plain:
        raise UserError(
            f"{label(paths[0])}, {label(paths[1])}: parallel files are a source and a target, but a language model has "
            "no source"
        )
    if len(paths) != 2 or config.is_plain:
        return False
    return config.format == "parallel" or (
        config.format == "auto" and not all(suffix(path) in TABLE_SUFFIXES for path in paths)
    )


def _expand(path: str | Path) -> list[str | Path]:
    """Return the files of a pattern in the order of their names, or the path itself."""
    text = str(path)
    if not glob.has_magic(text) or os.path.exists(text) or text == "-":
        return [path]
    files: list[str | Path] = sorted(glob.glob(text))
    if not files:
        raise UserError(f"{label(path)}: no file has a name of this pattern; check it and the folder")
    return files
