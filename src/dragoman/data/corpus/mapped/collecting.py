"""Collect the usable rows of files: in memory, or on disk where they are many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dragoman.data.audit.text_statistics import TextCounts, TextStatistics
from dragoman.data.corpus.mapped.folder import CorpusFolder, Workspace, open_folder
from dragoman.data.corpus.mapped.rows import PAIRS, SHARD, SOURCES, Cells, MappedRows, RowLayout, write_shard
from dragoman.data.corpus.mapped.survey import WORDS, ShardSurvey, SurveyShard
from dragoman.data.corpus.processes import Workers, count_cores
from dragoman.data.examples import TARGET, Example, Unit
from dragoman.errors import UserError
from dragoman.files import DiskFull, append_bytes, force_file

MEMORY_ROWS = 500_000  # most rows that "auto" holds in memory


class RowCollector:
    """Takes the usable rows one after the other. ``close`` ends the processes that survey them."""

    def __init__(self, workspace: Workspace | None, inputs: Mapping[str, Any] | None, most: int = MEMORY_ROWS) -> None:
        """``most``: rows that are held in memory. Without a workspace, all are."""
        self.workspace, self.inputs, self.most = workspace, inputs, most
        self.names: tuple[str, ...] = ()
        self.files: list[str] = []
        self.units: list[Unit] = []
        self.examples: list[Example] = []
        self.disk: _DiskRows | None = None

    def begin_file(self, names: tuple[str, ...], file: str, unit: Unit) -> None:
        """Add a file. ``names``: of the sources, the same for all files."""
        self.names = names
        self.files.append(file)
        self.units.append(unit)

    def add(self, cells: Cells, line: int, file: int) -> None:
        """Add a row. ``file``: the number of its file."""
        if self.disk is not None:
            self.disk.add(cells, line, file)
            return
        sources = dict(zip(self.names, cells, strict=False))
        self.examples.append(Example(sources, cells[-1], line, self.files[file], self.units[file]))
        if self.workspace is not None and len(self.examples) > self.most:
            self._move_to_disk(self.workspace)

    def finish(self) -> Sequence[Example]:
        """Return all rows: a list, or ``MappedRows``."""
        return self.examples if self.disk is None else self.disk.finish(tuple(self.files), tuple(self.units))

    def close(self) -> None:
        """End the processes."""
        if self.disk is not None:
            self.disk.close()

    def _move_to_disk(self, workspace: Workspace) -> None:
        folder = open_folder(workspace, self.inputs)
        self.disk = _DiskRows(folder, RowLayout(folder.path, self.names))
        numbers = {file: number for number, file in enumerate(self.files)}
        for example in self.examples:
            self.disk.add((*example.sources.values(), example.target), example.line, numbers[example.file])
        self.examples = []


class _DiskRows:
    """Writes rows into shards, which other processes survey at once."""

    def __init__(self, folder: CorpusFolder, layout: RowLayout) -> None:
        folder.clear()
        self.folder, self.layout = folder, layout
        self.workers = Workers(SurveyShard(layout), max(1, count_cores() - 1))  # reading needs a core itself
        self.counts = {name: TextCounts(WORDS) for name in (*layout.names, TARGET)}
        self.cells: list[Cells] = []
        self.lines: list[int] = []
        self.file: list[int] = []
        self.shard = 0

    def add(self, cells: Cells, line: int, file: int) -> None:
        self.cells.append(cells)
        self.lines.append(line)
        self.file.append(file)
        if len(self.cells) == SHARD:
            self._write()

    def finish(self, files: tuple[str, ...], units: tuple[Unit, ...]) -> MappedRows:
        stored = self.shard * SHARD + len(self.cells)
        if self.cells:
            self._write()
        for survey in self.workers.finish():
            self._take(survey)
        self.close()
        for name in (SOURCES, PAIRS):
            force_file(self.folder.path / name)
        statistics = {name: counts.statistics() for name, counts in self.counts.items()}
        return open_rows(self.folder, replace(self.layout, files=files, units=units), stored, statistics)

    def close(self) -> None:
        self.workers.close()

    def _write(self) -> None:
        try:
            write_shard(self.layout, self.shard, self.cells, self.lines, np.array(self.file, dtype=np.int32))
        except (OSError, DiskFull) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise UserError(
                f"{self.folder.path}: the rows cannot be written ({reason}); they need about two times the space of "
                "the text; --set data.store=memory holds them in memory"
            ) from None
        for survey in self.workers.submit(self.shard):
            self._take(survey)
        self.shard += 1
        self.cells, self.lines, self.file = [], [], []
        self.folder.progress("reading and auditing", self.shard * SHARD, None)

    def _take(self, survey: ShardSurvey) -> None:
        for name, counts in survey.counts.items():
            self.counts[name].merge(counts)
        for name, digests in ((SOURCES, survey.sources), (PAIRS, survey.pairs)):
            append_bytes(self.folder.path / name, digests.tobytes())


def open_rows(
    folder: CorpusFolder, layout: RowLayout, stored: int, statistics: Mapping[str, TextStatistics]
) -> MappedRows:
    """Open rows on disk."""
    return MappedRows(layout, stored, folder, statistics)
