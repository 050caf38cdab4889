"""Processes that share the rows of a batch, each with threads of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from dragoman.nn.model import Model
from dragoman.training.objective.gradient import ShareResult
from dragoman.training.parallel.group import is_split
from dragoman.training.parallel.processes import Processes
from dragoman.training.parallel.threads import SharePool
from dragoman.types import Batch, State, name_leaves, tree_of

ALIGNMENT = 16  # numbers: 64 bytes, as torch aligns its own tensors. How a sum of squares rounds depends on it.

NUMBERS = 3  # of a ``ShareResult``


class ProcessGroup:
    """A ``WorkerGroup`` of several processes.

    Every process makes the same batch and computes shares of its own. A sum of more than two floats
    depends on their order, so an all-reduce would round differently for each number of processes.
    Instead each process adds up one slice of the gradient: it gets this slice of every share, adds
    them in the order of the shares, and sends the sum to all. Where each process has one share,
    that is the traffic of an all-reduce.
    """

    def __init__(self, model: Model, count: int, processes: Processes, threads: int, carries: bool) -> None:
        """``count``: shares of a batch; ``threads``: of this process; ``carries``: states are results too."""
        self.model, self.count, self.processes, self.carries = model, count, processes, carries
        self.shares = [deal_shares(count, rank, processes.count) for rank in range(processes.count)]
        self.pool = SharePool(model, count, self.shares[processes.rank], threads)
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.layout = Layout(self.parameters, processes.count)

    def run(self, work: Callable[[Model, Batch], ShareResult], batch: Batch, seed: int) -> list[ShareResult]:
        is_first = self.processes.is_first
        if not is_first:  # the first process has the gradients of the update's earlier batches
            _drop_gradients(self.parameters)
        if not is_split(batch, self.count):
            results = [work(self.model, batch)] if is_first else []
            self._pass_generators(batch.inputs.device)
            alone = [1, *[0] * (self.processes.count - 1)]
            return self._add_up([self.parameters] if is_first else [], results, alone, alone)
        results = self.pool.run(work, batch, seed)
        if is_first:  # its shares come first, so they may be added at once
            self.pool.sum_gradients()
        held = self.pool.parameters[:1] if is_first else self.pool.parameters
        numbers = [len(shares) for shares in self.shares]
        gathered = self._add_up(held, results, [1, *numbers[1:]], numbers)
        for parameters in self.pool.parameters[1:]:
            _drop_gradients(parameters)
        return gathered

    def rehearse(self, work: Callable[[Model, Batch], ShareResult], batch: Batch, seed: int) -> list[ShareResult]:
        if not is_split(batch, self.count):
            return [work(self.model, batch)]
        results = self.pool.run(work, batch, seed)
        self.pool.sum_gradients()
        return results

    def clear(self) -> None:
        self.pool.clear()

    def describe(self) -> str:
        threads = f", each with {self.pool.threads} threads" if self.pool.threads > 1 else ""
        return f"each batch is dealt out in {self.count} shares to {self.processes.count} processes{threads}"

    def _add_up(
        self,
        held: Sequence[Sequence[nn.Parameter]],
        results: Sequence[ShareResult],
        gradient_counts: Sequence[int],
        result_counts: Sequence[int],
    ) -> list[ShareResult]:
        """Leave the sum of all gradients in the model, and return the results of all shares.

        ``held``: the parameters that have this process's gradients; ``gradient_counts`` and
        ``result_counts``: how many gradients and results each process sends.
        """
        layout, processes = self.layout, self.processes
        gradients = [layout.flatten(parameters) for parameters in held]
        notes = layout.write_notes(held, results)
        pieces = [[*(g[layout.slice(to)] for g in gradients), notes] for to in range(processes.count)]
        note_sizes = [layout.note_size(number) for number in result_counts]
        sizes = [
            number * layout.width + size * (number > 0)
            for number, size in zip(gradient_counts, note_sizes, strict=True)
        ]
        total, present, gathered = None, torch.zeros(layout.tensors), []
        for part, number, size in zip(processes.exchange(pieces, sizes), gradient_counts, note_sizes, strict=True):
            if not number:
                continue
            *summands, note = part.split([layout.width] * number + [size])
            for summand in summands:
                total = summand if total is None else total.add_(summand)
            theirs, read = layout.read_notes(note)
            present += theirs
            gathered += read
        assert total is not None  # the first process always has a share
        layout.set_gradients(self.parameters, processes.gather_tensors(total), present.tolist())
        return self._with_states(gathered, results) if self.carries else gathered

    def _with_states(self, gathered: Sequence[ShareResult], own: Sequence[ShareResult]) -> list[ShareResult]:
        """Return the results of all shares with the decoder states, of which this process has its own."""
        device = self.layout.device
        tensors = {
            f"{index}.{name}": tensor.cpu().contiguous()
            for index, result in enumerate(own)
            if result.state is not None
            for name, tensor in name_leaves(result.state.carry)
        }
        states: list[State] = []
        for data in self.processes.gather_bytes(save(tensors)):
            tree = tree_of({name: tensor.to(device) for name, tensor in load(data).items()})
            for index in sorted(tree, key=int):
                rows = len(next(iter(name_leaves(tree[index])))[1])
                states.append(State(rows, {}, tree[index]))
        return [replace(result, state=state) for result, state in zip(gathered, states, strict=True)]

    def _pass_generators(self, device: torch.device) -> None:
        """Put torch's generators where those of the first process are, which alone has drawn."""
        state = torch.get_rng_state()
        self.processes.pass_tensors([state])
        torch.set_rng_state(state)
        if device.type == "cuda":
            state = torch.cuda.get_rng_state(device)
            self.processes.pass_tensors([state])
            torch.cuda.set_rng_state(state, device)


