"""Everything that can be named in a config: kinds with their options, and presets. Read off the code itself."""

from __future__ import annotations

import inspect
import json
import re
import sys
import textwrap
from contextlib import suppress
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dragoman import parts
from dragoman.config import ConfigError, Section, nearest
from dragoman.data import tokenizers
from dragoman.data.options import DataConfig
from dragoman.data.tokenizers import TokenizerConfig
from dragoman.recipe import PRESETS, InitConfig, Recipe, preset_names, read_preset
from dragoman.search import SearchConfig
from dragoman.training.optim import OptimConfig
from dragoman.training.options import TrainingConfig
from dragoman.training.reinforce import ReinforceConfig
from dragoman.training.sampling import SamplingConfig

PRESET, SETTINGS = "preset", "settings"
PLACES = {  # where a kind of each family is named
    "encoder": "[encoder] kind = …",
    "decoder": "[decoder] kind = …",
    "attention": "[decoder.attention] kind = …",
    "modality": "[source] kind = …",
    "tokenizer": "[source.tokenizer] or [target.tokenizer] kind = …",
    SETTINGS: "[NAME] key = …, or --set NAME.key=…; those of “top” stand above all tables, without a name",
    PRESET: "dragoman train FILE --preset NAME; dragoman parts preset.NAME shows the whole file",
}
TABLES: dict[str, tuple[type[BaseModel], str]] = {  # that have no kinds: what each is about
    "top": (Recipe, "Of the whole"),
    "data": (DataConfig, "How files are read, and what is held out"),
    "training": (TrainingConfig, "How long, in what batches, where, and what counts as better"),
    "training.optim": (OptimConfig, "The optimiser and its learning rate"),
    "training.sampling": (SamplingConfig, "Scheduled sampling of the decoder's inputs (Bengio et al. 2015)"),
    "training.reinforce": (ReinforceConfig, "What hard attention learns by (Xu et al. 2015)"),
    "search": (SearchConfig, "How outputs are searched for"),
    "init": (InitConfig, "Runs whose weights a model starts with"),
}
NOT_SAID = ("preset", "reference")  # of "top": what an option says, and what a preset says of itself
COLUMNS = 100
FIELD = re.compile(r"^ +(\w+): .*?  # (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    type: str  # in words, with bounds; or the values that it can have
    default: Any
    note: str  # the comment beside it in the code


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind, or one preset."""

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
    """Every kind of every family, then all other settings, then every preset."""
    found = []
    for family in sorted(parts.FAMILIES, key=list(PLACES).index):
        for kind in parts.kinds(family):
            made = parts.part(family, kind)
            about = _first_sentence(sys.modules[made.__module__].__doc__)
            found.append(Entry(family, kind, about, getattr(made, "reference", ""), _options(made.Config)))
    for kind in tokenizers.kinds():
        made = tokenizers.tokenizer_class(kind)
        options = tuple(option for option in _options(TokenizerConfig) if option.name in made.settings)
        found.append(Entry("tokenizer", kind, _first_sentence(sys.modules[made.__module__].__doc__), "", options))
    for name, (config, about) in TABLES.items():
        plain = tuple(
            option
            for option in _options(config)
            if option.name not in NOT_SAID and not _is_table(config.model_fields[option.name])
        )
        found.append(Entry(SETTINGS, name, about, "", plain))
    for name in preset_names():
        text = (PRESETS / f"{name}.toml").read_text(encoding="utf-8")
        comment = [line.removeprefix("#").strip() for line in text.split("\n\n")[0].splitlines() if line[:1] == "#"]
        about = _first_sentence(" ".join(comment))
        found.append(Entry(PRESET, name, about, str(read_preset(name).get("reference", "")), settings=text))
    return found


def select(name: str | None = None) -> list[Entry]:
    """All entries, those of a family (``decoder``), or one (``decoder.rnn``)."""
    every = entries()
    if name is None:
        return every
    family, _, kind = name.partition(".")
    found = [entry for entry in every if entry.family == family and kind in ("", entry.kind)]
    if not found:
        same = " or ".join(f"{entry.family}.{entry.kind}" for entry in every if entry.kind == name)
        names = [*PLACES, *(f"{entry.family}.{entry.kind}" for entry in every)]
        hint = f"did you mean {same}?" if same else nearest(name, names)
        raise ConfigError(f"dragoman parts {name}: no such part; {hint}")
    return found


def to_json(found: list[Entry]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for entry in found:
        plain.setdefault(entry.family, {})[entry.kind] = entry.to_json()
    return plain


def to_text(found: list[Entry]) -> str:
    """For a person, at most 100 columns wide. One preset alone is shown with its settings."""
    if len(found) == 1 and found[0].settings:
        return found[0].settings.rstrip("\n")
    families = dict.fromkeys(entry.family for entry in found)
    blocks = [
        [f"{family.upper()}  {PLACES[family]}", "", *(line for e in found if e.family == family for line in _lines(e))]
        for family in families
    ]
    return "\n\n".join("\n".join(block) for block in blocks)


def _lines(entry: Entry) -> list[str]:
    about = entry.about
    if entry.reference and entry.reference.partition(",")[0] not in about:
        about += f" ({entry.reference})"
    lines = _wrapped(f"  {entry.kind:<16} {about}", 19)
    width = max([14, *(len(option.name) for option in entry.options)])
    for option in entry.options:
        default = "none" if option.default is None else option.default
        shown = default if isinstance(default, str) else json.dumps(default)
        note = f"; {option.note}" if option.note else ""
        lines += _wrapped(f"    {option.name:<{width}} = {shown:<10} {option.type}{note}", 18 + width)
    return lines


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, COLUMNS, subsequent_indent=" " * indent, break_on_hyphens=False)


def _options(config: type[BaseModel]) -> tuple[Option, ...]:
    notes = _notes(config)
    return tuple(
        Option(name, _kinds_or_type(name, info), _default(info), notes.get(name, ""))
        for name, info in config.model_fields.items()
    )


def _kinds_or_type(name: str, info: FieldInfo) -> str:
    told = _type(info.annotation, info)
    return " | ".join(parts.kinds(name)) if name in parts.FAMILIES and not told.startswith("text") else told


def _is_table(info: FieldInfo) -> bool:
    """Has it settings of its own? Then it is listed by itself."""
    value = info.get_default(call_default_factory=True)
    if isinstance(value, BaseModel) or (isinstance(value, dict) and value):
        return True
    return "Config" in str(info.annotation)


def _default(info: FieldInfo) -> Any:
    """As a config would have it; of a part or a tokeniser inside a part, its kind."""
    value = info.get_default(call_default_factory=True)
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    return plain["kind"] if isinstance(plain, dict) and "kind" in plain else plain


def _type(annotation: Any, info: FieldInfo | None = None) -> str:
    """In words."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _type(get_args(annotation)[0])
    if origin is Literal:
        return " | ".join(map(str, get_args(annotation)))
    if origin in (Union, UnionType):
        told = " or ".join(_type(one) for one in get_args(annotation) if one is not NoneType)
        return told + _bounds(info) + (" or none" if NoneType in get_args(annotation) else "")
    if origin in (tuple, list):
        return f"list of {_type(get_args(annotation)[0])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a tokenizer" if annotation is TokenizerConfig else "a part with its options"
    annotation = dict if origin is dict else annotation
    names = {int: "whole number", float: "number", str: "text", bool: "true | false", dict: "table"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation))) + _bounds(info)


def _bounds(info: FieldInfo | None) -> str:
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    found = [
        f"{sign} {_number(getattr(bound, name))}"
        for bound in (info.metadata if info else ())
        for name, sign in signs.items()
        if getattr(bound, name, None) is not None
    ]
    return f" {' and '.join(found)}" if found else ""


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _notes(config: type[BaseModel]) -> dict[str, str]:
    """The comment that stands beside each field in the code: said once, there."""
    notes: dict[str, str] = {}
    for one in reversed([each for each in config.__mro__ if issubclass(each, Section) and each is not Section]):
        with suppress(OSError):  # installed without its source
            notes |= {found[1]: found[2] for found in FIELD.finditer(inspect.getsource(one))}
    return notes


def _first_sentence(text: str | None) -> str:
    flat = " ".join((text or "").split("\n\n")[0].split())
    return re.split(r"(?<! al)(?<! eq)\.(?= [A-Z`]|$)", flat, maxsplit=1)[0]
