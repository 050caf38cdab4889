"""Processes that read files ahead of need, so that training does not wait for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dragoman.data.corpus.columns import EpochSeed, FileColumn
from dragoman.data.corpus.processes import Workers
from dragoman.types import PaddedArrays

Request: TypeAlias = tuple[Sequence[int], EpochSeed]  # rows, and how they are augmented
Loaded: TypeAlias = dict[str, PaddedArrays]  # by source


@dataclass(frozen=True)
class ReadColumns:
    """What a process does: pad the rows of each column."""

    columns: Mapping[str, FileColumn]

    def __call__(self, request: Request) -> Loaded:
        rows, epoch_seed = request
        return {name: column.padded(rows, epoch_seed) for name, column in self.columns.items()}


class Readers:
    """``count`` processes that read the files of ``columns``."""

    def __init__(self, columns: Mapping[str, FileColumn], count: int) -> None:
        self._workers = Workers(
            ReadColumns(dict(columns)),
            count,
            purpose="reads files",
            remedy="--set training.loaders=0 reads them in the training process",
        )
        self.processes = self._workers.processes

    def run(self, requests: Iterable[Request]) -> Iterator[Loaded]:
        """Yield what each request reads, in their order."""
        return self._workers.map(requests)

    def close(self) -> None:
        """End the processes."""
        self._workers.close()
