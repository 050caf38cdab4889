"""What commands say on standard error: the plan alone, less with --quiet, more with --verbose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.cli.messages import Messages, progress_bar
from dragoman.config import merge
from dragoman.evaluation.evaluate import evaluate
from dragoman.evaluation.reading import read_examples
from dragoman.training import display


@pytest.fixture
def train_options(tiny_run: Any, as_flags: Callable[[dict[str, Any]], list[str]]) -> list[str]:
    return as_flags(merge(tiny_run.settings, {"training": {"max_updates": 12}}))


def test_a_dry_run_prints_the_plan_and_writes_nothing(
    call: Any, tmp_path: Path, tiny_run: Any, train_options: list[str]
) -> None:
    answer = call("train", tiny_run.pairs, "--out", tmp_path / "run", *train_options, "--dry-run")
    assert answer.code == 0 and not answer.out
    for said in ("200 of 200 rows used", "parameters", "time: about", "12 updates", "nothing was written"):
        assert said in answer.err
    assert "Ctrl-C" not in answer.err
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_refuses_what_a_training_would_refuse(call: Any, tiny_run: Any, train_options: list[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in tiny_run.folder.rglob("*")}
    arguments = ["train", tiny_run.pairs, "--out", tiny_run.folder, *train_options, "--dry-run", "--seed", 8]
    refused = call(*arguments)
    assert refused.code == 2 and "training.seed: 1 → 8" in refused.err
    assert call(*arguments, "--fresh").code == 0
    assert {path: path.stat().st_mtime_ns for path in tiny_run.folder.rglob("*")} == before


def test_lines_between_validations_say_how_far_training_is(
    call: Any, tmp_path: Path, tiny_run: Any, train_options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "SILENCE", 0.01)
    answer = call("train", tiny_run.pairs, "--out", tmp_path / "run", *train_options)
    lines = [line.split() for line in answer.err.splitlines() if "dev loss" not in line]
    updates = [int(words[1]) for words in lines if words[:1] == ["update"]]
    assert updates == sorted(updates) and 0 < updates[-1] <= 12


def test_quiet_training_says_nothing_but_its_results(
    call: Any, tmp_path: Path, tiny_run: Any, train_options: list[str]
) -> None:
    answer = call("train", tiny_run.pairs, "--out", tmp_path / "run", *train_options, "--quiet")
    assert answer.code == 0 and answer.err == ""
    assert b"exact match" in answer.out and b"saved in" in answer.out


def test_verbose_training_prints_every_setting_and_every_report(
    call: Any, tmp_path: Path, tiny_run: Any, train_options: list[str]
) -> None:
    answer = call("train", tiny_run.pairs, "--out", tmp_path / "run", *train_options, "--verbose")
    assert answer.code == 0
    assert "training.optim.learning_rate = " in answer.err and "decoder.width = 32" in answer.err
    assert "gradient norm" in answer.err


def test_quiet_and_verbose_answers(call: Any, tiny_run: Any) -> None:
    cut = ["--max-length", 2, "--beam", 1]
    plain = call("predict", tiny_run.folder, *cut, stdin=b"abcabc\n")
    quiet = call("predict", tiny_run.folder, *cut, "--quiet", stdin=b"abcabc\n")
    verbose = call("predict", tiny_run.folder, *cut, "--verbose", stdin=b"abcabc\n")
    assert plain.out == quiet.out == verbose.out
    assert "cut at the length limit" in plain.err and quiet.err == ""
    assert "beam = 1" in verbose.err and "max_length = 2" in verbose.err and "parameters" in verbose.err
    scored = [call("score", tiny_run.folder, tiny_run.pairs, *options) for options in ([], ["--quiet"])]
    assert scored[0].out == scored[1].out and "perplexity" in scored[0].err and scored[1].err == ""
    measured = call("evaluate", tiny_run.folder, tiny_run.pairs, "--verbose")
    assert "distinct characters" in measured.err and "beam = 5" in measured.err


def test_quiet_checks_and_comparisons_are_only_their_results(call: Any, tiny_run: Any) -> None:
    commands = ("check", tiny_run.pairs), ("compare", tiny_run.folder, tiny_run.folder, tiny_run.pairs)
    for arguments in commands:
        plain, quiet = call(*arguments), call(*arguments, "--quiet")
        assert plain.code == quiet.code == 0 and plain.out == quiet.out and quiet.err == ""


def test_quiet_and_verbose_together_are_refused(call: Any, tiny_run: Any) -> None:
    answer = call("predict", tiny_run.folder, "--quiet", "--verbose")
    assert answer.code == 2 and "contradict" in answer.err


def test_a_time_limit_is_not_printed_as_the_estimate(
    call: Any, tmp_path: Path, tiny_run: Any, as_flags: Callable[[dict[str, Any]], list[str]]
) -> None:
    options = as_flags(merge(tiny_run.settings, {"training": {"max_updates": 10**6, "max_epochs": 10**6}}))
    answer = call("train", tiny_run.pairs, "--out", tmp_path / "run", *options, "--dry-run", "--max-time", 1)
    (time,) = (line for line in answer.err.splitlines() if "time: about" in line)
    assert "for 1,000,000 updates" in time and "about 1 s" not in time
    assert "limit: --max-time 1 stops after about" in answer.err
    assert "not part of the limit" in answer.err


def test_evaluation_tells_how_far_it_is(tiny_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    system = dragoman.load(tiny_run.folder)
    examples = read_examples(system, [str(tiny_run.pairs)]).examples
    evaluate(system, examples, batch=64, on_progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 200) for done in range(1, 201)]
    with progress_bar("evaluating", Messages()) as show:  # no terminal: nothing is shown
        show(1, 2)
