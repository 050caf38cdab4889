"""The catalog of all that a config can name: kinds and their options, other settings, presets.

It is made from the code itself: from the files of the packages, the Config classes and their
docstrings.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dragoman import parts
from dragoman.config import ConfigError, describe_settings, nearest
from dragoman.data import tokenizers
from dragoman.data.augment.options import AugmentConfig
from dragoman.data.options import DataConfig
from dragoman.data.tokenizers import TokenizerConfig
from dragoman.recipe.layers import PRESETS, preset_names, read_preset
from dragoman.recipe.schema import InitConfig, Recipe, TargetConfig
from dragoman.recipe.training import DistillConfig, OptimConfig, ReinforceConfig, SamplingConfig, TrainingConfig
from dragoman.search.options import SearchConfig

PRESET, SETTINGS = "preset", "settings"
PLACES = {  # where a kind of each family is named
    "encoder": "[encoder] kind = …",
    "decoder": "[decoder] kind = …",
    "attention": "[decoder.attention] kind = …",
    "modality": "[source] kind = …",
    "tokenizer": "[source.tokenizer] or [target.tokenizer] kind = …",
    SETTINGS: "[NAME] key = …, or --set NAME.key=…; those of “top” come before all tables, without a name",
    PRESET: "dragoman train FILE --preset NAME; dragoman parts preset.NAME shows the whole file",
}
TABLES: dict[str, tuple[type[BaseModel], str]] = {  # tables without kinds, and what each is about
    "top": (Recipe, "Settings of the whole system"),
    "data": (DataConfig, "How files are read, and what is held out"),
    "data.augment": (AugmentConfig, "More training rows from the same ones"),
    "training": (TrainingConfig, "How long to train, in what batches, on what device, and when to stop"),
    "training.optim": (OptimConfig, "The optimiser and its learning rate"),
    "training.sampling": (SamplingConfig, "Scheduled sampling of the decoder's inputs (Bengio et al. 2015)"),
    "training.distill": (DistillConfig, "Learning the probabilities of other runs (Kim and Rush 2016)"),
    "training.reinforce": (ReinforceConfig, "How hard attention is trained (Xu et al. 2015)"),
    "target": (TargetConfig, "What outputs are"),
    "search": (SearchConfig, "How to search for outputs"),
    "init": (InitConfig, "Runs whose weights a new model starts from"),
}
HIDDEN = ("preset", "reference")  # of "top": --preset names the one, and a preset itself the other
COLUMNS = 100


@dataclass(frozen=True, slots=True)
class Option:
    """One setting."""

    name: str
    type: str  # in words, with bounds; or the values that it can have
    default: Any
    note: str  # its description


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind, one table of settings or one preset."""

    family: str
    kind: str
    about: str
    reference: str
    options: tuple[Option, ...] = ()
    settings: str = field(default="", repr=False)  # of a preset: its file

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"about": self.about, "reference": self.reference}
        if self.family == PRESET:
            return plain | {"settings": {key: value for key, value in read_preset(self.kind).items() if key != PRESET}}
        options = {o.name: {"type": o.type, "default": o.default, "note": o.note} for o in self.options}
        return plain | {"options": options}


def entries() -> list[Entry]:
    """Return every kind of every family, then all other settings, then every preset."""
    return [*_parts(), *_tokenizers(), *_tables(), *_presets()]


def _parts() -> Iterator[Entry]:
    for family in (name for name in PLACES if name in parts.FAMILIES):
        for kind in parts.kinds(family):
            part = parts.part(family, kind)
            yield Entry(family, kind, _module_summary(part), part.reference, _options(part.Config))


def _tokenizers() -> Iterator[Entry]:
    for kind in tokenizers.kinds():
        tokenizer = tokenizers.tokenizer_class(kind)
        options = tuple(option for option in _options(TokenizerConfig) if option.name in tokenizer.settings)
        yield Entry("tokenizer", kind, _module_summary(tokenizer), "", options)


def _tables() -> Iterator[Entry]:
    for name, (config, about) in TABLES.items():
        options = tuple(
            option
            for option in _options(config)
            if option.name not in HIDDEN and not _is_table(config.model_fields[option.name])
        )
        yield Entry(SETTINGS, name, about, "", options)


def _presets() -> Iterator[Entry]:
    for name in preset_names():
        text = (PRESETS / f"{name}.toml").read_text(encoding="utf-8")
        comment = [line.removeprefix("#").strip() for line in text.split("\n\n")[0].splitlines() if line[:1] == "#"]
        about = _first_sentence(" ".join(comment))
        yield Entry(PRESET, name, about, str(read_preset(name).get("reference", "")), settings=text)


