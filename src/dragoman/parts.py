"""The filename is the name: ``kind = "additive"`` is ``nn/attention/additive.py``. The folder is the registry."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from dragoman.config import ConfigError, PartError, nearest

FAMILIES = {
    "encoder": "nn.encoders",
    "attention": "nn.attention",
    "decoder": "nn.decoders",
    "modality": "modalities",
}


def kinds(family: str) -> list[str]:
    """Every kind of a family: the files of its folder."""
    folder = Path(__file__).parent.joinpath(*FAMILIES[family].split("."))
    return sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))


def part(family: str, kind: str) -> Any:
    """The one class that the file of this kind defines, recognised by its ``Config``."""
    if kind not in kinds(family):
        raise ConfigError(f"unknown {family} {kind!r}; {nearest(kind, kinds(family))}")
    module = importlib.import_module(f"dragoman.{FAMILIES[family]}.{kind}")
    classes = [
        item
        for _, item in inspect.getmembers(module, inspect.isclass)
        if item.__module__ == module.__name__ and hasattr(item, "Config")
    ]
    if len(classes) != 1:
        raise TypeError(f"{module.__name__} must define exactly one class with a Config, not {len(classes)}")
    return classes[0]


def keys(family: str) -> list[str]:
    """Every setting that some kind of a family has."""
    return sorted({key for kind in kinds(family) for key in part(family, kind).Config.model_fields})


def parse(family: str, value: Any, default: str | None = None) -> Any:
    """A mapping with a ``kind`` → the frozen config of that part. For pydantic's ``BeforeValidator``."""
    if isinstance(value, BaseModel):
        return value
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, dict):
        raise ValueError(f"expected a table with a 'kind', one of: {', '.join(kinds(family))}")
    settings = dict(value)
    kind = settings.pop("kind", default)
    if kind is None:
        raise ValueError(f"'kind' is missing; choose from: {', '.join(kinds(family))}")
    try:
        found = part(family, str(kind))
    except ConfigError as error:
        raise ValueError(str(error)) from None
    try:
        return found.Config(**settings)
    except ValidationError as error:
        raise PartError(error, found.Config, _elsewhere(family, str(kind), settings)) from None


def _elsewhere(family: str, kind: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """Of the keys that this kind lacks and others of its family have: a hint who has them."""
    having = {key: [one for one in kinds(family) if key in part(family, one).Config.model_fields] for key in settings}
    return {
        key: f"only the {family} of kind {' or '.join(map(repr, found))} has it, not {kind!r}"
        for key, found in having.items()
        if found and kind not in found
    }


def kind_of(config: BaseModel) -> str:
    """The filename that a part's config belongs to."""
    return type(config).__module__.rsplit(".", 1)[-1]


def dump(config: BaseModel) -> dict[str, Any]:
    """A part's config as a mapping, its kind first; nested parts too."""
    return {"kind": kind_of(config)} | {name: _plain(getattr(config, name)) for name in type(config).model_fields}


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return dump(value) if _is_part(value) else value.model_dump(mode="json")
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _is_part(config: BaseModel) -> bool:
    folder = type(config).__module__.rsplit(".", 1)[0].removeprefix("dragoman.")
    return folder in FAMILIES.values()
