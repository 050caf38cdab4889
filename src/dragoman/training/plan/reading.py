"""Second stage: the data, with the settings that apply to its sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dragoman.config import ConfigError, merge
from dragoman.data.augment.apply import augment_data
from dragoman.data.corpus.mapped.folder import Workspace
from dragoman.data.reading.read import DataSource
from dragoman.data.splits import Data, read_data
from dragoman.recipe.layers import SettingLayers, drop_sections_without_kind
from dragoman.recipe.schema import Recipe, make_recipe
from dragoman.training.plan.asking import TrainingRequest
from dragoman.training.transfer.origins import Origins, open_origins


@dataclass(frozen=True, slots=True)
class ReadData:
    """The files as examples, and the settings for their sources."""

    data: Data
    layers: SettingLayers  # as asked for: the preset and, above it, the person's settings
    settings: dict[str, Any]  # the same as one mapping, with a table for each source of the data
    origins: Origins  # the runs that this one starts from
    draft: Recipe  # the modalities and tokenizers to fit; encoders and decoder may still be chosen

    @property
    def is_auto(self) -> bool:
        """Return whether the model is chosen for the data, not named by a preset."""
        return bool(self.settings["preset"] == "auto")

    @property
    def source_names(self) -> list[str]:
        """Return the names of the sources, in the order of the data."""
        return list(self.data.train[0].sources)


def read(
    request: TrainingRequest,
    train: DataSource,
    dev: DataSource | None,
    test: DataSource | None,
    workspace: Workspace | None = None,
) -> ReadData:
    """Read and split the files, open the runs to start from, and check every source's settings."""
    layers = request.layers
    reading = request.recipe.reading
    data = augment_data(read_data(train, dev, test, reading, layers.source_kinds(), workspace), reading)
    names = list(data.train[0].sources)
    if not names and not request.recipe.is_language_model:
        raise ConfigError(
            "the data has no source, but the config has one; for a language model use --preset lm-rnn or lm-transformer"
        )
    settings = layers.for_sources(data.kinds)
    origins = open_origins(request.recipe.init, names, request.recipe.training.distill.teachers)
    known = drop_sections_without_kind(settings)
    draft = make_recipe(merge(origins.settings(), known) if settings["preset"] == "auto" else known)
    return ReadData(data, layers, settings, origins, draft)