def select(name: str | None = None) -> list[Entry]:
    """Return all entries, those of a family (``decoder``), or one (``decoder.rnn``)."""
    catalog = entries()
    if name is None:
        return catalog
    family, _, kind = name.partition(".")
    if family not in PLACES and family.removesuffix("s") in PLACES:  # the plural is as good
        family = family.removesuffix("s")
    selected = [entry for entry in catalog if entry.family == family and kind in ("", entry.kind)]
    if not selected:
        same = " or ".join(f"{entry.family}.{entry.kind}" for entry in catalog if entry.kind == name)
        names = [*PLACES, *(f"{entry.family}.{entry.kind}" for entry in catalog)]
        hint = f"did you mean {same}?" if same else nearest(name, names)
        raise ConfigError(f"dragoman parts {name}: no such part; {hint}")
    return selected


def to_json(selected: list[Entry]) -> dict[str, Any]:
    """Return entries as plain values, by family and kind."""
    plain: dict[str, Any] = {}
    for entry in selected:
        plain.setdefault(entry.family, {})[entry.kind] = entry.to_json()
    return plain


def to_text(selected: list[Entry]) -> str:
    """Return entries as text of at most 100 columns. A single preset is shown with its settings."""
    if len(selected) == 1 and selected[0].settings:
        return selected[0].settings.rstrip("\n")
    blocks = []
    for family in dict.fromkeys(entry.family for entry in selected):
        lines = [line for entry in selected if entry.family == family for line in _lines(entry)]
        blocks.append([f"{family.upper()}  {PLACES[family]}", "", *lines])
    return "\n\n".join("\n".join(block) for block in blocks)


def _lines(entry: Entry) -> list[str]:
    about = entry.about
    if entry.reference and entry.reference.partition(",")[0] not in about:
        about += f" ({entry.reference})"
    lines = _wrap(f"  {entry.kind:<16} {about}", 19)
    width = max([14, *(len(option.name) for option in entry.options)])
    for option in entry.options:
        default = "none" if option.default is None else option.default
        shown = default if isinstance(default, str) else json.dumps(default)
        note = f". {option.note}" if option.note else ""
        lines += _wrap(f"    {option.name:<{width}} = {shown:<10} {option.type}{note}", 18 + width)
    return lines


def _wrap(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, COLUMNS, subsequent_indent=" " * indent, break_on_hyphens=False)


def _options(config: type[BaseModel]) -> tuple[Option, ...]:
    described = describe_settings(config)
    return tuple(
        Option(name, _kinds_or_type(name, info), _default(info), " ".join(described.get(name, "").split()))
        for name, info in config.model_fields.items()
    )


def _kinds_or_type(name: str, info: FieldInfo) -> str:
    described = _type(info.annotation, info)
    is_part = name in parts.FAMILIES and not described.startswith("text")
    return " | ".join(parts.kinds(name)) if is_part else described


def _is_table(info: FieldInfo) -> bool:
    """Return whether a setting has settings of its own. Then it is an entry of its own."""
    value = info.get_default(call_default_factory=True)
    if isinstance(value, BaseModel) or (isinstance(value, dict) and value):
        return True
    return "Config" in str(info.annotation)


def _default(info: FieldInfo) -> Any:
    """Return the default as a config would have it; for a part inside a part, its kind."""
    value = info.get_default(call_default_factory=True)
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    return plain["kind"] if isinstance(plain, dict) and "kind" in plain else plain


def _type(annotation: Any, info: FieldInfo | None = None) -> str:
    """Describe a type in words."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _type(get_args(annotation)[0])
    if origin is Literal:
        return " | ".join(map(str, get_args(annotation)))
    if origin in (Union, UnionType):
        members = " or ".join(_type(member) for member in get_args(annotation) if member is not NoneType)
        return members + _bounds(info) + (" or none" if NoneType in get_args(annotation) else "")
    if origin in (tuple, list):
        return f"list of {_type(get_args(annotation)[0])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a tokenizer" if annotation is TokenizerConfig else "a part with its options"
    annotation = dict if origin is dict else annotation
    names = {int: "whole number", float: "number", str: "text", bool: "true | false", dict: "table"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation))) + _bounds(info)


def _bounds(info: FieldInfo | None) -> str:
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    bounds = [
        f"{sign} {_number(getattr(bound, name))}"
        for bound in (info.metadata if info else ())
        for name, sign in signs.items()
        if getattr(bound, name, None) is not None
    ]
    return f" {' and '.join(bounds)}" if bounds else ""


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _module_summary(part: type) -> str:
    """Return the first sentence of the docstring of the file that defines a part."""
    return _first_sentence(sys.modules[part.__module__].__doc__)


def _first_sentence(text: str | None) -> str:
    flat = " ".join((text or "").split("\n\n")[0].split())
    return re.split(r"(?<! al)(?<! eq)\.(?= [A-Z`]|$)", flat, maxsplit=1)[0]
