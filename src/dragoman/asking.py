"""From what a person gives to what a search is asked: inputs as strings, the rows of one batch, the settings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from dragoman.config import explain
from dragoman.data.examples import SOURCE, tidy
from dragoman.data.stored import Pending
from dragoman.errors import UserError
from dragoman.predictions import Raw
from dragoman.search import SearchConfig


@dataclass(frozen=True, slots=True)
class Asked:
    """The rows of one search."""

    tensors: Sequence[Mapping[str, Tensor]]  # of each row, by the name of the source
    limits: Sequence[int]  # the most tokens of each output
    keys: Sequence[int]  # numbers that sampling draws by
    prefix: Sequence[Sequence[int]] | None = None  # tokens that each output begins with

    def __len__(self) -> int:
        return len(self.tensors)

    def one_by_one(self) -> Iterator[Asked]:
        for row, tensors in enumerate(self.tensors):
            prefix = None if self.prefix is None else [self.prefix[row]]
            yield Asked([tensors], [self.limits[row]], [self.keys[row]], prefix)


def read(tensors: Mapping[str, Tensor | Pending]) -> dict[str, Tensor]:
    """With what is in files."""
    return {name: one.read() if isinstance(one, Pending) else one for name, one in tensors.items()}


def plain(source: Any) -> Raw:
    """An input as strings: paths may be given as such."""
    if isinstance(source, Mapping):
        return {str(name): _text(one) for name, one in source.items()}
    return _text(source)


def _text(value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise UserError(f"an input is a text, a path, or several of these by name; got {type(value).__name__}")
    return os.fsdecode(value)


def by_name(source: Raw, names: Sequence[str] | None) -> dict[str, str]:
    """An input's strings by the names of a run's sources; ``names`` is None for a language model, which has none."""
    if names is None:
        if not isinstance(source, str):
            raise UserError(f"this run is a language model: give it texts, not {type(source).__name__}")
        return {SOURCE: tidy(source)}
    only = names[0] if len(names) == 1 else SOURCE
    named = {only: source} if isinstance(source, str) else dict(source)
    if named.keys() != set(names):
        how = "a text" if isinstance(source, str) else f"{sorted(named)}"
        raise UserError(f"this run reads {', '.join(names)}, but got {how}; give a mapping by these names")
    return {name: tidy(raw) for name, raw in named.items()}


def asked_for(own: SearchConfig, settings: Mapping[str, Any], never: Sequence[int]) -> SearchConfig:
    """A run's own settings of the search, but for those that are said; the tokens ``never`` are forbidden."""
    chosen = {name: value for name, value in settings.items() if value is not None}
    merged = own.model_dump() | chosen
    if "n_best" in chosen and "beam" not in chosen:
        merged["beam"] = max(merged["beam"], merged["n_best"])
    merged["forbidden"] = tuple({*merged["forbidden"], *never})
    try:
        return SearchConfig(**merged)
    except ValidationError as error:
        raise explain(error, SearchConfig, "search") from None


def forbidding(own: SearchConfig, banned: Iterable[Sequence[int]]) -> dict[str, Any]:
    """Settings of the search by which no output holds these: single tokens, and runs of several."""
    runs = {tuple(run) for run in banned}
    alone = sorted(run[0] for run in runs if len(run) == 1)
    return {
        "forbidden": (*own.forbidden, *alone),
        "forbidden_runs": (*own.forbidden_runs, *sorted(run for run in runs if len(run) > 1)),
    }
