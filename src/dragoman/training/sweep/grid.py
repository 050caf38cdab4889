"""The file that describes a sweep: data, presets, values of settings, seeds, and the budget of a run."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from dragoman.config import ConfigError, Section, explain, merge, nearest, read_toml
from dragoman.errors import UserError
from dragoman.recipe.layers import drop_sections_without_kind, preset_names, read_layers
from dragoman.recipe.schema import make_recipe

LONGEST_NAME = 100  # characters of a candidate's name, which is the name of its folder


class Budget(Section):
    """How long each run may train; what is not given is left to the preset."""

    max_updates: int | None = Field(None, gt=0)
    max_epochs: int | None = Field(None, gt=0)
    max_time: float | None = Field(None, gt=0)
    """Seconds of training."""


class Halving(Section):
    """Successive halving: after some updates only the better candidates train on."""

    first: int = Field(gt=0)
    """Number of updates of the first rung."""
    factor: int = Field(2, ge=2)
    """From rung to rung runs train so many times as long, and 1 / factor of the candidates is left."""


class Grid(Section):
    """A sweep as its file describes it."""

    train: str | list[str]
    """Training file, or two parallel files, relative to the file of the sweep."""
    dev: str | None = None
    test: str | None = None
    presets: list[str] = Field(["auto"], min_length=1)
    seeds: int | list[int] = 3
    """How many seeds, or which."""
    budget: Budget = Budget()
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of all runs."""
    grid: dict[str, Any] = Field(default_factory=dict)
    """A list of values for each setting that is varied."""
    halving: Halving | None = None

    @model_validator(mode="after")
    def _check(self) -> Grid:
        if not self.seed_numbers or min(self.seed_numbers) < 0:
            raise ValueError("'seeds' is a number from 1 on, or a list of seeds")
        for name in ("presets", "seed_numbers"):
            values = getattr(self, name)
            if len({*values}) < len(values):
                raise ValueError(f"'{name.removesuffix('_numbers')}' names one of them twice")
        if self.halving is not None and (
            self.budget.max_updates is None or self.halving.first >= self.budget.max_updates
        ):
            raise ValueError("'halving' counts in updates: set budget.max_updates, above halving.first")
        dict(flatten_grid(self.grid))
        return self

    @property
    def seed_numbers(self) -> list[int]:
        """The seeds themselves."""
        return list(range(1, self.seeds + 1)) if isinstance(self.seeds, int) else list(self.seeds)

    @property
    def files(self) -> list[str]:
        """The training files."""
        return [self.train] if isinstance(self.train, str) else list(self.train)


@dataclass(frozen=True, slots=True)
class Combination:
    """One combination of a preset and values of settings."""

    name: str  # and that of its folder
    preset: str
    values: Mapping[str, Any]  # of the settings that are varied, by their dotted names
    settings: Mapping[str, Any]  # all of them, nested


def read_grid(path: Path) -> Grid:
    """Read the file of a sweep. Its data files become paths that can be opened from here."""
    try:
        plain = read_toml(path)
    except ConfigError as error:
        if path.suffix.lower() == ".toml" or not path.is_file():
            raise
        raise UserError(
            f'{path}: sweep takes a TOML file that names the data (train = "{path.name}") and what is to be combined; '
            f"{str(error).removeprefix(f'{path}: ')}"
        ) from None
    try:
        grid = Grid(**plain)
    except ValidationError as error:
        raise explain(error, Grid, str(path)) from None

    known = ["auto", *preset_names()]
    for preset in grid.presets:
        if preset not in known:
            raise ConfigError(f"{path}: presets: there is no preset {preset!r}; {nearest(preset, known)}")

    def resolve(name: str) -> str:
        return str(path.parent / name)

    return grid.model_copy(
        update={
            "train": [resolve(name) for name in grid.files],
            "dev": grid.dev and resolve(grid.dev),
            "test": grid.test and resolve(grid.test),
        }
    )


def expand_grid(grid: Grid) -> list[Combination]:
    """Return every combination, in the order of the file; settings that no model can have are refused."""
    varied = dict(flatten_grid(grid.grid))
    budget = {name: value for name, value in grid.budget.model_dump().items() if value is not None}
    fixed = merge(grid.settings, {"training": budget}) if budget else dict(grid.settings)
    short = _short_names(list(varied))
    combinations: list[Combination] = []
    for preset in grid.presets:
        for values in itertools.product(*varied.values()):
            chosen = dict(zip(varied, values, strict=True))
            settings: Mapping[str, Any] = fixed
            for key, value in chosen.items():
                settings = merge(settings, _nest(key, value))
            name = ",".join([preset, *(f"{short[key]}={_write(value)}" for key, value in chosen.items())])
            combinations.append(Combination(_folder_name(name, combinations), preset, chosen, settings))
            try:  # as far as it can be checked without the data
                make_recipe(drop_sections_without_kind(read_layers(preset, None, settings).merged))
            except ConfigError as error:
                raise UserError(f"{name}: {error}") from None
    return combinations


def flatten_grid(tables: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Yield each setting that is varied by its dotted name, with its values."""
    for name, value in tables.items():
        path = f"{above}{name}"
        if isinstance(value, Mapping) and value:
            yield from flatten_grid(value, f"{path}.")
        elif isinstance(value, list) and value:
            yield path, value
        else:
            raise ValueError(f"grid.{path}: give a list of values, for example {path} = [1, 2] (got {value!r})")


def _nest(key: str, value: Any) -> dict[str, Any]:
    for name in reversed(key.split(".")):
        value = {name: value}
    return dict(value)


def _short_names(keys: list[str]) -> dict[str, str]:
    """Return the last word of each key, or the whole key where two have the same."""
    last = [key.rpartition(".")[2] for key in keys]
    return {key: word if last.count(word) == 1 else key for key, word in zip(keys, last, strict=True)}


def _write(value: Any) -> str:
    if isinstance(value, list):
        return "+".join(map(_write, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _folder_name(name: str, others: list[Combination]) -> str:
    """Return a name for the folder that every file system takes and no other candidate has."""
    safe = re.sub(r"[^\w.,=+-]+", "_", name)[:LONGEST_NAME].strip(".") or "run"
    taken = {combination.name for combination in others}
    number, unique = 2, safe
    while unique in taken:
        unique, number = f"{safe}+{number}", number + 1
    return unique
