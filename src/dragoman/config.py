"""One mapping in, one frozen and checked config out; every error names the path and the nearest valid key."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from dragoman.errors import UserError


class Section(BaseModel):
    """A frozen group of settings. An unknown key is an error; a default exists once, here."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, validate_default=True)


class ConfigError(UserError):
    """A setting that cannot be used."""


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such config file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` on top of ``base``, section by section.

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
    """``["decoder.width=512"]`` → ``{"decoder": {"width": 512}}``; values are TOML, bare words are strings."""
    settings: dict[str, Any] = {}
    for item in items:
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


def nearest(word: str, choices: Sequence[str]) -> str:
    """A hint for a misspelt word: the nearest choice, or all of them."""
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else "choose from: " + ", ".join(sorted(choices))


def explain(error: ValidationError, section: type[BaseModel], where: str) -> ConfigError:
    """Pydantic's error as sentences that name the path and what would be right."""
    sentences = []
    for item in error.errors():
        path = ".".join(str(step) for step in item["loc"])
        kind = item["type"]
        if kind == "extra_forbidden":
            known = _keys_at(section, item["loc"][:-1])
            hint = nearest(str(item["loc"][-1]), known) if known else ""
            sentences.append(f"{where}: unknown key {path!r}; {hint}".rstrip("; "))
        else:
            message = item["msg"].removeprefix("Value error, ")
            message = message[0].lower() + message[1:]
            shown = f" (got {item['input']!r})" if not isinstance(item["input"], (dict, BaseModel)) else ""
            sentences.append(f"{where}: {path}: {message}{shown}" if path else f"{where}: {message}")
    return ConfigError("\n".join(sentences))


def _keys_at(section: type[BaseModel], path: Sequence[Any]) -> list[str]:
    """The valid keys of the section at ``path``, following nested sections as far as their types tell."""
    current: type[BaseModel] = section
    for step in path:
        field = current.model_fields.get(str(step))
        annotation = field.annotation if field else None
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            current = annotation
        else:
            return []
    return list(current.model_fields)
