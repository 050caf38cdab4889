"""What a run knows before training: the recipe, the tokenizers, the length limits, the columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragoman import __version__
from dragoman.config import ConfigError
from dragoman.data import tokenizers
from dragoman.data.modality import Modality
from dragoman.data.reading.rows import ColumnPlace
from dragoman.data.tokenizers import Tokenizer
from dragoman.errors import UserError
from dragoman.files import damaged_file, read_json, write_json
from dragoman.parts import kind_of, part
from dragoman.recipe.schema import Recipe, make_recipe
from dragoman.runs.lengths import LengthLimits

CONFIG = "config.json"
FORMAT = 1  # of the run folder


@dataclass(frozen=True)
class Setup:
    """All that a model is built from, except its weights."""

    recipe: Recipe
    modalities: Mapping[str, Modality]
    target: Tokenizer
    lengths: LengthLimits
    columns: Mapping[str, ColumnPlace] = field(default_factory=dict)  # where each side was in the training table
    classes: tuple[str, ...] = ()  # of a classifier: all its outputs

    def write(self, folder: Path) -> None:
        """Write config.json and the files of the tokenizers and modalities."""
        for name, modality in self.modalities.items():
            if not (self.recipe.share_vocabulary and modality.has_tokenizer):
                modality.save(folder, name)
        self.target.save(folder, "target")
        columns = {side: place._asdict() for side, place in self.columns.items()}
        plain = {
            "format": FORMAT,
            "version": __version__,
            "recipe": self.recipe.dump(),
            "lengths": self.lengths.model_dump(),
            "columns": columns,
            "classes": list(self.classes),
        }
        write_json(folder / CONFIG, plain)

    @classmethod
    def read(cls, folder: Path) -> Setup:
        """Read back what ``write`` wrote."""
        recipe, lengths, columns, classes = _read_config(folder)
        target = tokenizers.load(folder, "target")
        modalities: dict[str, Modality] = {}
        for name, source in recipe.sources.items():
            kind = part("modality", kind_of(source.modality))
            if recipe.share_vocabulary and kind.has_tokenizer:
                modalities[name] = kind(source.modality, target)
            else:
                modalities[name] = kind.load(source.modality, folder, name)
        return cls(recipe, modalities, target, lengths, columns, classes)


def _read_config(folder: Path) -> tuple[Recipe, LengthLimits, dict[str, ColumnPlace], tuple[str, ...]]:
    path = folder / CONFIG
    seeds = sorted(each.parent.name for each in folder.glob(f"seed-*/{CONFIG}"))
    missing = f"no such file; {folder} is not the folder of a run"
    if seeds:
        missing = f"no such file; {folder} holds the runs of {len(seeds)} seeds, so name one: {folder / seeds[0]}"
    plain = read_json(path, missing=missing)
    try:
        if plain["format"] != FORMAT:
            raise UserError(f"{path}: has format {plain['format']!r}, but this version reads {FORMAT}; train again")
        # runs of earlier versions neither say where the columns were, nor whether they are classifiers
        classes = tuple(map(str, plain.get("classes", ())))
        columns = {side: ColumnPlace(**place) for side, place in plain.get("columns", {}).items()}
        recipe = read_recipe(dict(plain["recipe"]), path, plain.get("version"))
        return recipe, LengthLimits(**plain["lengths"]), columns, classes
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged_file(path, repr(error)) from None


def read_recipe(settings: Mapping[str, Any], path: Path, version: object) -> Recipe:
    """Return the recipe that a file of a run holds. ``version``: the one that wrote it, if the file says so.

    Settings that this version does not know are an error that names both versions.
    """
    try:
        return make_recipe(settings, str(path))
    except ConfigError as error:
        if version == __version__:
            advice = f"this version of Dragoman ({__version__}) wrote it, so it was changed since; restore it"
        else:
            writer = f"Dragoman {version}" if version else "another version of Dragoman, which did not leave its number"
            advice = f"it was written by {writer}, and this is {__version__}; use that version, or train again"
        raise ConfigError(f"{error}\n{path}: {advice}") from None
