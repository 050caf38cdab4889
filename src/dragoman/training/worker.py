"""A process that trains one run for another process: ``python -m dragoman.training.worker``.

It reads its job from standard input, as JSON. SIGTERM and SIGINT make it save and stop; so does the
end of the process that started it, so that nothing goes on training unseen. What goes wrong is
written to standard error. Exit codes are those of the command line.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from dragoman.errors import UserError


@dataclass(frozen=True, slots=True)
class Job:
    """One run to train: the arguments of ``training.run.train``, as plain values."""

    name: str  # as the run is shown
    out: str
    train: list[str]
    dev: str | None = None
    test: str | None = None
    preset: str | None = None
    config: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    pause_at: int | None = None
    evaluate_on: Literal["test", "dev"] = "test"

    @property
    def log(self) -> Path:
        """The file for what goes wrong, beside the folder of the run."""
        return Path(f"{self.out}.log")


def encode_job(job: Job) -> bytes:
    """Return what a worker started by this process reads from its standard input."""
    return json.dumps({"parent": os.getpid(), "job": asdict(job)}).encode()


def main() -> None:
    """Train the run of the job on standard input."""
    from dragoman.process import prepare
    from dragoman.process.signals import stop_on_signal

    prepare()  # before torch is imported
    request = json.load(sys.stdin)
    job, parent = Job(**request["job"]), request["parent"]
    with stop_on_signal() as is_signalled:

        def should_stop() -> bool:
            return is_signalled() or os.getppid() != parent

        try:
            finished = _train(job, should_stop)
        except UserError as error:
            print(f"dragoman: {error}", file=sys.stderr)
            sys.exit(error.exit_code)
        except OSError as error:  # e.g. a full disk
            where = f"{error.filename}: " if error.filename else ""
            print(f"dragoman: {where}{error.strerror or error}", file=sys.stderr)
            sys.exit(UserError.exit_code)
        except KeyboardInterrupt:
            sys.exit(130)
    sys.exit(0 if finished else 130)


def _train(job: Job, should_stop: Any) -> bool:
    """Train, and return whether the run reached its end or the update to pause at."""
    from dragoman.training.events import PAUSED, Event, Stopped
    from dragoman.training.run import train

    reached = False

    def on_event(event: Event) -> None:
        nonlocal reached
        if isinstance(event, Stopped):
            reached = event.finished or event.reason == PAUSED

    train(
        job.train, job.dev, job.test, out=job.out, preset=job.preset, config=job.config, settings=job.settings,
        on_event=on_event, should_stop=should_stop, pause_at=job.pause_at, evaluate_on=job.evaluate_on,
    )  # fmt: skip
    return reached


if __name__ == "__main__":
    main()
