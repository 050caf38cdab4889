"""Sweeps: the file, every combination, the race by dev, interruption and resumption, the table and the page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dragoman.config import ConfigError, merge
from dragoman.errors import UserError
from dragoman.evaluation.metrics import spread
from dragoman.runs.history import read_evaluation, read_metrics
from dragoman.training.pool import JobEnded, JobStarted, PoolEvent
from dragoman.training.run import train
from dragoman.training.sweep.grid import expand_grid, read_grid
from dragoman.training.worker import Job

# ---- the file


def write_grid(place: Path, text: str) -> Path:
    path = place / "grid.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_grid_is_every_combination_in_the_order_of_the_file(tmp_path: Path) -> None:
    grid = read_grid(
        write_grid(
            tmp_path,
            'train = ["a.src", "a.tgt"]\ndev = "d.tsv"\npresets = ["auto", "bahdanau2015"]\nseeds = [4, 2]\n'
            "[budget]\nmax_updates = 50\n[settings]\ntraining.patience = 3\n"
            '[grid]\ndecoder.width = [64, 128]\n"training.optim.betas" = [[0.9, 0.98], [0.9, 0.999]]\n',
        )
    )
    assert grid.files == [str(tmp_path / "a.src"), str(tmp_path / "a.tgt")] and grid.dev == str(tmp_path / "d.tsv")
    assert grid.seed_numbers == [4, 2]
    combinations = expand_grid(grid)
    assert len(combinations) == 8 and combinations[0].name == "auto,width=64,betas=0.9+0.98"
    last = combinations[-1]
    assert last.values == {"decoder.width": 128, "training.optim.betas": [0.9, 0.999]}
    training = {"patience": 3, "max_updates": 50, "optim": {"betas": [0.9, 0.999]}}
    assert last.settings == {"training": training, "decoder": {"width": 128}} and last.preset == "bahdanau2015"


def test_settings_with_the_same_last_word_keep_their_whole_names(tmp_path: Path) -> None:
    text = 'train = "p.tsv"\n[grid]\nencoder.dropout = [0.1]\ndecoder.dropout = [0.2]\nmetric = ["cer"]\n'
    (only,) = expand_grid(read_grid(write_grid(tmp_path, text)))
    assert only.name == "auto,encoder.dropout=0.1,decoder.dropout=0.2,metric=cer"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('trian = "p.tsv"', "did you mean 'train'"),
        ('train = "p.tsv"\nseeds = 0', "a number from 1 on"),
        ('train = "p.tsv"\npresets = ["auto", "auto"]', "twice"),
        ('train = "p.tsv"\n[grid]\ndecoder.width = 64', "give a list of values"),
        ('train = "p.tsv"\n[halving]\nfirst = 10', "set budget.max_updates"),
        ('train = "p.tsv"\n[budget]\nmax_updates = 10\n[halving]\nfirst = 10', "above halving.first"),
        ('train = "p.tsv"\n[grid]\ndecoder.widht = [64]', "widht"),
        ('train = "p.tsv"\npresets = ["bahdanau"]', "grid.toml: presets: there is no preset 'bahdanau'; did you mean"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises((ConfigError, UserError)) as caught:
        expand_grid(read_grid(write_grid(tmp_path, text)))
    assert said in str(caught.value)


def test_data_in_place_of_the_file_is_told_what_the_file_is(tmp_path: Path) -> None:
    table = tmp_path / "table.tsv"
    table.write_text("a b\tc d\n", encoding="utf-8")
    with pytest.raises(UserError, match=r'sweep takes a TOML file that names the data \(train = "table.tsv"\)'):
        read_grid(table)
    with pytest.raises(ConfigError, match="no such config file"):
        read_grid(tmp_path / "nothing.tsv")


# ---- the runs


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """Train the jobs in this process, one after another; ``in_process(3)`` interrupts after the third."""
    trained: list[str] = []

    def limit(most: int) -> list[str]:
        trained.clear()
        left = [most]

        def run_jobs(jobs: Sequence[Job], *_: Any) -> Iterator[PoolEvent]:
            for job in jobs:
                yield JobStarted(job)
                if not left[0]:
                    yield JobEnded(job, 130)
                    continue
                left[0] -= 1
                trained.append(f"{job.name} {job.pause_at or 'end'} {job.evaluate_on}")
                if "width=24" in job.name and job.name.endswith("seed-2"):
                    job.log.write_text("dragoman: no space left\n", encoding="utf-8")
                    yield JobEnded(job, 2)
                    continue
                train(
                    job.train, job.dev, job.test, out=job.out, preset=job.preset, settings=job.settings,
                    pause_at=job.pause_at, evaluate_on=job.evaluate_on,
                )  # fmt: skip
                yield JobEnded(job, 0)

        for place in ("dragoman.training.pool", "dragoman.training.sweep.run"):
            monkeypatch.setattr(f"{place}.run_jobs", run_jobs)
        return trained

    return limit


def grid_file(place: Path, tiny_run: Any, widths: list[int], more: str = "", updates: int = 20, seeds: int = 2) -> Path:
    fixed = merge(tiny_run.settings, {"training": {"validate_every": 5}})
    lines = [
        f"{section}.{key} = {json.dumps(value)}"
        for section, table in fixed.items()
        for key, value in table.items()
        if key not in ("max_updates", "width")
    ]
    head = (
        f'train = "{tiny_run.pairs}"\nseeds = {seeds}\n[budget]\nmax_updates = {updates}\n[settings]\nmetric = "cer"\n'
    )
    return write_grid(
        place, "\n".join([head, *lines, "encoder.width = 16", "[grid]", f"decoder.width = {widths}", more])
    )


def test_a_sweep_is_interrupted_resumed_and_ranked_by_dev(
    tmp_path: Path, tiny_run: Any, call: Any, in_process: Callable[[int], list[str]]
) -> None:
    grid, out = grid_file(tmp_path, tiny_run, [16, 32]), tmp_path / "sweep"
    trained = in_process(3)
    stopped = call("sweep", grid, "--out", out)
    assert stopped.code == 130 and "the same command resumes" in stopped.err and len(trained) == 3
    trained = in_process(100)
    answer = call("sweep", grid, "--out", out)
    assert answer.code == 0, answer.err
    assert answer.err.count("200 of 200 rows used") == 1
    text = answer.out.decode()
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    names = [each["name"] for each in results["candidates"]]
    means = [each["dev"]["mean"] for each in results["candidates"]]
    assert sorted(names) == ["auto,width=16", "auto,width=32"] and means == sorted(means)  # a low error rate is better
    best, other = names
    values = [(read_evaluation(out / best / f"seed-{seed}", "dev") or {})["scores"]["cer"]["value"] for seed in (1, 2)]
    first = results["candidates"][0]
    assert first["dev"]["values"] == values and first["dev"]["low"] == spread(values).low
    assert [run for run in trained if run.endswith("test")] == [f"{best}/seed-{seed} end test" for seed in (1, 2)]
    assert read_evaluation(out / other / "seed-1", "test") is None  # unseen
    assert first["test"] is not None and results["candidates"][1]["test"] is None
    assert "for the best one only" in text and f"best on dev: {best}" in text and f"[{first['dev']['low']:.2f}" in text
    page = (out / "report.html").read_text(encoding="utf-8")
    assert best in page and "<svg" in page and not re.search(r"https?:|src=|<script", page)

    compared = call("compare", out, tiny_run.pairs)
    assert compared.code == 2 and "holds the candidates of a sweep, so name one of them" in compared.err

    trained = in_process(100)
    again = call("sweep", grid, "--out", out, "--test", "all", "--json")
    assert trained == [f"{other}/seed-{seed} end test" for seed in (1, 2)]
    assert [each["test"] is not None for each in json.loads(again.out)["candidates"]] == [True, True]
    wider = call("sweep", grid_file(tmp_path, tiny_run, [16, 32, 24]), "--out", out)
    assert wider.code == 2 and "1 of 6 runs failed" in wider.err and "no space left" in wider.err
    assert "width=24" in wider.out.decode() and "failed" in wider.out.decode()  # the others are there
    changed = call("sweep", grid_file(tmp_path, tiny_run, [16, 32], updates=30), "--out", out)
    assert changed.code == 2 and "different: budget" in changed.err


def test_a_test_score_waits_for_all_its_seeds(
    tmp_path: Path, tiny_run: Any, call: Any, in_process: Callable[[int], list[str]]
) -> None:
    grid, out = grid_file(tmp_path, tiny_run, [16], updates=5), tmp_path / "sweep"
    in_process(3)  # two are trained, one of them is evaluated on test
    stopped = call("sweep", grid, "--out", out)
    assert stopped.code == 130 and "the same command resumes" in stopped.err
    (candidate,) = json.loads((out / "results.json").read_text(encoding="utf-8"))["candidates"]
    assert (candidate["state"], candidate["test"], candidate["tested"]) == ("finished", None, 1)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "for 1 of 2 seeds of auto,width=16" in page and "<th>test" not in page
    in_process(100)
    text = call("sweep", grid, "--out", out).out.decode()
    (candidate,) = json.loads((out / "results.json").read_text(encoding="utf-8"))["candidates"]
    assert len(candidate["test"]["values"]) == candidate["tested"] == 2 and "of 2 seeds" not in text


def test_halving_decides_the_same_after_an_interruption(
    tmp_path: Path, tiny_run: Any, call: Any, in_process: Callable[[int], list[str]]
) -> None:
    halving = "[halving]\nfirst = 6\n"
    grid = grid_file(tmp_path, tiny_run, [16, 20, 32], halving, updates=12, seeds=1)
    trained = in_process(100)
    whole = call("sweep", grid, "--out", tmp_path / "whole")
    assert whole.code == 0, whole.err
    assert sum(" 6 dev" in run for run in trained) == 3 and sum(" end dev" in run for run in trained) == 2
    assert "rung 1: on go" in whole.err and "stopped at update 6 (halving)" in whole.out.decode()
    for most in (2, 2, 100):
        in_process(most)
        answer = call("sweep", grid, "--out", tmp_path / "again")
    assert answer.code == 0 and answer.out == whole.out.replace(b"/whole", b"/again")
    states = [json.loads((tmp_path / name / "race.json").read_text("utf-8")) for name in ("whole", "again")]
    assert states[0] == states[1] and [rung["updates"] for rung in states[0]["rungs"]] == [6, 12]
    out = json.loads((tmp_path / "whole/results.json").read_text("utf-8"))["candidates"][-1]
    last = read_metrics(tmp_path / "whole" / out["name"] / "seed-1").events[-1]
    assert (last["event"], last["update"], last["finished"]) == ("stopped", 6, False)
    fewer = call("sweep", grid_file(tmp_path, tiny_run, [16, 20], halving, 12, 1), "--out", tmp_path / "whole")
    assert fewer.code == 2 and "different: grid" in fewer.err


def test_a_dry_run_lists_the_runs_and_writes_nothing(tmp_path: Path, tiny_run: Any, call: Any) -> None:
    grid = grid_file(tmp_path, tiny_run, [16, 32], "[halving]\nfirst = 8\n")
    answer = call("sweep", grid, "--out", tmp_path / "sweep", "--dry-run", "--workers", "1", "--quiet")
    text = answer.out.decode()
    assert answer.code == 0 and not (tmp_path / "sweep").exists()
    assert "auto,width=16: seed-1, seed-2" in text and "rungs at updates 8, 20" in text
    assert "4 runs, one at a time" in text and "about" in text
