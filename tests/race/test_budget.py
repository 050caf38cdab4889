"""A race with a budget: rungs that are fixed beforehand, a winner that becomes the run, killed anywhere and resumed."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dragoman
from dragoman.errors import UserError
from dragoman.runs.folder import RACE_FOLDER
from dragoman.training.budget import plan as planning
from dragoman.training.budget.candidates import AUTO, IDEAS, Idea
from dragoman.training.budget.plan import START_SECONDS, BudgetPlan, Entrant, fit_rungs, parse_budget
from dragoman.training.budget.run import BUDGET, run_race
from dragoman.training.group_display import GroupDisplay
from dragoman.training.worker import Job


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20m", 1200), ("1h30m", 5400), ("90", 90), ("90s", 90), ("1h", 3600), (45, 45), ("0.5h", 1800)],
)
def test_times_are_read(text: str | float, seconds: float) -> None:
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "20x", "m20", "5s", True, "99999h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="budget"):
        parse_budget(text)


@given(
    costs=st.lists(st.floats(0.001, 2.0), min_size=1, max_size=8),
    seconds=st.floats(10, 10_000),
    workers=st.integers(1, 4),
)
def test_a_race_fits_its_time_whoever_goes_on(costs: list[float], seconds: float, workers: int) -> None:
    entrants = [Entrant(f"c{number}", {}, 10**6, cost) for number, cost in enumerate(costs)]
    running, rungs = fit_rungs(entrants, seconds, workers)
    assert list(running) == entrants[: len(running)] and running, "the first candidates stay"
    if not rungs:
        assert len(running) == 1
        return
    assert rungs[-1].keep == 1 and all(one.keep >= other.keep for one, other in pairwise(rungs))
    dearest = sorted((each.seconds for each in running), reverse=True)
    work, left, before, starts = 0.0, len(running), 0, 0
    for rung in rungs:
        work += sum(dearest[:left]) * ((rung.updates or 0) - before)
        starts += left
        before, left = rung.updates or 0, rung.keep
    assert work + starts * START_SECONDS <= seconds * workers * 1.0001


def test_every_idea_is_valid_by_itself() -> None:
    assert IDEAS[0] == Idea(AUTO, {}) and len({idea.name for idea in IDEAS}) == len(IDEAS)


# ---- a race


@pytest.fixture
def tiny_ideas(monkeypatch: pytest.MonkeyPatch) -> None:
    ideas = (
        Idea(AUTO, {}),
        Idea("quick", {"training.optim.learning_rate": 0.02}),
        Idea("again", {"training.optim.learning_rate": 0.02}),
        Idea("wrong", {"decoder.kind": "transformer", "decoder.timing": "before"}),
    )
    monkeypatch.setattr(planning, "IDEAS", ideas)
    monkeypatch.setattr(planning, "START_SECONDS", 0.0)
    monkeypatch.setattr(planning, "FEWEST_UPDATES", 2)
    monkeypatch.setattr(planning.Trainer, "measure", lambda self, updates=3: 1.0)  # second for an update


def settings_of(tiny: dict[str, Any]) -> dict[str, Any]:
    training = {key: value for key, value in tiny["training"].items() if key != "max_updates"}
    return {**tiny, "training": {**training, "native": False}}


def test_the_winner_becomes_the_run(
    tiny_ideas: None, tiny_run: Any, tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    job = Job("", str(out), [str(tiny_run.pairs)], settings=settings_of(tiny_settings))
    stopped = run_race(job, 24.0, workers=1, display=GroupDisplay(), should_stop=lambda: True)
    assert stopped is None and not out.exists() and (tmp_path / "run.race" / BUDGET).exists(), "it was interrupted"
    plan = BudgetPlan.read(tmp_path / "run.race" / BUDGET)
    assert [each.name for each in plan.entrants] == [AUTO, "quick"]
    assert set(plan.left_out) == {"again", "wrong"}
    system = dragoman.train(
        tiny_run.pairs, out=out, settings=settings_of(tiny_settings), budget=24, workers=1, quiet=True
    )
    assert BudgetPlan.read(out / RACE_FOLDER / BUDGET) == plan, "resuming measures nothing again"
    race = json.loads((out / RACE_FOLDER / "race.json").read_text())
    (winner,) = race["decisions"][-1]["kept"]
    assert system.recipe.training.max_updates == plan.entrant(winner).updates
    assert json.loads((out / "evaluation.json").read_text())["side"] == "test"
    losers = [each.name for each in plan.entrants if each.name != winner]
    assert all(not (out / RACE_FOLDER / name / "evaluation.json").exists() for name in losers), "test is unseen"
    assert "wins" in (out / "README.md").read_text() and (out / RACE_FOLDER / "report.html").exists()
    again = dragoman.train(tiny_run.pairs, out=out, settings=settings_of(tiny_settings), budget=24, quiet=True)
    assert again.recipe == system.recipe
    with pytest.raises(UserError, match="budget of 24 s"):
        dragoman.train(tiny_run.pairs, out=out, settings=settings_of(tiny_settings), budget=30, quiet=True)
    other = settings_of(tiny_settings)
    other = {**other, "training": {**other["training"], "label_smoothing": 0.3}}
    with pytest.raises(UserError, match=r"its race had other settings \(training\)"):
        dragoman.train(tiny_run.pairs, out=out, settings=other, budget=24, quiet=True)


def test_too_little_time_is_no_race(
    tiny_ideas: None, tiny_run: Any, tiny_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "FEWEST_UPDATES", 10**6)
    system = dragoman.train(
        tiny_run.pairs, out=tmp_path / "run", settings=settings_of(tiny_settings), budget=10, quiet=True
    )
    assert system.recipe.training.max_updates == 5 and (tmp_path / "run" / RACE_FOLDER / BUDGET).exists()


def test_a_budget_chooses_the_model_and_the_time(tiny_run: Any, tmp_path: Path) -> None:
    for more, sentence in (
        ({"preset": "bahdanau2015"}, "--preset"),
        ({"settings": {"training.max_updates": 3}}, "training.max_updates"),
        ({"seeds": 2}, "seeds"),
    ):
        with pytest.raises(UserError, match=sentence):
            dragoman.train(tiny_run.pairs, out=tmp_path / "run", budget="1m", quiet=True, **more)
