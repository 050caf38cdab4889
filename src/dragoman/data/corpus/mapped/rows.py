"""Rows in shards on disk: the UTF-8 of all cells, where each ends, and the line of each row.

A shard is two files: ``texts-N.bin``, and ``texts-N.npz`` with arrays.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, cast, overload

import numpy as np

from dragoman.data.corpus.blocks import blocks, gather
from dragoman.data.examples import Example, Unit
from dragoman.files import write_run_file

if TYPE_CHECKING:
    from dragoman.data.audit.text_statistics import TextStatistics
    from dragoman.data.corpus.mapped.folder import CorpusFolder

SHARD = 1 << 16  # rows
SOURCES, PAIRS = "sources.u64", "pairs.u64"  # files with the digests of all rows

Cells = tuple[str, ...]  # the sources in order, then the target


@dataclass(frozen=True, slots=True)
class RowLayout:
    """What all rows have in common."""

    folder: Path
    names: tuple[str, ...]  # of the sources
    files: tuple[str, ...] = ()  # those that the rows come from
    units: tuple[Unit, ...] = ()  # what the rows of each file are counted by

    @property
    def order(self) -> list[int]:
        """Return the cells of the sources, in the order of their names."""
        return sorted(range(len(self.names)), key=self.names.__getitem__)


def write_shard(layout: RowLayout, shard: int, cells: Sequence[Cells], lines: Sequence[int], files: np.ndarray) -> None:
    """Write the rows of one shard. ``files``: the number of the file of each row."""
    encoded = [cell.encode("utf-8", "surrogatepass") for row in cells for cell in row]
    path = _path(layout.folder, shard)
    write_run_file(path.with_suffix(".bin"), b"".join(encoded))
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    stream = io.BytesIO()
    np.savez(stream, ends=ends, lines=np.asarray(lines, dtype=np.int64), files=files)
    write_run_file(path.with_suffix(".npz"), stream.getvalue())


def read_shard(layout: RowLayout, shard: int) -> list[Cells]:
    """Return the cells of all rows of one shard."""
    path = _path(layout.folder, shard)
    blob = path.with_suffix(".bin").read_bytes()
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        ends = arrays["ends"].tolist()
    width = len(layout.names) + 1
    if blob.isascii():
        text = blob.decode("ascii")
        texts = [text[begin:end] for begin, end in pairwise(ends)]
    else:
        texts = [blob[begin:end].decode("utf-8", "surrogatepass") for begin, end in pairwise(ends)]
    return list(zip(*(texts[column::width] for column in range(width)), strict=True))


def _path(folder: Path, shard: int) -> Path:
    return folder / f"texts-{shard:05d}"


class _OpenShard:
    """One shard, mapped into memory."""

    def __init__(self, layout: RowLayout, shard: int) -> None:
        path = _path(layout.folder, shard)
        with open(path.with_suffix(".bin"), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self.texts = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
            self.ends, self.lines, self.files = arrays["ends"], arrays["lines"], arrays["files"]

    def example(self, layout: RowLayout, row: int) -> Example:
        width = len(layout.names) + 1
        ends = self.ends[row * width : (row + 1) * width + 1].tolist()
        cells = [self.texts[begin:end].decode("utf-8", "surrogatepass") for begin, end in pairwise(ends)]
        sources = dict(zip(layout.names, cells, strict=False))
        file = int(self.files[row])
        return Example(sources, cells[-1], int(self.lines[row]), layout.files[file], layout.units[file])


class MappedRows(Sequence[Example]):
    """Rows on disk, or some of them in their order."""

    def __init__(
        self,
        layout: RowLayout,
        stored: int,
        folder: CorpusFolder,
        statistics: Mapping[str, TextStatistics],
        chosen: np.ndarray | None = None,
    ) -> None:
        """``stored``: the rows on disk. ``statistics``: of all of these, by side.

        ``chosen``: the numbers of the rows, ascending; by default, all.
        """
        self.layout, self.stored, self.folder, self.chosen = layout, stored, folder, chosen
        self.statistics = statistics
        self._open: dict[int, _OpenShard] = {}  # the last few

    def __len__(self) -> int:
        return self.stored if self.chosen is None else len(self.chosen)

    @property
    def shards(self) -> int:
        """The number of shards."""
        return -(-self.stored // SHARD)

    @overload
    def __getitem__(self, row: int) -> Example: ...
    @overload
    def __getitem__(self, row: slice) -> list[Example]: ...
    def __getitem__(self, row: int | slice) -> Example | list[Example]:
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(len(self)))]
        number = range(len(self))[row]
        if self.chosen is not None:
            number = int(self.chosen[number])
        shard, within = divmod(number, SHARD)
        if shard not in self._open:
            self._open = {**dict(list(self._open.items())[-3:]), shard: _OpenShard(self.layout, shard)}
        return self._open[shard].example(self.layout, within)

    def __iter__(self) -> Iterator[Example]:
        return (self[row] for row in range(len(self)))

    def select(self, rows: np.ndarray) -> MappedRows:
        """Return some of these rows. ``rows``: their numbers, ascending."""
        chosen = rows if self.chosen is None else self.chosen[rows]
        narrow = np.uint32 if self.stored < 1 << 32 else np.int64
        return MappedRows(self.layout, self.stored, self.folder, self.statistics, np.asarray(chosen, dtype=narrow))

    @property
    def identity(self) -> str:
        """What tells these rows from others of the same files."""
        digest = hashlib.blake2b(digest_size=16)
        for block in blocks(0 if self.chosen is None else len(self)):
            digest.update(cast(np.ndarray, self.chosen)[block].astype(np.int64).tobytes())
        return digest.hexdigest()

    @property
    def sources(self) -> np.ndarray:
        """The digests of the sources of these rows, read anew."""
        return self._read_digests(SOURCES)

    @property
    def pairs(self) -> np.ndarray:
        """The digests of these rows, read anew."""
        return self._read_digests(PAIRS)

    def _read_digests(self, name: str) -> np.ndarray:
        digests = np.fromfile(self.layout.folder / name, dtype=np.uint64)
        return digests if self.chosen is None else gather(digests, self.chosen)

    def chosen_within(self, shard: int) -> np.ndarray | None:
        """Return which rows of a shard are among these, counted from its begin; None: all."""
        if self.chosen is None:
            return None
        begin, end = (bisect_left(self.chosen, edge) for edge in (shard * SHARD, (shard + 1) * SHARD))
        within: np.ndarray = self.chosen[begin:end] - shard * SHARD
        return within


def sample_numbers(rows: int, most: int) -> list[int]:
    """Return at most ``most`` row numbers, evenly spaced."""
    return list(range(rows)) if rows <= most else [index * rows // most for index in range(most)]
