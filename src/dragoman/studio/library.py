"""The runs that a studio shows.

Each is loaded when it is first needed, and again when its weights change.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

from dragoman.errors import UserError
from dragoman.inference.system import System
from dragoman.studio import records
from dragoman.studio.cache import ResultCache
from dragoman.studio.views.runs import WEIGHTS, describe_run

CACHED_RESULTS = 8  # searches and maps of a run, so that a tree needs no second search


class NotFound(UserError):
    """There is no such run or upload."""


@dataclass(frozen=True)
class LoadedRun:
    """A run's system, and the latest results that were computed with it.

    Both are safe to use from many threads: a system never changes, and the cache has a lock of its
    own. So requests about one run are answered side by side.
    """

    system: System
    modified: float  # modification time of the weights
    results: ResultCache = field(default_factory=lambda: ResultCache(CACHED_RESULTS))


@dataclass
class RunEntry:
    """A run of the library."""

    folder: Path
    loaded: LoadedRun | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)  # held while loading, so that a run is loaded once


class Library:
    """The runs by id.

    The id is the name of the folder, with a number if several folders have the same name.
    """

    def __init__(self, folders: Sequence[Path], device: str = "auto") -> None:
        self.device = device
        self.entries: dict[str, RunEntry] = {}
        for folder in folders:
            if not (folder / "config.json").exists():
                raise UserError(f"{folder}: not the folder of a run (it has no config.json)")
            name = folder.resolve().name
            names = chain([name], (f"{name}-{number}" for number in count(2)))
            self.entries[next(name for name in names if name not in self.entries)] = RunEntry(folder)

    def entry(self, identity: str) -> RunEntry:
        """Return the run with this id. Raise ``NotFound`` if there is none."""
        if identity not in self.entries:
            raise NotFound(f"there is no run {identity!r} here; the studio shows: {', '.join(self.entries)}")
        return self.entries[identity]

    def runs(self) -> list[records.Run]:
        """Describe the runs that can be read.

        A folder may have been moved or damaged since the studio started.
        """
        runs = []
        for name, entry in self.entries.items():
            with suppress(UserError):
                parameters = entry.loaded.system.model.parameters_count if entry.loaded else None
                runs.append(describe_run(entry.folder, name, parameters))
        return runs

    def load(self, identity: str) -> LoadedRun:
        """Return a run that is ready to answer.

        It is loaded if need be, and again if its weights have changed.
        """
        entry = self.entry(identity)
        path = entry.folder / WEIGHTS
        with entry.lock:
            if not path.exists():
                raise UserError(f"{identity}: has no weights yet; training writes them at its end")
            modified = path.stat().st_mtime
            if entry.loaded is None or modified != entry.loaded.modified:
                entry.loaded = LoadedRun(System.load(entry.folder, self.device), modified)
            return entry.loaded

    def system(self, identity: str) -> System:
        """Return the system of a run, loaded if need be."""
        return self.load(identity).system
