"""Token-level distillation: what it computes, that a run in pieces is the run in one, and what cannot teach."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dragoman
from dragoman.config import ConfigError, merge
from dragoman.errors import UserError
from dragoman.recipe.schema import spell_out
from dragoman.training.corpus import encode_corpus
from dragoman.training.objective.distill import Teacher, distillation
from dragoman.training.objective.gradient import add_gradient
from dragoman.training.plan import Plan, plan
from dragoman.training.run import train
from dragoman.types import Batch


def make_plan(tiny_run: Any, **training: Any) -> Plan:
    return plan(tiny_run.pairs, settings=merge(spell_out(tiny_run.settings), {"training": training}))


def one_batch(planned: Plan) -> Batch:
    data = encode_corpus(planned.system, planned.data.train)
    return data.batch(data.batches(200, seed=1, epoch=0)[0])


class Fixed(Teacher):
    """A teacher that says what it is told to."""

    def __init__(self, said: Tensor) -> None:
        super().__init__([])
        self.said = said

    def probabilities(self, batch: Batch, temperature: float = 1.0) -> Tensor:
        return self.said


def gradients(planned: Plan, batch: Batch, teacher: Teacher | None) -> tuple[float, dict[str, Tensor]]:
    model, config = planned.system.model.eval(), planned.system.recipe.training
    model.zero_grad()
    result = add_gradient(model, batch, config, tokens=batch.tokens, teacher=teacher)
    named = {name: parameter.grad for name, parameter in model.named_parameters()}
    return result.smoothed_loss, {name: grad.clone() for name, grad in named.items() if grad is not None}


@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_a_teacher_that_knows_the_target_is_the_cross_entropy(tiny_run: Any, weight: float) -> None:
    planned = make_plan(tiny_run, label_smoothing=0.0, distill={"weight": weight})
    batch = one_batch(planned)
    gold = nn.functional.one_hot(batch.targets[batch.mask], planned.system.target.size).float()
    plain, expected = gradients(planned, batch, None)
    loss, found = gradients(planned, batch, Fixed(gold))
    assert loss == pytest.approx(plain, rel=1e-5)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-6)


def test_a_model_that_is_its_own_teacher_has_nothing_to_learn(tiny_run: Any) -> None:
    """The cross-entropy with itself has its least value, the entropy, there: its gradient is zero."""
    teachers = [str(tiny_run.folder)]
    planned = make_plan(tiny_run, distill={"teachers": teachers, "weight": 1.0})
    batch = one_batch(planned)
    assert planned.teacher is not None
    planned.system.model.load_state_dict(planned.teacher.members[0].model.state_dict())
    loss, found = gradients(planned, batch, planned.teacher)
    said = planned.teacher.probabilities(batch)
    assert loss == pytest.approx(float(-(said * said.log()).sum() / batch.tokens), rel=1e-4)
    assert max(float(gradient.abs().max()) for gradient in found.values()) < 1e-6
    _, other = gradients(planned, batch, None)
    assert max(float(gradient.abs().max()) for gradient in other.values()) > 1e-4


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_temperature_divides_the_logits_of_both(temperature: float) -> None:
    torch.manual_seed(0)
    theirs, ours = torch.randn(2, 4, 7).unbind()
    ours = ours[None].requires_grad_()  # (1, 4, 7)
    step: Any = SimpleNamespace(features=ours, readout=lambda features: features)
    said = torch.softmax(theirs / temperature, -1)
    loss = distillation(step, torch.ones(1, 4, dtype=torch.bool), said, temperature)
    (gradient,) = torch.autograd.grad(loss, ours)
    # Hinton et al. 2015, eq. 2, times the square of the temperature
    torch.testing.assert_close(gradient[0], temperature * (torch.softmax(ours[0] / temperature, -1) - said))


def test_the_teacher_is_the_mean_of_its_members_as_in_an_ensemble(tiny_run: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    settings = merge(spell_out(tiny_run.settings), {"training": {"max_updates": 20, "seed": 5, "native": False}})
    train(tiny_run.pairs, out=other, settings=settings)
    planned = make_plan(tiny_run, distill={"teachers": [str(tiny_run.folder), str(other)]})
    row = planned.data.train[3]
    data = encode_corpus(planned.system, [row])
    batch = data.batch(data.batches(200, seed=1, epoch=0)[0])
    assert planned.teacher is not None
    said = planned.teacher.probabilities(batch)
    torch.testing.assert_close(said.sum(-1), torch.ones(len(said)))
    members = dragoman.load([tiny_run.folder, other], engine="torch")
    (score,) = members.score([row.sources["source"]], [row.target])
    found = said.gather(1, batch.targets[batch.mask][:, None]).log().sum()
    assert float(found) == pytest.approx(sum(score.log_probs), abs=1e-3)


def test_inputs_that_are_hidden_from_the_model_are_not_hidden_from_the_teacher(tiny_run: Any) -> None:
    planned = make_plan(tiny_run, distill={"teachers": [str(tiny_run.folder)]})
    batch = one_batch(planned)
    assert planned.teacher is not None
    hidden = replace(batch, inputs=torch.where(torch.arange(batch.inputs.shape[1]) > 0, 1, batch.inputs))
    assert torch.equal(planned.teacher.probabilities(hidden), planned.teacher.probabilities(batch))


def test_tokens_with_other_ids_are_renumbered(tiny_run: Any, tmp_path: Path) -> None:
    more = tmp_path / "more.tsv"  # rows that make other letters frequent, so that the vocabulary has another order
    added = "".join(f"{'h' * count}\t{'h' * count}\n" for count in range(8, 40))
    more.write_text(tiny_run.pairs.read_text(encoding="utf-8") + added, encoding="utf-8")
    distill = {"training": {"distill": {"teachers": [str(tiny_run.folder)]}}}
    planned = plan(more, settings=merge(spell_out(tiny_run.settings), distill))
    system = dragoman.load(tiny_run.folder, engine="torch")
    assert planned.system.target.vocabulary.symbols != system.target.vocabulary.symbols
    row = next(row for row in planned.data.train if len(set(row.target)) > 3)
    data = encode_corpus(planned.system, [row])
    batch = data.batch(data.batches(200, seed=1, epoch=0)[0])
    assert planned.teacher is not None
    said = planned.teacher.probabilities(batch).gather(1, batch.targets[batch.mask][:, None])
    (score,) = system.score([row.sources["source"]], [row.target])
    assert said.log()[:, 0].tolist() == pytest.approx(list(score.log_probs), abs=1e-4)


def stop_after(updates: int) -> Callable[[], bool]:
    asked = iter(range(1, updates + 1))
    return lambda: next(asked, updates) == updates


def test_a_taught_run_in_pieces_is_the_run_in_one(tiny_run: Any, tmp_path: Path) -> None:
    distill = {"teachers": [str(tiny_run.folder)], "weight": 0.5}
    training = {"max_updates": 14, "batch_tokens": 64, "native": False, "distill": distill}
    settings = merge(spell_out(tiny_run.settings), {"training": training})
    train(tiny_run.pairs, out=tmp_path / "whole", settings=settings)
    for updates in (3, 5):
        train(tiny_run.pairs, out=tmp_path / "pieces", settings=settings, should_stop=stop_after(updates))
    train(tiny_run.pairs, out=tmp_path / "pieces", settings=settings)
    whole, pieces = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "pieces"))
    assert whole == pieces
    plain = merge(settings, {"training": {"distill": {"teachers": []}}})
    train(tiny_run.pairs, out=tmp_path / "plain", settings=plain)
    assert (tmp_path / "plain" / "model.safetensors").read_bytes() != whole, "the teacher has a say"


def test_threads_that_ask_one_teacher_at_once_give_what_one_thread_gives(tiny_run: Any, tmp_path: Path) -> None:
    training = {"max_updates": 8, "batch_tokens": 400, "shares": 2, "distill": {"teachers": [str(tiny_run.folder)]}}
    weights = []
    for threads in (1, 2):
        settings = merge(spell_out(tiny_run.settings), {"training": {**training, "threads": threads}})
        train(tiny_run.pairs, out=tmp_path / str(threads), settings=settings)
        weights.append((tmp_path / str(threads) / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_a_teacher_with_other_weights_is_another_run(tiny_run: Any, tmp_path: Path) -> None:
    teacher = tmp_path / "teacher"
    shutil.copytree(tiny_run.folder, teacher)
    training = {"max_updates": 6, "native": False, "distill": {"teachers": [str(teacher)]}}
    settings = merge(spell_out(tiny_run.settings), {"training": training})
    train(tiny_run.pairs, out=tmp_path / "run", settings=settings, should_stop=stop_after(2))
    shutil.rmtree(teacher)
    other = merge(spell_out(tiny_run.settings), {"training": {"max_updates": 6, "native": False}})
    train(tiny_run.pairs, out=teacher, settings=other)
    with pytest.raises(UserError, match="another run"):
        train(tiny_run.pairs, out=tmp_path / "run", settings=settings)


def test_what_cannot_teach_is_refused(tiny_run: Any, label_run: Any) -> None:
    with pytest.raises(ConfigError, match=r"training.distill.teachers.*nowhere"):
        make_plan(tiny_run, distill={"teachers": ["nowhere"]})
    with pytest.raises(ConfigError, match="reads"):
        make_plan(tiny_run, distill={"teachers": [str(label_run.folder)]})
    kinds = {"target": {"tokenizer": {"kind": "bytes"}}, "training": {"distill": {"teachers": [str(tiny_run.folder)]}}}
    with pytest.raises(ConfigError, match="has other target tokens"):
        plan(tiny_run.pairs, settings=merge(spell_out(tiny_run.settings), spell_out(kinds)))
