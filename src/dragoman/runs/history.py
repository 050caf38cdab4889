"""What the folder of a run says about its past: its data, its training, its evaluation.

Everything is read as plain JSON values.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.errors import UserError
from dragoman.files import LARGE, open_regular, read_json, read_regular, rename_file

AUDIT = "audit.json"
EVALUATION = "evaluation.json"
OTHER_EVALUATION = "evaluation.{}.json"  # an earlier one on the other side of the data
SIDES = ("dev", "test")  # what a run can be evaluated on
METRICS = "metrics.jsonl"
ENDLESS = 10**9  # updates: neither these nor epochs are limited
TAIL = 2**16  # bytes at the end of metrics.jsonl that tell how training ended
METRICS_LIMIT = 256 << 20  # bytes


@dataclass(frozen=True, slots=True)
class MetricsTail:
    """The events at the end of metrics.jsonl, each with its kind as ``event``."""

    events: list[dict[str, Any]]
    offset: int  # bytes up to the end of these events
    restarted: bool  # the file is not the one that was read before: these are all of its events


def read_metrics(folder: Path, after: int = 0) -> MetricsTail:
    """Read the whole lines of metrics.jsonl after the first ``after`` bytes.

    A line that is still being written waits for the next call. A run that starts anew, or resumes
    from a checkpoint, makes the file shorter; then all of it is returned.
    """
    data = read_regular(folder / METRICS, METRICS_LIMIT) if (folder / METRICS).exists() else b""
    restarted = after > len(data) or (after > 0 and data[after - 1 : after] != b"\n")
    begin = 0 if restarted else after
    lines = data[begin : data.rfind(b"\n") + 1]
    events = []
    for line in lines.splitlines():
        with suppress(ValueError):  # a full disk or a crash may damage a line; the others are still good
            events.append(json.loads(line))
    return MetricsTail(events, begin + len(lines), restarted)


def describe_unfinished(folder: Path) -> str | None:
    """Return a sentence about a run whose training was stopped before its end; None for others.

    A run whose history was deleted is taken as finished.
    """
    path = folder / METRICS
    if not path.exists():
        return None
    with open_regular(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
        lines = file.read(TAIL).splitlines()
    events: list[dict[str, Any]] = []
    for line in lines:
        # the first may be half a line, the last still being written
        with suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict) and isinstance(event.get("update"), int):
                events.append(event)
    if not events or (events[-1].get("event") == "stopped" and events[-1].get("finished")):
        return None
    update = max(event["update"] for event in events)
    if events[-1].get("diverged") is True:
        return f"{folder}: training has diverged (update {update:,}); this answers with the last good weights before"
    last = next((event.get("last_update") for event in reversed(events) if event.get("event") == "started"), ENDLESS)
    limit = f" of at most {last:,}" if isinstance(last, int) and last < ENDLESS else ""
    return (
        f"{folder}: training has not reached its end (update {update:,}{limit}); this answers with the weights of its "
        "last stop, and the command that trained it resumes it"
    )


def read_audit(folder: Path) -> dict[str, Any]:
    """Return the audit of a run's data."""
    return read_json(folder / AUDIT, limit=LARGE)


def read_evaluation(folder: Path, side: str | None = None) -> dict[str, Any] | None:
    """Return the report on the final weights, with its ``side`` and ``update``, if there is one.

    ``side``: the one on these rows, ``test`` or ``dev``. Without it, the latest.
    """
    for name in (EVALUATION,) if side is None else (EVALUATION, OTHER_EVALUATION.format(side)):
        if (folder / name).exists():
            evaluation = read_json(folder / name, limit=LARGE)
            if side is None or evaluation.get("side") == side:
                return evaluation
    return None


def keep_other_evaluation(folder: Path, side: str) -> None:
    """Rename the report on another side than this one, which is about to be written in its place."""
    with suppress(UserError):  # a damaged record is replaced
        old = (read_evaluation(folder) or {}).get("side")
        if old in SIDES and old != side:  # anything else was not written by a run
            rename_file(folder / EVALUATION, OTHER_EVALUATION.format(old))


def evaluated_update(folder: Path, side: str | None = None) -> int | None:
    """Return the update whose weights were evaluated last; None also where the record is damaged."""
    with suppress(UserError):
        update = (read_evaluation(folder, side) or {}).get("update")
        return update if isinstance(update, int) else None
    return None
