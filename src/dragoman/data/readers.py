"""Processes that read files ahead of need, so that training does not wait for them.

Each is a fresh interpreter behind two pipes: requests in, padded batches out. So nothing of the calling program is run
again in it, as multiprocessing would do to a script, and it ends by itself when the pipe closes, however the caller
ended.
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
from typing import IO, Any, cast

import torch

from dragoman.data.stored import Draw, FileColumn
from dragoman.errors import UserError
from dragoman.types import Padded

AHEAD = 2  # batches a process has ready or in the making
START = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); from dragoman.data.readers import serve; serve()"
)

Request = tuple[Sequence[int], Draw]
Loaded = dict[str, Padded]


class Readers:
    """``count`` processes that read the files of ``columns``."""

    def __init__(self, columns: Mapping[str, FileColumn], count: int) -> None:
        self.count = count
        self.idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-P", "-c", START],  # -P: nothing of the folder one is in is imported
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
            for _ in range(count)
        ]
        first = pickle.dumps(sys.path) + pickle.dumps(dict(columns))
        self.pool = ThreadPoolExecutor(count, "reader")
        for process in self.processes:
            self.pool.submit(self._begin, process, first)

    def _begin(self, process: subprocess.Popen[bytes], first: bytes) -> None:
        """The setup may be larger than a pipe holds: it is written while the caller goes on."""
        with suppress(OSError):  # if it has ended already, that is told with the first request
            _pipe(process.stdin).write(first)
            _pipe(process.stdin).flush()
        self.idle.put(process)

    def run(self, requests: Iterable[Request]) -> Iterator[Loaded]:
        """What each request reads, in their order."""
        waiting: deque[Future[Loaded]] = deque()
        for request in requests:
            waiting.append(self.pool.submit(self._ask, request))
            if len(waiting) > AHEAD * self.count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _ask(self, request: Request) -> Loaded:
        process = self.idle.get()
        try:
            pickle.dump(request, _pipe(process.stdin))
            _pipe(process.stdin).flush()
            problem, arrays = pickle.load(_pipe(process.stdout))
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
        return {name: Padded(torch.from_numpy(data), torch.from_numpy(mask)) for name, (data, mask) in arrays.items()}

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
        for process in self.processes:
            process.kill()
            process.wait()
        self.pool.shutdown(wait=True)
        for process in self.processes:
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # what was still to be written has nowhere to go
                    _pipe(pipe).close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    return cast("IO[bytes]", pipe)


def serve() -> None:
    """The other side: answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's business
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not stand between the answers
    questions = sys.stdin.buffer
    columns: dict[str, FileColumn] = pickle.load(questions)
    while True:
        try:
            rows, draw = pickle.load(questions)
        except EOFError:
            return
        answer: tuple[str | None, dict[str, Any]]
        try:
            loaded = {name: column.padded(rows, draw) for name, column in columns.items()}
            answer = None, {name: (one.data.numpy(), one.mask.numpy()) for name, one in loaded.items()}
        except UserError as error:
            answer = str(error), {}
        try:
            pickle.dump(answer, answers, protocol=5)
            answers.flush()
        except BrokenPipeError:
            return
