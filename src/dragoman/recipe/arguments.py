"""The settings that arguments of a call, or options of a command, stand for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.config import merge
from dragoman.errors import UserError


def data_settings(source: Any = None, target: Any = None, root: str | Path | None = None) -> dict[str, Any]:
    """Return the settings of the data that ``source``, ``target`` and ``root`` stand for."""
    given = {"source": source, "target": target, "root": None if root is None else os.fspath(root)}
    settings = {name: value for name, value in given.items() if value is not None}
    if isinstance(source, tuple):
        settings["source"] = list(source)
    return settings


def with_arguments(settings: Mapping[str, Any], **sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with those of a call's arguments above them, by section. None: nothing was given."""
    merged = dict(settings)
    for section, options in sections.items():
        values = {name: value for name, value in options.items() if value is not None}
        if values and isinstance(merged.get(section, {}), Mapping):  # the recipe refuses a section that is no table
            merged = merge(merged, {section: values})
    return merged


def run_path(run: Any, argument: str) -> str | None:
    """Return the folder of a run that an argument names, as a string."""
    if run is None:
        return None
    if not isinstance(run, (str, os.PathLike)):
        raise UserError(f"{argument} is the folder of a run; got {type(run).__name__}")
    return os.fspath(run)
