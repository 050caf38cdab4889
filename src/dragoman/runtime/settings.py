"""The settings of a search and the limits of a model, as a model file holds them.

The section "settings" has float64 numbers: first those of ``enum dragoman_setting`` in
``native/dragoman.h``, from "bos" to "seed", then the limits in the order of ``LIMITS``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from .container import Container
from .errors import UserError
from .search import NORMALIZATIONS, SETTINGS, STOPS

STORED: Final = SETTINGS[: SETTINGS.index("seed") + 1]
LIMITS: Final = ("ratio", "extra", "most", "characters")
WORDS: Final = {"normalize": NORMALIZATIONS, "stop": STOPS}
REAL: Final = ("alpha", "temperature", "top_p")


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How outputs are searched for: the settings of Dragoman's ``SearchConfig``, which mean the same."""

    beam: int = 5  # 1: greedy search
    n_best: int = 1  # outputs per input
    normalize: str = "average"  # none, average or gnmt
    alpha: float = 0.6  # exponent of gnmt
    stop: str = "complete"  # or certain
    min_length: int = 0
    max_length: int | None = None
    no_repeat_ngram: int = 0
    sample: bool = False
    samples: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    forbidden: tuple[int, ...] = ()
    forbidden_runs: tuple[tuple[int, ...], ...] = ()
    only: tuple[tuple[int, ...], ...] = ()

    def changed(self, settings: Mapping[str, Any]) -> SearchOptions:
        """Return these options with some settings changed, or say which cannot be."""
        known = {field.name for field in fields(self)}
        for name, value in settings.items():
            if name not in known:
                raise UserError(f"{name}: there is no such setting; choose from: {', '.join(sorted(known))}")
            if name in WORDS and value not in WORDS[name]:
                raise UserError(f"{name} = {value!r}: choose from: {', '.join(WORDS[name])}")
            is_number = isinstance(value, (int, float)) and math.isfinite(value)
            if name not in WORDS and not name.startswith(("forbid", "only")) and not is_number:
                raise UserError(f"{name} = {value!r}: give a number")
        changes = dict(settings)
        sample = bool(changes.get("sample", self.sample))
        if sample and "n_best" in changes:  # so many outputs, whichever way they are found
            changes |= {"samples": changes["n_best"], "n_best": 1}
        elif "n_best" in changes and "beam" not in changes:
            changes["beam"] = max(self.beam, changes["n_best"])
        options = replace(self, **changes)
        options._check()
        return options

    def _check(self) -> None:
        if self.beam < 1 or self.n_best < 1 or self.samples < 1:
            raise UserError("beam, n_best and samples are 1 or more")
        if not self.sample and self.n_best > self.beam:
            raise UserError(f"n_best = {self.n_best} needs a beam at least as wide, but beam = {self.beam}")
        if self.max_length is not None and not self.min_length < self.max_length:
            raise UserError(
                f"max_length = {self.max_length} leaves no room: it is above min_length = {self.min_length}"
            )
        if self.temperature <= 0 or not 0 < self.top_p <= 1 or self.alpha < 0:
            raise UserError("temperature is above 0, top_p from 0 to 1, and alpha 0 or more")
        if min(self.min_length, self.no_repeat_ngram, self.top_k, self.seed) < 0:
            raise UserError("min_length, no_repeat_ngram, top_k and seed are 0 or more")


@dataclass(frozen=True, slots=True)
class Limits:
    """How long inputs and outputs may be."""

    ratio: float  # an output has at most ratio times the length of its source
    extra: int  # and so many tokens more
    most: int  # and never more than these
    characters: int  # of an input; 0: any number

    def limit(self, source: int) -> int:
        """Return the most tokens that the output of a source of this length may have."""
        return min(self.most, math.ceil(self.ratio * source) + self.extra)


def pack_settings(search: Mapping[str, Any], limits: Limits, bos: int, eos: int) -> list[float]:
    """Return the numbers of the section "settings"."""
    values = {**search, "bos": bos, "eos": eos, "max_length": search["max_length"] or 0}
    numbers = [float(WORDS[name].index(values[name]) if name in WORDS else values[name]) for name in STORED]
    return [*numbers, *(float(getattr(limits, name)) for name in LIMITS)]


def read_settings(container: Container) -> tuple[SearchOptions, Limits, int, int]:
    """Return the search settings of a model file, its limits, and its start and end symbols."""
    numbers = container.array("settings", "<f8").tolist()
    if len(numbers) != len(STORED) + len(LIMITS) or not all(map(math.isfinite, numbers)):
        raise container.damaged("its section 'settings' is of another size")
    stored: dict[str, Any] = dict(zip(STORED, numbers, strict=False))
    ratio, extra, most, characters = numbers[len(STORED) :]
    runs = container.runs("forbidden")
    try:
        for name, words in WORDS.items():
            stored[name] = words[int(stored[name])]
    except IndexError:
        raise container.damaged("a setting of its search is unknown") from None
    bos, eos = int(stored.pop("bos")), int(stored.pop("eos"))
    plain: dict[str, Any] = {name: value if name in (*REAL, *WORDS) else int(value) for name, value in stored.items()}
    plain |= {"max_length": plain["max_length"] or None, "sample": bool(plain["sample"])}
    options = SearchOptions(
        **plain,
        forbidden=tuple(run[0] for run in runs if len(run) == 1),
        forbidden_runs=tuple(run for run in runs if len(run) > 1),
        only=tuple(container.runs("only")),
    )
    return options, Limits(ratio, int(extra), int(most), int(characters)), bos, eos


def pack_runs(runs: Sequence[Sequence[int]]) -> list[int]:
    """Return sequences of token ids as the numbers of a section: their number, then the length and ids of each."""
    return [len(runs), *(number for run in runs for number in (len(run), *run))]
