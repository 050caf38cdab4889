"""Pictures of different sizes in one batch: what norms count, in training too, and where a region is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dragoman.nn.blocks.resnet import GroupPictureNorm, PictureNorm
from dragoman.nn.encoders.grid import Grid
from dragoman.types import Padded


def ragged(side: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x (2, 3, side, side) and its mask: a full picture and one of less than half its height and width."""
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


def test_group_norm_sees_each_picture_alone() -> None:
    """A picture is seen the same whatever stands beside it in the batch, and padding is not counted."""
    x, mask = ragged(6)
    x = torch.cat([x] * 4, 1)  # 12 channels in 4 groups
    norm = GroupPictureNorm(12)
    assert norm.num_groups == 4
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(-1, 2, 12))
        norm.bias.copy_(torch.linspace(0, 1, 12))
    found = norm(x, mask)
    small = x[1:, :, : 6 // 2, : 6 // 3]
    assert torch.allclose(found[:1], norm(x[:1]), atol=1e-5)
    assert torch.allclose(found[1:, :, : 6 // 2, : 6 // 3], norm(small), atol=1e-5)
    assert (found.permute(0, 2, 3, 1)[~mask] == 0).all()
    assert torch.allclose(norm(x), nn.functional.group_norm(x, 4, norm.weight, norm.bias), atol=1e-6)


def test_a_picture_is_seen_in_training_as_in_use() -> None:
    torch.manual_seed(1)
    grid = Grid(Grid.Config(norm="group", width=8, stride=8, dropout=0.0), input_width=3)
    pictures = Padded(torch.randn(3, 16, 16, 3), torch.ones(3, 16, 16, dtype=torch.bool))
    assert torch.equal(grid.train()(pictures).states, grid.eval()(pictures).states)


def test_how_light_a_picture_is_can_be_seen() -> None:
    """With a norm of each picture alone everywhere, one of half the contrast would look the same."""
    torch.manual_seed(2)
    grid = Grid(Grid.Config(norm="group", width=8, stride=8, dropout=0.0, positions="none"), input_width=3).eval()
    picture = torch.randn(1, 32, 32, 3)
    full, half = grid(Padded(torch.cat([picture, picture / 2]), torch.ones(2, 32, 32, dtype=torch.bool))).states
    assert (full - half).norm() > 0.03 * full.norm()
    norm = GroupPictureNorm(16)
    one, other = norm(torch.cat([picture, picture / 2]).repeat(1, 1, 1, 6)[..., :16].permute(0, 3, 1, 2))
    assert (one - other).norm() < 0.001 * one.norm()


def test_a_resnet_has_the_norm_it_was_published_with() -> None:
    with pytest.raises(ValueError, match="has batch norm, as published"):
        Grid.Config(network="resnet18", norm="group")


@pytest.mark.parametrize(("network", "norm"), [("compact", "group"), ("compact", "batch"), ("resnet18", "batch")])
def test_padding_is_invisible_in_training_too(network: str, norm: str) -> None:
    """With statistics that run over the batch, rubbish and more padding must change nothing, gradients included."""
    x, mask = ragged(40)
    data = x.permute(0, 2, 3, 1)
    wider = torch.cat([torch.where(mask[..., None], data, 1e3), torch.full((2, 40, 4, 3), 1e3)], 2)
    sources = Padded(data, mask), Padded(wider, torch.cat([mask, torch.zeros(2, 40, 4, dtype=torch.bool)], 2))
    results = []
    for source in sources:
        torch.manual_seed(0)
        config = Grid.Config(network=network, norm=norm, width=8, stride=8, dropout=0.0)  # type: ignore[arg-type]
        grid = Grid(config, input_width=3).train()
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
    """A change inside of one region is seen most by that region, over networks by chance; regions go row by row."""
    row, column = place
    config = Grid.Config(width=16, channels=(16, 16, 16), stride=8, positions="none")
    mask = torch.ones(1, 32, 40, dtype=torch.bool)
    far = torch.zeros(20)
    for seed in range(8):
        torch.manual_seed(seed)
        grid = Grid(config, input_width=3).eval()
        data = torch.randn(1, 32, 40, 3)
        changed = data.clone()
        changed[0, row * 8 + 1 : row * 8 + 7, column * 8 + 1 : column * 8 + 7] += 2
        with torch.no_grad():
            far += (grid(Padded(changed, mask)).states - grid(Padded(data, mask)).states).norm(dim=-1)[0]
    assert int(far.argmax()) == row * 5 + column
