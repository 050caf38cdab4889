"""Hard attention: what is drawn, how often, and that training it follows the gradient of what is expected."""

from __future__ import annotations

import pytest
import torch
from law_cases import close, decoders, make_attention, make_decoder, make_memory, name
from test_decoders import tokens

from dragoman.nn.blocks.hard_attention import select_positions
from dragoman.parts import kinds
from dragoman.recipe.training import ReinforceConfig
from dragoman.training.objective.reinforce import surrogate
from dragoman.types import Choices

WEIGHTS = torch.tensor([0.5, 0.0, 0.3, 0.2])
hard_decoders = pytest.mark.parametrize(
    "case", [case for case in decoders() if case[1].get("selection") == "hard"], ids=name
)


def test_what_is_drawn_follows_the_weights() -> None:
    torch.manual_seed(0)
    soft = WEIGHTS.expand(20, 1000, 1, 4)
    hard, drawn = select_positions(soft, draw=True)
    assert drawn is not None and hard.shape == soft.shape
    assert ((hard == 0) | (hard == 1)).all() and (hard.sum(-1) == 1).all()
    assert (hard[..., 1] == 0).all()  # of weight 0: padding
    assert torch.allclose(hard.mean((0, 1, 2)), WEIGHTS, atol=0.015)  # four standard errors
    assert close(drawn.log_probs.exp(), (hard * soft).sum((-1, -2)))
    assert close(drawn.entropy, torch.distributions.Categorical(WEIGHTS).entropy().expand(20, 1000))


def test_several_maps_choose_apart() -> None:
    torch.manual_seed(0)
    soft = torch.rand(3, 5, 2, 4).softmax(-1)
    hard, drawn = select_positions(soft, draw=True)
    assert drawn is not None
    assert close(drawn.log_probs, (hard * soft).sum(-1).log().sum(-1))
    assert (hard[:, :, 0] != hard[:, :, 1]).any()


def test_the_seed_decides_what_is_drawn() -> None:
    soft = WEIGHTS.expand(4, 50, 1, 4)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(select_positions(soft, draw=True)[0])
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])


def test_nothing_is_drawn_at_inference() -> None:
    before = torch.get_rng_state()
    hard, drawn = select_positions(WEIGHTS.expand(2, 3, 1, 4), draw=False)
    assert drawn is None and (hard.argmax(-1) == 0).all() and (hard.sum(-1) == 1).all()
    assert torch.equal(before, torch.get_rng_state())


def test_padding_leaves_the_gradient_finite() -> None:
    scores = torch.tensor([[[[2.0, float("-inf"), -90.0]]]], requires_grad=True)
    _, drawn = select_positions(scores.softmax(-1), draw=True)
    assert drawn is not None
    (drawn.log_probs.sum() + drawn.entropy.sum()).backward()
    assert scores.grad is not None and torch.isfinite(scores.grad).all()


@pytest.mark.parametrize("baseline", [0.0, -1.7])
def test_the_expected_gradient_is_that_of_the_expected_reward(baseline: float) -> None:
    """Xu et al. 2015, eq. 11: summed over all choices, each with its probability, whatever the baseline."""
    torch.manual_seed(3)
    scores = torch.randn(5, requires_grad=True)
    reward = torch.randn(5) - 2
    soft = scores.softmax(0)
    (wanted,) = torch.autograd.grad((soft * reward).sum(), scores)
    config = ReinforceConfig(weight=1.0, entropy=0.0)
    found = torch.zeros(5)
    for choice in range(5):
        choices = Choices(scores.log_softmax(0)[choice].view(1, 1), torch.zeros(1, 1))
        loss = surrogate(choices, torch.ones(1, 1, dtype=torch.bool), reward[choice : choice + 1], baseline, config)
        found -= soft[choice].item() * torch.autograd.grad(loss, scores)[0]
    assert close(found, wanted, 1e-6)


def test_padding_earns_nothing() -> None:
    choices = Choices(torch.randn(2, 3), torch.rand(2, 3))
    mask = torch.tensor([[True, True, False], [True, False, False]])
    reward, config = torch.randn(3), ReinforceConfig(weight=2.0, entropy=0.5)
    wanted = -(2.0 * (reward + 1.5) * choices.log_probs[mask] + 0.5 * choices.entropy[mask]).sum()
    assert close(surrogate(choices, mask, reward, -1.5, config), wanted)


@pytest.mark.parametrize("kind", kinds("attention"))
def test_a_single_position_can_be_read(kind) -> None:
    attention, memory = make_attention(kind), make_memory()
    prepared = attention.prepare(memory)
    weights = torch.zeros(4, 1, attention.maps, memory.mask.shape[1])
    weights[..., 0] = 1.0
    assert torch.equal(attention.read(weights, prepared)[:, 0], memory.states[:, 0])


@hard_decoders
def test_a_hard_decoder_looks_at_one_place(case) -> None:
    """Drawn in training, with what training needs to know of it; the likeliest otherwise."""
    memory = make_memory()
    decoder = make_decoder(case, memory)
    plain = decoder(tokens(), decoder.start(memory, 4), need_attention=True)
    torch.manual_seed(5)
    taught = decoder.train()(tokens(), decoder.start(memory, 4), need_attention=True)
    assert plain.choices is None
    assert taught.choices.log_probs.shape == taught.choices.entropy.shape == (4, 6)
    for step in (plain, taught):
        assert ((step.attention == 0) | (step.attention == 1)).all()
    lengths = memory.mask.sum(1)
    assert (taught.choices.log_probs[lengths == 1] == 0).all()  # there was no choice
    assert (taught.choices.log_probs[lengths > 1] < 0).all() and (taught.choices.entropy[lengths > 1] > 0).all()
    assert not torch.equal(plain.attention, taught.attention)


def test_soft_attention_draws_nothing() -> None:
    memory = make_memory()
    decoder = make_decoder(("rnn", {}), memory).train()
    before = torch.get_rng_state()
    assert decoder(tokens(), decoder.start(memory, 4)).choices is None
    assert torch.equal(before, torch.get_rng_state())
