"""Training stops anywhere and goes on exactly there; schedules, averaging, accumulation and loss are what they say."""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from dragoman.config import merge
from dragoman.data.corpus.batching import Encoded, make_batches, padding_share
from dragoman.errors import UserError
from dragoman.nn.blocks.layers import Dropout
from dragoman.nn.model import Model
from dragoman.recipe.schema import spell_out
from dragoman.recipe.training import OptimConfig
from dragoman.runs.weights import named_weights
from dragoman.training.checkpoints.checkpoint import Checkpoint, read_progress
from dragoman.training.checkpoints.progress import Progress
from dragoman.training.checkpoints.snapshots import Snapshots, average, load_final_weights
from dragoman.training.corpus import encode_corpus
from dragoman.training.events import CheckpointDue, Evaluated, Event, Scores, Started, Stepped, Stopped, Validated
from dragoman.training.forecast import Ending, foresee_ending
from dragoman.training.objective.loss import loss_and_gold, summed_loss
from dragoman.training.optim.optimizer import make_optimizer
from dragoman.training.optim.schedule import learning_rate
from dragoman.training.plan import plan
from dragoman.training.run import train
from dragoman.training.trainer import Trainer
from dragoman.training.updating import Updater
from dragoman.training.writer import RunWriter, find_checkpoint


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory, pairs_file: Callable[..., Path]) -> Path:
    return pairs_file(tmp_path_factory.mktemp("data") / "pairs.tsv", 100)


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def stop_after(updates: int) -> Callable[[], bool]:
    """Asked once an update, and then perhaps again; says yes from the last of them on."""
    asked = iter(range(1, updates + 1))
    return lambda: next(asked, updates) == updates


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


class Bench:
    """Trainers on the same small data, with a validation that can be scripted."""

    def __init__(self, pairs: Path, base: dict[str, Any]) -> None:
        self.pairs, self.base = pairs, base

    def settings(self, **training: Any) -> dict[str, Any]:
        return merge(spell_out(self.base), {"training": {"validate_every": 5, **training}})

    def train(self, folder: Path, **more: Any) -> list[Event]:
        events: list[Event] = []
        options = {key: more.pop(key) for key in ("should_stop", "fresh", "on_plan") if key in more}
        train(self.pairs, out=folder, settings=self.settings(**more), on_event=events.append, **options)
        self.reports = [event.report for event in events if isinstance(event, Evaluated)]
        return [event for event in events if not isinstance(event, Evaluated)]

    def trainer(self, folder: Path, scores: Iterator[float] | None = None, **training: Any) -> Trainer:
        planned = plan(self.pairs, settings=self.settings(**training))
        told = iter(range(10**6)) if scores is None else scores

        def validate(model: Model) -> Scores:
            return Scores(1.0, float(next(told)), "made up", {})

        system = planned.system
        data, config = encode_corpus(system, planned.data.train), system.recipe.training
        return Trainer(system.model, data, config, validate, resume=find_checkpoint(folder))


