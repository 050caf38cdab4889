"""The processes that train one model together: how they meet, agree and pass values on.

torchrun starts them, on one machine or several, and starts them again if one dies. All run the same
program. They exchange tensors and JSON, never pickles.
"""

from __future__ import annotations

import atexit
import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from dragoman.errors import ReportedError, UserError
from dragoman.process.place import find_place
from dragoman.training.parallel.meeting import find_meeting

Result = TypeVar("Result")

# A validation may take long. A process that dies is noticed at once, whatever this limit is.
LONGEST_WAIT = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of one training. Each has such a value, and all call its methods in the same order.

    A single process talks to nobody: its methods return what they are given.
    """

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Return whether this process writes, prints and validates."""
        return self.rank == 0

    def agree(self, *values: float) -> list[float]:
        """Return the largest of each value over all processes."""
        if self.count == 1:
            return list(values)
        largest = torch.tensor(values, dtype=torch.float64)
        with connected(self):
            dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        agreed: list[float] = largest.tolist()
        return agreed

    def on_first(self, work: Callable[[], Any]) -> Any:
        """Let the first process do something, and return its result, which JSON can hold, everywhere.

        The others wait. If it fails, all of them stop.
        """
        if self.count == 1:
            return work()
        if not self.is_first:
            answer = json.loads(self.pass_bytes(b""))
            if answer["failed"]:
                raise ReportedError("the first process has failed")
            return answer["result"]
        try:
            result = work()
        except BaseException:
            self.pass_bytes(b'{"failed": true}')
            raise
        self.pass_bytes(json.dumps({"failed": False, "result": result}).encode())
        return result

    def together(self, work: Callable[[], Result]) -> Result:
        """Call ``work`` in every process. A mistake of the user in any of them is reported once."""
        if self.count == 1:
            return work()
        result, error = None, None
        try:
            result = work()
        except UserError as raised:
            error = raised
        problems = self.gather(None if error is None else str(error))
        reporter = next((rank for rank, problem in enumerate(problems) if problem is not None), None)
        if error is not None and self.rank == reporter:
            raise error
        if reporter is not None:
            raise ReportedError(f"process {reporter} has failed: {problems[reporter]}")
        return result  # type: ignore[return-value]

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes in their order. JSON has to hold them."""
        return [json.loads(data) for data in self.gather_bytes(json.dumps(value).encode())]

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Return the bytes of all processes in their order."""
        if self.count == 1:
            return [data]
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.count)]
        with connected(self):
            dist.all_gather(sizes, torch.tensor([len(data)]))
            longest = max(int(size) for size in sizes)
            padded = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.count)]
            dist.all_gather(padded, torch.frombuffer(bytearray(data.ljust(longest, b"\0")), dtype=torch.uint8))
        return [row[: int(size)].numpy().tobytes() for row, size in zip(padded, sizes, strict=True)]

    def pass_bytes(self, data: bytes) -> bytes:
        """Return the bytes of the first process."""
        if self.count == 1:
            return data
        size = torch.tensor([len(data)])
        with connected(self):
            dist.broadcast(size, 0)
            if not int(size):
                return b""
            tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8) if self.is_first else None
            if tensor is None:
                tensor = torch.empty(int(size), dtype=torch.uint8)
            dist.broadcast(tensor, 0)
        return tensor.numpy().tobytes()

    def pass_tensors(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors with those of the first process."""
        if self.count > 1:
            with torch.no_grad(), connected(self):
                for tensor in tensors:
                    sent = tensor.detach().contiguous()
                    dist.broadcast(sent, 0)
                    if sent.data_ptr() != tensor.data_ptr():
                        tensor.copy_(sent)

    def exchange(self, pieces: Sequence[Sequence[Tensor]], sizes: Sequence[int]) -> list[Tensor]:
        """Send pieces i, as one vector, to process i; return what each process sent here, in their order.

        ``sizes``: how many numbers each of them sends here.
        """
        sent = torch.cat([piece for group in pieces for piece in group])
        received = sent.new_empty(sum(sizes))
        with connected(self):
            dist.all_to_all_single(
                received, sent, list(sizes), [sum(len(piece) for piece in group) for group in pieces]
            )
        return list(received.split(list(sizes)))

    def gather_tensors(self, tensor: Tensor) -> Tensor:
        """Return the tensors of all processes, which have one size, as one."""
        whole = tensor.new_empty(self.count * len(tensor))
        with connected(self):
            dist.all_gather(list(whole.split(len(tensor))), tensor)
        return whole


@contextmanager
def connected(processes: Processes) -> Iterator[None]:
    """Turn a lost connection into a sentence."""
    try:
        yield
    except RuntimeError as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"process {processes.rank} lost the connection to the other processes of this training ({reason}); "
            "the same command resumes from the last checkpoint, and torchrun --max-restarts=10 repeats it by itself"
        ) from None


@cache
def join_processes() -> Processes:
    """Return the processes that torchrun has started together with this one, connected.

    The connection lasts until the program ends. It is one that the program has made itself, if
    there is one already.
    """
    place = find_place()
    if place.count == 1:
        return Processes()
    if not dist.is_initialized():
        # The optimizer imports this. If it came later, some of its functions would keep the connection as a default
        # argument, and the threads that serve it would outlive the interpreter and crash.
        importlib.import_module("torch._dynamo")
        with_gpus = torch.cuda.is_available()
        if with_gpus:
            torch.cuda.set_device(place.local_rank)
        store, rank, count = next(rendezvous("env://", timeout=LONGEST_WAIT))
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if with_gpus else "gloo",
            store=find_meeting(store, rank, count),
            rank=rank,
            world_size=count,
            timeout=LONGEST_WAIT,
        )
        atexit.register(_leave)
    return Processes(place.rank, place.count)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
