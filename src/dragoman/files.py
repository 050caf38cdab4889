"""Files that are either the old version or the new one, never half of either."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write beside ``path``, force it to disk, then rename over it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    with open(temporary, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def write_tensors(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    from safetensors.torch import save

    write_atomically(path, save(dict(tensors), dict(metadata or {})))
