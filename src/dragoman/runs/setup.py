"""What a run knows before training: the recipe, the tokenizers, the length limits, the columns.

``config.json`` also names the files of the tokenizers and modalities with their SHA-256, and the run
that all of them belong to. The weights name the same run. So a folder that was put together from two
runs is noticed, even where everything in it fits.
"""

from __future__ import annotations

import hashlib
import json
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
from dragoman.files import LARGE, damaged_file, read_json, read_regular, write_json
from dragoman.parts import kind_of, part
from dragoman.recipe.schema import Recipe, make_recipe
from dragoman.runs.lengths import LengthLimits

CONFIG = "config.json"
FORMAT = 1  # of the run folder
NAMED = 5  # candidates of a sweep that a message names at most

# Settings that may change when a run is resumed: they say how long and where to train, not what.
MAY_CHANGE = {
    *(f"training.{name}" for name in ("max_updates", "max_epochs", "max_time", "patience", "save_every", "log_every")),
    *(f"training.{name}" for name in ("device", "threads", "loaders", "native")),
    "data.cache",
    "data.store",
}


@dataclass(frozen=True)
class Setup:
    """All that a model is built from, except its weights."""

    recipe: Recipe
    modalities: Mapping[str, Modality]
    target: Tokenizer
    lengths: LengthLimits
    columns: Mapping[str, ColumnPlace] = field(default_factory=dict)  # where each side was in the training table
    classes: tuple[str, ...] = ()  # of a classifier: all its outputs
    run: str = ""  # which run the files belong to; empty where an earlier version wrote them

    def write(self, folder: Path, run: str | None = None) -> str:
        """Write config.json and the files of the tokenizers and modalities, and return the name of the run.

        ``run``: the name that the run has already; empty: it has none.
        """
        names: list[str] = []
        for name, modality in self.modalities.items():
            if not (self.recipe.share_vocabulary and modality.has_tokenizer):
                names += modality.save(folder, name)
        names += self.target.save(folder, "target")
        plain: dict[str, Any] = {
            "recipe": self.recipe.dump(),
            "lengths": self.lengths.model_dump(),
            "columns": {side: place._asdict() for side, place in self.columns.items()},
            "classes": list(self.classes),
            "files": {name: _digest(folder / name) for name in names},
        }
        run = name_run(plain) if run is None else run
        write_json(folder / CONFIG, {"format": FORMAT, "version": __version__, "run": run, **plain})
        return run

    @classmethod
    def read(cls, folder: Path, *, reads_network: bool = True) -> Setup:
        """Read back what ``write`` wrote. Without ``reads_network``, the recipe's encoders and decoder are not read."""
        recipe, lengths, columns, classes, run = _read_config(folder, reads_network)
        target = tokenizers.load(folder, "target")
        modalities: dict[str, Modality] = {}
        for name, source in recipe.sources.items():
            kind = part("modality", kind_of(source.modality))
            if recipe.share_vocabulary and kind.has_tokenizer:
                modalities[name] = kind(source.modality, target)
            else:
                modalities[name] = kind.load(source.modality, folder, name)
        slotted = target.with_slots(recipe.copy_slots) if recipe.copying else target
        return cls(recipe, modalities, slotted, lengths, columns, classes, run)


def read_run_name(folder: Path) -> str:
    """Return which run the config of a folder belongs to; empty where an earlier version wrote it."""
    return str(read_json(folder / CONFIG).get("run", ""))


def check_run_name(path: Path, named: str | None, run: str) -> None:
    """Raise an error where a file of weights belongs to another run than the config beside it."""
    if run and named != run:
        what = "belongs to another run" if named else f"does not say that it belongs to the run of {CONFIG}"
        raise UserError(
            f"{path}: {what}; the folder was put together from two runs; restore the file that was saved with {CONFIG}"
        )


