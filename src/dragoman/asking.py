"""From what a person gives to what a search is asked: inputs as strings, and the rows of one batch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dragoman.data.stored import Pending
from dragoman.errors import UserError
from dragoman.predictions import Raw


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
