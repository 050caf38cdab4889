"""Workers: runs side by side in processes of their own, which stop, fail and die without harm to the others."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.config import merge
from dragoman.errors import UserError
from dragoman.files import exclusive_lock
from dragoman.runs.history import read_evaluation, read_metrics
from dragoman.training import worker
from dragoman.training.events import PAUSED
from dragoman.training.pool import JobEnded, JobStarted, run_jobs, share_threads
from dragoman.training.run import train
from dragoman.training.seed_runs import training_number
from dragoman.training.worker import Job


def job(place: Path, name: str) -> Job:
    return Job(name, str(place / name), [])


def program(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", f"import json, os, sys\njob = json.load(sys.stdin)['job']\n{code}"]


def test_every_run_ends_in_its_own_way(tmp_path: Path) -> None:
    code = (
        "if job['name'] == 'killed': os.kill(os.getpid(), 9)\n"
        "if job['name'] == 'wrong': sys.exit('dragoman: pairs.tsv: no such file') or 2\n"
        "if job['name'] == 'bug': raise ValueError('a bug')\n"
    )
    names = ["good", "killed", "wrong", "bug", "other"]
    events = list(run_jobs([job(tmp_path, name) for name in names], 2, 1, program=program(code)))
    ended = {event.job.name: event for event in events if isinstance(event, JobEnded)}
    assert [event.job.name for event in events if isinstance(event, JobStarted)] == names and ended.keys() == {*names}
    assert ended["good"].is_done and ended["other"].is_done
    assert ended["killed"].is_killed and "SIGKILL" in ended["killed"].describe()
    assert ended["wrong"].describe().startswith("pairs.tsv: no such file")
    assert ended["bug"].code == 1 and "ValueError: a bug" in ended["bug"].describe()
    assert (tmp_path / "bug.log").exists() and not (tmp_path / "good.log").exists()


def test_no_more_runs_at_once_than_workers_and_none_after_a_stop(tmp_path: Path) -> None:
    code = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(130))\nsignal.pause()\n"
    running: list[int] = [0]  # runs at once, over time
    jobs = [job(tmp_path, f"{number}") for number in range(5)]
    for event in run_jobs(jobs, 2, 1, lambda: 2 in running, program=program(code)):
        running.append(running[-1] + isinstance(event, JobStarted) - isinstance(event, JobEnded))
        assert not isinstance(event, JobEnded) or event.is_interrupted
    assert (max(running), running[-1]) == (2, 0)
    assert [share_threads(workers, 8) for workers in (1, 3, 16)] == [8, 2, 1]


def test_a_run_that_is_stopped_before_it_listens_has_not_failed(tmp_path: Path) -> None:
    asked: list[bool] = []

    def should_stop() -> bool:
        asked.append(True)
        return len(asked) > 1

    events = list(run_jobs([job(tmp_path, "run")], 1, 1, should_stop, program=program("import signal; signal.pause()")))
    (ended,) = [event for event in events if isinstance(event, JobEnded)]
    assert ended.code == -signal.SIGTERM and ended.is_interrupted and not ended.is_killed
    code = "os.kill(os.getpid(), 15)"
    events = list(run_jobs([job(tmp_path, "run")], 1, 1, program=program(code)))
    (ended,) = [event for event in events if isinstance(event, JobEnded)]
    assert ended.is_killed and "SIGTERM" in ended.describe()


def test_workers_end_when_their_owner_stops_looking(tmp_path: Path) -> None:
    code = "open(job['out'], 'w').write(str(os.getpid()))\nimport signal\nsignal.pause()\n"
    events = run_jobs([job(tmp_path, "run")], 1, 1, program=program(code))
    for _ in events:
        if (tmp_path / "run").exists() and (tmp_path / "run").read_text():
            break
    events.close()  # type: ignore[attr-defined]
    pid = (tmp_path / "run").read_text()
    assert subprocess.run(["kill", "-0", pid], capture_output=True, check=False).returncode != 0


def test_a_pause_changes_nothing_in_a_run(tmp_path: Path, tiny_run: Any) -> None:
    settings = merge(
        tiny_run.settings,
        {"training": {"max_updates": 40, "validate_every": 16, "optim": {"schedule": "cosine"}}},
    )
    train(tiny_run.pairs, out=tmp_path / "whole", settings=settings)
    paused = tmp_path / "paused"
    for update in (10, 10, 25):  # the second call finds it there already
        train(tiny_run.pairs, out=paused, settings=settings, pause_at=update)
        events = read_metrics(paused).events
        assert (events[-1]["event"], events[-1]["reason"], events[-1]["update"]) == ("stopped", PAUSED, update)
        assert not events[-1]["finished"] and read_evaluation(paused) is None
    validated = [event["update"] for event in read_metrics(paused).events if event["event"] == "validated"]
    assert validated == [10, 16, 25]
    train(tiny_run.pairs, out=paused, settings=settings)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (tmp_path / "whole", paused)]
    assert weights[0] == weights[1]


def test_test_is_left_unseen_until_it_is_asked_for(tmp_path: Path, tiny_run: Any) -> None:
    run = tmp_path / "run"
    settings = merge(tiny_run.settings, {"training": {"max_updates": 3}})
    train(tiny_run.pairs, out=run, settings=settings, evaluate_on="dev")
    on_dev = read_evaluation(run)
    assert on_dev is not None and on_dev["side"] == "dev" and read_evaluation(run, "test") is None
    train(tiny_run.pairs, out=run, settings=settings)
    assert (read_evaluation(run) or {})["side"] == "test" and read_evaluation(run, "dev") == on_dev
    seen: list[object] = []
    train(tiny_run.pairs, out=run, settings=settings, evaluate_on="dev", on_event=seen.append)
    assert "Evaluated" not in {type(event).__name__ for event in seen}  # it was before


def test_a_worker_whose_owner_is_gone_saves_and_stops(
    tmp_path: Path, tiny_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = merge(tiny_run.settings, {"training": {"max_updates": 10**6, "max_epochs": 10**6, "patience": 10**6}})
    request = {"parent": -1, "job": asdict(Job("run", str(tmp_path / "run"), [str(tiny_run.pairs)], settings=endless))}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request)))
    with pytest.raises(SystemExit) as end:
        worker.main()
    assert end.value.code == 130 and (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_a_worker_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    request = {"parent": -1, "job": asdict(Job("run", str(tmp_path / "run"), [str(tmp_path / "none.tsv")]))}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request)))
    with pytest.raises(SystemExit) as end:
        worker.main()
    assert end.value.code == 2 and "none.tsv" in capsys.readouterr().err


# ---- train --seeds


@pytest.fixture
def seeds_command(
    tmp_path: Path, tiny_run: Any, as_flags: Callable[[dict[str, Any]], list[str]]
) -> Callable[..., list[str]]:
    def arguments(updates: int) -> list[str]:
        changes = {"training": {"max_updates": updates, "max_epochs": 10**6, "patience": 10**6}}
        flags = as_flags(merge(tiny_run.settings, changes))
        return [
            "train",
            str(tiny_run.pairs),
            "--out",
            str(tmp_path / "group"),
            "--seeds",
            "2",
            "--workers",
            "2",
            *flags,
        ]

    return arguments


def test_seeds_are_interrupted_resumed_and_skipped(
    tmp_path: Path, call: Any, environment: dict[str, str], seeds_command: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    group = tmp_path / "group"
    trains: set[str] = set()
    err = ""
    with subprocess.Popen(
        [sys.executable, "-m", "dragoman", *seeds_command(10**6)], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            err += line
            trains |= {line[:6]} if line.startswith("seed-") and "update" in line else set()
            if len(trains) == 2:
                process.send_signal(signal.SIGINT)
                break
        err += process.stderr.read()
    assert process.returncode == 130, err
    assert err.count("200 of 200 rows used") == 1 and "everything is saved" in err
    saved = [(group / name / "checkpoint.safetensors").exists() for name in ("seed-1", "seed-2")]
    assert saved == [True, True]
    reached = read_metrics(group / "seed-1").events[-1]["update"]

    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])
    answer = call(*seeds_command(reached + 30))
    assert answer.code == 0, answer.err
    assert "seed-1: resuming from update" in answer.err and "seed-2: resuming from update" in answer.err
    text = answer.out.decode()
    assert "means over 2 seeds" in text and "seed-2" in text
    page = (group / "report.html").read_text(encoding="utf-8")
    assert "Means over seeds" in page and "http" not in page
    assert call("report", group, "-o", tmp_path / "page.html").code == 0
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    again = call(*seeds_command(reached + 30))
    assert again.code == 0 and "finished before: 2" in again.err and "started" not in again.err
    assert again.out == answer.out
    other = call(*seeds_command(reached + 30), "--set", "decoder.width=48")
    assert other.code == 2 and "holds another run" in other.err


def test_a_seed_that_fails_is_said_at_the_end(
    tmp_path: Path, call: Any, environment: dict[str, str], seeds_command: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    code = "job['name'] == 'seed-2' and sys.exit('dragoman: no space left')\n"
    monkeypatch.setattr("dragoman.training.pool.run_jobs.__defaults__", (lambda: False, None, program(code)))
    answer = call(*seeds_command(5))
    assert answer.code == 1 and "1 of 2 runs failed" in answer.err and "no space left" in answer.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--workers", "2"], "--workers has no effect"), (["--seeds", "2", "--dev", "-"], "standard input")],
)
def test_options_that_cannot_work_are_refused(call: Any, tiny_run: Any, arguments: list[str], said: str) -> None:
    answer = call("train", tiny_run.pairs, *arguments)
    assert answer.code == 2 and said in answer.err


def test_the_folder_of_a_single_run_is_no_group(call: Any, tiny_run: Any) -> None:
    answer = call("train", tiny_run.pairs, "--seeds", "2", "--out", tiny_run.folder)
    assert answer.code == 2 and "holds a single run" in answer.err


def test_seeds_that_train_already_are_left_alone(
    call: Any, tmp_path: Path, seeds_command: Callable[..., list[str]]
) -> None:
    """A worker that outlives its owner for a moment holds the lock too."""
    with exclusive_lock(tmp_path / "group") as lock:
        answer = call(*seeds_command(5))
        assert lock is not None and answer.code == 2 and "another training is at work here" in answer.err


def test_a_dry_run_of_seeds_writes_nothing(call: Any, tmp_path: Path, seeds_command: Callable[..., list[str]]) -> None:
    answer = call(*seeds_command(5), "--dry-run")
    assert answer.code == 0 and "2 runs, 2 at a time" in answer.err and not (tmp_path / "group").exists()


def test_seeds_begin_with_the_one_of_a_config_file(
    call: Any, tmp_path: Path, seeds_command: Callable[..., list[str]]
) -> None:
    config = tmp_path / "mine.toml"
    config.write_text("[training]\nseed = 0\nthreads = 3\n", encoding="utf-8")
    job = Job("", str(tmp_path / "group"), ["pairs.tsv"], config=str(config))
    assert (training_number(job, "seed"), training_number(job, "threads")) == (0, 3)
    answer = call(*seeds_command(2), "--config", config)
    assert answer.code == 0, answer.err
    assert sorted(path.name for path in (tmp_path / "group").glob("seed-*")) == ["seed-0", "seed-1"]


# ---- seeds from Python


def test_seeds_are_trained_from_python(tmp_path: Path, tiny_run: Any, environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])
    settings = merge(tiny_run.settings, {"training": {"max_updates": 3}})
    config = {"training": {"seed": 7}}
    arguments: dict[str, Any] = {"out": tmp_path / "group", "config": config, "settings": settings}
    plan = dragoman.train(tiny_run.pairs, seeds=2, dry_run=True, **arguments)
    assert plan.system.recipe.training.seed == 7 and list(tmp_path.iterdir()) == []
    systems = dragoman.train(tiny_run.pairs, seeds=2, workers=2, **arguments)
    assert [system.folder for system in systems] == [tmp_path / "group" / "seed-7", tmp_path / "group" / "seed-8"]
    assert [system.recipe.training.seed for system in systems] == [7, 8]
    assert "Means over seeds" in (tmp_path / "group" / "report.html").read_text(encoding="utf-8")
    code = "sys.exit('dragoman: no space left')\n"
    monkeypatch.setattr("dragoman.training.pool.run_jobs.__defaults__", (lambda: False, None, program(code)))
    assert len(dragoman.train(tiny_run.pairs, seeds=2, **arguments)) == 2  # finished before, so no worker starts
    with pytest.raises(UserError, match=r"1 of 3 runs failed; .*seed-9: no space left"):
        dragoman.train(tiny_run.pairs, seeds=3, **arguments)


def test_a_dry_run_from_python_returns_the_plan(tmp_path: Path, tiny_run: Any) -> None:
    seen: list[Path] = []
    plan = dragoman.train(
        tiny_run.pairs, out=tmp_path / "run", settings=tiny_run.settings, dry_run=True,
        on_plan=lambda plan, trainer, folder: seen.append(folder),
    )  # fmt: skip
    assert plan.reasons and seen == [tmp_path / "run"] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"workers": 2}, "workers has no effect on a single run"),
        ({"seeds": 0}, "seeds is a whole number from 1 on; got 0"),
        ({"seeds": 2, "workers": "two"}, "workers is a whole number"),
        ({"seeds": 2, "on_event": print}, "on_event follows a single run"),
        ({"seeds": 2, "dev": [("a", "b")]}, "dev has to be a file; got list"),
    ],
)
def test_arguments_that_cannot_work_are_refused(tiny_run: Any, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        dragoman.train(tiny_run.pairs, **arguments)
