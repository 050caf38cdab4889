"""First stage: what a person asked for, checked as far as it can be without the data."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.recipe.layers import ConfigSource, Overrides, SettingLayers, drop_sections_without_kind, read_layers
from dragoman.recipe.schema import Recipe, make_recipe


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """What a person asked for."""

    layers: SettingLayers
    recipe: Recipe  # what is known of it before the data is read: how to read it, and which runs to start from


def ask(preset: str | None, config: ConfigSource | None, settings: Overrides) -> TrainingRequest:
    """Collect the settings of preset, config and call, and refuse wrong ones early."""
    layers = read_layers(preset, config, settings)
    return TrainingRequest(layers, make_recipe(drop_sections_without_kind(layers.merged)))
