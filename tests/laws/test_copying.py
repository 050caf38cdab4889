"""The laws of a decoder hold for one that copies."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from law_cases import VOCABULARY, close, decoders, make_decoder, make_padded, name, seeded
from torch import Tensor

from dragoman.nn.blocks.copying import Copying
from dragoman.nn.encoders.rnn import RNN
from dragoman.nn.frontends.text import TextFrontend
from dragoman.nn.model import Model
from dragoman.training.objective.loss import GENERATING, loss_and_gold, summed_loss
from dragoman.types import NOTHING, SLOT, Batch, Memory, Padded

SLOTS, UNKNOWN = 2, 1
SIZE = VOCABULARY + SLOTS
SOURCES = 9  # tokens of the source; 6 and 7 are no target tokens, and 8 writes nothing
CASES = [case for case in decoders() if case[0] != "concat"]
every_decoder = pytest.mark.parametrize("case", CASES, ids=name)


def make_model(case: Any) -> Model:
    seeded(1)
    encoder = RNN(RNN.Config(width=6, layers=2), input_width=12)
    frontend = TextFrontend(12, 0.0, torch.zeros(SOURCES).numpy(), UNKNOWN, None)
    memory = encoder(make_padded())
    model = Model({"x": frontend}, {"x": encoder}, make_decoder(case, memory))
    table = torch.tensor([NOTHING, SLOT, NOTHING, NOTHING, 9, 4, SLOT, SLOT, NOTHING])
    model.copying = Copying(model.decoder, table, SLOTS, UNKNOWN, memory_width=encoder.width)
    return model.eval()


def make_source(rows: int = 4) -> Padded:
    tokens = torch.tensor([[4, 1, 6, 5, 7, 4, 3], [6, 8, 3, 0, 0, 0, 0], [3, 0, 0, 0, 0, 0, 0], [5, 5, 4, 6, 3, 0, 0]])
    mask = torch.tensor([[1] * 7, [1] * 3 + [0] * 4, [1] + [0] * 6, [1] * 5 + [0] * 2]).bool()
    return Padded(tokens[:rows], mask[:rows])


def encoded(model: Model) -> Memory:
    memory = model.encode({"x": make_source()})
    assert memory is not None
    return memory


def asked(rows: int = 4) -> Tensor:
    return torch.randint(0, SIZE, (rows, 5), generator=torch.Generator().manual_seed(4))


def test_a_position_writes_its_string_or_the_next_slot() -> None:
    copies = encoded(make_model(CASES[0])).copies
    assert copies is not None
    first, second = VOCABULARY, VOCABULARY + 1
    assert copies[0].tolist() == [9, first, second, 4, NOTHING, 9, NOTHING]  # there is no third slot
    assert copies[1, :3].tolist() == [first, NOTHING, NOTHING]


@every_decoder
def test_probabilities_are_normalised_and_a_slot_that_is_not_there_has_none(case: Any) -> None:
    model = make_model(case)
    log_probs = model(asked(), model.start(encoded(model), 4)).log_probs
    assert log_probs.shape == (4, 5, SIZE)
    assert torch.allclose(log_probs.exp().sum(-1), torch.ones(4, 5), atol=1e-5)
    assert torch.isfinite(log_probs[0]).all() and torch.isinf(log_probs[2, :, VOCABULARY:]).all()


@every_decoder
def test_a_source_with_nothing_to_copy_is_only_generated_from(case: Any) -> None:
    model = make_model(case)
    step = model(asked(), model.start(encoded(model), 4))
    assert step.copies is not None
    generated = step.readout(step.features).log_softmax(-1)
    assert close(step.log_probs[2, :, :VOCABULARY], generated[2])  # its end symbol is all it has
    assert not close(step.log_probs[0, :, :VOCABULARY], generated[0])


@every_decoder
def test_any_split_of_the_tokens_gives_the_same(case: Any) -> None:
    model = make_model(case)
    tokens, memory = asked(), encoded(model)
    whole = model(tokens, model.start(memory, 4)).log_probs.exp()
    with torch.inference_mode():
        state, pieces = model.start(memory, 4), []
        for piece in tokens.split([1, 3, 1], 1):
            step = model(piece, state)
            assert close(step.next_log_probs().exp(), step.log_probs[:, -1].exp())
            state = step.state
            pieces.append(step.log_probs.exp())
    assert close(torch.cat(pieces, 1), whole)


@every_decoder
def test_rows_are_permuted_spread_and_selected(case: Any) -> None:
    model = make_model(case)
    tokens, memory = asked(), encoded(model)
    whole = model(tokens, model.start(memory, 4)).log_probs.exp()
    with torch.inference_mode():
        state = model(tokens[:, :2].repeat_interleave(2, 0), model.start(memory, 4).spread(2)).state
        state = state.reorder(torch.tensor([1, 0, 3, 2, 5, 4, 7, 6])).select(torch.tensor([3, 0]))
        rest = model(tokens[[3, 0], 2:].repeat_interleave(2, 0), state).log_probs.exp()
    assert close(rest[[0, 2]], whole[[3, 0], 2:]) and close(rest[[1, 3]], whole[[3, 0], 2:])


@every_decoder
def test_a_batch_of_one_equals_a_row_of_many_and_padding_is_invisible(case: Any) -> None:
    model = make_model(case)
    source, tokens = make_source(), asked()
    whole = model(tokens, model.start(encoded(model), 4)).log_probs.exp()
    for row in range(4):
        length = int(source.mask[row].sum())
        alone = Padded(source.data[row : row + 1, :length], source.mask[row : row + 1, :length])
        step = model(tokens[row : row + 1], model.start(model.encode({"x": alone}), 1))
        assert close(step.log_probs[0].exp(), whole[row])


@every_decoder
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_the_probabilities_and_its_gradient_reaches_the_gate(case: Any, smoothing: float) -> None:
    model = make_model(case)
    targets = torch.tensor([[9, VOCABULARY, VOCABULARY + 1, 3], [VOCABULARY, 2, 3, 0], [7, 3, 0, 0], [4, 4, 9, 3]])
    mask = torch.tensor([[1] * 4, [1] * 3 + [0], [1] * 2 + [0] * 2, [1] * 4]).bool()
    batch = Batch({"x": make_source()}, asked()[:, :4], targets, mask)
    step = model.teach(batch)
    loss, gold = loss_and_gold(step, batch, smoothing, scale=0.5)
    wanted = step.log_probs.gather(2, targets[..., None])[..., 0][mask]
    assert close(gold, wanted)
    if not smoothing:
        generated = step.readout(step.features).log_softmax(-1)
        alone = sum(generated[row, at, token] for row, at in mask.nonzero() if (token := targets[row, at]) < VOCABULARY)
        mixed = (1 - GENERATING) * wanted.sum() + GENERATING * alone
        assert torch.allclose(loss, -0.5 * mixed, atol=1e-4)
        assert torch.allclose(summed_loss(step, batch), -wanted.sum(), atol=1e-4)
    loss.backward()
    assert model.copying is not None
    for key, parameter in model.named_parameters():
        if model.decoder.hard and ".attention." in key:
            continue  # training credits what hard attention drew with the outcome, apart from this loss
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), key
    assert model.copying.gate.weight.grad is not None and model.copying.gate.weight.grad.abs().max() > 0


@every_decoder
def test_the_gradient_is_that_of_small_changes(case: Any) -> None:
    """The gradient flows through attention and gate: moving along it lowers the loss."""
    model = make_model(case)
    batch = Batch({"x": make_source()}, asked()[:, :3], torch.tensor([[9, 4, 3]] * 4), torch.ones(4, 3).bool())
    parameters = list(model.parameters())

    def loss() -> Tensor:
        return loss_and_gold(model.teach(batch), batch)[0]

    before = loss()
    gradients = torch.autograd.grad(before, parameters, allow_unused=True)
    size = sum(float(g.square().sum()) for g in gradients if g is not None)
    step = 1e-3 / max(1.0, size)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter -= step * gradient
    assert float((before - loss()).detach()) == pytest.approx(step * size, rel=0.1, abs=1e-5)


def test_extreme_gates_keep_the_loss_finite() -> None:
    model = make_model(CASES[0])
    batch = Batch({"x": make_source()}, asked()[:, :2], torch.tensor([[7, VOCABULARY]] * 2 + [[7, 7]] * 2),
                  torch.ones(4, 2).bool())  # fmt: skip
    assert model.copying is not None
    for bias in (-200.0, 200.0):
        model.copying.gate.bias.data.fill_(bias)
        loss = loss_and_gold(model.teach(batch), batch, 0.1)[0]
        model.zero_grad()
        loss.backward()
        assert torch.isfinite(loss)
        assert all(p.grad is None or bool(torch.isfinite(p.grad).all()) for p in model.parameters())
