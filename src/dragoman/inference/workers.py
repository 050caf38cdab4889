"""Answer batches in several processes, which share the weights.

Two processes with one thread each decode faster than one process with two threads: the operations of a step are too
small to be divided. The processes are forked from the one that has loaded the run, so the weights are in memory once
and whatever answers here answers there. Where there is no fork (Windows), and on a GPU, one process answers.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

from dragoman.errors import UserError
from dragoman.inference.batches import AnswerBatch, Run, answer_in_turn
from dragoman.inference.predictions import Prediction
from dragoman.process.devices import available_cores

BATCHES_EACH = 2  # that a worker has at least, where nobody says how many workers there are


def check_workers(workers: Any) -> None:
    """Refuse a number of processes that is none."""
    if workers is not None and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 1):
        raise UserError(f"workers is the number of processes that answer, 1 or more; got {workers!r}")


def choose_run(workers: int | None, inputs: int, batch: int, place: str) -> Run:
    """Return how to answer the batches of so many inputs.

    ``workers`` is the number of processes; None: one for each core, as far as there is work for them. ``place`` is
    where the engine computes.
    """
    check_workers(workers)
    batches = -(-inputs // batch)
    count = min(available_cores(), batches // BATCHES_EACH) if workers is None else min(workers, batches)
    if count <= 1 or not can_fork(place):
        return answer_in_turn
    return partial(answer_in_workers, count)


def can_fork(place: str) -> bool:
    """Tell whether processes may be forked from one whose engine computes at this place."""
    # macOS has fork, but its system libraries may crash after it
    return sys.platform.startswith("linux") and not place.startswith("cuda")


def answer_in_workers(
    workers: int, batches: Sequence[Sequence[int]], answer: AnswerBatch
) -> Iterator[Mapping[int, Prediction]]:
    """Answer batches in ``workers`` processes, in whatever order they get done.

    An error of a worker is raised here. When the caller stops, or an error is raised, all workers are ended.
    """
    context = multiprocessing.get_context("fork")
    pipes: list[Connection] = []
    processes = []
    waiting = iter(range(len(batches)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of fork in a process that has threads
            for _ in range(workers):
                ours, theirs = context.Pipe()
                pipes.append(ours)
                process = context.Process(target=_work, args=(theirs, list(pipes), batches, answer), daemon=True)
                process.start()
                processes.append(process)
                theirs.close()
        busy = {pipe: process for pipe, process in zip(pipes, processes, strict=True) if _assign(pipe, waiting)}
        while busy:
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                try:
                    answered, error = pickle.loads(pipe.recv_bytes())
                except EOFError:
                    raise _describe_death(busy[pipe]) from None
                if error is not None:
                    raise error
                if not _assign(pipe, waiting):
                    del busy[pipe]
                yield answered
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
        for pipe in pipes:
            pipe.close()


def _assign(pipe: Connection, waiting: Iterator[int]) -> bool:
    """Give the next batch to a worker; return whether there was one."""
    number = next(waiting, None)
    if number is not None:
        pipe.send(number)
    return number is not None


def _work(
    pipe: Connection, others: Sequence[Connection], batches: Sequence[Sequence[int]], answer: AnswerBatch
) -> None:
    """Answer the batches whose numbers come through a pipe, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:  # so that this process notices when the one that started it is gone
        other.close()
    torch = sys.modules.get("torch")  # not imported here: an engine may do without
    if torch is not None:
        torch.set_num_threads(1)
    while True:
        try:
            number = pipe.recv()
        except EOFError:
            return
        pipe.send_bytes(_attempt(partial(answer, batches[number])))


def _attempt(work: Callable[[], Mapping[int, Prediction]]) -> bytes:
    """Return the result and the error of a call as bytes; one of the two is None."""
    try:
        return pickle.dumps((work(), None))
    except Exception as error:
        try:
            return pickle.dumps((None, pickle.loads(pickle.dumps(error))))
        except Exception:  # an error that cannot be passed on as it is
            return pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))


def _describe_death(process: Any) -> UserError:
    process.join()
    code = process.exitcode
    how = f"by signal {signal.Signals(-code).name}" if code and code < 0 else f"with exit code {code}"
    return UserError(f"a worker ended {how} before it had answered; perhaps memory ran out: use fewer --workers")
