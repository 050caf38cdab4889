"""Read and write files; a file is the old version or the new one, never half of either."""

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
    with naming(path):
        try:
            with open(temporary, "wb") as file:
                file.write(data.encode() if isinstance(data, str) else data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:  # a full disk needs no half of a file
            temporary.unlink(missing_ok=True)
            raise
        os.replace(temporary, path)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Make an error that names no file, such as that of a full disk, name this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def refuse_folder(path: Path) -> None:
    """Raise an error where a file is to be written, but ``path`` is a folder."""
    if not path.name or path.is_dir():
        raise UserError(f"{path}: this is a folder; give the name of a file to write")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON."""
    write_atomically(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def read_json(
    path: Path,
    missing: str = "no such file; is this the folder of a run?",
    advice: str = "train again, or restore the file",
) -> dict[str, Any]:
    """Return the JSON object of a file of a run, or raise an error that names the file.

    ``missing``: what the error says where there is no such file; ``advice``: where it is damaged.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path}: {missing}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:  # neither UTF-8 nor JSON, or nested without end
        raise damaged_file(path, f"not valid JSON: {error}", advice) from None
    if not isinstance(value, dict):
        raise damaged_file(path, "not a JSON object", advice)
    return value


def damaged_file(path: Path, problem: object, advice: str = "train again, or restore the file") -> UserError:
    """Return the error for a file of a run that does not hold what was written to it."""
    return UserError(f"{path}: damaged ({problem}); {advice}")


def write_tensors(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors as safetensors."""
    from safetensors.torch import save

    write_atomically(path, save(dict(tensors), dict(metadata or {})))


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[int | None]:
    """Keep other processes that ask for this lock out of the folder, until this one leaves or dies.

    The value is a descriptor: a child process that inherits it holds the lock too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # a system without such locks
        yield None
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UserError(
            f"{folder}: another training is at work here; wait until it is done, or choose another --out"
        ) from None
    except OSError:  # a file system without such locks
        pass
    try:
        yield descriptor
    finally:
        os.close(descriptor)