def _read_config(
    folder: Path, reads_network: bool
) -> tuple[Recipe, LengthLimits, dict[str, ColumnPlace], tuple[str, ...], str]:
    path = folder / CONFIG
    plain = read_json(path, missing=f"no such file; {describe_folder(folder)}", warns=True)
    try:
        if plain["format"] != FORMAT:
            raise UserError(f"{path}: has format {plain['format']!r}, but this version reads {FORMAT}; train again")
        recipe = read_recipe(dict(plain["recipe"]), path, plain.get("version"), reads_network=reads_network)
        lengths = LengthLimits(**plain["lengths"])
        # runs of earlier versions neither say where the columns were, nor whether they are classifiers
        classes = tuple(map(str, plain.get("classes", ())))
        columns = {side: ColumnPlace(**place) for side, place in plain.get("columns", {}).items()}
        digests, run = dict(plain.get("files", {})), str(plain.get("run", ""))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged_file(path, repr(error)) from None
    for name, digest in digests.items():
        if not isinstance(name, str) or Path(name).name != name:  # a list of pairs may have any key
            raise damaged_file(path, f"it names a file outside the folder: {name!r}")
        if _digest(folder / name) != digest:
            raise damaged_file(folder / name, f"it is not the file that {CONFIG} was written with")
    return recipe, lengths, columns, classes, run


def describe_folder(folder: Path) -> str:
    """Say what a folder is that is not the folder of a run, and which runs are in it."""
    if seeds := sorted(each.parent.name for each in folder.glob(f"seed-*/{CONFIG}")):
        return f"{folder} holds the runs of {len(seeds)} seeds, so name one: {folder / seeds[0]}"
    if candidates := sorted({each.parents[1].name for each in folder.glob(f"*/seed-*/{CONFIG}")}):
        named = ", ".join(str(folder / name) for name in candidates[:NAMED])
        more = f" and {len(candidates) - NAMED} more" if len(candidates) > NAMED else ""
        return f"{folder} holds the candidates of a sweep, so name one of them, or one of its seeds: {named}{more}"
    if not folder.exists():
        return f"there is no folder {folder}, so it is not the folder of a run"
    if not folder.is_dir():
        return f"{folder} is a file, not the folder of a run, which comes first"
    if runs := sorted(each.parent.name for each in folder.glob(f"*/{CONFIG}")):
        named = ", ".join(str(folder / name) for name in runs[:NAMED])
        more = f" and {len(runs) - NAMED} more" if len(runs) > NAMED else ""
        return f"{folder} is not the folder of a run, but it holds some, so name one of them: {named}{more}"
    return f"{folder} is not the folder of a run"


def read_recipe(settings: Mapping[str, Any], path: Path, version: object, *, reads_network: bool = True) -> Recipe:
    """Return the recipe that a file of a run holds. ``version``: the one that wrote it, if the file says so.

    Settings that this version does not know are an error that names both versions.
    """
    try:
        return make_recipe(settings, str(path), reads_network=reads_network)
    except ConfigError as error:
        if version == __version__:
            advice = f"this version of Dragoman ({__version__}) wrote it, so it was changed since; restore it"
        else:
            writer = f"Dragoman {version}" if version else "another version of Dragoman, which did not leave its number"
            advice = f"it was written by {writer}, and this is {__version__}; use that version, or train again"
        raise ConfigError(f"{error}\n{path}: {advice}") from None


def _digest(path: Path) -> str:
    return hashlib.sha256(read_regular(path, LARGE, f"no such file, but {CONFIG} was written with it")).hexdigest()


def name_run(facts: Mapping[str, Any]) -> str:
    """Return a name for a run: a digest of these facts, its recipe among them, without what may change."""
    recipe = dict(facts["recipe"])
    for setting in MAY_CHANGE:
        section, _, name = setting.partition(".")
        recipe[section] = {key: value for key, value in recipe[section].items() if key != name}
    text = json.dumps({**facts, "recipe": recipe}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
