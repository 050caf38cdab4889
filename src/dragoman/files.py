"""Files that are either the old version or the new one, never half of either."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dragoman.errors import UserError


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write beside ``path``, force it to disk, then rename over it."""
    refuse_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    with open(temporary, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def refuse_folder(path: Path) -> None:
    if not path.name or path.is_dir():
        raise UserError(f"{path}: this is a folder; give the name of a file to write")


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def write_tensors(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    from safetensors.torch import save

    write_atomically(path, save(dict(tensors), dict(metadata or {})))


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """No other process that asks this is let in until this one is done, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # a system without such locks
        yield
        return
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise UserError(
            f"{folder}: another training is at work here; wait until it is done, or choose another --out"
        ) from None
    except OSError:  # a file system without them
        pass
    try:
        yield
    finally:
        os.close(held)
