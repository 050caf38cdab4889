"""The progress of training in a notebook: the plan, folded, and one block that is updated in place."""

from __future__ import annotations

import importlib
import time
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.training.display import ProgressDisplay
from dragoman.training.events import Event, Started, Stepped, Stopped, Validated
from dragoman.training.lines import end_line, metric_value, validation_line
from dragoman.training.plan_text import describe_plan

if TYPE_CHECKING:
    from dragoman.training.plan import Plan
    from dragoman.training.trainer import Trainer

PAUSE = 0.5  # seconds at least between two updates of the page
LINES_SHOWN = 12  # validations; earlier ones are left out


class NotebookProgress(ProgressDisplay):
    """Shows a bar and the last validations. The output of the cell keeps the final state."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._lines: list[str] = []
        self._step: Stepped | None = None  # the last one
        self._best = ""
        self._drawn = 0.0
        self._stopped = False

    def show_plan(self, plan: Plan, trainer: Trainer, folder: Path, *, every_setting: bool = False) -> None:
        """Show the plan, folded."""
        self.max_time, self.trainer = plan.system.recipe.training.max_time, trainer
        text = "\n".join(describe_plan(plan, trainer, every_setting=every_setting))
        summary = f"{len(plan.data.train):,} rows to train on, {plan.system.model.parameters_count:,} parameters"
        self._display(
            f"<details><summary>Plan: {summary}; saved in {escape(str(folder))}</summary>"
            f"<pre>{escape(text)}</pre></details>"
        )

    def __call__(self, event: Event) -> None:
        """Update the block."""
        if isinstance(event, Started):
            self.last_update = event.last_update
            if event.update:
                self._lines.append(f"resuming from update {event.update:,}")
        elif isinstance(event, Stepped):
            self._step, self.first_step = event, self.first_step or event
        elif isinstance(event, Validated):
            if event.best:
                self._best = f" · best {event.metric} {metric_value(event):.2f}"
            self._lines.append(validation_line(event, self._step))
        elif isinstance(event, Stopped):
            self._lines.append(end_line(event))
            self._stopped = True
        if isinstance(event, Stopped) or time.monotonic() - self._drawn > PAUSE:
            self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        left_out = len(self._lines) - LINES_SHOWN
        lines = [*([f"({left_out} earlier lines)"] if left_out > 0 else []), *self._lines[-LINES_SHOWN:]]
        page = f"<pre>{escape(chr(10).join(lines))}</pre>" if lines else ""
        if self._step is not None and not self._stopped:
            step, last = self._step, self.expected_last(self._step)
            total = "" if last is None else f" of {last:,}"
            bar = "" if last is None else f'<progress max="{last}" value="{step.update}"></progress> '
            page += (
                f"{bar}update {step.update:,}{total} · loss {step.loss:.3f} · "
                f"{step.tokens_per_second:,.0f} tokens/s{escape(self._best)}"
            )
        self._display(page, again=True)

    def _display(self, page: str, again: bool = False) -> None:
        shown: Any = importlib.import_module("IPython.display")  # which is there: a notebook runs on it
        if not again:
            shown.display(shown.HTML(page))
        elif self._handle is None:
            self._handle = shown.display(shown.HTML(page), display_id=True)
        else:
            self._handle.update(shown.HTML(page))