def run(trainer: Trainer, folder: Path, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
    """Train and write the folder, as ``train`` does."""
    return RunWriter(folder, find_checkpoint(folder)).record(trainer.run(should_stop))


@pytest.fixture(scope="module")
def bench(pairs: Path, tiny_settings: dict[str, Any]) -> Bench:
    return Bench(pairs, tiny_settings)


# ---- going on


@pytest.mark.parametrize("schedule", ["inverse-sqrt", "cosine", "plateau"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_run_in_pieces_is_the_run_in_one(bench: Bench, tmp_path: Path, schedule: str, accumulate: int) -> None:
    optim = {"schedule": schedule, "warmup": 4, "plateau_patience": 0, "learning_rate": 0.01}
    options: dict[str, Any] = {
        "optim": optim, "accumulate": accumulate, "max_updates": 23, "max_epochs": None, "batch_tokens": 64,
    }  # fmt: skip
    bench.train(tmp_path / "whole", **options)
    for updates in (1, 4, 3, 13):
        events = bench.train(tmp_path / "pieces", should_stop=stop_after(updates), **options)
        assert isinstance(events[-1], Stopped) and not events[-1].finished
    events = bench.train(tmp_path / "pieces", **options)
    assert isinstance(events[0], Started) and (events[0].update, events[0].last_update) == (21, 23)
    assert isinstance(events[-1], Stopped) and events[-1].finished and events[-1].update == 23
    assert digest(tmp_path / "pieces") == digest(tmp_path / "whole")
    checkpoints = [load_file(tmp_path / name / "checkpoint.safetensors") for name in ("whole", "pieces")]
    assert checkpoints[0].keys() == checkpoints[1].keys()
    assert all(torch.equal(checkpoints[0][name], checkpoints[1][name]) for name in checkpoints[0])
    logs = [
        [(line["update"], line["loss"], line["score"]) for line in read_metrics(tmp_path / name) if "score" in line]
        for name in ("whole", "pieces")
    ]
    assert logs[0] == logs[1]


def test_varied_cuts_in_pieces_are_those_in_one(pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path) -> None:
    """BPE-dropout draws by (seed, epoch, row): what was cut before an interruption has no say in what comes after."""

    def with_drop(drop: float) -> Bench:
        tokenizer = {"kind": "subwords", "size": 300, "drop": drop}
        sides = {"target": {"tokenizer": tokenizer}, "source": {"tokenizer": tokenizer}}
        return Bench(pairs, merge(tiny_settings, sides))

    options: dict[str, Any] = {
        "max_updates": None,
        "max_epochs": 4,
        "batch_tokens": 64,
        "optim": {"schedule": "cosine"},
    }
    with_drop(0.3).train(tmp_path / "whole", **options)
    for updates in (1, 9, 25):  # epochs differ in their number of batches; the last update does not
        with_drop(0.3).train(tmp_path / "pieces", should_stop=stop_after(updates), **options)
    with_drop(0.3).train(tmp_path / "pieces", **options)
    with_drop(0.0).train(tmp_path / "plain", **options)
    assert digest(tmp_path / "pieces") == digest(tmp_path / "whole") != digest(tmp_path / "plain")
    data, unplanned = (with_drop(0.3).trainer(tmp_path / name).data for name in ("look", "afresh"))
    rows = data.batches(64, seed=1, epoch=0)[0]
    plain, first, again, other = (data.batch(rows, draw) for draw in (None, (1, 0), (1, 0), (1, 1)))
    for one, same in ((plain, False), (again, True), (other, False)):
        assert same == (one.targets.shape == first.targets.shape and torch.equal(one.targets, first.targets))
        mine, theirs = one.sources["source"].data, first.sources["source"].data
        assert same == (mine.shape == theirs.shape and torch.equal(mine, theirs))
    planned = data.batches(64, seed=1, epoch=0, varied=True)
    assert sorted(np.concatenate(planned).tolist()) == list(range(len(data)))
    for rows in planned:  # as long as they were planned, and as they would be without a plan
        batch = data.batch(rows, (1, 0))
        assert len(rows) == 1 or len(rows) * max(batch.targets.shape[1], batch.sources["source"].data.shape[1]) <= 64
        afresh = unplanned.batch(rows, (1, 0))
        assert torch.equal(batch.targets, afresh.targets)
    careless = data.batches(64, seed=1, epoch=0)
    assert data.padding(planned, (1, 0))[0] < data.padding(careless, (1, 0))[0]
    assert data.batches(64, seed=1, epoch=1, varied=True) and data.batches(64, seed=1, epoch=2, varied=True)
    assert torch.equal(data.batch(planned[0], (1, 0)).targets, unplanned.batch(planned[0], (1, 0)).targets)


def test_every_counter_comes_back(bench: Bench, tmp_path: Path) -> None:
    """Patience, plateaus, best, snapshots: scripted scores, stopped after every single update."""
    script = [3.0, 2.0, 2.5, 4.0, 1.0, 1.0, 1.0, 5.0, 1.0, 1.0, 1.0, 1.0, 9.0]
    optim = {"schedule": "plateau", "warmup": 3, "learning_rate": 0.01, "plateau_patience": 1}
    options: dict[str, Any] = {
        "optim": optim, "max_updates": 100, "validate_every": 3, "log_every": 1, "patience": 4, "average": 3,
    }  # fmt: skip
    runs: list[tuple[list[Event], Trainer]] = []
    for name, stops in (("whole", False), ("pieces", True)):
        scores = iter(script)
        events: list[Event] = []
        while not (events and isinstance(events[-1], Stopped) and events[-1].finished):
            trainer = bench.trainer(tmp_path / name, scores, **options)
            events += run(trainer, tmp_path / name, lambda stops=stops: stops)  # type: ignore[misc]
        runs.append((events, trainer))
    rates = [[event.learning_rate for event in events if isinstance(event, Stepped)] for events, _ in runs]
    assert rates[0] == rates[1] and len(set(rates[0][3:])) == 4
    ends = [events[-1] for events, _ in runs]
    assert ends[0].update == ends[1].update == 36 and ends[0].reason == ends[1].reason  # type: ignore[union-attr]
    counters = [
        replace(
            progress,
            seconds=0.0,
            validation_seconds=0.0,
            written=[],
            metrics_bytes=0,
            window=replace(progress.window, seconds=0.0),
        )
        for progress in (trainer.progress for _, trainer in runs)
    ]
    assert counters[0] == counters[1] and counters[0].reductions == 4
    weights = [named_weights(trainer.model) for _, trainer in runs]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("timing", ["before", "after"])
def test_hard_attention_in_pieces_is_that_in_one(
    pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path, timing: str
) -> None:
    """What it draws is seeded by the update, and the baseline of the rewards comes back with the checkpoint."""
    bench = Bench(pairs, merge(tiny_settings, {"decoder": {"selection": "hard", "timing": timing}}))
    options: dict[str, Any] = {"max_updates": 12, "max_epochs": None, "batch_tokens": 64, "accumulate": 2}
    bench.train(tmp_path / "whole", **options)
    for updates in (1, 3, 4):
        bench.train(tmp_path / "pieces", should_stop=stop_after(updates), **options)
    bench.train(tmp_path / "pieces", **options)
    assert digest(tmp_path / "pieces") == digest(tmp_path / "whole")
    baselines = [read_progress(tmp_path / name / "checkpoint.safetensors").baseline for name in ("whole", "pieces")]
    assert baselines[0] == baselines[1] and baselines[0] is not None and -5 < baselines[0] < 0


def test_the_baseline_follows_the_reward(pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path) -> None:
    """It starts at the first reward, log p of the gold tokens, and moves a tenth of the way to each next one."""
    bench = Bench(pairs, merge(tiny_settings, {"decoder": {"selection": "hard", "dropout": 0.0}}))
    trainer = bench.trainer(tmp_path, max_updates=6, log_every=1, label_smoothing=0.0)
    expected: float | None = None
    for event in trainer.run():
        if isinstance(event, Stepped):
            expected = -event.loss if expected is None else 0.9 * expected - 0.1 * event.loss
            assert trainer.progress.baseline == pytest.approx(expected, rel=1e-5)
    assert expected is not None
    soft = Bench(pairs, tiny_settings).trainer(tmp_path / "soft", max_updates=2)
    list(soft.run())
    assert soft.progress.baseline is None


def test_the_seed_decides_everything(bench: Bench, tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 1), ("three", 2)):
        bench.train(tmp_path / name, max_updates=6, seed=seed)
    assert digest(tmp_path / "one") == digest(tmp_path / "two") != digest(tmp_path / "three")


def test_a_trainer_without_a_writer_writes_nothing(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the other processes of a group do; the weights are the same."""
    monkeypatch.chdir(tmp_path)
    alone, written = (bench.trainer(tmp_path / name, max_updates=10) for name in ("none", "run"))
    kinds = [type(event) for event in alone.run()]
    assert not list(tmp_path.iterdir())
    assert kinds == [type(event) for event in run(written, tmp_path / "run")]
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "checkpoint.safetensors", "metrics.jsonl", "snapshots",
    }  # fmt: skip
    weights = [named_weights(trainer.model) for trainer in (alone, written)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_saving_often_changes_nothing(bench: Bench, tmp_path: Path) -> None:
    often = bench.train(tmp_path / "often", max_updates=10, save_every=1e-6, log_every=1)
    rarely = bench.train(tmp_path / "rarely", max_updates=10)
    assert sum(isinstance(event, CheckpointDue) for event in often) == 10
    assert sum(isinstance(event, CheckpointDue) for event in rarely) == 1
    assert digest(tmp_path / "often") == digest(tmp_path / "rarely")


def test_measuring_the_speed_changes_nothing(bench: Bench, tmp_path: Path) -> None:
    bench.train(tmp_path / "without", max_updates=8)
    seconds: list[float] = []
    bench.train(
        tmp_path / "with", max_updates=8, on_plan=lambda planned, trainer, folder: seconds.append(trainer.measure())
    )
    assert 0 < seconds[0] < 10
    assert digest(tmp_path / "with") == digest(tmp_path / "without")


def test_the_same_command_after_the_end_does_nothing(bench: Bench, tmp_path: Path) -> None:
    bench.train(tmp_path, max_updates=6)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    report = json.loads((tmp_path / "evaluation.json").read_text(encoding="utf-8"))
    assert [told.to_json()["scores"] for told in bench.reports] == [report["scores"]]
    events = bench.train(tmp_path, max_updates=6)
    assert [type(event) for event in events] == [Stopped] and not bench.reports
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


def test_metrics_of_a_run_in_pieces(bench: Bench, tmp_path: Path) -> None:
    for updates in (3, 4, 5):
        bench.train(tmp_path, max_updates=30, should_stop=stop_after(updates), log_every=2)
    with open(tmp_path / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"event": "stepped", "update": 13, "los')  # as a crash would leave it
    bench.train(tmp_path, max_updates=30, log_every=2)
    lines = read_metrics(tmp_path)
    assert [line["update"] for line in lines if line["event"] == "started"] == [0, 3, 7, 12]
    assert [line["update"] for line in lines if line["event"] == "stepped"] == list(range(2, 31, 2))
    assert [line["update"] for line in lines if line["event"] == "validated"] == list(range(5, 31, 5))
    assert [(line["update"], line["finished"]) for line in lines if line["event"] == "stopped"] == [(30, True)]


def curve(folder: Path) -> list[dict[str, Any]]:
    """Return the reports of training without what depends on the clock."""
    lines = [line for line in read_metrics(folder) if line["event"] == "stepped"]
    return [
        {name: value for name, value in line.items() if name not in ("seconds", "tokens_per_second")} for line in lines
    ]


def test_windows_are_whole_whatever_happens_inside_them(bench: Bench, tmp_path: Path) -> None:
    """Saves, validations and interruptions inside a window leave nothing out; the last window may be shorter."""
    options: dict[str, Any] = {"max_updates": 14, "log_every": 4, "label_smoothing": 0.0}
    bench.train(tmp_path / "whole", validate_every=14, **options)
    bench.train(tmp_path / "saved", validate_every=3, save_every=1e-6, **options)
    for updates in (1, 5):
        bench.train(tmp_path / "pieces", validate_every=14, should_stop=stop_after(updates), **options)
    bench.train(tmp_path / "pieces", validate_every=14, **options)
    single = bench.train(tmp_path / "single", max_updates=14, log_every=1, label_smoothing=0.0, validate_every=14)
    whole = curve(tmp_path / "whole")
    assert [line["update"] for line in whole] == [4, 8, 12, 14]
    assert curve(tmp_path / "saved") == whole and curve(tmp_path / "pieces") == whole
    norms = [event.gradient_norm for event in single if isinstance(event, Stepped)]
    assert whole[1]["gradient_norm"] == pytest.approx(sum(norms[4:8]) / 4)
    assert whole[3]["gradient_norm"] == pytest.approx(sum(norms[12:]) / 2)


def test_a_run_that_patience_ends_reports_its_last_window(bench: Bench, tmp_path: Path) -> None:
    trainer = bench.trainer(tmp_path, iter([1.0, 0.0, 0.0]), validate_every=5, patience=2, log_every=10)
    updates = [event.update for event in trainer.run() if isinstance(event, Stepped)]
    assert updates == [10, 15]


def test_the_loss_of_training_is_that_of_a_validation(bench: Bench, tmp_path: Path) -> None:
    """Without smoothing, so that the two can be compared; what is minimised is there too."""
    losses = {}
    for smoothing in (0.0, 0.1):
        trainer = bench.trainer(tmp_path, max_updates=1, log_every=1, label_smoothing=smoothing)
        losses[smoothing] = next(event for event in trainer.run() if isinstance(event, Stepped))
    assert losses[0.1].loss == losses[0.0].loss  # of the same first batch
    assert losses[0.0].smoothed_loss == pytest.approx(losses[0.0].loss, rel=1e-5)
    assert losses[0.1].smoothed_loss != pytest.approx(losses[0.1].loss, rel=1e-4)


def test_more_epochs_may_be_asked_for(bench: Bench, tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_updates": None, "validate_every": None, "optim": {"schedule": "inverse-sqrt"}}
    first = bench.train(tmp_path / "raised", max_epochs=1, **options)
    second = bench.train(tmp_path / "raised", max_epochs=3, **options)
    bench.train(tmp_path / "whole", max_epochs=3, **options)
    assert isinstance(first[-1], Stopped) and isinstance(second[-1], Stopped)
    assert second[-1].update == 3 * first[-1].update
    assert digest(tmp_path / "raised") == digest(tmp_path / "whole")
    evaluation = json.loads((tmp_path / "raised" / "evaluation.json").read_text(encoding="utf-8"))
    assert evaluation["update"] == second[-1].update


def test_other_settings_or_data_in_the_same_folder_are_refused(
    bench: Bench, tmp_path: Path, pairs_file: Callable[..., Path]
) -> None:
    folder = tmp_path / "run"
    bench.train(folder, max_updates=2)
    before = digest(folder)
    with pytest.raises(UserError, match=r"training\.optim\.clip: 1\.0 → 2\.0.*--fresh"):
        bench.train(folder, max_updates=2, optim={"clip": 2.0})
    with pytest.raises(UserError, match="the data"):
        train(pairs_file(tmp_path / "pairs.tsv", 90, 5), out=folder, settings=bench.settings(max_updates=2))
    assert digest(folder) == before
    (folder / "run.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match=r"run\.json: damaged.*--fresh"):
        bench.train(folder, max_updates=2)


def test_files_of_somebody_else_are_not_written_over(bench: Bench, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("my thesis\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"belong to no run \(README\.md\).*another --out"):
        bench.train(tmp_path, max_updates=2)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert readme.read_text(encoding="utf-8") == "my thesis\n"
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".run.json.partial").write_text("{", encoding="utf-8")  # as a kill leaves it
    bench.train(tmp_path / "empty", max_updates=2)
    assert (tmp_path / "empty" / "model.safetensors").exists()


def test_fresh_moves_nothing_that_is_no_run(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.doc").touch()
    with pytest.raises(UserError, match="belong to no run"):
        bench.train(tmp_path / "mine", max_updates=2, fresh=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "thesis.doc"]


def test_two_trainings_in_one_folder_are_refused(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def again(*_: object) -> None:
        for fresh in (False, True):
            with pytest.raises(UserError, match="another training is at work here"):
                bench.train(folder, max_updates=2, fresh=fresh)

    bench.train(folder, max_updates=2, on_plan=again)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_damaged_record_of_scores_is_made_anew(bench: Bench, tmp_path: Path) -> None:
    bench.train(tmp_path / "run", max_updates=2)
    wanted = (tmp_path / "run" / "evaluation.json").read_bytes()
    (tmp_path / "run" / "evaluation.json").write_bytes(b"")
    bench.train(tmp_path / "run", max_updates=2)
    assert (tmp_path / "run" / "evaluation.json").read_bytes() == wanted


def test_no_two_batches_draw_the_same_random_numbers(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    learn = Updater.add_gradients

    def spy(self: Updater, batch: Any, tokens: int, seed: int, run: Any) -> Any:
        drawn.append(seed)
        return learn(self, batch, tokens, seed, run)

    monkeypatch.setattr(Updater, "add_gradients", spy)
    list(bench.trainer(tmp_path / "run", accumulate=3, max_updates=5, batch_tokens=64).run())
    assert len(drawn) >= 10 and len(set(drawn)) == len(drawn)


def test_fresh_sets_the_old_run_aside(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for clip in (1.0, 2.0, 3.0):
        bench.train(folder, max_updates=2, optim={"clip": clip}, fresh=True)
    found = {path.name: json.loads((path / "run.json").read_text(encoding="utf-8")) for path in tmp_path.iterdir()}
    clips = {name: one["recipe"]["training"]["optim"]["clip"] for name, one in found.items()}
    assert clips == {"run.old-1": 1.0, "run.old-2": 2.0, "run": 3.0}
    assert (tmp_path / "run.old-1" / "model.safetensors").exists()


def test_a_mistake_does_not_move_the_old_run(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    bench.train(folder, max_updates=2)
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match="the folder you are in"):
        bench.train(Path("."), max_updates=2, fresh=True)
    with pytest.raises(UserError):
        bench.train(folder, max_updates=-2, fresh=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("damage", [b"", b"\xff" * 100])
def test_a_damaged_checkpoint_is_named(bench: Bench, tmp_path: Path, damage: bytes) -> None:
    bench.train(tmp_path, max_updates=4, should_stop=stop_after(2))
    (tmp_path / "checkpoint.safetensors").write_bytes(damage)
    with pytest.raises(UserError, match=r"checkpoint\.safetensors"):
        bench.train(tmp_path, max_updates=4)


# ---- ends


def test_patience(bench: Bench, tmp_path: Path) -> None:
    scores = [1.0, 3.0, 2.0, 3.0, 4.0, 4.0, 4.0, 4.0, 9.0]
    trainer = bench.trainer(tmp_path, iter(scores), max_updates=500, validate_every=2, patience=3)
    events = list(trainer.run())
    validated = [event for event in events if isinstance(event, Validated)]
    assert [event.best for event in validated] == [True, True, False, False, True, False, False, False]
    assert isinstance(events[-1], Stopped) and events[-1].update == 16 and "3 validations" in events[-1].reason
    assert trainer.progress.best_update == 10


@pytest.mark.parametrize(
    ("scores", "end"),
    [
        ([1, 2, 1], 6),  # the last validation is not the best
        ([1, 2, 3, 2], 8),  # dev rises once more
        ([1, 2, 3, 4, 5, 6], 9),  # the bound, half as many updates again, ends what still rises
    ],
)
def test_training_goes_on_while_dev_rises(bench: Bench, tmp_path: Path, scores: list[int], end: int) -> None:
    trainer = bench.trainer(tmp_path, iter(map(float, scores)), max_updates=6, validate_every=2, extend=0.5)
    events = list(trainer.run())
    assert isinstance(events[-1], Stopped) and events[-1].finished and events[-1].update == end


def test_an_extended_run_in_pieces_is_the_run_in_one(bench: Bench, tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_updates": 10, "max_epochs": None, "extend": 1.0, "optim": {"schedule": "cosine"}}
    whole = bench.train(tmp_path / "whole", **options)
    for updates in (9, 3, 1):
        bench.train(tmp_path / "pieces", should_stop=stop_after(updates), **options)
    pieces = bench.train(tmp_path / "pieces", **options)
    assert whole[-1].update == pieces[-1].update >= 10  # type: ignore[union-attr]
    assert digest(tmp_path / "pieces") == digest(tmp_path / "whole")


def test_the_time_limit_holds_over_all_sittings(bench: Bench, tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_updates": 10**6, "max_epochs": None, "patience": 10**6, "validate_every": 10**6}
    first = list(run(bench.trainer(tmp_path, max_time=0.2, **options), tmp_path))
    assert isinstance(first[-1], Stopped) and "time limit" in first[-1].reason
    assert 0.2 <= first[-1].seconds < 5
    assert isinstance(first[-3], Validated)  # the weights at the end are measured, whatever ends it
    again = list(run(bench.trainer(tmp_path, max_time=0.2, **options), tmp_path))
    assert [type(event) for event in again] == [Stopped]
    more = list(run(bench.trainer(tmp_path, max_time=first[-1].seconds + 0.2, **options), tmp_path))
    assert isinstance(more[-1], Stopped) and more[-1].update > first[-1].update


def test_the_time_limit_covers_what_follows_the_last_update(bench: Bench, tmp_path: Path) -> None:
    """The clock is that of the tokens here: an update ends training once the rest of the limit is needed."""
    ending = Ending(tokens=100, validations=3.0)
    progress = Progress(tokens=1000, seconds=10.0)  # 0.01 s per token: a validation is expected to take 2 s
    assert not ending.is_due(progress, limit=16.5) and ending.is_due(progress, limit=15.9)
    progress.validation_seconds = 1.0  # now it is known
    assert not ending.is_due(progress, limit=13.5) and ending.is_due(progress, limit=13.0)
    assert not Ending(validations=1000.0).is_due(progress, limit=20.1)  # training has at least half of the limit
    planned = plan(bench.pairs, settings=bench.settings())
    foreseen = foresee_ending(planned.data, planned.system.recipe, planned.rows.target_lengths)
    tests, devs = len(planned.data.test), len(planned.data.dev)
    assert foreseen.validations == pytest.approx(2 + tests / devs * 2)  # a beam of 5 costs two validations
    assert foreseen.tokens >= devs


def test_a_run_that_a_time_limit_ended_is_over(bench: Bench, tmp_path: Path) -> None:
    """Also if what follows the last update took less time than was kept for it."""
    options: dict[str, Any] = {"max_updates": 10**6, "max_epochs": None, "patience": 10**6, "validate_every": 10**6}
    trainer = bench.trainer(tmp_path, max_time=1.0, **options)
    trainer.ending = Ending(tokens=10**9, validations=1.0)
    first = list(run(trainer, tmp_path))
    assert isinstance(first[-1], Stopped) and "time limit of 1 s" in first[-1].reason
    assert first[-1].seconds < 1.0  # half of the limit was kept
    again = list(run(bench.trainer(tmp_path, max_time=1.0, **options), tmp_path))
    assert [type(event) for event in again] == [Stopped]
    more = list(run(bench.trainer(tmp_path, max_time=first[-1].seconds + 1.2, **options), tmp_path))
    assert isinstance(more[-1], Stopped) and more[-1].update > first[-1].update


def test_epochs_end_when_every_row_was_seen(bench: Bench, tmp_path: Path) -> None:
    trainer = bench.trainer(tmp_path, max_updates=None, max_epochs=2, accumulate=2, validate_every=None)
    events = list(trainer.run())
    started, stopped = events[0], events[-1]
    assert isinstance(started, Started) and isinstance(stopped, Stopped)
    assert stopped.update == started.last_update == 2 * math.ceil(started.batches / 2)
    assert trainer.progress.tokens == 2 * sum(trainer.data.target_lengths)
    assert sum(isinstance(event, Validated) for event in events) == 2


def test_a_later_epoch_is_resumed_without_the_batches_of_the_first(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dividing ten million rows into batches takes seconds: only those that are read are made."""
    options: dict[str, Any] = {"max_updates": None, "max_epochs": 4, "validate_every": None}
    before = bench.trainer(tmp_path / "run", **options)
    begun = before.updates_per_epoch
    list(run(before, tmp_path / "run", stop_after(2 * begun + 1)))
    made: list[int] = []
    batches = Encoded.batches

    def count(self: Encoded, budget: int, *, epoch: int, **more: Any) -> list[np.ndarray]:
        made.append(epoch)
        return batches(self, budget, epoch=epoch, **more)

    monkeypatch.setattr(Encoded, "batches", count)
    after = bench.trainer(tmp_path / "run", **options)
    events = list(run(after, tmp_path / "run"))
    assert isinstance(events[0], Started) and events[0].last_update == 4 * begun
    assert after.progress.epoch_updates == begun and min(made) == 2


# ---- averaging


@pytest.mark.parametrize(
    ("average_of", "kept"),
    [("best", {6, 10}), ("last", {10, 12})],
)
def test_which_weights_are_averaged(bench: Bench, tmp_path: Path, average_of: str, kept: set[int]) -> None:
    scores = iter([1.0, 2.0, 5.0, 3.0, 4.0, 0.0])
    trainer = bench.trainer(tmp_path, scores, max_updates=12, validate_every=2, average=2, average_of=average_of)
    weights: dict[int, dict[str, torch.Tensor]] = {}
    for event in run(trainer, tmp_path):
        if isinstance(event, Validated):
            weights[event.update] = {name: one.clone() for name, one in named_weights(trainer.model).items()}
    paths = Snapshots(tmp_path).paths(trainer.progress)
    assert {int(path.stem) for path in paths} == kept
    assert set(tmp_path.glob("snapshots/*")) == set(paths)  # nothing else is left lying about
    mean = average(map(load_file, paths))
    for name, tensor in mean.items():
        wanted = sum(weights[update][name].double() for update in kept) / 2
        assert torch.allclose(tensor.double(), torch.as_tensor(wanted), atol=1e-6)


@pytest.mark.parametrize(
    ("mean_score", "mean_loss", "alone"),
    [(4.0, 2.0, True), (4.0, 0.5, False), (6.0, 2.0, False), (5.0, 1.0, False)],
    ids=["worse in both", "lower loss", "better score", "as good"],
)
def test_the_final_weights(bench: Bench, tmp_path: Path, mean_score: float, mean_loss: float, alone: bool) -> None:
    """The mean of the snapshots, unless the best alone beats it in score and in loss."""
    trainer = bench.trainer(tmp_path, iter([1.0, 5.0, 3.0]), max_updates=6, validate_every=2, average=2)
    list(run(trainer, tmp_path))
    snapshots = Snapshots(tmp_path)
    load_final_weights(
        trainer.model, snapshots, trainer.progress, lambda _: Scores(mean_loss, mean_score, "made up", {})
    )
    paths = snapshots.paths(trainer.progress)
    wanted = load_file(paths[0]) if alone else average(map(load_file, paths))
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in named_weights(trainer.model).items())


def test_the_saved_model_is_what_was_settled(bench: Bench, tmp_path: Path) -> None:
    """After an interruption the mean, without a validation more."""
    told = iter([False] * 14 + [True])
    bench.train(tmp_path, max_updates=20, average=3, should_stop=lambda: next(told))
    paths = sorted(tmp_path.glob("snapshots/*.safetensors"))
    assert len(paths) == 3
    saved, mean = load_file(tmp_path / "model.safetensors"), average(map(load_file, paths))
    assert all(torch.equal(saved[name], mean[name]) for name in saved)


# ---- learning rate


def test_inverse_square_root() -> None:
    config = OptimConfig(learning_rate=0.5, schedule="inverse-sqrt", warmup=10)
    rates = [learning_rate(config, update, 1000, 0) for update in (1, 5, 10, 40, 1000)]
    assert rates == pytest.approx([0.05, 0.25, 0.5, 0.25, 0.05])


def test_cosine() -> None:
    config = OptimConfig(learning_rate=0.5, schedule="cosine", warmup=10, final_share=0.1)
    rates = [learning_rate(config, update, 110, 0) for update in (1, 10, 60, 110, 200)]
    assert rates == pytest.approx([0.05, 0.5, 0.275, 0.05, 0.05])
    falling = [learning_rate(config, update, 110, 0) for update in range(10, 111)]
    assert falling == sorted(falling, reverse=True)


def test_plateau_and_constant() -> None:
    config = OptimConfig(learning_rate=0.5, schedule="plateau", warmup=0, plateau_factor=0.5)
    assert [learning_rate(config, 7, 100, count) for count in (0, 1, 3)] == pytest.approx([0.5, 0.25, 0.0625])
    steady = OptimConfig(learning_rate=0.5, schedule="constant", warmup=2)
    assert [learning_rate(steady, update, 100, 3) for update in (1, 2, 99)] == pytest.approx([0.25, 0.5, 0.5])


def test_the_rate_falls_when_the_score_does_not_rise(bench: Bench, tmp_path: Path) -> None:
    optim = {"schedule": "plateau", "warmup": 0, "learning_rate": 0.01, "plateau_patience": 1, "plateau_factor": 0.5}
    scores = iter([3.0, 2.0, 2.0, 2.0, 2.0, 4.0, 1.0])
    trainer = bench.trainer(tmp_path, scores, max_updates=14, validate_every=2, log_every=1, optim=optim)
    rates = {event.update: event.learning_rate for event in trainer.run() if isinstance(event, Stepped)}
    assert [rates[update] for update in (2, 6, 7, 10, 11, 14)] == pytest.approx(
        [0.01, 0.01, 0.005, 0.005, 0.0025, 0.0025]
    )


# ---- gradients


def test_half_batches_accumulated_are_the_whole_batch(bench: Bench, tmp_path: Path) -> None:
    """The mean is over the tokens of all batches of an update, not a mean of means."""
    trainer = bench.trainer(tmp_path)
    model, data = trainer.model.eval(), trainer.data  # no dropout: the same numbers however the rows are grouped
    rows = np.arange(40)
    parts = [rows[:25], rows[25:]]

    def gradients(groups: list[np.ndarray]) -> list[torch.Tensor]:
        model.zero_grad()
        batches = [data.batch(group) for group in groups]
        tokens = sum(batch.tokens for batch in batches)
        for batch in batches:
            (summed_loss(model.teach(batch), batch, 0.1) / tokens).backward()
        return [parameter.grad.clone() for parameter in trainer.updater.parameters if parameter.grad is not None]

    whole, halves = gradients([rows]), gradients(parts)
    assert len(whole) == len(halves) == len(trainer.updater.parameters)
    for first, second in zip(whole, halves, strict=True):
        assert torch.allclose(first, second, atol=1e-6, rtol=1e-4)


def test_an_update_of_two_small_batches_is_that_of_one_large(bench: Bench, tmp_path: Path) -> None:
    """The same through the trainer itself: one update over the same rows, cut into batches or not."""
    results = []
    for accumulate, budget in ((1, 10**6), (10**6, 64)):
        trainer = bench.trainer(
            tmp_path / str(accumulate), max_updates=1, accumulate=accumulate, batch_tokens=budget, label_smoothing=0.1
        )
        for module in trainer.model.modules():
            if isinstance(module, Dropout):
                module.rate = 0.0
        for frontend in trainer.model.frontends.values():
            frontend.rare.zero_()  # type: ignore[operator]
        events = list(trainer.run())
        assert isinstance(events[0], Started) and (events[0].batches > 3) == (accumulate > 1)
        moments = [trainer.updater.optimizer.state[parameter]["exp_avg"] for parameter in trainer.updater.parameters]
        results.append(torch.cat([moment.flatten() for moment in moments]))
    assert results[0].norm() > 0
    assert torch.allclose(results[0], results[1], atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize("rows", [1, 7, 257, 300])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [10, 1000, 10**7])
@pytest.mark.parametrize("scale", [1.0, 1 / 7])
def test_the_loss_in_chunks_is_the_plain_loss(
    rows: int, bias: bool, smoothing: float, chunk: int, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a scale given beforehand, or by one that comes behind it."""
    monkeypatch.setattr("dragoman.nn.kernels.cross_entropy.LOGITS", chunk)
    torch.manual_seed(rows)
    width, vocabulary = 6, 11
    lengths = torch.randint(1, 5, (rows,))
    mask = torch.arange(4) < lengths[:, None]
    targets = torch.randint(0, vocabulary, (rows, 4))
    features = torch.randn(rows, 4, width, dtype=torch.float64)
    readout = nn.Linear(width, vocabulary, bias=bias, dtype=torch.float64)
    batch: Any = SimpleNamespace(mask=mask, targets=targets)

    def results(chunked: bool) -> list[torch.Tensor]:
        given = features.clone().requires_grad_()
        readout.zero_grad()
        if chunked:
            step: Any = SimpleNamespace(reading=None, copies=None, features=given, readout=readout)
            loss, gold = loss_and_gold(step, batch, smoothing, scale)
            wanted = readout(given)[mask].log_softmax(-1).gather(1, targets[mask][:, None])[:, 0]
            assert torch.allclose(gold, wanted, atol=1e-9) and not gold.requires_grad
        else:
            loss = nn.functional.cross_entropy(
                readout(given)[mask], targets[mask], reduction="sum", label_smoothing=smoothing
            )
            loss = loss * scale
        (loss if scale != 1 else loss / 7).backward()
        assert given.grad is not None
        return [loss.detach(), given.grad, *(parameter.grad.clone() for parameter in readout.parameters())]  # type: ignore[union-attr]

    for first, second in zip(results(True), results(False), strict=True):
        assert torch.allclose(first, second, atol=1e-9)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_no_tokens_have_no_loss_and_no_gradient(smoothing: float) -> None:
    readout = nn.Linear(2000, 1000)
    features = torch.randn(3, 1, 2000, requires_grad=True)
    batch: Any = SimpleNamespace(mask=torch.zeros(3, 1, dtype=torch.bool), targets=torch.zeros(3, 1, dtype=torch.long))
    step: Any = SimpleNamespace(reading=None, copies=None, features=features, readout=readout)
    loss, gold = loss_and_gold(step, batch, smoothing)
    loss.backward()
    assert loss.item() == 0 and len(gold) == 0
    assert all(one.grad is not None and not one.grad.any() for one in (features, *readout.parameters()))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_a_token_too_unlikely_for_a_float_is_still_a_number(smoothing: float) -> None:
    readout = nn.Linear(1, 3, bias=False)
    readout.weight.data = torch.tensor([[1.0], [0.0], [-1.0]])
    features = torch.tensor([[[0.5]], [[75.0]], [[150.0]], [[4000.0]]], requires_grad=True)  # (4, 1, 1)
    targets = torch.full((4, 1), 2)
    batch: Any = SimpleNamespace(mask=torch.ones(4, 1, dtype=torch.bool), targets=targets)
    step: Any = SimpleNamespace(reading=None, copies=None, features=features, readout=readout)
    loss, gold = loss_and_gold(step, batch, smoothing)
    logits = readout(features)[:, 0].double()
    wanted = logits.log_softmax(-1)
    assert torch.allclose(gold.double(), wanted[:, 2], rtol=1e-6)
    plain = nn.functional.cross_entropy(logits, targets[:, 0], reduction="sum", label_smoothing=smoothing)
    assert loss.item() == pytest.approx(plain.item(), rel=1e-6)
    loss.backward()
    assert features.grad is not None and features.grad.isfinite().all()


def test_padding_is_neither_counted_nor_learnt_from() -> None:
    torch.manual_seed(0)
    features = torch.randn(3, 5, 4, requires_grad=True)
    mask = torch.arange(5) < torch.tensor([5, 2, 1])[:, None]
    batch: Any = SimpleNamespace(mask=mask, targets=torch.zeros(3, 5, dtype=torch.long))
    step: Any = SimpleNamespace(reading=None, copies=None, features=features, readout=nn.Linear(4, 6))
    loss = summed_loss(step, batch, 0.1)
    loss.backward()
    assert features.grad is not None
    assert (features.grad[~mask] == 0).all() and (features.grad[mask] != 0).any(-1).all()
    with torch.no_grad():
        assert summed_loss(step, batch, 0.1).item() == pytest.approx(loss.item(), rel=1e-6)


def test_a_gradient_that_is_not_finite_is_left_out_and_in_the_end_refused(bench: Bench, tmp_path: Path) -> None:
    trainer = bench.trainer(tmp_path, max_updates=100)
    before = {name: tensor.clone() for name, tensor in named_weights(trainer.model).items()}
    trainer.updater.parameters[0].register_hook(lambda gradient: gradient * float("nan"))
    *_, last = trainer.run()
    assert isinstance(last, Stopped) and last.diverged and "not finite in 21 updates" in last.reason
    after = named_weights(trainer.model)
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("threads", [1, 2])
def test_numbers_below_the_full_ones_do_not_slow_training_down(bench: Bench, tmp_path: Path, threads: int) -> None:
    def kept() -> bool:
        return bool(torch.full((1,), 1e-39) * 1 != 0)

    before, during = kept(), []
    trainer = bench.trainer(tmp_path, max_updates=2, threads=threads, batch_tokens=256)
    trainer.model.decoder.register_forward_hook(lambda *_: during.append((threading.get_ident(), kept())))
    list(trainer.run())
    assert before and kept()  # the caller's arithmetic is as it was
    assert not any(here for _, here in during)
    assert len({thread for thread, _ in during}) >= threads


# ---- state


@pytest.mark.parametrize("kind", ["adam", "adamw", "muon"])
def test_the_optimizer_comes_back_exactly(tmp_path: Path, kind: str) -> None:
    config = OptimConfig(kind=kind, weight_decay=0.01)

    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        return model, make_optimizer(config, list(model.parameters()), {model[1].weight: 1})

    def advance(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
        torch.manual_seed(seed)
        model(torch.randn(5, 3)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    model, optimizer = make()
    for seed in range(3):
        advance(model, optimizer, seed)
    progress = Progress(update=3, best=[1.5, -0.25], snapshots=[[1.5, -0.25, 3.0]], seconds=0.1 + 0.2)
    Checkpoint.capture(model, optimizer, progress).write(tmp_path / "c.safetensors")
    other, restored = make()
    assert Checkpoint.read(tmp_path / "c.safetensors").restore(other, restored) == progress
    advance(model, optimizer, 9)
    advance(other, restored, 9)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        first, second = optimizer.state[mine], restored.state[theirs]
        assert first.keys() == second.keys()
        assert first.keys() == {"step", "exp_avg", "exp_avg_sq"} or (kind == "muon" and first.keys() == {"momentum"})
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_state_of_another_optimizer_is_refused(tmp_path: Path) -> None:
    """It is kept by place: in another order it would be that of other parameters."""
    model = nn.Linear(3, 4)
    optimizers = [
        make_optimizer(OptimConfig(), order) for order in ([model.weight, model.bias], [model.bias, model.weight])
    ]
    model(torch.randn(5, 3)).sum().backward()
    optimizers[0].step()
    Checkpoint.capture(model, optimizers[0], Progress(update=1)).write(tmp_path / "c.safetensors")
    checkpoint = Checkpoint.read(tmp_path / "c.safetensors")
    checkpoint.restore(model, optimizers[0])
    with pytest.raises(UserError, match="another optimiser"):
        checkpoint.restore(model, optimizers[1])


# ---- batches

short, any_length = st.integers(1, 4), st.integers(1, 40)
lengths = st.lists(st.tuples(any_length, any_length) | st.tuples(short, short), min_size=1, max_size=200)


@settings(max_examples=60, deadline=None)
@given(lengths, st.integers(1, 200), st.integers(0, 5), st.integers(0, 5))
@example([(3, 3)] * 29 + [(40, 40)], 100, 0, 0)  # a rest of short rows that a long one must not join
def test_every_row_once_within_the_budget(rows: list[tuple[int, int]], budget: int, seed: int, epoch: int) -> None:
    source, target = [row[0] for row in rows], [row[1] for row in rows]
    batches = make_batches(source, target, budget, seed=seed, epoch=epoch)
    assert sorted(row for batch in batches for row in batch.tolist()) == list(range(len(rows)))
    for batch in batches:
        longest = max(max(rows[row]) for row in batch)
        assert len(batch) == 1 or longest * len(batch) <= budget
    again = make_batches(source, target, budget, seed=seed, epoch=epoch)
    assert [batch.tolist() for batch in batches] == [batch.tolist() for batch in again]


def test_batches_are_sorted_by_what_leaves_least_padding() -> None:
    chance = np.random.default_rng(0)
    # sentences: many are equally long, so both sides can be alike
    target = chance.integers(5, 30, 8000)
    source = np.maximum(1, target + chance.integers(-6, 7, 8000))
    sentences = make_batches(source.tolist(), target.tolist(), 2048, seed=1, epoch=0)
    assert padding_share(source.tolist(), sentences) + padding_share(target.tolist(), sentences) < 0.13
    # sound: hardly two are equally long, and the target is not padded for the sake of the source
    target = chance.integers(5, 100, 2000)
    source = (target * chance.uniform(5.0, 12.0, 2000)).astype(int)
    sounds = make_batches(source.tolist(), target.tolist(), 10_000, seed=1, epoch=0)
    assert padding_share(target.tolist(), sounds) < 0.03
    for batches in (sentences, sounds):
        assert sorted(row for batch in batches for row in batch.tolist()) == list(range(sum(map(len, batches))))


def test_epochs_and_seeds_differ_and_padding_is_small() -> None:
    chance = np.random.default_rng(0)
    target = chance.integers(3, 40, 2000).tolist()
    source = [max(1, length + change) for length, change in zip(target, chance.integers(-2, 3, 2000), strict=True)]
    orders = [
        [batch.tolist() for batch in make_batches(source, target, 1024, seed=seed, epoch=epoch)]
        for seed, epoch in ((1, 0), (1, 1), (2, 0))
    ]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert sum(len(batch) % 8 == 0 for batch in orders[0] if len(batch) >= 24) > 10
    assert {frozenset(batch) for batch in orders[0]} != {frozenset(batch) for batch in orders[1]}
    batches = make_batches(source, target, 1024, seed=1, epoch=0)
    assert padding_share(target, batches) < 0.05
    assert padding_share(source, batches) < 0.05
    assert padding_share([3, 3], [np.array([0, 1])]) == 0.0
    assert padding_share([4, 2], [np.array([0, 1])]) == pytest.approx(0.25)


def test_a_batch_is_the_rows_behind_the_start_symbol(bench: Bench, tmp_path: Path) -> None:
    data = bench.trainer(tmp_path).data
    batch = data.batch(np.array([5, 0, 9]))
    assert batch.rows == (5, 0, 9)
    for row, number in enumerate(batch.rows):
        gold = data.targets.array(number)
        assert batch.targets[row][batch.mask[row]].tolist() == gold.tolist()
        assert batch.inputs[row][batch.mask[row]].tolist() == [data.bos, *gold.tolist()[:-1]]
        source = batch.sources["source"]
        assert source.data[row][source.mask[row]].tolist() == data.sources["source"].array(number).tolist()
    assert batch.tokens == sum(data.targets.lengths[number] for number in batch.rows)
