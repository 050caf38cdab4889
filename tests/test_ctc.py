"""CTC over the encoder's states: against its definition, and in a whole run."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dragoman import load
from dragoman.config import ConfigError, merge
from dragoman.data.vocabulary import BLANK
from dragoman.errors import UserError
from dragoman.inference.build import check_ctc
from dragoman.nn.model import Model
from dragoman.recipe.schema import spell_out
from dragoman.studio.inspection import inspect
from dragoman.studio.records import PredictRequest
from dragoman.training.corpus import encode_corpus
from dragoman.training.objective.ctc import describe_ctc, needed_states, summed_ctc
from dragoman.training.objective.gradient import add_gradient
from dragoman.training.parallel.threads import ThreadGroup
from dragoman.training.plan import plan
from dragoman.training.run import train
from dragoman.training.trainer import Trainer
from dragoman.types import Batch, Memory

EOS = 3


def batch_of(targets: list[list[int]]) -> Batch:
    rows = [torch.tensor([*target, EOS]) for target in targets]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.arange(padded.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
    return Batch({}, padded, padded, mask)


def listening(vocabulary: int = 6, width: int = 5) -> Model:
    model = Model({}, {}, torch.nn.Identity())  # type: ignore[arg-type]
    torch.manual_seed(2)
    model.ctc = torch.nn.Linear(width, vocabulary)
    return model


def memory_of(lengths: list[int]) -> Memory:
    torch.manual_seed(3)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Memory(torch.randn(len(lengths), max(lengths), 5), mask)


def said(path: tuple[int, ...]) -> list[int]:
    """Repeats taken once, silence left out."""
    return [token for token, _ in itertools.groupby(path) if token != BLANK]


def test_it_sums_over_every_path_that_says_the_target() -> None:
    model, memory, targets = listening(), memory_of([4, 3, 4, 1]), [[4, 5], [4, 4], [], [5]]
    wanted = 0.0
    log_probs = model.ctc(memory.states).log_softmax(-1)  # type: ignore[misc]
    for row, target in enumerate(targets):
        length = int(memory.mask[row].sum())
        paths = [path for path in itertools.product(range(6), repeat=length) if said(path) == target]
        totals = [sum(log_probs[row, t, token] for t, token in enumerate(path)) for path in paths]
        wanted -= torch.logsumexp(torch.stack(totals), 0).item()  # type: ignore[arg-type]
    assert summed_ctc(model, memory, batch_of(targets)).item() == pytest.approx(wanted, rel=1e-5)


def test_rows_with_too_few_states_add_nothing_and_are_counted() -> None:
    model, memory, targets = listening(), memory_of([4, 2]), [[4, 5], [4, 4]]
    alone = Memory(memory.states[:1], memory.mask[:1])
    both = summed_ctc(model, memory, batch_of(targets))
    assert both.item() == pytest.approx(summed_ctc(model, alone, batch_of(targets[:1])).item())
    both.backward()
    assert model.ctc is not None and model.ctc.weight.grad is not None and model.ctc.weight.grad.isfinite().all()
    assert [needed_states(target) for target in targets] == [2, 3]
    assert "1 of 2 training rows" in describe_ctc(0.3, [4, 2], targets)[1]
    assert len(describe_ctc(0.3, [4, 3], targets)) == 1


def test_padding_is_invisible() -> None:
    model, memory, targets = listening(), memory_of([4, 3]), [[4, 5], [5]]
    rubbish = memory.states.clone()
    rubbish[~memory.mask] = 50.0
    longer = Memory(
        torch.cat([rubbish, torch.full((2, 3, 5), 9.0)], 1), torch.cat([memory.mask, memory.mask[:, :3] & False], 1)
    )
    first, second = (summed_ctc(model, one, batch_of(targets)) for one in (memory, longer))
    assert first.item() == pytest.approx(second.item(), rel=1e-6)


@pytest.mark.parametrize(("layouts", "word"), [([], "none"), (["sequence"] * 2, "several"), (["picture"], "a picture")])
def test_it_listens_to_one_sequence(layouts: list[Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        check_ctc(layouts, 0.3)
    check_ctc(layouts, 0.0)


@pytest.fixture
def pairs(tmp_path: Path, pairs_file: Callable[..., Path]) -> Path:
    return pairs_file(tmp_path / "pairs.tsv", 60)


def with_ctc(tiny_settings: dict[str, Any], weight: float, **training: Any) -> dict[str, Any]:
    return merge(spell_out(tiny_settings), {"training": {"ctc": weight, **training}})


def test_gradients_of_shares_add_up(pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path) -> None:
    system = (planned := plan(pairs, settings=with_ctc(tiny_settings, 0.4, label_smoothing=0.0))).system
    data, options = encode_corpus(system, planned.data.train), system.recipe.training
    trainer = Trainer(system.model, data, options, lambda model: pytest.fail("not asked for"))
    model, batch = trainer.model.eval(), data.batch(max(trainer._batches(0), key=len))

    def work(one: Model, part: Batch) -> float:
        return add_gradient(one, part, options, tokens=batch.tokens).smoothed_loss

    def taken() -> list[torch.Tensor]:
        gradients = [parameter.grad for parameter in trainer.updater.parameters if parameter.grad is not None]
        model.zero_grad(set_to_none=True)
        return gradients

    work(model, batch)
    whole = taken()
    ThreadGroup(model, 2).run(work, batch, seed=1)
    dealt = taken()
    assert len(whole) == len(dealt) == len(trainer.updater.parameters)  # the head's are among them
    for first, second in zip(whole, dealt, strict=True):
        assert torch.allclose(first, second, atol=1e-6, rtol=1e-4)


def test_a_run_with_ctc_saves_its_head_and_decodes_without_it(
    pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    """The other weights start as they would without it."""
    plain, heard = (plan(pairs, settings=with_ctc(tiny_settings, weight)) for weight in (0.0, 0.3))
    weights = heard.system.model.state_dict()
    assert {"ctc.weight", "ctc.bias"} == weights.keys() - plain.system.model.state_dict().keys()
    assert all(torch.equal(tensor, weights[key]) for key, tensor in plain.system.model.state_dict().items())
    assert any("0.3 of CTC" in reason for reason in heard.reasons)
    train(pairs, out=tmp_path / "run", settings=with_ctc(tiny_settings, 0.3, max_updates=4))
    system = load(tmp_path / "run")
    assert system.model.ctc is not None
    before = [prediction.text for prediction in system.predict(["abc", "hgf"])]
    torch.nn.init.zeros_(system.model.ctc.weight)
    assert [prediction.text for prediction in system.predict(["abc", "hgf"])] == before


def test_a_search_may_ask_ctc_too(pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path) -> None:
    for name, weight, seed in (("run", 0.5, 1), ("other", 0.5, 2), ("plain", 0.0, 1)):
        train(pairs, out=tmp_path / name, settings=with_ctc(tiny_settings, weight, max_updates=6, seed=seed))
    system, plain = load(tmp_path / "run"), load(tmp_path / "plain")
    inputs = ["abc", "hgf", "ddeeff"]
    asked = system.predict(inputs, beam=3, n_best=2, ctc=0.4)
    alone = system.predict(inputs, beam=3, n_best=2)
    assert [one.text for one in asked] != [one.text for one in alone]
    compared = 0
    for prediction, text in zip(asked, inputs, strict=True):
        for output in prediction.outputs:  # what each token is worth to the model is the model's own
            (scored,) = system.score([text], [output.text])
            if output.finished:
                compared += 1
                assert sum(output.log_probs) == pytest.approx(scored.log_prob, abs=1e-4)
    assert compared
    together = load([tmp_path / "run", tmp_path / "other"])
    assert [one.text for one in together.predict(inputs, ctc=0.4)] != [one.text for one in together.predict(inputs)]
    same = [load([tmp_path / "run", tmp_path / "run"]), system]
    twice, once = ([one.text for one in several.predict(inputs, ctc=0.4)] for several in same)
    assert twice == once
    with pytest.raises(UserError, match=r"search\.ctc: .*plain was trained without CTC"):
        plain.predict(inputs, ctc=0.4)
    with pytest.raises(UserError, match="plain was trained without CTC"):
        load([tmp_path / "run", tmp_path / "plain"]).predict(inputs, ctc=0.4)


def test_the_studio_compares_a_reference_by_what_the_search_counts(
    pairs: Path, tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    settings = merge(with_ctc(tiny_settings, 0.5, max_updates=6), {"search": {"ctc": 0.4}})
    system = train(pairs, out=tmp_path / "run", settings=settings)
    found = inspect(system, "abcd", PredictRequest(input="abcd", beam=3))
    best = found.result.best
    (forced,) = found.session.force(found.prepared, [best.tokens])
    penalty = found.session.config.penalty(len(best.tokens))
    score = float(found.session.rank_scores(found.prepared, forced).sum()) / penalty
    assert score == pytest.approx(best.score, abs=1e-4)
    assert float(forced.log_probs.sum()) / penalty != pytest.approx(best.score, abs=1e-3)
