"""The filename is the name: ``kind = "additive"`` is ``nn/attention/additive.py``.

The folder is the registry. A kind is looked up through its package's ``__path__``, so a folder that
was appended to it holds kinds too.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from dragoman.config import ConfigError, PartError, Section, nearest


class Family(NamedTuple):
    """Parts that can take each other's place."""

    package: str  # each of its files is a kind
    contract: tuple[str, str]  # module and class that every kind implements


FAMILIES = {
    "encoder": Family("nn.encoders", ("nn.contracts", "Encoder")),
    "attention": Family("nn.attention", ("nn.contracts", "Attention")),
    "decoder": Family("nn.decoders", ("nn.contracts", "Decoder")),
    "modality": Family("modalities", ("data.modality", "Modality")),
    "frontend": Family("nn.frontends", ("nn.contracts", "Frontend")),
}


def kinds(family: str) -> list[str]:
    """Return every kind of a family: the files of its package."""
    return module_names(f"dragoman.{FAMILIES[family].package}")


def part(family: str, kind: str) -> Any:
    """Return the class that the file of this kind defines."""
    if kind not in kinds(family):
        raise ConfigError(f"unknown {family} {kind!r}; {nearest(kind, kinds(family))}")
    package, (module, name) = FAMILIES[family]
    contract = vars(importlib.import_module(f"dragoman.{module}"))[name]
    return only_class(f"dragoman.{package}.{kind}", contract)


def module_names(package: str) -> list[str]:
    """Return the modules of a package whose names do not begin with an underscore."""
    path = importlib.import_module(package).__path__
    return sorted(module.name for module in pkgutil.iter_modules(path) if not module.name.startswith("_"))


def only_class(module: str, contract: type) -> type:
    """Return the one class of a module that implements a contract."""
    classes = [
        item
        for _, item in inspect.getmembers(importlib.import_module(module), inspect.isclass)
        if item.__module__ == module and issubclass(item, contract)
    ]
    if len(classes) != 1:
        raise TypeError(f"{module} must define exactly one {contract.__name__}, not {len(classes)}")
    return classes[0]


def keys(family: str) -> list[str]:
    """Return every setting that some kind of a family has."""
    return sorted({key for kind in kinds(family) for key in part(family, kind).Config.model_fields})


def parse(family: str, value: Any, default: str | None = None) -> Any:
    """Turn a mapping with a ``kind`` into the config of that part, as a pydantic validator."""
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
        chosen = part(family, str(kind))
    except ConfigError as error:
        raise ValueError(str(error)) from None
    try:
        return chosen.Config(**settings)
    except ValidationError as error:
        raise PartError(error, chosen.Config, _other_kinds(family, str(kind), settings)) from None


def _other_kinds(family: str, kind: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return a hint for each key that this kind lacks: the kinds of the family that have it."""
    owners = {
        key: [other for other in kinds(family) if key in part(family, other).Config.model_fields] for key in settings
    }
    return {
        key: f"only the {family} of kind {' or '.join(map(repr, others))} has it, not {kind!r}"
        for key, others in owners.items()
        if others and kind not in others
    }


class UnreadPart(Section):
    """The config of a part as a file has it, for those who do not need the part: its class may need torch."""

    kind: str
    settings: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        """Return a setting as the file has it."""
        settings = self.__dict__.get("settings", {})
        if name in settings:
            return settings[name]
        raise AttributeError(f"the part {self.__dict__.get('kind')!r} has no setting {name!r}")


def leave_unread(value: Any, default: str) -> UnreadPart:
    """Return a mapping with a ``kind`` as it is, without a look at the part."""
    if not isinstance(value, dict) or not isinstance(value.get("kind", default), str):
        raise ValueError("expected a table with a 'kind'")
    return UnreadPart(kind=value.get("kind", default), settings=value)


def kind_of(config: BaseModel) -> str:
    """Return the kind that a config belongs to: the name of its file."""
    if isinstance(config, UnreadPart):
        return config.kind
    return type(config).__module__.rsplit(".", 1)[-1]


def dump(config: BaseModel) -> dict[str, Any]:
    """Return the config of a part as a mapping, its kind first; nested parts likewise."""
    if isinstance(config, UnreadPart):
        return dict(config.settings)
    return {"kind": kind_of(config)} | {name: _plain(getattr(config, name)) for name in type(config).model_fields}


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return dump(value) if _is_part(value) else value.model_dump(mode="json")
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _is_part(config: BaseModel) -> bool:
    folder = type(config).__module__.rsplit(".", 1)[0].removeprefix("dragoman.")
    return folder in {family.package for family in FAMILIES.values()}
