"""One mapping in, one frozen and checked config out; every error names the path and the nearest valid key."""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from dragoman.errors import TooLong as TooLong
from dragoman.errors import UserError
from dragoman.files import SMALL, open_regular


class Section(BaseModel):
    """A frozen group of settings: an unknown key is an error, and a default exists once.

    The docstring below a setting is its description, which ``describe_settings`` returns.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=False,
        validate_default=True,
        allow_inf_nan=False,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _reject_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false for numbers: Python would silently take true for 1."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise ValueError("true and false mean nothing here")
        return value


def describe_settings(section: type[BaseModel]) -> dict[str, str]:
    """Return the docstring below each setting that has one. They are read from the source when they are asked for."""
    found: dict[str, str] = {}
    for base in reversed([each for each in section.__mro__ if issubclass(each, Section) and each is not Section]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, after in pairwise(definition.body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            ):
                found[field.target.id] = inspect.cleandoc(after.value.value)
    return found


class ConfigError(UserError):
    """A setting that cannot be used."""


class PartError(ValueError):
    """An error inside a part's table. Pydantic carries it to ``explain``, which learns the part's keys from it."""

    def __init__(self, error: ValidationError, section: type[BaseModel], others: Mapping[str, str]) -> None:
        super().__init__(str(error))
        self.error, self.section = error, section
        self.others = others  # keys that this kind lacks → the kinds that have them, in words


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, or raise a sentence that says what is wrong with it."""
    try:
        with open_regular(path, SMALL) as file:
            return tomllib.loads(file.read().decode("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such config file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` overridden by ``over``, section by section.

    Where ``over`` names another ``kind`` than ``base``, the settings of the old kind do not carry over.
    """
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            changes_kind = "kind" in value and "kind" in old and value["kind"] != old["kind"]
            merged[key] = dict(value) if changes_kind else merge(old, value)
        else:
            merged[key] = value
    return merged


def parse_overrides(items: Sequence[str]) -> dict[str, Any]:
    """Parse ``["decoder.width=512"]`` to ``{"decoder": {"width": 512}}``; values are TOML, bare words are strings."""
    settings: dict[str, Any] = {}
    for item in items:
        if not isinstance(item, str):
            raise ConfigError(f"a setting is a text such as 'decoder.width=512'; got {item!r}")
        path, equals, text = item.partition("=")
        if not equals or not path.strip():
            raise ConfigError(f"--set {item}: expected KEY=VALUE, for example --set decoder.width=512")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        for key in reversed(path.strip().split(".")):
            value = {key: value}
        settings = merge(settings, value)
    return settings


def expand_keys(settings: Mapping[str, Any], where: str = "settings") -> dict[str, Any]:
    """Return settings with dotted keys written out: ``{"training.seed": 1}`` is ``{"training": {"seed": 1}}``.

    Nested tables and dotted keys may be mixed; what comes later wins.
    """
    expanded: dict[str, Any] = {}
    for key, value in settings.items():
        if not isinstance(key, str) or not all(key.split(".")):
            raise ConfigError(f"{where}: a key is a name such as 'training.max_time'; got {key!r}")
        if isinstance(value, Mapping):
            value = expand_keys(value, where)
        for name in reversed(key.split(".")):
            value = {name: value}
        expanded = merge(expanded, value)
    return expanded


def nearest(word: str, choices: Sequence[str]) -> str:
    """Return a hint for a misspelt word: the nearest choice, or all of them."""
    close = _close(word, choices)
    return f"did you mean {close[0]!r}?" if close else "choose from: " + ", ".join(sorted(choices))


def is_near(word: str, choices: Sequence[str]) -> bool:
    """Tell whether a word is probably one of the choices, misspelt."""
    return bool(_close(word, choices))


def _close(word: str, choices: Sequence[str]) -> list[str]:
    return difflib.get_close_matches(word, choices, n=1, cutoff=0.5)


Suggest: TypeAlias = Callable[[str, Sequence[str]], str]  # an unknown key's path and the keys beside it → a hint


def suggest_nearest(path: str, siblings: Sequence[str]) -> str:
    """Return a hint for an unknown key: the nearest of the keys beside it."""
    return nearest(path.rpartition(".")[2], siblings)


def explain(
    error: ValidationError,
    section: type[BaseModel],
    where: str,
    also: Sequence[str] = (),
    suggest: Suggest = suggest_nearest,
) -> ConfigError:
    """Turn pydantic's error into sentences that name the path and what would be right. ``also``: further valid keys."""
    sentences = _sentences(error, section, (), also, suggest)
    return ConfigError("\n".join(f"{where}: {sentence}" for sentence in sentences))


def _sentences(
    error: ValidationError,
    section: type[BaseModel],
    above: tuple[int | str, ...],
    also: Sequence[str],
    suggest: Suggest,
    others: Mapping[str, str] | None = None,
) -> list[str]:
    sentences: list[str] = []
    complaints: dict[tuple[str, str], list[str]] = {}  # by value: each member of a union has its own complaint
    for item in error.errors():
        steps = (*above, *_real_steps(section, item["loc"]))
        path = ".".join(str(step) for step in steps)
        inner = item.get("ctx", {}).get("error")
        if isinstance(inner, PartError):
            sentences += _sentences(inner.error, inner.section, steps, ("kind",), suggest, inner.others)
        elif item["type"] == "extra_forbidden":
            known = [*_keys_at(section, item["loc"][:-1]), *(also if len(item["loc"]) == 1 else ())]
            key = str(item["loc"][-1])
            hint = others[key] if others and len(item["loc"]) == 1 and key in others else suggest(path, known)
            sentences.append(f"unknown key {path!r}; {hint}")
        else:
            is_table = item["type"] in ("model_type", "dict_type")
            message = "input should be a table of settings" if is_table else item["msg"].removeprefix("Value error, ")
            message = message[0].lower() + message[1:]
            shown = f" (got {item['input']!r})" if not isinstance(item["input"], (dict, BaseModel)) else ""
            complaints.setdefault((path, shown), []).append(message)
    for (path, shown), messages in complaints.items():
        sentences.append(f"{path}: {', or '.join(messages)}{shown}" if path else "; ".join(messages))
    return sentences


def _walk(section: type[BaseModel], path: Sequence[int | str]) -> list[Any]:
    """Return the type at each step of ``path``, as far as the annotations tell; None from there on."""
    types: list[Any] = []
    current: Any = section
    for step in path:
        if isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(str(step))
            current = field.annotation if field else None
        elif get_origin(current) is dict:
            current = get_args(current)[1]
        else:
            current = None
        types.append(current)
    return types


def _keys_at(section: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """Return the valid keys of the section at ``path``."""
    current = [section, *_walk(section, path)][-1]
    return list(current.model_fields) if isinstance(current, type) and issubclass(current, BaseModel) else []


def _real_steps(section: type[BaseModel], path: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return ``path`` without the names that pydantic gives to members of a union, which nobody wrote."""
    types = [section, *_walk(section, path)]
    unions = [index for index, kind in enumerate(types) if get_origin(kind) in (Union, UnionType)]
    return path[: unions[0]] if unions else path
