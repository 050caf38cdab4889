"""The live display: what stands beside the bar while a run trains."""

from __future__ import annotations

import threading

import pytest

from dragoman.data.examples import Example
from dragoman.data.splits import Data
from dragoman.training import display, lines, plan_text
from dragoman.training.checkpoints.progress import Progress
from dragoman.training.events import ENDLESS, Started, Stepped, Stopped, Validated
from dragoman.training.forecast import Forecast


def stepped(update: int, seconds: float) -> Stepped:
    return Stepped(update, 0, 2.0, 0.001, 1.0, 1234.0, seconds)


def status(live: display.LiveProgress) -> str:
    return str(live.progress.tasks[0].fields["status"])


@pytest.mark.parametrize(
    ("last", "max_time", "left", "total"),
    [
        (1000, None, "42 s left", 1000),
        (1000, 40.0, "30 s left", 750),
        (700, 40.0, "28 s left", 700),
        (ENDLESS, 40.0, "30 s left", 750),
        (ENDLESS, None, "", None),
    ],
)
def test_time_left_is_that_of_the_limit_that_comes_first(
    capsys: pytest.CaptureFixture[str], last: int, max_time: float | None, left: str, total: int | None
) -> None:
    live = display.LiveProgress()
    live.max_time = max_time
    live(Started(50, last, 10, 0.0, 0.0))
    live(stepped(50, 5.0))
    live(stepped(100, 7.5))
    live(Validated(100, 0, 1.5, 40.0, "exact match", True, 8.0))
    live(stepped(150, 10.0))
    told = status(live)
    assert "loss 2.000" in told and "1,234 tokens/s" in told and "best exact match 40.00" in told
    assert told.endswith(left) and ("left" in told) == bool(left)
    assert live.progress.tasks[0].total == total
    live(Stopped(150, "interrupted", False, 10.0))
    assert live.progress.finished or not live.progress.live.is_started
    assert "resuming from update 50" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("forecast", "said"),
    [
        (Forecast(0.1, 6960, 3.0), ["about 11.6 min for 6,960 updates"]),
        (
            Forecast(0.1, 6960, 3.0, 60),
            ["about 11.6 min for 6,960 updates", "--max-time 60 stops after about 570 updates; about 3 s of it"],
        ),
        (Forecast(0.1, 6960, 3.0, 6000), ["--max-time 6000 is enough for all of them"]),
        (Forecast(0.1, 6960, 100.0, 60), ["stops after about 300 updates", "may take about 70 s longer than"]),
        (Forecast(0.1, ENDLESS, 0.0, 60), ["stops after about 600 updates"]),
    ],
)
def test_the_estimate_is_not_the_limit(forecast: Forecast, said: list[str]) -> None:
    described = plan_text.describe_time(forecast)
    assert all(any(part in line for line in described) for part in said)
    assert any("limit: " in line for line in described) == (forecast.limit is not None)
    assert any("time: " in line for line in described) == (forecast.updates < ENDLESS)


def test_the_plan_says_that_rows_of_one_source_are_measured_together() -> None:
    rows = [Example({"source": source}, target, 1, "a.tsv") for source in "aab" for target in "xy"]
    single = [Example({"source": source}, "x", 1, "a.tsv") for source in "ab"]
    texts = [Example({}, "x", 1, "a.txt")] * 3
    assert plan_text.describe_sides(Data(rows, single, rows, {})) == [
        "6 rows to train on, 2 for dev, 6 for test (2 distinct sources)",
        "rows of dev and test with the same source are measured together",
    ]
    assert plan_text.describe_sides(Data(texts, texts, [], {})) == ["3 rows to train on, 3 for dev, 0 for test"]


def test_lines_say_something_once_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """Also while a validation or a slow update takes longer than that."""
    plain = display.PlainProgress()
    plain._said, plain._progress = 100.0, Progress(update=7, seconds=30.0)
    plain.speak_up(100.0 + display.SILENCE - 1)
    assert capsys.readouterr().err == ""
    plain.speak_up(100.0 + display.SILENCE)
    plain.speak_up(100.0 + display.SILENCE + 1)
    assert capsys.readouterr().err.split() == ["update", "7", "30", "s"]
    plain(stepped(20, 40.0))
    plain.speak_up(100.0 + 2 * display.SILENCE)
    assert "train loss 2.000" in capsys.readouterr().err
    plain(Stopped(20, "done", True, 50.0))
    plain.speak_up(plain._said + display.SILENCE)
    assert "evaluating the final weights" in capsys.readouterr().err


def test_the_watch_ends_with_the_display() -> None:
    plain = display.PlainProgress()
    plain(Started(0, 10, 5, 0.0, 0.0))
    (watch,) = (thread for thread in threading.enumerate() if thread.name == "progress")
    plain.close()
    watch.join(timeout=10)
    assert not watch.is_alive()


def test_lines_fit_narrow_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    line = lines.validation_line(Validated(100, 0, 1.5, 40.0, "exact match", True, 8.0), stepped(50, 5.0))
    folded = lines.fold(line, 60, at="  ").splitlines()
    assert len(folded) == 2 and all(len(each) <= 60 for each in folded)
    assert " ".join(line.split()) == " ".join(" ".join(folded).split())
    assert not any(each.endswith("loss") or each.endswith("match") for each in folded)  # a number stays with its name
    assert lines.fold("  " + "word " * 30 + "end", 60).splitlines()[1].startswith("      word")
    assert lines.fold("x" * 80, 60) == "x" * 80
    assert lines.fold("about 3 s of it", 12).splitlines() == ["about 3 s of", "    it"]
    assert lines.fold("about 3 s of it", 8).splitlines()[:2] == ["about", "    3 s"]  # a number and its unit
    assert lines.fold(line) == line  # there is no terminal
    monkeypatch.setenv("COLUMNS", "60")
    live = display.LiveProgress()
    live(Started(0, 1000, 10, 0.0, 0.0))
    live(stepped(50, 5.0))
    live.close()
    assert status(live) == "loss 2.000"


def test_a_finished_run_says_that_nothing_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    for shown in (display.PlainProgress(), display.LiveProgress()):
        shown(Stopped(150, "150 updates done", True, 10.0))
        assert "nothing is left to train: 150 updates were made in 10 s" in capsys.readouterr().err
        shown(Started(50, 150, 10, 0.0, 0.0))
        shown(Stopped(150, "150 updates done", True, 10.0))
        assert "trained 150 updates" in capsys.readouterr().err
        shown.close()
