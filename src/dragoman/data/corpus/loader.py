"""Processes that read files ahead of need, so that training does not wait for them.

Each process is a fresh interpreter with two pipes: requests in, padded batches out. So it runs no
code of the calling program again, as multiprocessing would with a script, and it ends by itself
when the pipe closes, however the caller ended. It needs no torch, and so it starts at once.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import IO, TypeAlias, cast

from dragoman.data.corpus.columns import EpochSeed, FileColumn
from dragoman.errors import UserError
from dragoman.types import PaddedArrays

AHEAD = 2  # batches that a process has ready or is reading
START = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from dragoman.data.corpus.loader import serve; serve()"
)

Request: TypeAlias = tuple[Sequence[int], EpochSeed]  # rows, and how they are augmented
Loaded: TypeAlias = dict[str, PaddedArrays]  # by source


class Readers:
    """``count`` processes that read the files of ``columns``."""

    def __init__(self, columns: Mapping[str, FileColumn], count: int) -> None:
        self.count = count
        self.idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-P", "-c", START],  # -P: import nothing from the current folder
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
            for _ in range(count)
        ]
        setup = pickle.dumps(sys.path) + pickle.dumps(dict(columns))
        self.pool = ThreadPoolExecutor(count, "reader")
        for process in self.processes:
            self.pool.submit(self._begin, process, setup)

    def _begin(self, process: subprocess.Popen[bytes], setup: bytes) -> None:
        """Send the setup, which may be larger than a pipe holds, while the caller goes on."""
        with suppress(OSError):  # if the process has ended already, the first request reports it
            _pipe(process.stdin).write(setup)
            _pipe(process.stdin).flush()
        self.idle.put(process)

    def run(self, requests: Iterable[Request]) -> Iterator[Loaded]:
        """Yield what each request reads, in their order."""
        waiting: deque[Future[Loaded]] = deque()
        for request in requests:
            waiting.append(self.pool.submit(self._read, request))
            if len(waiting) > AHEAD * self.count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _read(self, request: Request) -> Loaded:
        process = self.idle.get()
        try:
            pickle.dump(request, _pipe(process.stdin))
            _pipe(process.stdin).flush()
            problem, loaded = pickle.load(_pipe(process.stdout))
        except (OSError, EOFError, pickle.UnpicklingError):
            code = process.poll()
            raise UserError(
                f"a process that reads files has ended (exit code {code}), perhaps for lack of memory; "
                "--set training.loaders=0 reads them in the training process"
            ) from None
        finally:
            self.idle.put(process)
        if problem is not None:
            raise UserError(problem)
        return cast(Loaded, loaded)

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


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    return cast("IO[bytes]", pipe)


def serve() -> None:
    """Answer requests until there are no more: what a process runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    requests = sys.stdin.buffer
    columns: dict[str, FileColumn] = pickle.load(requests)
    while True:
        try:
            rows, epoch_seed = pickle.load(requests)
        except EOFError:
            return
        answer: tuple[str | None, Loaded]
        try:
            answer = None, {name: column.padded(rows, epoch_seed) for name, column in columns.items()}
        except UserError as error:
            answer = str(error), {}
        try:
            pickle.dump(answer, answers, protocol=5)
            answers.flush()
        except BrokenPipeError:
            return
