"""What a race with a budget will do, fixed before its first update: who takes part, and how far each rung is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dragoman.config import expand_keys, merge
from dragoman.errors import UserError
from dragoman.files import damaged_file, read_json
from dragoman.process.devices import available_cores
from dragoman.recipe.layers import read_layers
from dragoman.recipe.schema import spell_out
from dragoman.training.budget.candidates import AUTO, IDEAS, settings_of
from dragoman.training.events import ENDLESS
from dragoman.training.lines import format_duration
from dragoman.training.plan import Plan
from dragoman.training.race import Rung, make_rungs
from dragoman.training.run import preview
from dragoman.training.trainer import Trainer
from dragoman.training.worker import Job

RACE_SHARE = 0.5  # of the budget; the winner gets the rest
START_SECONDS = 6.0  # that a worker needs before its first update
FEWEST_UPDATES = 60  # of a first rung that says something
VALIDATIONS = 15  # of a run, besides those at rungs
ADVICE = "--fresh sets the old folder aside and starts anew"


def parse_budget(text: str | float) -> float:
    """Return the seconds of a budget such as ``20m``, ``1h30m`` or ``90``."""
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        seconds = float(text)
    else:
        found = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", str(text).strip())
        if found is None or not any(found.groups()):
            raise UserError(f"budget: {text!r} is no time; write 20m, 1h30m, or a number of seconds")
        seconds = sum(float(part or 0) * size for part, size in zip(found.groups(), (3600, 60, 1), strict=True))
    if not 10 <= seconds <= 30 * 86_400:
        raise UserError(f"budget: {text!r} is not between 10 seconds and 30 days")
    return seconds


@dataclass(frozen=True, slots=True)
class Entrant:
    """A candidate of the race: all its settings, how many updates it would make, and what one takes."""

    name: str
    settings: dict[str, Any]
    updates: int
    seconds: float  # of an update, as measured before the race


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """A race as it is stored. Resuming it reads this, and measures nothing again."""

    budget: float
    data: str  # the fingerprint of the data
    asked: dict[str, Any]  # what the person asked for
    metric: str
    workers: int
    threads: int
    entrants: tuple[Entrant, ...]
    rungs: tuple[Rung, ...]  # empty: there was no time for a race
    left_out: dict[str, str]  # candidates that cannot take part, and why

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return asdict(self)

    @classmethod
    def read(cls, path: Path) -> BudgetPlan:
        """Read a plan that was stored."""
        plain = read_json(path, advice=ADVICE)
        try:
            entrants = tuple(Entrant(**each) for each in plain.pop("entrants"))
            rungs = tuple(Rung(**each) for each in plain.pop("rungs"))
            return cls(entrants=entrants, rungs=rungs, **plain)
        except (KeyError, TypeError, AttributeError) as error:
            raise damaged_file(path, repr(error), ADVICE) from None

    def describe(self) -> list[str]:
        """Say in sentences who takes part and how far each rung is."""
        names = ", ".join(each.name for each in self.entrants)
        if not self.rungs:
            return [f"budget: {format_duration(self.budget)}, too little for a race; {names} trains alone"]
        far = ", ".join(f"{rung.updates:,} updates ({rung.keep} go on)" for rung in self.rungs)
        return [
            f"budget: {format_duration(self.budget)}, about half of it for a race of {names}",
            f"rungs: {far}; then the winner trains to its end",
            *(f"left out: {name} ({why})" for name, why in self.left_out.items()),
        ]

    def entrant(self, name: str) -> Entrant:
        """Return a candidate by its name."""
        return next(each for each in self.entrants if each.name == name)


def plan_race(job: Job, budget: float, workers: int | None = None) -> BudgetPlan:
    """Plan every candidate, measure its speed, and fix the rungs of a race that takes half of the budget."""
    layers = read_layers(job.preset, job.config, job.settings)
    if layers.merged.get("preset", AUTO) != AUTO:
        raise UserError("--budget lets candidates race for the best model; leave out --preset, or leave out --budget")
    asked = dict(layers.person)
    for name in ("max_updates", "max_epochs", "max_time"):
        if name in (asked.get("training") or {}):
            raise UserError(f"--budget says how long to train; leave out training.{name}")
    cores = available_cores()
    count = max(1, min(len(IDEAS), workers or cores))
    threads = max(1, cores // count)
    common = {"training": {"threads": threads, "shares": cores}}
    first, trainer = _preview(job, merge(asked, common))
    entrants = [_entrant(AUTO, asked, trainer, budget)]
    recipes = [_comparable(first)]
    left_out: dict[str, str] = {}
    for idea in IDEAS[1:]:
        settings = merge(spell_out(expand_keys(settings_of(idea, len(first.data.train)))), asked)
        try:
            planned, trainer = _preview(job, merge(settings, common))
        except UserError as error:
            left_out[idea.name] = str(error)
            continue
        if _comparable(planned) in recipes:
            left_out[idea.name] = "the same as another candidate"
            continue
        recipes.append(_comparable(planned))
        entrants.append(_entrant(idea.name, settings, trainer, budget))
    metric = {} if first.system.is_language_model else {"metric": first.metric.headline}
    entrants = [replace(each, settings=merge(merge(each.settings, common), metric)) for each in entrants]
    running, rungs = fit_rungs(entrants, RACE_SHARE * budget, count)
    left_out |= dict.fromkeys((each.name for each in entrants[len(running) :]), "there is no time for it")
    return BudgetPlan(
        budget, first.data.fingerprint(), asked, first.metric.headline, count, threads, tuple(running), rungs, left_out
    )


def fit_rungs(entrants: Sequence[Entrant], seconds: float, workers: int) -> tuple[Sequence[Entrant], tuple[Rung, ...]]:
    """Return who takes part in a race of so many seconds, and its rungs.

    Each rung goes twice as far as the one before, with half of the candidates. Where the first rung
    would be too short to tell anything, the last candidates are left out.
    """
    for count in range(len(entrants), 1, -1):
        some = entrants[:count]
        shape = [rung.keep for rung in make_rungs(count, 1 << 60, 1)[:-1]]  # how many are left after each rung
        costs = sorted((each.seconds for each in some), reverse=True)
        work, starts, left = sum(costs), float(count), count
        for step, keep in enumerate(shape[:-1]):  # the dearest ones may be those that go on
            work += sum(costs[:keep]) * 2**step
            starts += keep
            left = keep
        assert left >= 1
        first = int((seconds * workers - starts * START_SECONDS) / work) if work > 0 else 0
        if first >= FEWEST_UPDATES:
            return some, tuple(Rung(first * 2**step, keep) for step, keep in enumerate(shape))
    return entrants[:1], ()


def _entrant(name: str, settings: Mapping[str, Any], trainer: Trainer, budget: float) -> Entrant:
    """Return a candidate that ends within the winner's share of the budget, with a schedule of that length."""
    seconds = max(1e-6, trainer.measure())
    possible = int((1 - RACE_SHARE) * budget / seconds)
    updates = max(1, min(trainer.last_update, possible, ENDLESS - 1))
    limits = {"max_updates": updates, "max_epochs": None, "validate_every": max(20, updates // VALIDATIONS)}
    return Entrant(name, merge(settings, {"training": limits}), updates, seconds)


def _preview(job: Job, settings: Mapping[str, Any]) -> tuple[Plan, Trainer]:
    """Plan a candidate as it will be trained. Nothing is written."""
    made: list[Trainer] = []
    planned = preview(
        job.train, job.dev, job.test, settings=settings, fresh=True,
        on_plan=lambda plan, trainer, folder: made.append(trainer),
    )  # fmt: skip
    return planned, made[0]


def _comparable(planned: Plan) -> dict[str, Any]:
    """Return all settings but those that say how to compute."""
    plain = planned.system.recipe.dump()
    plain["data"].pop("augment", None)
    return {**plain, "made": dict(planned.data.augmented)}
