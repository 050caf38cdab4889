"""Run a race with a budget, and make its winner the run.

The race is in a folder beside the run, NAME.race: a run folder for each candidate. When it is decided,
the folder of the winner becomes the run, and the race moves into it. All of this is a few renames, so
a race that was killed anywhere goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragoman.errors import UserError
from dragoman.files import exclusive_lock, read_json, write_atomically, write_json
from dragoman.recipe.layers import read_layers
from dragoman.runs.folder import IDENTITY, RACE_FOLDER, RACE_TABLE, move_aside
from dragoman.runs.groups import refuse_links
from dragoman.training.budget.plan import ADVICE, BudgetPlan, plan_race
from dragoman.training.budget.table import RaceTable, make_table
from dragoman.training.group_display import GroupDisplay
from dragoman.training.page import REPORT
from dragoman.training.pool import JobEnded, PoolEvent, run_jobs
from dragoman.training.race import Candidate, RaceEnded, RaceState, RunFailed, RunScored, Task, race
from dragoman.training.sweep.run import paused_score
from dragoman.training.worker import Job

BUDGET, RACE = "budget.json", "race.json"


@dataclass(frozen=True, slots=True)
class Winner:
    """What a race decided."""

    name: str
    settings: Mapping[str, Any]  # all that the run is trained with
    table: RaceTable


def run_race(
    job: Job,
    budget: float,
    *,
    workers: int | None = None,
    fresh: bool = False,
    display: GroupDisplay,
    should_stop: Callable[[], bool] = lambda: False,
    on_plan: Callable[[BudgetPlan], None] = lambda _: None,
) -> Winner | None:
    """Race for the best model on dev and return the winner; None: the race was interrupted.

    ``job.out`` is the folder of the run. Test rows are never looked at. The same call again goes on,
    or returns what was decided.
    """
    folder = Path(job.out)
    beside = folder.with_name(f"{folder.name}.race")
    refuse_links(folder.parent, [folder, beside])
    if fresh:
        for each in (folder, beside):
            if each.exists():
                with exclusive_lock(each):
                    move_aside(each)
    if (beside / BUDGET).exists() and (folder / IDENTITY).exists():
        beside.rename(folder / RACE_FOLDER)  # it was killed between the two renames
    if (folder / RACE_FOLDER / BUDGET).exists():
        plan = BudgetPlan.read(folder / RACE_FOLDER / BUDGET)
        _refuse_other(plan, job, budget, folder)
        return _winner(plan, folder / RACE_FOLDER)
    if folder.exists() and any(entry.name[0] != "." for entry in folder.iterdir()):
        raise UserError(f"{folder}: holds a run that no race chose; choose another --out, or --fresh to set it aside")
    with exclusive_lock(beside) as lock:
        if (beside / BUDGET).exists():
            plan = BudgetPlan.read(beside / BUDGET)
            _refuse_other(plan, job, budget, folder)
        else:
            plan = plan_race(job, budget, workers)
            write_json(beside / BUDGET, plan.to_json())
        on_plan(plan)
        is_over = True
        for event in _compete(plan, job, beside, should_stop, lock.descriptor):
            if isinstance(event, RaceEnded):
                is_over = event.finished
            elif isinstance(event, RunFailed):
                display.say(f"{event.run}: {event.problem}")
            elif not isinstance(event, RunScored):
                display(event)
        if not is_over:
            return None
        winner = _winner(plan, beside)
        write_atomically(beside / RACE_TABLE, winner.table.to_text())
        write_atomically(beside / REPORT, winner.table.to_page(folder.name))
    if (beside / winner.name).exists():
        if folder.exists():
            folder.rmdir()  # nothing but hidden files was in it
        (beside / winner.name).rename(folder)
    else:
        folder.mkdir(parents=True, exist_ok=True)
    beside.rename(folder / RACE_FOLDER)
    return winner


def _compete(
    plan: BudgetPlan, job: Job, folder: Path, should_stop: Callable[[], bool], lock: int | None
) -> Iterator[Any]:
    """Yield what happens in the race; one candidate alone has won it."""
    if not plan.rungs:
        return iter([RaceEnded(True, ())])
    jobs = {
        each.name: replace(
            job, name=each.name, out=str(folder / each.name), preset=None, config=None, settings=each.settings,
            evaluate_on="dev",
        )
        for each in plan.entrants
    }  # fmt: skip

    def compete(tasks: Sequence[Task]) -> Iterator[RunScored | RunFailed | PoolEvent]:
        paused = [replace(jobs[task.run], pause_at=task.updates) for task in tasks]
        for event in run_jobs(paused, plan.workers, plan.threads, should_stop, lock):
            yield event
            if isinstance(event, JobEnded) and event.is_done:
                yield RunScored(event.job.name, paused_score(event.job))
            elif isinstance(event, JobEnded) and not event.is_interrupted:
                yield RunFailed(event.job.name, event.describe(), event.is_killed)

    candidates = [Candidate(each.name, (each.name,)) for each in plan.entrants]
    return race(candidates, plan.rungs, folder / RACE, compete)


def _winner(plan: BudgetPlan, folder: Path) -> Winner:
    """Return what the race of a folder decided."""
    state = RaceState.from_json(read_json(folder / RACE, advice=ADVICE)) if plan.rungs else None
    kept = state.decisions[-1].kept if state is not None and state.decisions else ()
    if state is not None and not kept:
        raise UserError(f"{folder}: no candidate could be trained; the logs there say why; {ADVICE}")
    name = kept[0] if kept else plan.entrants[0].name
    settings = {**plan.entrant(name).settings}
    settings["training"] = {key: value for key, value in settings["training"].items() if key != "threads"}
    return Winner(name, settings, make_table(plan, state, name))


def _refuse_other(plan: BudgetPlan, job: Job, budget: float, folder: Path) -> None:
    """Refuse a folder whose race had another budget or other settings."""
    if plan.budget != budget:
        raise UserError(
            f"{folder}: its race had a budget of {plan.budget:g} s, not {budget:g} s; choose another --out, or {ADVICE}"
        )
    asked = json.loads(json.dumps(dict(read_layers(job.preset, job.config, job.settings).person), default=str))
    if asked != plan.asked:
        differing = sorted(name for name in {*asked, *plan.asked} if asked.get(name) != plan.asked.get(name))
        raise UserError(
            f"{folder}: its race had other settings ({', '.join(differing)}); choose another --out, or {ADVICE}"
        )
