"""The runs that a studio shows.

Each is loaded when it is first needed, and again when its weights change.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

from dragoman.errors import UserError
from dragoman.evaluation.run_data import find_data_files
from dragoman.inference.system import System
from dragoman.serving.queue import UNLIMITED, Job
from dragoman.studio import records
from dragoman.studio.cache import ResultCache
from dragoman.studio.views.runs import WEIGHTS, describe_run

CACHED_RESULTS = 12  # searches, maps and errors of a run, so that a tree needs no second search
WATCHED_DEPTH = 3  # folders of runs may be in folders: of seeds, of a sweep


def is_run(folder: Path) -> bool:
    """Tell whether a folder is that of a run."""
    return (folder / "config.json").is_file()


def _runs_below(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the run folders in a folder. Hidden folders and those of a run itself are not looked into."""
    with suppress(OSError):
        for inner in [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]:
            if is_run(inner):
                yield inner
            elif depth > 1:
                yield from _runs_below(inner, depth - 1)


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
    name: str  # for people: the name of the folder, or its path in a watched folder
    loaded: LoadedRun | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)  # held while loading, so that a run is loaded once


class Library:
    """The runs by id.

    The id is the name of the folder, with a number if several folders have the same name. A folder that is no run is
    watched: the runs in it, and those that are added later, belong to the library.
    """

    def __init__(self, folders: Sequence[Path], device: str = "auto") -> None:
        self.device = device
        self.entries: dict[str, RunEntry] = {}
        self.watched: list[Path] = []
        self._lock = threading.Lock()  # of the entries
        for folder in folders:
            if is_run(folder):
                self._add(folder, folder.resolve().name)
            elif folder.is_dir():
                self.watched.append(folder)
            else:
                raise UserError(f"{folder}: no such folder; give the folder of a run, or a folder of runs")
        self.find_runs()

    def find_runs(self) -> None:
        """Add the runs that are new in the watched folders."""
        with self._lock:
            known = {entry.folder.resolve() for entry in self.entries.values()}
            for root in self.watched:
                for folder in sorted(_runs_below(root, WATCHED_DEPTH)):
                    if folder.resolve() not in known:
                        self._add(folder, folder.relative_to(root).as_posix())

    def _add(self, folder: Path, name: str) -> None:
        wanted = name.replace("/", "_")  # an id is one part of an address
        ids = chain([wanted], (f"{wanted}-{number}" for number in count(2)))
        self.entries[next(each for each in ids if each not in self.entries)] = RunEntry(folder, name)

    def entry(self, identity: str) -> RunEntry:
        """Return the run with this id. Raise ``NotFound`` if there is none."""
        if identity not in self.entries:
            self.find_runs()
        if identity not in self.entries:
            raise NotFound(f"there is no run {identity!r} here; the studio shows: {', '.join(self.entries)}")
        return self.entries[identity]

    def runs(self) -> list[records.Run]:
        """Describe the runs that can be read, with new ones in the watched folders.

        A folder may have been moved or damaged since the studio started.
        """
        self.find_runs()
        runs = []
        for identity, entry in list(self.entries.items()):
            with suppress(UserError):
                parameters = entry.loaded.system.model.parameters_count if entry.loaded else None
                runs.append(describe_run(entry.folder, identity, parameters, entry.name))
        return runs

    def load(self, identity: str, job: Job = UNLIMITED) -> LoadedRun:
        """Return a run that is ready to answer.

        It is loaded if need be, and again if its weights have changed; ``job`` lets others compute meanwhile.
        """
        entry = self.entry(identity)
        path = entry.folder / WEIGHTS
        loaded, modified = entry.loaded, self._modified(identity, path)
        if loaded is not None and modified == loaded.modified:
            return loaded
        with job.paused(), entry.lock:
            modified = self._modified(identity, path)
            if entry.loaded is None or modified != entry.loaded.modified:
                entry.loaded = LoadedRun(System.load(entry.folder, self.device), modified)
            return entry.loaded

    @staticmethod
    def _modified(identity: str, weights: Path) -> float:
        if not weights.exists():
            raise UserError(f"{identity}: has no weights yet; training writes them at its end")
        return weights.stat().st_mtime

    def system(self, identity: str, job: Job = UNLIMITED) -> System:
        """Return the system of a run, loaded if need be."""
        return self.load(identity, job).system

    def folders(self) -> Iterator[Path]:
        """Yield the folders whose files the studio may read: those of the runs and of their data."""
        yield from (folder.resolve() for folder in self.watched)
        for entry in list(self.entries.values()):
            yield entry.folder.resolve()
            with suppress(UserError):
                for files in find_data_files(entry.folder).values():
                    yield from (Path(file).parent for file in files)
