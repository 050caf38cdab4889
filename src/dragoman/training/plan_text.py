"""The plan of a training in words: the audit, what was chosen and why, and the expected time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dragoman.data.audit.audit import WIDTH as AUDIT_WIDTH
from dragoman.data.examples import count_sources
from dragoman.training.events import ENDLESS
from dragoman.training.lines import fold, format_duration, print_line, terminal_width

if TYPE_CHECKING:
    from dragoman.data.splits import Data
    from dragoman.training.forecast import Forecast
    from dragoman.training.plan import Plan
    from dragoman.training.trainer import Trainer


def print_plan(plan: Plan, trainer: Trainer, *, every_setting: bool = False) -> None:
    """Print the audit, what was chosen and why, and how long training may take."""
    for line in describe_plan(plan, trainer, every_setting=every_setting, width=terminal_width()):
        print_line(line if "\n" in line else fold(line))  # the audit is a table, which has its own lines


def describe_plan(
    plan: Plan, trainer: Trainer, *, every_setting: bool = False, width: int | None = None
) -> Iterator[str]:
    """Yield the lines of ``print_plan``; the audit is laid out for a terminal of ``width`` columns."""
    yield from describe_choices(plan, width)
    yield f"  {describe_size(plan)}, on {trainer.device}"
    if workers := trainer.updater.workers.describe():
        yield f"  {workers}"
    if not trainer.progress.update:
        for line in describe_time(trainer.forecast()):
            yield f"  {line}"
    if every_setting:
        yield ""
        for setting in flatten_settings(plan.system.recipe.dump()):
            yield f"  {setting}"


def describe_choices(plan: Plan, width: int | None = None) -> Iterator[str]:
    """Yield the lines about the data, and what was chosen and why."""
    data = plan.data
    for name, audit in data.audits.items():
        yield f"{name}: {audit.report(width or AUDIT_WIDTH)}\n"
    if data.held_out:
        yield data.held_out
    for name, overlap in data.overlaps.items():
        if overlap.rows:
            yield f"{name}: {overlap.report()}"
    yield from describe_sides(data)
    yield ""
    for reason in plan.reasons:
        yield f"  {reason}"


def describe_size(plan: Plan) -> str:
    """Say how large the model is."""
    return f"{plan.system.model.parameters_count:,} parameters"


def describe_sides(data: Data) -> list[str]:
    """Return how many rows are on each side of the data, and how many distinct sources dev and test have."""
    counts = []
    for name, rows in (("dev", data.dev), ("test", data.test)):
        sources = count_sources(rows)
        distinct = f" ({sources:,} distinct sources)" if sources < len(rows) else ""
        counts.append(f"{len(rows):,} for {name}{distinct}")
    made = f" ({sum(data.augmented.values()):,} of them made)" if data.augmented else ""
    lines = [f"{len(data.train):,} rows to train on{made}, {', '.join(counts)}"]
    return lines + ["rows of dev and test with the same source are measured together"] * any(
        "(" in count for count in counts
    )


def describe_time(forecast: Forecast) -> list[str]:
    """Return how long training will take, and how far a time limit lets it get."""
    lines = []
    if forecast.updates < ENDLESS:
        lines.append(
            f"time: about {format_duration(forecast.training)} for {forecast.updates:,} updates at the speed just "
            "measured, and validations; less if the dev score stops improving"
        )
    if forecast.limit is not None:
        within = forecast.updates_within_limit
        far = f"stops after about {within:,} updates" if within < forecast.updates else "is enough for all of them"
        lines.append(
            f"limit: --max-time {forecast.limit:g} {far}; about {format_duration(forecast.kept)} of it are kept for "
            "the last validation and the evaluation"
        )
        if forecast.kept < forecast.ending:
            more = format_duration(forecast.ending - forecast.kept)
            lines.append(f"       these may take about {more} longer than the limit allows")
        lines.append("       not part of the limit: reading the data before the first update, and the report page")
    return lines


def flatten_settings(settings: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield all settings as they are written after ``--set``: path = value."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flatten_settings(value, f"{above}{name}.")
        else:
            yield f"{above}{name} = {json.dumps(value, ensure_ascii=False)}"
