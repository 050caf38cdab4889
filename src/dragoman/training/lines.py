"""The lines that training prints: reports, validations and its end, folded to the terminal."""

from __future__ import annotations

import re
import shutil
import sys

from dragoman.training.events import Stepped, Stopped, Validated

UNIT = re.compile(r"(\d) (s|min|h|MB|GB|%)\b")


def format_duration(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours, whichever reads best."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def terminal_width() -> int | None:
    """Return the columns of the terminal on standard error; None if it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stderr.isatty() else None


def fold(line: str, width: int | None = None, at: str = " ") -> str:
    """Return a line as several that fit the terminal, or ``width``; those after the first are indented.

    ``at``: what stands where a line may be broken. Without a terminal nothing is folded.
    """
    if width is None:
        width = terminal_width() or len(line)
    if len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    folded, rest = [], UNIT.sub("\\1\u00a0\\2", line.lstrip())  # a number stays with its unit
    while len(indent) + len(rest) > width:
        end = rest.rfind(at, 0, width - len(indent) + 1)
        if end <= 0:
            break
        folded.append(indent + rest[:end].rstrip())
        rest = rest[end:].lstrip()
        if len(folded) == 1:
            indent += "    "
    return "\n".join([*folded, indent + rest]).replace("\u00a0", " ")


def step_line(event: Stepped) -> str:
    """Return the line about a report of training."""
    return (
        f"update {event.update:>6,}  {format_duration(event.seconds):>8}  train loss {event.loss:.3f}  "
        f"learning rate {event.learning_rate:.3g}  gradient norm {event.gradient_norm:.3g}  "
        f"{event.tokens_per_second:,.0f} tokens/s"
    )


def validation_line(event: Validated, step: Stepped | None) -> str:
    """Return the line about a validation, with the last report of training before it."""
    loss, speed = (f"  train loss {step.loss:.3f}", f"  {step.tokens_per_second:,.0f} tokens/s") if step else ("", "")
    mark = "  best so far" if event.best else ""
    return (
        f"update {event.update:>6,}  {format_duration(event.seconds):>8}{loss}  dev loss {event.loss:.3f}  "
        f"{event.metric} {metric_value(event):.2f}{speed}{mark}"
    )


def metric_value(event: Validated) -> float:
    """Return the metric itself; the score is its negative where lower is better."""
    return abs(event.score)


def end_line(event: Stopped, *, has_trained: bool = True) -> str:
    """Return the line about the end of training. ``has_trained``: something was left to do."""
    if event.finished and not has_trained:
        done = f"{event.update:,} updates were made in {format_duration(event.seconds)}"
        return f"nothing is left to train: {done} ({event.reason})"
    if event.finished:
        return f"trained {event.update:,} updates in {format_duration(event.seconds)}: {event.reason}"
    if event.diverged:
        return f"stopped at update {event.update:,}: training has diverged"
    return f"stopped at update {event.update:,}; everything is saved, and the same command resumes from here"


def print_line(line: str) -> None:
    """Print a line on standard error at once."""
    print(line, file=sys.stderr, flush=True)
