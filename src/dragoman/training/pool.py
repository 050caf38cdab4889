"""Train several runs side by side, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dragoman.files import create_file, delete_files
from dragoman.training.worker import Job, encode_job

WORKER = (sys.executable, "-m", "dragoman.training.worker")
POLL_SECONDS = 0.1  # between two looks at the workers
GRACE_SECONDS = 10.0  # that a worker has to end after it was told to a second time


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A worker trains this run now."""

    job: Job


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A worker has ended."""

    job: Job
    code: int  # its exit code; negative: the signal that killed it
    was_told: bool = False  # to stop, before it ended

    @property
    def is_done(self) -> bool:
        """Whether the run got as far as it was asked to."""
        return self.code == 0

    @property
    def is_interrupted(self) -> bool:
        """Whether it stopped before, because it was told to: after it saved, or before it listened to signals."""
        return self.code == 130 or (self.was_told and self.code == -signal.SIGTERM)

    @property
    def is_killed(self) -> bool:
        """Whether something outside ended it, against our will."""
        return self.code < 0 and not self.is_interrupted

    def describe(self) -> str:
        """Say in a sentence what went wrong, and where more is written."""
        if self.is_killed:
            name = signal.Signals(-self.code).name
            hint = "; perhaps memory ran out, and fewer --workers help" if name == "SIGKILL" else ""
            return f"its process was killed ({name}){hint}; what it saved is kept, and the same command resumes"
        lines = self.job.log.read_text(encoding="utf-8", errors="replace").split("\n") if self.job.log.exists() else []
        last = next((line.strip() for line in reversed(lines) if line.strip()), f"exit code {self.code}")
        more = "" if self.code == 2 else f" (all of it: {self.job.log})"
        return last.removeprefix("dragoman: ") + more


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing has happened; it is time to look at the progress of the runs."""


PoolEvent: TypeAlias = JobStarted | JobEnded | Waiting


def share_threads(workers: int, cores: int) -> int:
    """Return how many threads each of so many workers gets."""
    return max(1, cores // workers)


def run_jobs(
    jobs: Sequence[Job],
    workers: int,
    threads: int,
    should_stop: Callable[[], bool] = lambda: False,
    lock: int | None = None,
    program: Sequence[str] = WORKER,
) -> Iterator[PoolEvent]:
    """Train all runs, ``workers`` at a time with ``threads`` threads each, and yield what happens.

    ``should_stop``: no other run is started, and those that train save and stop. ``lock`` is the
    descriptor of a lock that the workers hold too, so that it is free when the last of them is gone.
    ``program`` reads a job from its standard input.
    """
    waiting = list(jobs)
    running: dict[subprocess.Popen[bytes], Job] = {}
    told = False  # to stop
    try:
        while waiting or running:
            if should_stop():
                waiting.clear()
                if not told:
                    _signal_all(running)
                    told = True
            while waiting and len(running) < workers:
                job = waiting.pop(0)
                running[_start(program, job, threads, lock)] = job
                yield JobStarted(job)
            ended = [process for process in running if process.poll() is not None]
            for process in ended:
                job = running.pop(process)
                if job.log.exists() and not job.log.stat().st_size:
                    delete_files(job.log.parent, [job.log.name])
                yield JobEnded(job, process.returncode, told)
            if running and not ended:
                yield Waiting()
                time.sleep(POLL_SECONDS)
    finally:  # only after an error, or a second Ctrl-C, is something still running
        _end_all(running)


def _start(program: Sequence[str], job: Job, threads: int, lock: int | None) -> subprocess.Popen[bytes]:
    """Start a worker. It has a session of its own, so that Ctrl-C in the terminal reaches it once: through us."""
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with create_file(job.log) as log:
        process = subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            start_new_session=True,
            pass_fds=() if lock is None else (lock,),
        )
    assert process.stdin is not None
    try:
        process.stdin.write(encode_job(job))
        process.stdin.close()
    except BrokenPipeError:  # it died at once; its exit code will say how
        pass
    return process


def _signal_all(processes: dict[subprocess.Popen[bytes], Job]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()


def _end_all(processes: dict[subprocess.Popen[bytes], Job]) -> None:
    """End the workers: first by a signal, then, if they do not obey, by force."""
    _signal_all(processes)
    deadline = time.monotonic() + GRACE_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
