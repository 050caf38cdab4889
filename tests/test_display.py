"""The live display: what stands beside the bar while a run trains."""

from __future__ import annotations

import pytest

from dragoman.training import display
from dragoman.training.events import ENDLESS, Started, Stepped, Stopped, Validated


def stepped(update: int, seconds: float) -> Stepped:
    return Stepped(update, 0, 2.0, 0.001, 1.0, 1234.0, seconds)


def status(live: display.LiveProgress) -> str:
    return str(live.progress.tasks[0].fields["status"])


@pytest.mark.parametrize(
    ("last", "max_time", "left"),
    [(1000, None, "42 s left"), (1000, 40.0, "30 s left"), (ENDLESS, 40.0, "30 s left"), (ENDLESS, None, "")],
)
def test_time_left_is_that_of_the_limit_that_comes_first(
    capsys: pytest.CaptureFixture[str], last: int, max_time: float | None, left: str
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
    assert live.progress.tasks[0].total == (None if last == ENDLESS else last)
    live(Stopped(150, "interrupted", False, 10.0))
    assert live.progress.finished or not live.progress.live.is_started
    assert "resuming from update 50" in capsys.readouterr().err
