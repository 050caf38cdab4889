"""Processes that work on data while the caller goes on: they prepare shards of a corpus, or read files ahead of need.

Each process is a fresh interpreter with two pipes: tasks in, results out. So it runs no code of the
calling program again, as multiprocessing would with a script, and it ends by itself when the pipe
closes, however the caller ended. It needs no torch, and so it starts at once.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import IO, Any, Self, TypeVar, cast

from dragoman.errors import UserError

AHEAD = 2  # tasks for each process that wait or are done and not yet taken
MOST = 8  # processes
START = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from dragoman.data.corpus.processes import serve; serve()"
)

Task = TypeVar("Task")
Result = TypeVar("Result")


def count_cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """Processes that call ``work`` with one task after the other."""

    def __init__(
        self,
        work: Callable[[Task], Result],
        count: int | None = None,
        *,
        purpose: str = "prepares the data",
        remedy: str = "the same command goes on with what is prepared",
    ) -> None:
        """``work`` and its tasks must be picklable. ``count``: by default, one process for each core.

        The error for a process that has ended says what it was for and what to do.
        """
        self.purpose, self.remedy = purpose, remedy
        self.count = count or min(MOST, count_cores())
        self.idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        setup = pickle.dumps(sys.path) + pickle.dumps(work)
        command = [sys.executable, "-P", "-c", START]  # -P: import nothing from the current folder
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
            for _ in range(self.count)
        ]
        self.pool = ThreadPoolExecutor(self.count, "worker")
        for process in self.processes:
            self.pool.submit(self._begin, process, setup)
        self.waiting: deque[Future[Any]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        for process in self.processes:
            process.kill()
            process.wait()
        self.pool.shutdown(wait=True)
        for process in self.processes:
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # unsent data has nowhere to go
                    _pipe(pipe).close()

    def submit(self, task: object) -> Iterator[Any]:
        """Add a task, and yield the results that are due, in the order of the tasks.

        Where too many tasks wait, the caller waits too: memory is bounded.
        """
        self.waiting.append(self.pool.submit(self._run, task))
        while len(self.waiting) > AHEAD * self.count or (self.waiting and self.waiting[0].done()):
            yield self.waiting.popleft().result()

    def finish(self) -> Iterator[Any]:
        """Yield the results that are still due."""
        while self.waiting:
            yield self.waiting.popleft().result()

    def map(self, tasks: Iterable[object]) -> Iterator[Any]:
        """Yield the result of every task, in their order."""
        waiting: deque[Future[Any]] = deque()  # its own: a caller may stop before the end
        for task in tasks:
            waiting.append(self.pool.submit(self._run, task))
            if len(waiting) > AHEAD * self.count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _begin(self, process: subprocess.Popen[bytes], setup: bytes) -> None:
        """Send the setup, which may be larger than a pipe holds, while the caller goes on."""
        with suppress(OSError):  # if the process has ended already, the first task reports it
            _pipe(process.stdin).write(setup)
            _pipe(process.stdin).flush()
        self.idle.put(process)

    def _run(self, task: object) -> object:
        process = self.idle.get()
        try:
            pickle.dump(task, _pipe(process.stdin))
            _pipe(process.stdin).flush()
            problem, result = pickle.load(_pipe(process.stdout))
        except (OSError, EOFError, pickle.UnpicklingError):
            code = process.poll()
            raise UserError(
                f"a process that {self.purpose} has ended (exit code {code}), perhaps for lack of memory; {self.remedy}"
            ) from None
        finally:
            self.idle.put(process)
        if problem is not None:
            raise UserError(problem)
        return cast(object, result)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    return cast("IO[bytes]", pipe)


def serve() -> None:
    """Work on tasks until there are no more: what a process runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the results
    tasks = sys.stdin.buffer
    work = pickle.load(tasks)
    while True:
        try:
            task = pickle.load(tasks)
        except EOFError:
            return
        answer: tuple[str | None, object]
        try:
            answer = None, work(task)
        except UserError as error:
            answer = str(error), None
        except OSError as error:
            answer = f"{error.filename or 'a file of the prepared data'}: {error.strerror or error}", None
        try:
            pickle.dump(answer, results, protocol=5)
            results.flush()
        except BrokenPipeError:
            return
