"""R-Drop: nothing without dropout, agreement with it, and no meaning for attention that is sampled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dragoman.config import ConfigError, merge
from dragoman.recipe.schema import spell_out
from dragoman.training.corpus import encode_corpus
from dragoman.training.objective.gradient import add_gradient
from dragoman.training.objective.r_drop import symmetric_kl
from dragoman.training.plan import Plan, plan


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory, pairs_file: Callable[..., Path]) -> Path:
    return pairs_file(tmp_path_factory.mktemp("data") / "pairs.tsv", 60)


def make_plan(pairs: Path, base: dict[str, Any], dropout: float, **more: Any) -> Plan:
    parts = {"source": {"dropout": dropout}, "encoder": {"dropout": dropout}, "decoder": {"dropout": dropout, **more}}
    return plan(pairs, settings=merge(spell_out(base), spell_out(parts)))


def gradients(planned: Plan, weight: float, drops: bool = True) -> tuple[float, dict[str, torch.Tensor]]:
    """Return the loss of a batch and the gradient of every parameter."""
    system = planned.system
    data = encode_corpus(system, planned.data.train)
    batch = data.batch(data.batches(200, seed=1, epoch=0)[0])
    config = system.recipe.training.model_copy(update={"r_drop": weight})
    system.model.train(drops)
    system.model.zero_grad()
    torch.manual_seed(1)
    result = add_gradient(system.model, batch, config, tokens=batch.tokens)
    named = {name: parameter.grad for name, parameter in system.model.named_parameters()}
    return result.smoothed_loss, {name: grad.clone() for name, grad in named.items() if grad is not None}


def test_without_dropout_two_passes_agree(pairs: Path, tiny_settings: dict[str, Any]) -> None:
    planned = make_plan(pairs, tiny_settings, 0.5)
    (plain, expected), (loss, found) = (gradients(planned, weight, drops=False) for weight in (0.0, 5.0))
    assert loss == pytest.approx(plain, rel=1e-5)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-6)


def test_with_dropout_disagreement_costs(pairs: Path, tiny_settings: dict[str, Any]) -> None:
    planned = make_plan(pairs, tiny_settings, 0.5)
    losses = [gradients(planned, weight)[0] for weight in (1e-9, 1.0, 5.0)]
    assert losses[0] < losses[1] < losses[2]
    assert losses[2] - losses[0] == pytest.approx(5 * (losses[1] - losses[0]), rel=1e-3)


def test_the_divergence_is_symmetric_and_not_negative(pairs: Path, tiny_settings: dict[str, Any]) -> None:
    planned = make_plan(pairs, tiny_settings, 0.5)
    data = encode_corpus(planned.system, planned.data.train)
    batch = data.batch(data.batches(200, seed=1, epoch=0)[0])
    planned.system.model.train()
    with torch.no_grad():
        first, second = (planned.system.model.teach(batch) for _ in range(2))
        there, back = (symmetric_kl(*steps, batch.mask) for steps in ((first, second), (second, first)))
        same = symmetric_kl(first, first, batch.mask)
    assert float(there) == pytest.approx(float(back)) and float(there) > 0
    assert float(same) == 0


def test_sampled_attention_is_refused(pairs: Path, tiny_settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="r_drop"):
        plan(pairs, settings=merge(spell_out(tiny_settings), {"decoder.selection": "hard", "training.r_drop": 1.0}))
