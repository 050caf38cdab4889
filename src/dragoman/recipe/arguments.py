"""The settings that arguments of a call, or options of a command, stand for."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from dragoman.config import merge, nearest
from dragoman.errors import UserError

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


def with_known_arguments(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Return the function so that an argument that it does not have is refused with the nearest that it has."""
    known = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*arguments: Arguments.args, **named: Arguments.kwargs) -> Returned:
        for name in named:
            if name not in known:
                raise UserError(f"{function.__name__}: there is no argument {name!r}; {nearest(name, known)}")
        return function(*arguments, **named)

    return checked


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
    return None if run is None else check_path(run, argument, "the folder of a run")


def check_path(path: Any, argument: str, what: str) -> str:
    """Return the path that an argument names, as a string. ``what`` is what it is the path of."""
    if not isinstance(path, (str, os.PathLike)):
        raise UserError(f"{argument} is {what}; got {type(path).__name__}")
    return os.fsdecode(path)
