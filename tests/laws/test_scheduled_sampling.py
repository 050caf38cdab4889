"""Scheduled sampling through the decoder's contract: the fast way draws what a loop over time would draw."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from law_cases import DECODER_SETTINGS, VOCABULARY, make_decoder, make_encoder, make_padded
from torch import Tensor, nn

from dragoman.data.vocabulary import SPECIALS
from dragoman.nn.model import Model
from dragoman.parts import kinds, part
from dragoman.training.objective.loss import summed_loss
from dragoman.training.objective.sampling import sample_inputs
from dragoman.types import Batch, Padded

ROWS, LENGTH = 6, 9
CASES = [
    *((kind, DECODER_SETTINGS["concat"][0] if kind == "concat" else {}) for kind in kinds("decoder")),
    ("rnn", {"timing": "before"}),
    ("rnn", {"input_feeding": True, "layers": 2}),
    ("rnn", {"context": "initial"}),
]


class Given(nn.Module):
    """Vectors that are there already."""

    width = 12

    def forward(self, source: Padded) -> Padded:
        return source


def make_model(case: tuple[str, dict[str, object]]) -> Model:
    reads_source = part("decoder", case[0]).reads_source  # its own reader: no encoder may come between
    encoder = make_encoder(("identity", {}) if reads_source else ("rnn", {"width": 6, "layers": 2}))
    source = make_padded(ROWS)
    settings = {"dropout": 0.2, **case[1]} if "dropout" in fields(case[0]) else case[1]
    decoder = make_decoder((case[0], settings), encoder(source))
    for parameter in decoder.parameters():
        parameter.data *= 2  # far from uniform
    return Model({"source": Given()}, {"source": encoder}, decoder).train()  # type: ignore[dict-item]


def fields(kind: str) -> set[str]:
    return set(part("decoder", kind).Config.model_fields)


def make_batch(seed: int = 3) -> Batch:
    chance = torch.Generator().manual_seed(seed)
    targets = torch.randint(len(SPECIALS), VOCABULARY, (ROWS, LENGTH), generator=chance)
    inputs = torch.cat([torch.full((ROWS, 1), 2), targets[:, :-1]], 1)
    lengths = torch.tensor([9, 9, 3, 7, 1, 5])
    return Batch({"source": make_padded(ROWS)}, inputs, targets, torch.arange(LENGTH) < lengths[:, None])


def one_after_the_other(model: Model, batch: Batch, share: float) -> Tensor:
    """Bengio et al. 2015, as it is written: a step, a coin, a draw."""
    model.eval()
    coins = torch.rand(batch.inputs.shape)
    inputs = batch.inputs.clone()
    state = model.start(model.encode(batch.sources), ROWS)
    for position in range(1, LENGTH):
        step = model(inputs[:, position - 1 : position], state)
        state = step.state
        own = (coins[:, position] >= share) & batch.mask[:, position]
        if own.any():
            probabilities = step.log_probs[own, -1].exp()
            probabilities[:, : len(SPECIALS)] = 0.0
            inputs[own, position] = torch.multinomial(probabilities, 1)[:, 0]
    model.train()
    return inputs


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_it_is_the_loop_over_time(case: tuple[str, dict[str, object]], share: float) -> None:
    model, batch = make_model(case), make_batch()
    torch.manual_seed(11)
    mixed = sample_inputs(model, batch, share)
    torch.manual_seed(11)
    with torch.no_grad():
        assert torch.equal(mixed.inputs, one_after_the_other(model, batch, share))
    assert not torch.equal(mixed.inputs, batch.inputs)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_it_may_change_and_what_not(case: tuple[str, dict[str, object]]) -> None:
    model, batch = make_model(case), make_batch()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.encoders["source"].eval()  # a module that is out of training for reasons of its own
    modes = [module.training for module in model.modules()]
    mixed = sample_inputs(model, batch, 0.0)
    assert mixed.targets is batch.targets and mixed.mask is batch.mask and mixed.sources is batch.sources
    assert torch.equal(mixed.inputs[:, 0], batch.inputs[:, 0])
    assert torch.equal(mixed.inputs[~batch.mask], batch.inputs[~batch.mask])
    assert (mixed.inputs[:, 1:][batch.mask[:, 1:]] >= len(SPECIALS)).all()
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    summed_loss(model.teach(mixed), batch).backward()  # the mixed inputs are trained on as gold ones are
    assert all(p.grad is not None for p in model.decoder.parameters())


def test_each_token_has_its_own_coin() -> None:
    """A decoder that is sure of one token: what is replaced can be counted."""
    model = make_model(("rnn", {"tie_embeddings": False}))
    model.decoder.project.bias.data[7] = 50.0  # type: ignore[union-attr, operator, index]
    batch = make_batch()
    gold = replace(batch, inputs=torch.where(batch.inputs == 7, 8, batch.inputs), mask=torch.ones_like(batch.mask))
    torch.manual_seed(5)
    own = torch.stack([sample_inputs(model, gold, 0.7).inputs[:, 1:] == 7 for _ in range(100)]).float()
    assert own.mean() == pytest.approx(0.3, abs=0.03)
    assert (own.mean((0, 1)) - 0.3).abs().max() < 0.1  # everywhere in the sequence
    pairs = own[:, :, 1:] * own[:, :, :-1]
    assert pairs.mean() == pytest.approx(0.09, abs=0.03)  # and not in runs


def test_all_gold_draws_no_token() -> None:
    model, batch = make_model(("rnn", {})), make_batch()
    assert sample_inputs(model, batch, 1.0) is batch
