"""The runs that a studio shows: loaded when first asked for, and again when their weights change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

from dragoman.errors import UserError
from dragoman.studio import history, records
from dragoman.system import System

KEPT = 8  # searches and maps that are remembered, so that a tree needs no second search


class Unknown(UserError):
    """There is no such run or upload."""


@dataclass
class Entry:
    folder: Path
    lock: threading.RLock = field(default_factory=threading.RLock)
    system: System | None = None
    loaded: float = 0.0  # when the weights that are loaded were written
    parameters: int | None = None


class Library:
    def __init__(self, folders: Sequence[Path], device: str = "auto") -> None:
        self.device = device
        self.entries: dict[str, Entry] = {}
        self._remembered: OrderedDict[tuple[str, Hashable], Any] = OrderedDict()
        self._guard = threading.Lock()  # runs have locks of their own, but share what is remembered
        for folder in folders:
            if not (folder / "config.json").exists():
                raise UserError(f"{folder}: not the folder of a run (there is no config.json in it)")
            name = folder.resolve().name
            names = chain([name], (f"{name}-{number}" for number in count(2)))
            self.entries[next(one for one in names if one not in self.entries)] = Entry(folder)

    def entry(self, identity: str) -> Entry:
        if identity not in self.entries:
            raise Unknown(f"there is no run {identity!r} here; the studio shows: {', '.join(self.entries)}")
        return self.entries[identity]

    def runs(self) -> list[records.Run]:
        """Those that can be read: a folder may have been moved away or damaged since."""
        found = []
        for name, entry in self.entries.items():
            with suppress(UserError):
                found.append(history.run(entry.folder, name, entry.parameters))
        return found

    def system(self, identity: str) -> System:
        """Hold the entry's lock while it is used."""
        entry = self.entry(identity)
        path = entry.folder / history.WEIGHTS
        with entry.lock:
            if not path.exists():
                raise UserError(f"{identity}: has no weights yet; training writes them at its end")
            written = path.stat().st_mtime
            if entry.system is None or written != entry.loaded:
                entry.system, entry.loaded = System.load(entry.folder, self.device), written
                entry.parameters = entry.system.model.parameters_count
                self.forget(identity)
            return entry.system

    def remember(self, identity: str, key: Hashable, value: Any) -> None:
        with self._guard:
            self._remembered[identity, key] = value
            while len(self._remembered) > KEPT:
                self._remembered.popitem(last=False)

    def recall(self, identity: str, key: Hashable) -> Any:
        return self._remembered.get((identity, key))

    def forget(self, identity: str) -> None:
        with self._guard:
            for key in [key for key in self._remembered if key[0] == identity]:
                del self._remembered[key]
