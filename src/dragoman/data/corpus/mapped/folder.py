"""The folder of a prepared corpus: what it was made of, and what is remembered in it.

``corpus.json`` is written last: a folder without it is not complete, and is made again. It lists
the input files with their sizes and times, and the settings that they were read with. If one of
these has changed, the corpus is made again. Only files that are named as this package names them
are ever deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dragoman.data.corpus.mapped.rows import SHARD
from dragoman.data.options import DataConfig
from dragoman.errors import UserError
from dragoman.files import delete_files, exclusive_lock, is_link, read_json, write_json

MANIFEST = "corpus.json"
MEMORY = "memory.json"
FIT = "fit.json"
TOKENS = "tokens"  # a folder in it
FORMAT = 1
OWN = re.compile(
    r"(corpus|memory|fit|.*\.tokenizer)\.json|\.?(texts|column-\d+)-\d{5,}\.(bin|npz|ids)(\.\d+)?|(sources|pairs)\.u64|"
    r".*\.spm|tokens|\..*\.partial"
)
NOT_READING = {
    "store",
    "cache",
    "dev_share",
    "test_share",
    "held_out_limit",
    "augment",
}  # settings that do not change the rows

Progress = Callable[[str, int, int | None], None]  # stage, rows done, rows in all if known


def silent(stage: str, done: int, total: int | None) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where rows are put that are too many for memory, and who is told of the progress.

    Without a folder, they are put into a temporary one, which is deleted when the rows are not
    needed any more. ``writes``: a folder that is there is read, but nothing is written to it.
    """

    folder: Path | None = None
    progress: Progress = silent
    writes: bool = True


class CorpusFolder:
    """The folder of one prepared corpus, which no other process may use at the same time."""

    def __init__(self, path: Path, inputs: Mapping[str, Any], progress: Progress) -> None:
        self.path, self.inputs, self.progress = path, dict(inputs), progress
        self._lock = ExitStack()
        self._lock.enter_context(exclusive_lock(path))
        weakref.finalize(self, self._lock.close)

    @property
    def manifest(self) -> dict[str, Any] | None:
        """What was recorded when the corpus was complete, if it was made of the same inputs."""
        if not (self.path / MANIFEST).exists():
            return None
        manifest = read_json(self.path / MANIFEST, advice="delete it, and the corpus is prepared again")
        return manifest if manifest.get("inputs") == self.inputs else None

    def complete(self, record: Mapping[str, Any]) -> None:
        """Record that the corpus is complete."""
        write_json(self.path / MANIFEST, {"inputs": self.inputs, **record})

    def clear(self) -> None:
        """Delete an older corpus, so that a new one can be written. Refuse files of other people."""
        others = sorted(name for name in os.listdir(self.path) if not OWN.fullmatch(name))
        if others:
            raise UserError(
                f"{self.path}: holds files that belong to no prepared corpus ({', '.join(others[:3])}); move them "
                "away, or choose another --out"
            )
        delete_files(self.path, [MANIFEST])  # first: what is left is not complete
        _delete_own(self.path)

    def remember(self, name: str, settings: object, compute: Callable[[], Any]) -> Any:
        """Return what ``compute`` returned for the same settings, now or earlier: a value for JSON."""
        path = self.path / MEMORY
        known = read_json(path, advice="delete it, and it is made again") if path.exists() else {}
        key = digest(settings)
        entry = known.get(name, {})
        if entry.get("settings") != key:
            entry = {"settings": key, "value": compute()}
            write_json(path, {**known, name: entry})
        return entry["value"]

    def tokens(self, settings: object) -> Path:
        """Return the folder for the tokens of a fit with these settings, emptied of those of others."""
        folder, key = self.path / TOKENS, digest(settings)
        if is_link(folder):
            raise UserError(f"{folder}: a link, not a folder of this corpus; remove it")
        if not _has_key(folder, key):
            if folder.exists():
                _delete_own(folder, own=1)
            write_json(folder / FIT, {"key": key}, own=1)
        return folder

    def remember_fit(self, folder: Path, notes: Sequence[str] | None = None) -> list[str] | None:
        """Record that the tokenisers are in the folder, or return the notes if they are."""
        record = read_json(folder / FIT, advice="delete it, and it is made again")
        if notes is None:
            found = record.get("notes")
            return None if found is None else [str(note) for note in found]
        write_json(folder / FIT, {**record, "notes": list(notes)}, own=1)
        return None


def _has_key(folder: Path, key: str) -> bool:
    path = folder / FIT
    return path.exists() and read_json(path, advice="delete it, and it is made again").get("key") == key


def _delete_own(folder: Path, own: int = 0) -> None:
    """Delete the files of a corpus, and links that have their names. ``own`` is as for ``write_run_file``."""
    names = [name for name in sorted(os.listdir(folder)) if OWN.fullmatch(name)]
    tokens = folder / TOKENS
    if TOKENS in names and tokens.is_dir() and not is_link(tokens):
        _delete_own(tokens, own + 1)
        with suppress(OSError):  # files of other people are in it
            tokens.rmdir()
        names.remove(TOKENS)
    delete_files(folder, names, own=own)


def digest(value: object) -> str:
    """Return a digest of plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def describe_inputs(paths: Sequence[str | Path], config: DataConfig, kinds: Mapping[str, str]) -> dict[str, Any] | None:
    """Return what a corpus is made of; None where that cannot be told later, as of standard input."""
    files = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            return None
        files.append([os.path.realpath(path), status.st_size, status.st_mtime_ns])
    try:
        program = version("dragoman")
    except PackageNotFoundError:  # a checkout that is not installed
        program = ""
    settings = config.model_dump(mode="json", exclude=NOT_READING)
    return {"format": [FORMAT, SHARD, program], "files": files, "settings": settings, "kinds": dict(kinds)}


def open_folder(workspace: Workspace, inputs: Mapping[str, Any] | None) -> CorpusFolder:
    """Open the folder of a workspace, or a temporary one where there is none or nothing to come back to."""
    if workspace.folder is None or inputs is None or not workspace.writes:
        path = Path(tempfile.mkdtemp(prefix="dragoman-"))
        folder = CorpusFolder(path, inputs or {}, workspace.progress)
        weakref.finalize(folder, shutil.rmtree, path, ignore_errors=True)
        return folder
    if workspace.folder.is_symlink() and not workspace.folder.is_dir():
        raise UserError(f"{workspace.folder}: a link that leads nowhere; remove it")
    workspace.folder.mkdir(parents=True, exist_ok=True)
    return CorpusFolder(workspace.folder, inputs, workspace.progress)


def find_complete(workspace: Workspace, inputs: Mapping[str, Any] | None) -> CorpusFolder | None:
    """Return the folder of a corpus that was prepared from the same inputs, if there is one."""
    if workspace.folder is None or inputs is None or not (workspace.folder / MANIFEST).exists():
        return None
    folder = CorpusFolder(workspace.folder, inputs, workspace.progress)
    return folder if folder.manifest is not None else None
