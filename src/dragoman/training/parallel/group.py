"""What a group of workers does, whether they are threads of this process or processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from dragoman.nn.model import Model
from dragoman.types import Batch, Padded, State, cat_trees

Result = TypeVar("Result")


class WorkerGroup(Protocol):
    """Workers that share the rows of each batch and add up their gradients.

    Laws: the gradient left in the trainer's model is the sum over all rows, up to rounding; it is
    the same every time for the same batch, seed and ``count``; a group of one worker changes
    nothing.

    An implementation with one process per worker (torch.distributed) has to

    - run the same trainer in every process: batches depend on the seed alone, so each process makes
      the same batch and takes its own rows with ``deal(batch, rank, count)``;
    - seed the work of share ``index`` with ``seed * count + index``, as ``threads`` does;
    - sum the gradients of all processes in the order of the shares (or with an all-reduce whose
      order is fixed) and leave the sum in every process's model;
    - gather the results, in the order of the shares, in every process: losses decide whether an
      update is skipped, rewards move a baseline, states are carried on, and all processes must
      agree;
    - let every process iterate over the trainer's events, but attach a ``RunWriter``, validation
      included, to the first process only, and send the scores of a validation to the others;
    - refuse models whose layers look across the rows of a batch, as ``can_share_rows`` does.
    """

    @property
    def count(self) -> int:
        """Return the number of workers."""

    def run(self, work: Callable[[Model, Batch], Result], batch: Batch, seed: int) -> list[Result]:
        """Call ``work`` on every share of a batch and return the results in the shares' order.

        ``work`` adds gradients to the parameters of the model that it is given. Afterwards the
        trainer's model has the sum of the gradients of all shares. A batch of few rows stays whole.
        """


def deal(batch: Batch, index: int, count: int) -> Batch:
    """Return every ``count``-th row of a batch, from row ``index`` on.

    Rows are sorted by length, so the shares are alike. Columns that hold only padding are cut off.
    """

    def part(data: Tensor, mask: Tensor) -> Tensor:
        own = mask[index::count]  # (rows, S), for pictures (rows, H, W)
        if own.dim() == 2:
            return data[index::count, : int(own.sum(1).max())]
        height, width = int(own.any(2).sum(1).max()), int(own.any(1).sum(1).max())
        return data[index::count, :height, :width]

    sources = {
        name: Padded(part(source.data, source.mask), part(source.mask, source.mask))
        for name, source in batch.sources.items()
    }
    inputs, targets, mask = (part(data, batch.mask) for data in (batch.inputs, batch.targets, batch.mask))
    state = batch.state
    if state is not None:
        state = state.select(torch.arange(index, len(batch.inputs), count, device=batch.inputs.device))
    return Batch(sources, inputs, targets, mask, batch.rows[index::count], state)


def join_states(states: Sequence[State]) -> State:
    """Return the states of all shares as the state of the batch: the inverse of ``deal``."""
    if len(states) == 1:
        return states[0]
    ends = [0, *accumulate(state.sources for state in states)]
    rows = torch.tensor([ends[row % len(states)] + row // len(states) for row in range(ends[-1])])
    whole = State(ends[-1], {}, cat_trees([state.carry for state in states]))
    return whole.reorder(rows)
