"""The laws of ``contracts.Encoder``, for every file of the folder."""

from __future__ import annotations

import pytest
import torch
from law_cases import WIDTH, close, cut, encoders, make_encoder, make_source, name

from dragoman.config import TooLong
from dragoman.types import Padded

every_encoder = pytest.mark.parametrize("case", list(encoders()), ids=name)


def real(memory) -> torch.Tensor:
    return memory.states[memory.mask]


def longer(source: Padded, side: int) -> Padded:
    """With five more positions of rubbish behind the others along one side."""
    shape = list(source.data.shape)
    shape[side] = 5
    mask = torch.cat([source.mask, torch.zeros(shape[:-1], dtype=torch.bool)], side)
    return Padded(torch.cat([source.data, torch.full(shape, 1e3)], side), mask)


@every_encoder
def test_padding_is_invisible(case) -> None:
    encoder = make_encoder(case)
    source = make_source(encoder)
    further = [longer(source, side) for side in range(1, source.mask.dim())]
    rubbish = source.data.clone()
    rubbish[~source.mask] = -7.0
    plain = encoder(source)
    for other in map(encoder, (*further, Padded(rubbish, source.mask))):
        assert close(real(plain), real(other))
        if plain.summary is not None:
            assert close(plain.summary, other.summary)


@every_encoder
def test_batch_of_one_is_a_row_of_many(case) -> None:
    encoder = make_encoder(case)
    source = make_source(encoder, 8)
    together = encoder(source)
    for row in range(8):
        alone = encoder(cut(source, row))
        assert close(alone.states[alone.mask], together.states[row][together.mask[row]])
        if alone.summary is not None:
            assert close(alone.summary[0], together.summary[row])


@every_encoder
def test_one_position_alone_can_be_trained_on(case) -> None:
    encoder = make_encoder(case).train()
    source = make_source(encoder, 1)
    side = (slice(0, 1),) * source.mask.dim()
    memory = encoder(Padded(source.data[side], source.mask[side]))
    assert memory.mask.tolist() == [[True]] and torch.isfinite(memory.states).all()
    if memory.states.requires_grad:  # of an encoder that has parameters
        memory.states.sum().backward()


@every_encoder
def test_widths_are_as_said(case) -> None:
    encoder = make_encoder(case)
    source = make_source(encoder)
    memory = encoder(source)
    assert memory.states.shape[0] == 4
    assert memory.states.shape[-1] == encoder.width
    assert memory.mask.shape == memory.states.shape[:2]
    assert (None if memory.summary is None else tuple(memory.summary.shape[1:])) == encoder.summary_shape


@every_encoder
def test_so_many_states_as_the_stride_says_real_ones_first(case) -> None:
    encoder = make_encoder(case)
    source = make_source(encoder, 8)
    mask = encoder(source).mask
    sides = [torch.tensor(cut(source, row).mask.shape[1:]) for row in range(8)]
    wanted = torch.stack([((side + encoder.stride - 1) // encoder.stride).prod() for side in sides])
    assert torch.equal(mask, torch.arange(mask.shape[1]) < wanted[:, None])


@pytest.mark.parametrize(
    ("case", "longest"),
    [
        (("conv", {"positions": "learned", "max_positions": 8}), 8),
        (("transformer", {"positions": "learned", "max_positions": 8}), 8),
        (("subsampled", {"layers": 2, "inner": {"kind": "conv", "max_positions": 2}}), 8),
        (("transformer", {}), None),
        (("rnn", {}), None),
    ],
    ids=str,
)
def test_what_is_too_long_is_refused_by_the_length_that_the_encoder_tells(case, longest) -> None:
    encoder = make_encoder(case)
    assert encoder.longest == longest
    for length in (8, 9):
        source = Padded(torch.randn(2, length, WIDTH), torch.ones(2, length, dtype=torch.bool))
        if longest is None or length <= longest:
            encoder(source)
        else:
            with pytest.raises(TooLong):
                encoder(source)


@every_encoder
def test_pure(case) -> None:
    encoder = make_encoder(case)
    source, other = make_source(encoder), make_source(encoder, seed=9)
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    attributes = set(vars(encoder))
    first = encoder(source)
    encoder(other)
    second = encoder(source)
    assert torch.equal(first.states, second.states)
    assert set(vars(encoder)) == attributes
    assert all(torch.equal(before[key], value) for key, value in encoder.state_dict().items())


@every_encoder
def test_gradient_reaches_every_parameter(case) -> None:
    encoder = make_encoder(case)
    source = make_source(encoder)
    source.data.requires_grad_()  # an encoder without parameters has a gradient too: its input's
    memory = encoder(source)
    loss = real(memory).square().sum() + (0 if memory.summary is None else memory.summary.square().sum())
    loss.backward()
    assert source.data.grad is not None and source.data.grad[source.mask].abs().sum() > 0
    for key, parameter in encoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, key


@every_encoder
def test_every_real_position_matters(case) -> None:
    """A change at any real position changes something the decoder sees."""
    encoder = make_encoder(case)
    source = make_source(encoder)
    plain = encoder(source)
    for position in range(3):
        changed = source.data.clone()
        changed[(1, *[position] * (source.mask.dim() - 1))] = torch.randn(source.data.shape[-1])
        other = encoder(Padded(changed, source.mask))
        assert not close(plain.states[1], other.states[1])
        assert close(plain.states[0], other.states[0])  # and nothing leaks into the neighbours
