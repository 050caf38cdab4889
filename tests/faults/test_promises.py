"""What training does when its folder, its memory or its numbers fail it, or when the folder is a stranger's."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.config import merge
from dragoman.errors import UnfinishedRun, UserError
from dragoman.training import updating
from dragoman.training.events import Event, Stepped, Stopped, Warned
from dragoman.training.run import train
from dragoman.training.trainer import Trainer

SHORT = {"training": {"max_updates": 12, "validate_every": 4, "log_every": 2, "average": 2}}


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def settings(tiny_settings: dict[str, Any]) -> dict[str, Any]:
    return merge(tiny_settings, SHORT)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory, pairs_file: Callable[..., Path]) -> Path:
    return pairs_file(tmp_path_factory.mktemp("promises") / "pairs.tsv", 60)


# ---- the folder


@pytest.mark.parametrize("how", ["renamed", "deleted", "replaced"])
def test_a_folder_that_vanishes_is_told_and_memory_is_saved_beside_it(
    pairs: Path, settings: dict[str, Any], tmp_path: Path, how: str
) -> None:
    folder = tmp_path / "run"

    def interfere(event: Event) -> None:
        if isinstance(event, Stepped) and event.update == 6:
            folder.rename(tmp_path / "elsewhere")
            if how == "replaced":
                folder.mkdir()

    with pytest.raises(UserError, match=r"run: .*is saved in .*run\.rescued"):
        train(pairs, out=folder, settings=settings, on_event=interfere)
    rescued = tmp_path / "run.rescued"
    assert dragoman.load(rescued).predict(["abc"])
    reports: list[Event] = []
    train(pairs, out=rescued, settings=settings, on_event=reports.append)
    assert [event.update for event in reports if isinstance(event, Stepped)] == [10, 12]
    assert (rescued / "README.md").exists()
    assert how != "replaced" or not list(folder.iterdir())


# ---- numbers


def test_a_run_that_diverges_fails_and_has_no_card(pairs: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    wild = {"training": {"max_updates": 40, "optim": {"learning_rate": 1e6, "warmup": 0, "clip": 0}}}
    with pytest.raises(UserError, match=r"training has diverged at update \d+.*no model was saved"):
        train(pairs, out=tmp_path / "run", settings=merge(settings, wild))
    assert not {"README.md", "model.safetensors", "evaluation.json"} & set(os.listdir(tmp_path / "run"))
    with pytest.raises(UserError, match="has diverged"):  # and the same command says so again
        train(pairs, out=tmp_path / "run", settings=merge(settings, wild))


def test_the_last_good_model_of_a_run_that_diverges_is_saved(
    pairs: Path, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = updating.learning_rate
    monkeypatch.setattr(updating, "learning_rate", lambda c, update, *a: 1e7 if update > 9 else real(c, update, *a))
    wild = {"training": {"max_updates": 200, "optim": {"warmup": 2, "clip": 0}}}
    with pytest.raises(UserError, match=r"at update \d+: for \d+ updates.*is from before \(update 4, 8\)"):
        train(pairs, out=tmp_path / "run", settings=merge(settings, wild))
    with pytest.warns(UnfinishedRun, match="has diverged"):
        system = dragoman.load(tmp_path / "run")
    assert system.predict(["abc"]) and not (tmp_path / "run" / "README.md").exists()


# ---- memory


def lack_memory(monkeypatch: pytest.MonkeyPatch, most: int, error: Callable[[], Exception]) -> None:
    real = updating.add_gradient

    def compute(model: Any, batch: Any, *arguments: Any, **options: Any) -> Any:
        if len(batch.inputs) > most:
            raise error()
        return real(model, batch, *arguments, **options)

    monkeypatch.setattr(updating, "add_gradient", compute)


@pytest.mark.parametrize(
    ("error", "threads"),
    [(MemoryError, 2), (lambda: RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to …"), 1)],
    ids=["python", "torch"],
)
def test_a_batch_that_does_not_fit_is_split_and_a_resumed_run_splits_the_same(
    pairs: Path, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    error: Callable[[], Exception], threads: int,
) -> None:  # fmt: skip
    lack_memory(monkeypatch, 5, error)
    changed = merge(settings, {"training": {"threads": threads}})
    events: list[Event] = []
    train(pairs, out=tmp_path / "whole", settings=changed, on_event=events.append)
    told = [event.message for event in events if isinstance(event, Warned)]
    assert told and all("not enough memory for a batch of" in message for message in told)
    asked = iter(range(100))
    train(pairs, out=tmp_path / "pieces", settings=changed, should_stop=lambda: next(asked) >= 6)
    train(pairs, out=tmp_path / "pieces", settings=changed)
    assert digest(tmp_path / "whole") == digest(tmp_path / "pieces")


def test_a_row_that_does_not_fit_is_refused(
    pairs: Path, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lack_memory(monkeypatch, 0, MemoryError)
    with pytest.raises(UserError, match="not enough memory for a single row"):
        train(pairs, out=tmp_path / "run", settings=settings)


# ---- interruptions


def test_a_validation_that_is_interrupted_is_made_after_resuming(
    pairs: Path, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(pairs, out=tmp_path / "whole", settings=settings)
    real = Trainer._measure
    asked: list[bool] = []

    def measure(self: Trainer) -> Any:
        if self.progress.update == 8 and not asked:
            asked.append(True)
            return None  # as for SearchCancelled
        return real(self)

    monkeypatch.setattr(Trainer, "_measure", measure)
    events: list[Event] = []
    train(pairs, out=tmp_path / "run", settings=settings, on_event=events.append, should_stop=lambda: bool(asked))
    assert isinstance(events[-1], Stopped) and events[-1].update == 8 and not events[-1].finished
    train(pairs, out=tmp_path / "run", settings=settings)
    assert digest(tmp_path / "run") == digest(tmp_path / "whole")


# ---- links and other things that are no files


def test_nothing_is_written_through_links(pairs: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    folder, outside = tmp_path / "run", tmp_path / "outside"
    outside.mkdir()
    asked = iter(range(100))
    train(pairs, out=folder, settings=settings, should_stop=lambda: next(asked) >= 5)
    victims = {}
    partial = ("run.json", "config.json", "checkpoint.safetensors", "model.safetensors", "README.md", "evaluation.json")
    for name in ("README.md", "evaluation.json", *(f".{name}.partial" for name in partial)):
        victims[outside / name] = f"precious {name}"
        (outside / name).write_text(victims[outside / name])
        (folder / name).symlink_to(outside / name)
    train(pairs, out=folder, settings=settings)
    assert all(path.read_text() == text for path, text in victims.items())
    assert not (folder / "README.md").is_symlink()


@pytest.mark.parametrize("name", ["metrics.jsonl", "snapshots"])
def test_links_where_files_grow_or_are_deleted_are_refused(
    pairs: Path, settings: dict[str, Any], tmp_path: Path, name: str
) -> None:
    folder, outside = tmp_path / "run", tmp_path / "outside"
    asked = iter(range(100))
    train(pairs, out=folder, settings=settings, should_stop=lambda: next(asked) >= 5)
    (folder / name).rename(outside)
    (outside.parent / "00000001.safetensors").write_text("mine")
    if outside.is_dir():
        (outside / "mine.safetensors").write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and folder not in path.parents}
    (folder / name).symlink_to(outside)
    with pytest.raises(UserError, match=f"{name}: this is a symbolic link"):
        train(pairs, out=folder, settings=settings)
    assert before == {path: path.read_bytes() for path in before}


def test_only_snapshots_of_the_run_are_deleted(pairs: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    asked = iter(range(100))
    train(pairs, out=tmp_path / "run", settings=settings, should_stop=lambda: next(asked) >= 5)
    mine = tmp_path / "run" / "snapshots" / "99999999.safetensors"
    mine.write_text("mine")
    train(pairs, out=tmp_path / "run", settings=settings)
    assert mine.read_text() == "mine"
    assert sorted(path.stem for path in mine.parent.iterdir())[:-1] == ["00000004", "00000008", "00000012"]


def test_the_folder_itself_may_be_a_link(pairs: Path, settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "real")
    train(pairs, out=tmp_path / "run", settings=settings)
    assert (tmp_path / "real" / "model.safetensors").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "source.tokenizer.json"])
def test_a_pipe_is_refused_without_waiting_for_it(tiny_run: Any, tmp_path: Path, name: str) -> None:
    import shutil

    shutil.copytree(tiny_run.folder, tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    os.mkfifo(tmp_path / "run" / name)
    with pytest.raises(UserError, match=rf"{name}: this is a pipe"):
        dragoman.load(tmp_path / "run")
