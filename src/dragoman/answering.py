"""Many inputs, answered in batches of about the same length and given out in the order they came in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from dragoman.asking import read
from dragoman.data.stored import Pending
from dragoman.errors import UserError
from dragoman.predictions import Prediction, Raw
from dragoman.replies import empty

Answer = Callable[[Mapping[int, Mapping[str, Tensor]]], Mapping[int, Prediction]]  # rows of one batch, by number


@dataclass(frozen=True, slots=True)
class Given:
    """The inputs of one question, row by row."""

    sources: Sequence[Raw]
    tensors: Sequence[Mapping[str, Tensor | Pending]]  # by the name of the source; none for a language model
    prefix: Sequence[str] | None  # what each output begins with

    def length(self, row: int) -> int:
        """What a row is sorted by; of a language model its prompt is all there is."""
        if not self.tensors[row] and self.prefix is not None:
            return len(self.prefix[row])
        return max((len(tensor) for tensor in self.tensors[row].values()), default=0)


def in_batches(given: Given, answerable: Sequence[int], batch: int, answer: Answer) -> Iterator[Prediction]:
    """Rows that are not ``answerable`` have an empty output; those whose file cannot be read have one that says why."""
    found = {row: empty(given.sources[row]) for row in set(range(len(given.sources))) - set(answerable)}
    lengths: dict[int, int] = {}
    for row in answerable:
        try:
            lengths[row] = given.length(row)
        except UserError as error:
            found[row] = empty(given.sources[row], str(error))
    order = sorted(lengths, key=lambda row: lengths[row])
    next_row = 0
    for begin in range(0, max(1, len(order)), batch):
        loaded: dict[int, dict[str, Tensor]] = {}
        for row in order[begin : begin + batch]:
            try:
                loaded[row] = read(given.tensors[row])
            except UserError as error:
                found[row] = empty(given.sources[row], str(error))
        if loaded:
            found.update(answer(loaded))
        while next_row in found:
            yield found.pop(next_row)
            next_row += 1
