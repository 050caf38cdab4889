"""A race is deterministic: stable ties, decisions stored as they are made, the same result after a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.errors import UserError
from dragoman.files import read_json
from dragoman.training.race import (
    Candidate,
    RaceEnded,
    RaceState,
    RunFailed,
    Rung,
    RungDecided,
    RungStarted,
    RunScored,
    Task,
    make_rungs,
    race,
)


def candidates(count: int, seeds: int = 2) -> list[Candidate]:
    return [Candidate(f"c{index}", tuple(f"c{index}/seed-{seed}" for seed in range(seeds))) for index in range(count)]


class Track:
    """Trains nothing: the score of a run is in a table. It may stop after some runs, as if it were killed."""

    def __init__(self, scores: dict[str, float], most: int = 10**6, backwards: bool = False) -> None:
        self.scores, self.left, self.backwards = scores, most, backwards
        self.trained: list[tuple[str, int | None]] = []

    def __call__(self, tasks: Sequence[Task]) -> Iterator[RunScored | RunFailed | str]:
        for task in reversed(tasks) if self.backwards else tasks:
            if not self.left:
                return
            self.left -= 1
            self.trained.append((task.run, task.updates))
            yield f"training {task.run}"
            candidate = task.run.partition("/")[0]
            yield RunScored(task.run, self.scores.get(task.run, self.scores.get(candidate, 0.0)))


def ended(events: Sequence[object]) -> RaceEnded:
    assert isinstance(events[-1], RaceEnded)
    return events[-1]


def test_rungs_are_counted_in_updates() -> None:
    assert make_rungs(8, 800, first=100) == (Rung(100, 4), Rung(200, 2), Rung(400, 1), Rung(800, 1))
    assert make_rungs(9, 1000, first=100, factor=3) == (Rung(100, 3), Rung(300, 1), Rung(1000, 1))
    assert make_rungs(5, 250, first=100) == (Rung(100, 3), Rung(200, 2), Rung(250, 1))
    assert make_rungs(7, None) == (Rung(None, 1),)
    for last, first, factor in ((None, 100, 2), (100, 100, 2), (100, 0, 2), (100, 10, 1)):
        with pytest.raises(UserError):
            make_rungs(4, last, first, factor)


def test_the_better_half_goes_on_and_ties_keep_the_order(tmp_path: Path) -> None:
    track = Track({"c0": 1.0, "c1": 3.0, "c2": 3.0, "c3/seed-0": 6.0, "c3/seed-1": 0.0})
    events = list(race(candidates(4), make_rungs(4, 40, first=10), tmp_path / "race.json", track))
    decisions = [event for event in events if isinstance(event, RungDecided)]
    assert decisions[0].ranking == ("c1", "c2", "c3", "c0") and decisions[0].kept == ("c1", "c2")
    assert decisions[1].kept == ("c1",) and [event.updates for event in events if isinstance(event, RungStarted)] == [
        10, 20, 40,
    ]  # fmt: skip
    assert [run for run, updates in track.trained if updates == 40] == ["c1/seed-0", "c1/seed-1"]
    end = ended(events)
    assert end.finished and [standing.name for standing in end.standings] == ["c1", "c2", "c3", "c0"]
    assert "training c0/seed-0" in events  # what the track says is passed on
    again = Track({})
    assert ended(list(race(candidates(4), make_rungs(4, 40, first=10), tmp_path / "race.json", again))) == end
    assert again.trained == []


@settings(max_examples=5, deadline=None)
@given(
    scores=st.lists(st.sampled_from([0.0, 1.0, 2.0, 2.5]), min_size=10, max_size=10),
    stops=st.lists(st.integers(0, 6), max_size=6),
)
def test_a_race_that_was_killed_comes_to_the_same_result(
    tmp_path_factory: pytest.TempPathFactory, scores: list[float], stops: list[int]
) -> None:
    place = tmp_path_factory.mktemp("race")
    runs = [run for candidate in candidates(5) for run in candidate.runs]
    table, rungs = dict(zip(runs, scores, strict=True)), make_rungs(5, 40, first=10)
    whole = ended(list(race(candidates(5), rungs, place / "whole.json", Track(table))))
    for number, stop in enumerate(stops):
        for event in race(candidates(5), rungs, place / "killed.json", Track(table, stop, backwards=number % 2 == 0)):
            if isinstance(event, RunScored) and number % 3 == 0:
                break  # killed between two events
    end = ended(list(race(candidates(5), rungs, place / "killed.json", Track(table, backwards=True))))
    assert end == whole
    states = [read_json(place / name) for name in ("whole.json", "killed.json")]
    assert states[0] == states[1]


def test_a_failed_run_takes_its_candidate_out_and_a_killed_one_stops_the_race(tmp_path: Path) -> None:
    rungs = make_rungs(3, 20, first=10)

    def fail(killed: bool) -> Iterator[object]:
        def compete(tasks: Sequence[Task]) -> Iterator[RunScored | RunFailed]:
            for task in tasks:
                if task.run == "c0/seed-1":
                    yield RunFailed(task.run, "no memory", killed)
                else:
                    yield RunScored(task.run, 9.0 if task.candidate == "c0" else 1.0)

        return race(candidates(3), rungs, tmp_path / f"{killed}.json", compete)

    end = ended(list(fail(killed=True)))
    assert (
        not end.finished
        and RaceState.from_json(json.loads((tmp_path / "True.json").read_text(encoding="utf-8"))).decisions == ()
    )
    end = ended(list(fail(killed=False)))
    assert end.finished and [standing.name for standing in end.standings] == ["c1", "c2", "c0"]
    assert end.standings[-1].failed and end.standings[-1].score is None


def test_a_run_that_failed_at_the_end_is_tried_again(tmp_path: Path) -> None:
    """So is one whose score is no number."""
    path = tmp_path / "race.json"
    first = list(race(candidates(2, 1), make_rungs(2, 20), path, Track({"c0": float("nan"), "c1": 1.0})))
    assert any(isinstance(event, RunFailed) and "nan" in event.problem for event in first)
    assert ended(first).finished and ended(first).standings[-1].failed
    track = Track({"c0": 2.0})
    second = ended(list(race(candidates(2, 1), make_rungs(2, 20), path, track)))
    assert track.trained == [("c0/seed-0", 20)] and [each.name for each in second.standings] == ["c0", "c1"]


def test_another_race_in_the_same_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "race.json"
    list(race(candidates(4), make_rungs(4, 40, first=10), path, Track({})))
    with pytest.raises(UserError, match="other rungs"):
        list(race(candidates(4), make_rungs(4, 80, first=10), path, Track({})))
    with pytest.raises(UserError, match="other candidates"):
        list(race(candidates(3), make_rungs(4, 40, first=10), path, Track({})))
    path.write_text('{"candidates": 3}', encoding="utf-8")
    with pytest.raises(UserError, match="damaged"):
        list(race(candidates(4), make_rungs(4, 40, first=10), path, Track({})))


def test_a_race_with_one_rung_may_get_more_candidates(tmp_path: Path) -> None:
    path = tmp_path / "race.json"
    list(race(candidates(2), make_rungs(2, 40), path, Track({"c0": 2.0})))
    track = Track({"c2": 1.0})
    end = ended(list(race(candidates(3), make_rungs(3, 40), path, track)))
    assert {run for run, _ in track.trained} == {"c2/seed-0", "c2/seed-1"}
    assert [each.name for each in end.standings] == ["c0", "c2", "c1"]