class Layout:
    """Where each gradient has its place in one vector, which is divided among the processes.

    Notes go with a slice: which parameters have a gradient, and the results of the shares.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], processes: int) -> None:
        self.offsets: list[int] = []
        end = 0
        for parameter in parameters:
            self.offsets.append(end)
            end += _align(parameter.numel())
        self.tensors, self.device = len(parameters), parameters[0].device
        self.width = _align(-(-end // processes))  # of a slice
        self.size = self.width * processes

    def slice(self, rank: int) -> slice:
        """Return the slice that a process adds up."""
        return slice(rank * self.width, (rank + 1) * self.width)

    def flatten(self, parameters: Sequence[nn.Parameter]) -> Tensor:
        """Return the gradients as one vector."""
        vector = parameters[0].new_zeros(self.size)
        for parameter, begin in zip(parameters, self.offsets, strict=True):
            if parameter.grad is not None:
                vector[begin : begin + parameter.numel()] = parameter.grad.reshape(-1)
        return vector.detach()

    def set_gradients(self, parameters: Sequence[nn.Parameter], vector: Tensor, present: Sequence[float]) -> None:
        """Give each parameter its part of the vector, unless nobody had a gradient for it."""
        for parameter, begin, times in zip(parameters, self.offsets, present, strict=True):
            whole = vector[begin : begin + parameter.numel()].view(parameter.shape)
            parameter.grad = whole if times else None

    def note_size(self, results: int) -> int:
        """Return how many 32-bit numbers the notes of a process take."""
        return 2 * (self.tensors + NUMBERS * results)

    def write_notes(self, held: Sequence[Sequence[nn.Parameter]], results: Sequence[ShareResult]) -> Tensor:
        """Return 64-bit numbers, two places each, that travel with the gradients."""
        if not held:
            return torch.empty(0, device=self.device)
        present = [sum(parameters[index].grad is not None for parameters in held) for index in range(self.tensors)]
        numbers = [*map(float, present), *(number for result in results for number in result.to_numbers())]
        return torch.tensor(numbers, dtype=torch.float64).view(torch.float32).to(self.device)

    def read_notes(self, notes: Tensor) -> tuple[Tensor, list[ShareResult]]:
        """Return which parameters have gradients, and the results: the inverse of ``write_notes``."""
        numbers = notes.cpu().clone().view(torch.float64)
        rows = numbers[self.tensors :].view(-1, NUMBERS).tolist()
        return numbers[: self.tensors], [ShareResult.from_numbers(*row) for row in rows]


def deal_shares(count: int, rank: int, processes: int) -> range:
    """Return the shares that a process computes: neighbours, in the order of the processes."""
    return range(rank * count // processes, (rank + 1) * count // processes)


def _align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _drop_gradients(parameters: Sequence[nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.grad = None
