"""Rotary positions: attention sees distances, and nothing else of positions."""

from __future__ import annotations

import pytest
import torch

from dragoman.config import ConfigError
from dragoman.nn.blocks.positions import sinusoids
from dragoman.nn.blocks.rotary import rotate
from dragoman.parts import part

HEADS, WIDTH = 2, 8


def test_the_product_of_query_and_key_depends_on_their_distance_alone() -> None:
    torch.manual_seed(0)
    same = torch.randn(3 * WIDTH).expand(1, 6, -1)  # the same query and key at every position
    turned = rotate(same, sinusoids(0, 6, WIDTH // HEADS), HEADS)[0]
    query, key = (x.view(6, HEADS, -1).transpose(0, 1) for x in (turned[:, :WIDTH], turned[:, WIDTH : 2 * WIDTH]))
    scores = query @ key.transpose(1, 2)  # (H, 6, 6)
    for distance in range(-5, 6):
        diagonal = scores.diagonal(distance, 1, 2)
        assert torch.allclose(diagonal, diagonal[:, :1].expand_as(diagonal), atol=1e-5)
    assert not torch.allclose(scores[:, 0, 0], scores[:, 0, 1], atol=1e-3)
    assert torch.equal(turned[:, 2 * WIDTH :], same[0, :, 2 * WIDTH :])  # values are not turned


def test_turning_keeps_lengths() -> None:
    torch.manual_seed(1)
    projected = torch.randn(2, 5, 3 * WIDTH)
    turned = rotate(projected, sinusoids(7, 5, WIDTH // HEADS), HEADS)
    assert torch.allclose(turned.norm(dim=-1), projected.norm(dim=-1), atol=1e-5)


@pytest.mark.parametrize("family", ["encoder", "decoder"])
def test_a_head_of_odd_width_is_refused(family: str) -> None:
    kind = part(family, "transformer")
    config = kind.Config(width=9, heads=3, positions="rotary")
    widths = {"input_width": 4} if family == "encoder" else {"vocabulary": 5, "memory_width": 4, "summary_shape": None}
    with pytest.raises(ConfigError, match=rf"{family}\.positions = 'rotary' turns pairs of numbers"):
        kind(config, **widths)
