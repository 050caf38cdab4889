"""What several runs show: the page of their results, and their lines on a narrow terminal."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from dragoman.evaluation.metrics.spread import spread
from dragoman.training.events import Started, Stepped, Validated
from dragoman.training.group_display import GroupBars
from dragoman.training.page import Table, draw_interval, mean_cells, write_page
from dragoman.training.sweep.results import CandidateResult, SweepResults


def test_every_cell_of_a_page_names_its_column_for_narrow_screens() -> None:
    heads = ["model", "dev", "over seeds", "each seed and mean"]
    cells = ["<b>a & b</b>", *mean_cells(41.0, 31.0, 51.0, "%"), draw_interval(41.0, 31.0, 51.0, (0.0, 90.0), [40.0])]
    page = write_page("presets", "a note", [Table("Results", "a note", heads, [("best", cells), ("out", [""] * 4)])])
    assert re.findall(r'data-label="([^"]*)"', page) == heads * 2
    assert 'tabindex="0" role="region" aria-label="Results"' in page  # a table that scrolls can be reached by keyboard
    assert "@media (max-width: 640px)" in page and page.count("<td data-label=") == 8


def test_the_lines_of_runs_can_be_told_apart_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the end of a long name was cut off, and with it the seed."""
    monkeypatch.setenv("COLUMNS", "60")
    bars = GroupBars()
    names = [f"bahdanau2015,width=128/seed-{seed}" for seed in (1, 2)]
    try:
        for name in names:
            bars.started(SimpleNamespace(name=name))  # type: ignore[arg-type]
            bars.show(name, Started(0, 4000, 10, 0.0, 0.0))
            bars.show(name, Validated(1000, 1, 1.0, 41.0, "exact match", True, 5.0))
    finally:
        bars.close()
    shown = [task.description for task in bars.progress.tasks]
    assert [label[-6:] for label in shown] == ["seed-1", "seed-2"] and max(map(len, shown)) <= 18
    assert bars._best[names[0]] == " · best 41.00"


@pytest.mark.parametrize(("second", "says"), [(0.0, True), (-1.0, False)])
def test_the_first_of_equal_candidates_is_not_called_better(second: float, says: bool) -> None:
    candidates = [
        CandidateResult(name, f"runs/{name}", name, {}, "finished", None, spread([mean, mean]), None)
        for name, mean in (("a", 0.0), ("b", second))
    ]
    results = SweepResults("s", "exact", "exact match", "%", "higher", 2, [None], True, candidates)
    assert ("no better on dev than b" in results.to_text()) == says


def test_bars_of_several_runs_count_to_what_the_time_limit_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, they counted to the last update, and said nothing of the time."""
    monkeypatch.setenv("COLUMNS", "120")
    bars = GroupBars()

    def stepped(update: int, seconds: float) -> Stepped:
        return Stepped(update, 0, 2.0, 0.001, 1.0, 1000.0, seconds)

    try:
        bars.started(SimpleNamespace(name="seed-1"))  # type: ignore[arg-type]
        bars.show("seed-1", Started(0, 4000, 10, 0.0, 0.0, 40.0, 500, 2.0))
        bars.show("seed-1", stepped(50, 5.0))
        assert bars.progress.tasks[0].total is None, "the speed is not known yet"
        bars.show("seed-1", stepped(150, 10.0))
        task = bars.progress.tasks[0]
        # 2 validations of 2 * 500 tokens at 1000 tokens/s are kept of the 40 s
        assert task.total == 150 + (40 - 10 - 2) * 20
        assert task.fields["status"].startswith("update 150 of 710 ·")
        assert task.fields["status"].endswith("30 s left")
        bars.show("seed-1", Validated(150, 1, 1.0, 41.0, "exact match", True, 13.0))  # 3 seconds, twice
        bars.show("seed-1", stepped(250, 18.0))
        assert bars.progress.tasks[0].total == 250 + round((40 - 18 - 6) / (13 / 200))
        bars.started(SimpleNamespace(name="seed-2"))  # type: ignore[arg-type]
        bars.show("seed-2", Started(0, 4000, 10, 0.0, 0.0))
        assert bars.progress.tasks[1].total == 4000
    finally:
        bars.close()
