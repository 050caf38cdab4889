"""Rows dealt out among threads: the gradient is the whole batch's, and a run can be repeated and resumed exactly."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dragoman.config import merge
from dragoman.nn.blocks.layers import Dropout
from dragoman.nn.model import Model
from dragoman.process.generators import current_generator, thread_generator
from dragoman.process.openmp import limit_openmp_spinning
from dragoman.recipe.schema import spell_out
from dragoman.training.corpus import encode_corpus
from dragoman.training.objective.gradient import ShareResult
from dragoman.training.objective.loss import summed_loss
from dragoman.training.parallel.choosing import can_share_rows
from dragoman.training.parallel.group import deal
from dragoman.training.parallel.threads import ThreadGroup, with_same_weights
from dragoman.training.plan import plan
from dragoman.training.run import train
from dragoman.training.trainer import Trainer
from dragoman.types import Batch

SIDE = {"kind": "transformer", "width": 16, "layers": 2, "heads": 2, "feed_forward": 16}
FAMILIES: dict[str, dict[str, Any]] = {
    "before": {"decoder": {"kind": "rnn", "timing": "before", "dropout": 0.3}},
    "after": {"decoder": {"kind": "rnn", "timing": "after", "dropout": 0.3}},
    "hard": {"decoder": {"kind": "rnn", "selection": "hard", "dropout": 0.3}},
    "transformer": {"encoder": SIDE, "decoder": SIDE},
    "conv": {"encoder": {"kind": "conv", "width": 16}, "decoder": {"kind": "conv", "width": 16, "embedding": 16}},
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory, pairs_file: Callable[..., Path]) -> Path:
    return pairs_file(tmp_path_factory.mktemp("data") / "pairs.tsv", 100)


def settings_of(base: dict[str, Any], family: str, **training: Any) -> dict[str, Any]:
    options = {"threads": 2, "max_updates": 10, "max_epochs": None, "batch_tokens": 256, "validate_every": 5}
    return merge(spell_out(base), spell_out(merge(FAMILIES[family], {"training": options | training})))


def make_trainer(pairs: Path, folder: Path, settings: dict[str, Any]) -> Trainer:
    system = (planned := plan(pairs, settings=settings)).system
    data = encode_corpus(system, planned.data.train)
    return Trainer(system.model, data, system.recipe.training, lambda model: pytest.fail("not asked for"))


def largest(trainer: Trainer) -> Batch:
    return trainer.data.batch(max(trainer._batches(0), key=len))


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "hard"])
@pytest.mark.parametrize("count", [2, 3])
def test_the_gradients_of_the_shares_add_up(
    pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path, family: str, count: int
) -> None:
    trainer = make_trainer(pairs, tmp_path, settings_of(tiny_settings, family))
    model = trainer.model.eval()  # no dropout: the same numbers however the rows are dealt out
    batch = largest(trainer)

    def work(one: Model, part: Batch) -> float:
        loss = summed_loss(one.teach(part), part, 0.1) / batch.tokens
        loss.backward()
        return loss.item()

    def taken() -> list[Tensor]:
        gradients = [parameter.grad for parameter in trainer.updater.parameters]
        model.zero_grad(set_to_none=True)
        return [gradient for gradient in gradients if gradient is not None]

    whole_loss = work(model, batch)
    whole = taken()
    losses = ThreadGroup(model, count).run(work, batch, seed=1)
    dealt = taken()
    assert len(losses) == count and sum(losses) == pytest.approx(whole_loss, rel=1e-5)
    assert len(whole) == len(dealt) == len(trainer.updater.parameters)
    for first, second in zip(whole, dealt, strict=True):
        assert torch.allclose(first, second, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_threads_that_race_give_the_same_run_every_time(
    pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path, family: str
) -> None:
    """With dropout and drawn attention; and stopped anywhere it goes on exactly there."""

    def digest(name: str) -> str:
        return hashlib.sha256((tmp_path / name / "model.safetensors").read_bytes()).hexdigest()

    settings = settings_of(tiny_settings, family)
    for name in ("one", "two"):
        train(pairs, out=tmp_path / name, settings=settings)
    for updates in (3, 4):
        asked = iter(range(1, updates + 1))
        train(pairs, out=tmp_path / "pieces", settings=settings, should_stop=lambda n=updates, a=asked: next(a, n) == n)
    train(pairs, out=tmp_path / "pieces", settings=settings)
    assert digest("one") == digest("two") == digest("pieces")


def test_batches_are_dealt_out_where_there_are_threads(
    pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for threads in (1, 2):
        trainer = make_trainer(pairs, tmp_path, settings_of(tiny_settings, "after", threads=threads))
        rows: list[int] = []

        def work(model: Model, part: Batch, *_: Any, rows: list[int] = rows, **__: Any) -> ShareResult:
            rows.append(len(part.inputs))
            return ShareResult(0.0, 0.0, None, None)

        monkeypatch.setattr("dragoman.training.updating.add_gradient", work)
        batch = largest(trainer)
        trainer.updater.add_gradients(batch, batch.tokens, seed=1)
        assert len(rows) == threads and sum(rows) == len(batch.inputs)
        rows.clear()
        trainer.updater.add_gradients(trainer.data.batch(trainer._batches(0)[0][:5]), 5, seed=1)
        assert rows == [5]  # too few to be dealt out


def test_rows_are_dealt_once_each_and_padding_is_cut(
    pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    trainer = make_trainer(pairs, tmp_path, settings_of(tiny_settings, "after"))
    batch = largest(trainer)
    parts = [deal(batch, index, 3) for index in range(3)]
    assert sorted(row for part in parts for row in part.rows) == sorted(batch.rows)
    assert sum(part.tokens for part in parts) == batch.tokens
    for part in parts:
        assert part.mask.any(0).all() and all(source.mask.any(0).all() for source in part.sources.values())
        for index, row in enumerate(part.rows):
            alone = trainer.data.batch(torch.tensor([row]).numpy())
            length = int(part.mask[index].sum())
            assert torch.equal(part.targets[index, :length], alone.targets[0])
            assert torch.equal(part.inputs[index, :length], alone.inputs[0])


def test_copies_share_weights_and_not_gradients(pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path) -> None:
    trainer = make_trainer(pairs, tmp_path, settings_of(tiny_settings, "transformer"))
    other = with_same_weights(trainer.model)
    names = [name for name, _ in trainer.model.named_parameters()]
    assert [name for name, _ in other.named_parameters()] == names  # tied weights are tied in the copy too
    for mine, theirs in zip(trainer.model.parameters(), other.parameters(), strict=True):
        assert mine is not theirs and mine.data_ptr() == theirs.data_ptr()
        theirs.grad = torch.ones_like(theirs)
        assert mine.grad is None


def test_batch_norm_keeps_rows_together(pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path) -> None:
    settings = merge(settings_of(tiny_settings, "conv"), spell_out({"encoder": {"norm": "batch"}}))
    trainer = make_trainer(pairs, tmp_path, settings)
    assert not can_share_rows(trainer.model) and trainer.updater.workers.count == 1


def test_a_thread_draws_from_its_own_stream() -> None:
    drop, ones = Dropout(0.5), torch.ones(1000)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    with thread_generator(7):
        first = drop(ones)
    assert torch.equal(torch.get_rng_state(), state) and current_generator() is None
    with thread_generator(7):
        assert torch.equal(drop(ones), first)
    with thread_generator(8):
        assert not torch.equal(drop(ones), first)


@pytest.mark.parametrize("said", [{}, {"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "ACTIVE"}])
def test_waiting_threads_sleep_unless_told_otherwise(said: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert not limit_openmp_spinning()  # torch is there already: too late
    monkeypatch.delitem(sys.modules, "torch")
    assert limit_openmp_spinning() == (not said)
    assert os.environ.get("GOMP_SPINCOUNT") == said.get("GOMP_SPINCOUNT", None if said else "1000")
