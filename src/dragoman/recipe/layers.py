"""Layers of settings: a preset, under a config file, under the settings of a call.

Presets are TOML files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from dragoman import parts
from dragoman.config import ConfigError, expand_keys, merge, nearest, parse_overrides, read_toml
from dragoman.data.examples import SOURCE
from dragoman.recipe.schema import SourceConfig, spell_out, suggest_setting

ConfigSource: TypeAlias = str | Path | Mapping[str, Any]  # the path of a TOML file, or its content
Overrides: TypeAlias = str | Sequence[str] | Mapping[str, Any]

PRESETS = Path(__file__).parent / "presets"


def preset_names() -> list[str]:
    """Return the names of all presets, in the order of the alphabet."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_preset(name: str) -> dict[str, Any]:
    """Return the settings of a preset, its name included."""
    if name not in preset_names():
        raise ConfigError(f"preset {name!r}: there is no such preset; {nearest(name, ['auto', *preset_names()])}")
    return read_toml(PRESETS / f"{name}.toml") | {"preset": name}


@dataclass(frozen=True, slots=True)
class SettingLayers:
    """What was asked for, before it is known which sources the data has."""

    preset: Mapping[str, Any]
    person: Mapping[str, Any]  # the config file with the settings of the call above it

    @property
    def merged(self) -> dict[str, Any]:
        """Return both layers as one mapping."""
        return _put_over(self.preset, self.person) | {"preset": self.preset["preset"]}

    def source_kinds(self) -> dict[str, str]:
        """Return the kinds of modality that are named, by source."""
        named = self.merged.get("sources", {})
        return {name: kind for name in named if (kind := _modality_kind(self.merged, name)) is not None}

    def sources_beyond_preset(self, kinds: Mapping[str, str]) -> list[str]:
        """Return the sources that the preset has no settings for; with ``auto``, all of them."""
        named = self.preset.get("sources", {})
        if SOURCE in named:  # the preset's settings of "source" hold for every source of that kind
            common = _modality_kind(self.preset, SOURCE) or "text"
            kinds = {name: kind for name, kind in kinds.items() if kind != common}
        return [name for name in kinds if name not in named or name == SOURCE]

    def for_sources(self, kinds: Mapping[str, str]) -> dict[str, Any]:
        """Return all settings, with a table for each source, whose modality is of the given kind.

        Settings of the single source hold for each source of its kind that has none by name.
        """
        named = self.merged.get("sources", {})
        unknown = [name for name in named if name not in kinds and name != SOURCE]
        if unknown:
            raise ConfigError(f"sources.{unknown[0]}: the data has no such source; {nearest(unknown[0], list(kinds))}")
        sources = {}
        for name, kind in kinds.items():
            table: dict[str, Any] = {}
            for layer in (self.preset, self.person):
                common = layer.get("sources", {}).get(SOURCE, {})
                is_own = name == SOURCE and layer is self.person
                if is_own or (_modality_kind(layer, SOURCE) or "text") == kind:
                    table = merge(table, common)
                if name != SOURCE:
                    table = merge(table, layer.get("sources", {}).get(name, {}))
            sources[name] = merge(table, {"modality": {"kind": kind}})
        return self.merged | {"sources": sources}


def read_layers(
    preset: str | None = None, config: ConfigSource | None = None, overrides: Overrides = ()
) -> SettingLayers:
    """Read a preset and a config, and put ``overrides`` above them.

    Any of the three may name the preset.
    """
    if preset is not None and not isinstance(preset, str):
        raise ConfigError(f"preset is the name of a preset, such as 'bahdanau2015'; got {preset!r}")
    file, call = spell_out(_read_config(config)), spell_out(read_overrides(overrides))
    name = str(preset or call.get("preset") or file.get("preset") or "auto")
    below = {} if name == "auto" else spell_out(read_preset(name))
    return SettingLayers(below | {"preset": name}, _put_over(file, call))


def gather_settings(
    preset: str | None = None, config: ConfigSource | None = None, overrides: Overrides = ()
) -> dict[str, Any]:
    """Read all layers and return them as one mapping."""
    return read_layers(preset, config, overrides).merged


def _read_config(config: Any) -> dict[str, Any]:
    """Return the settings of a TOML file, or of a mapping that is given in its place."""
    if config is None:
        return {}
    if isinstance(config, Mapping):
        return expand_keys(config, "config")
    if isinstance(config, (str, os.PathLike)):
        return read_toml(Path(config))
    raise ConfigError(f"config is the path of a TOML file, or a mapping of settings; got {type(config).__name__}")


def read_overrides(overrides: Any) -> dict[str, Any]:
    """Return settings that are given as a mapping, as one string or as several."""
    if isinstance(overrides, Mapping):
        return expand_keys(overrides)
    if isinstance(overrides, str):
        return parse_overrides([overrides])
    if isinstance(overrides, Sequence) and not isinstance(overrides, (bytes, bytearray)):
        return parse_overrides(overrides)
    raise ConfigError(
        "settings are a mapping such as {'training.max_time': 60}, or strings such as 'training.max_time=60'; "
        f"got {type(overrides).__name__}"
    )


def drop_sections_without_kind(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that can be checked before everything is chosen.

    A part whose kind nobody named may become any kind, so its table is left out. A key that no kind
    has is an error already.
    """
    named = settings.get("sources")
    if not isinstance(named, Mapping) or not all(isinstance(tables, Mapping) for tables in named.values()):
        return dict(settings)

    def is_open(part: str, table: Any) -> bool:
        return part in SourceConfig.model_fields and isinstance(table, Mapping) and "kind" not in table

    for name, tables in named.items():
        for part in (part for part, table in tables.items() if is_open(part, table)):
            known = parts.keys(part)
            for key in tables[part]:
                if key not in known:
                    path = f"sources.{name}.{part}.{key}"
                    raise ConfigError(f"config: unknown key {path!r}; {suggest_setting(path, known)}")
    sources = {
        name: {part: table for part, table in tables.items() if not is_open(part, table)}
        for name, tables in named.items()
    }
    return dict(settings) | {"sources": sources}


def _modality_kind(layer: Mapping[str, Any], name: str) -> str | None:
    """Return the kind of modality that a layer names for a source."""
    modality = layer.get("sources", {}).get(name, {}).get("modality", {})
    return modality if isinstance(modality, str) else modality.get("kind")


def _put_over(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a layer over another. A layer without any source voids the sources below it."""
    merged = dict(base)
    if layer.get("sources") == {}:
        merged.pop("sources", None)
    return merge(merged, layer)
