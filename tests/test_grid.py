"""Pictures of different sizes in one batch: what batch norm counts in training, and where a region is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dragoman.nn.encoders.grid import Grid
from dragoman.nn.resnet import PictureNorm
from dragoman.types import Padded


def ragged(side: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """x (2, 3, side, side) and its mask: a full picture and one of less than half its height and width."""
    torch.manual_seed(4)
    mask = torch.ones(2, side, side, dtype=torch.bool)
    mask[1, side // 2 :], mask[1, :, side // 3 :] = False, False
    return torch.randn(2, 3, side, side) * 3 + 1, mask


def test_batch_norm_in_training_counts_real_positions_only() -> None:
    x, mask = ragged()
    norm, wanted = PictureNorm(3), nn.BatchNorm1d(3)
    with torch.no_grad():
        for one in (norm, wanted):
            one.weight.copy_(torch.tensor([1.0, 2.0, -1.0]))
            one.bias.copy_(torch.tensor([0.5, 0.0, 3.0]))
    found = norm(x, mask)
    rows = wanted(x.permute(0, 2, 3, 1)[mask])
    assert torch.allclose(found.permute(0, 2, 3, 1)[mask], rows, atol=1e-6)
    assert (found.permute(0, 2, 3, 1)[~mask] == 0).all()
    for name, statistic in wanted.named_buffers():
        assert torch.allclose(norm.get_buffer(name).float(), statistic.float(), atol=1e-6), name
    rubbish = torch.where(mask[:, None], x, 1e4)
    assert torch.equal(PictureNorm(3)(rubbish, mask), PictureNorm(3)(x, mask))


def test_batch_norm_without_padding_is_the_plain_one() -> None:
    x, _ = ragged()
    masked = PictureNorm(3)(x, torch.ones(2, 5, 5, dtype=torch.bool))
    assert torch.allclose(masked, PictureNorm(3)(x), atol=1e-5)
    assert torch.allclose(masked, nn.BatchNorm2d(3)(x), atol=1e-5)


def test_one_position_alone_has_no_variance() -> None:
    norm = PictureNorm(2)
    before = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    assert torch.isfinite(norm(torch.randn(1, 2, 1, 1))).all()
    assert all(torch.equal(before[name], buffer) for name, buffer in norm.named_buffers())


@pytest.mark.parametrize("network", ["compact", "resnet18"])
def test_padding_is_invisible_in_training_too(network: str) -> None:
    """With statistics that run over the batch, rubbish and more padding must change nothing, gradients included."""
    x, mask = ragged(40)
    data = x.permute(0, 2, 3, 1)
    wider = torch.cat([torch.where(mask[..., None], data, 1e3), torch.full((2, 40, 4, 3), 1e3)], 2)
    sources = Padded(data, mask), Padded(wider, torch.cat([mask, torch.zeros(2, 40, 4, dtype=torch.bool)], 2))
    results = []
    for source in sources:
        torch.manual_seed(0)
        grid = Grid(Grid.Config(network=network, width=8, stride=8, dropout=0.0), input_width=3).train()
        memory = grid(source)
        memory.states.square().sum().backward()
        results.append((memory, dict(grid.named_parameters()), dict(grid.named_buffers())))
    (first, weights, statistics), (second, others, more) = results
    assert torch.allclose(first.states, second.states, atol=1e-4)
    assert torch.equal(first.mask, second.mask)
    for name, parameter in weights.items():
        assert parameter.grad is not None and others[name].grad is not None
        scale = parameter.grad.abs().max() + 1e-6
        assert (parameter.grad - others[name].grad).abs().max() / scale < 1e-3, name  # type: ignore[operator]
    for name, statistic in statistics.items():
        assert torch.allclose(statistic.float(), more[name].float(), atol=1e-4), name


@pytest.mark.parametrize("place", [(0, 0), (3, 4), (2, 1)])
def test_a_region_stands_over_its_pixels(place: tuple[int, int]) -> None:
    """A change inside of one region is seen most by that region; regions go row by row."""
    row, column = place
    torch.manual_seed(0)
    grid = Grid(Grid.Config(width=16, channels=(8, 8, 8), stride=8, positions="none"), input_width=3).eval()
    data, mask = torch.randn(1, 32, 40, 3), torch.ones(1, 32, 40, dtype=torch.bool)
    changed = data.clone()
    changed[0, row * 8 + 1 : row * 8 + 7, column * 8 + 1 : column * 8 + 7] += 5
    far = (grid(Padded(changed, mask)).states - grid(Padded(data, mask)).states).norm(dim=-1)[0]
    assert far.shape == (20,) and int(far.argmax()) == row * 5 + column
