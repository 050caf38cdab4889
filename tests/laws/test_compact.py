"""``compact``: what a memory of pictures or of several sources is made with."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.nn.padding import compact


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6).filter(any), min_size=1, max_size=5))
def test_real_positions_first_in_their_order(rows: list[list[bool]]) -> None:
    mask = torch.tensor(rows)
    states = torch.randn(*mask.shape, 3)
    moved, kept = compact(states, mask)
    lengths = mask.sum(1)
    assert moved.shape[1] == lengths.max()
    assert torch.equal(kept, torch.arange(moved.shape[1]) < lengths[:, None])
    for row in range(len(rows)):
        assert torch.equal(moved[row][kept[row]], states[row][mask[row]])
