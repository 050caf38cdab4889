"""Token ids in shards on disk, made by several processes and mapped into memory.

A shard of a column is two files: ``column-C-N.ids`` with all ids in a row, of 16 or 32 bits, and
``column-C-N.npz`` with the place where each row ends. The sources are the first columns, the target
is the last.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np

from dragoman.data.corpus.blocks import gather
from dragoman.data.corpus.mapped.rows import SHARD, MappedRows, RowLayout, read_shard
from dragoman.data.corpus.processes import Workers
from dragoman.data.modality import Modality
from dragoman.data.tokenizers import Tokenizer
from dragoman.data.vocabulary import EOS, UNK
from dragoman.errors import UserError
from dragoman.files import write_run_file

Progress = Callable[[int, int], None]  # rows done, of how many


@dataclass(frozen=True, slots=True)
class TokenizeShard:
    """Tokenises the rows of a shard."""

    layout: RowLayout
    folder: Path
    modalities: Mapping[str, Modality]
    target: Tokenizer

    def __call__(self, shard: int) -> None:
        for column, texts in enumerate(zip(*read_shard(self.layout, shard), strict=True)):
            if column < len(self.layout.names):
                modality = self.modalities[self.layout.names[column]]
                rows = [modality.array(text) for text in texts]
            else:
                rows = [np.array([*self.target.encode(text), EOS]) for text in texts]
            ids = np.concatenate(rows)
            if len(ids) >= 1 << 31:
                raise UserError("the lines are too long to be held on disk; --set data.store=memory")
            ends = np.cumsum([0, *map(len, rows)], dtype=np.uint32)
            unknown = np.count_nonzero(ids == UNK)
            path = _path(self.folder, column, shard)
            stream = io.BytesIO()
            np.savez(stream, ends=ends, unknown=unknown)
            narrow = ids.astype(_id_type(self._size(column)))
            # the folder of tokens is the corpus's own; the file that says that a shard is there comes last
            write_run_file(path.with_suffix(".ids"), narrow.tobytes(), own=1, unique=True)
            write_run_file(path.with_suffix(".npz"), stream.getvalue(), own=1, unique=True)

    def _size(self, column: int) -> int:
        return column_sizes(self.layout, self.modalities, self.target)[column]


def column_sizes(layout: RowLayout, modalities: Mapping[str, Modality], target: Tokenizer) -> list[int]:
    """Return the size of each column's vocabulary."""
    tokenizers = [modalities[name].tokenizer for name in layout.names] + [target]
    return [tokenizer.size for tokenizer in tokenizers if tokenizer is not None]


def tokenize(
    rows: MappedRows, folder: Path, modalities: Mapping[str, Modality], target: Tokenizer, progress: Progress
) -> list[TokenRows]:
    """Tokenise all rows on disk and return the columns of ``rows``: the sources, then the target.

    Shards that an earlier call has finished are taken as they are.
    """
    layout = rows.layout
    last = len(layout.names)  # the column that is written last
    missing = [shard for shard in range(rows.shards) if not _path(folder, last, shard).with_suffix(".npz").exists()]
    done = rows.shards - len(missing)
    if missing:
        with Workers(TokenizeShard(layout, folder, modalities, target)) as workers:
            for _ in workers.map(missing):
                done += 1
                progress(min(done * SHARD, rows.stored), rows.stored)
    sizes = column_sizes(layout, modalities, target)
    return [TokenRows.open(folder, column, size, rows) for column, size in enumerate(sizes)]


class TokenRows(Sequence[np.ndarray]):
    """The token ids of some rows of one column, read when they are asked for."""

    def __init__(
        self, shards: Sequence[np.ndarray], ends: np.ndarray, chosen: np.ndarray | None, unknown: int = 0
    ) -> None:
        """``ends``: of each row within its shard. ``chosen``: the rows, ascending; by default, all."""
        self.shards, self.ends, self.chosen, self.unknown = shards, ends, chosen, unknown
        lengths = np.empty(len(ends), dtype=np.int32)  # those of a shard fit: it has 65,536 rows
        np.subtract(ends[1:], ends[:-1], out=lengths[1:].view(np.uint32))
        lengths[::SHARD] = ends[::SHARD]  # the first row of a shard begins at 0
        self.lengths = lengths if chosen is None else gather(lengths, chosen)

    @classmethod
    def open(cls, folder: Path, column: int, size: int, rows: MappedRows) -> TokenRows:
        """Map the shards of a column. ``size``: of its vocabulary."""
        shards, ends, unknown = [], np.empty(rows.stored, dtype=np.uint32), 0
        for shard in range(rows.shards):
            path = _path(folder, column, shard)
            with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
                within = arrays["ends"]
                unknown += int(arrays["unknown"])
            ends[shard * SHARD : shard * SHARD + len(within) - 1] = within[1:]
            shards.append(np.memmap(path.with_suffix(".ids"), dtype=_id_type(size), mode="r"))
        return cls(shards, ends, rows.chosen, unknown)

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, row: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, row: slice) -> list[np.ndarray]: ...
    def __getitem__(self, row: int | slice) -> np.ndarray | list[np.ndarray]:
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(len(self)))]
        number = row if self.chosen is None else int(self.chosen[row])
        end = int(self.ends[number])
        return self.shards[number // SHARD][end - int(self.lengths[row]) : end].astype(np.int64)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[row] for row in range(len(self)))

    def select(self, rows: np.ndarray) -> TokenRows:
        """Return some of these rows. ``rows``: their numbers, ascending."""
        return TokenRows(self.shards, self.ends, rows if self.chosen is None else self.chosen[rows], self.unknown)


class MappedStream:
    """The tokens of all rows of a column as one running text."""

    def __init__(self, rows: TokenRows) -> None:
        """``rows``: a piece of the text, from its first row on."""
        assert rows.chosen is None or rows.chosen[-1] == len(rows) - 1
        self.shards = rows.shards
        self.begins = np.cumsum([0, *map(len, self.shards)])
        self.tokens = int(rows.lengths.sum(dtype=np.int64))

    def __len__(self) -> int:
        return self.tokens

    def __getitem__(self, positions: np.ndarray) -> np.ndarray:
        shards = np.searchsorted(self.begins, positions, side="right") - 1
        found = np.empty(positions.shape, dtype=np.int64)
        for shard in np.unique(shards).tolist():
            here = shards == shard
            found[here] = self.shards[shard][positions[here] - self.begins[shard]]
        return found


def _path(folder: Path, column: int, shard: int) -> Path:
    return folder / f"column-{column}-{shard:05d}"


def _id_type(size: int) -> type[np.unsignedinteger]:
    return np.uint16 if size <= 1 << 16 else np.uint32
