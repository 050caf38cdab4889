"""Gradients of a loop's steps that lie one behind the other are taken as they lie."""

from __future__ import annotations

import torch

from dragoman.nn.joined_steps import Room, joined, steps_of


def test_what_lies_in_a_room_is_joined_without_a_copy() -> None:
    room, like = Room(), torch.randn(2, 5)
    for _ in range(2):  # a graph may be passed back twice
        room.steps = 3
        places = [room.take(like).fill_(float(step)) for step in (2, 1, 0)][::-1]
        whole = joined(places)
        assert whole.data_ptr() == places[0].data_ptr()
        torch.testing.assert_close(whole, torch.cat(places))


def test_everything_else_is_copied() -> None:
    whole = torch.arange(24.0).view(4, 2, 3)
    lists = [
        [whole[0], whole[2]],  # a gap
        [whole[1], whole[0]],  # the wrong order
        [whole[0].t(), whole[1].t()],  # not laid out row by row
        [whole[0], torch.randn(2, 3)],
        [whole[0], whole[1][:1]],
    ]
    for parts in lists:
        torch.testing.assert_close(joined(parts), torch.cat(parts))
    torch.testing.assert_close(joined([whole[0], whole[1]], 1), torch.cat([whole[0], whole[1]], 1))


def test_a_room_serves_steps_of_other_sizes_too() -> None:
    room = Room()
    room.steps = 2
    first, second = room.take(torch.zeros(2, 5)), room.take(torch.zeros(3, 5))
    assert first.shape == (2, 5) and second.shape == (3, 5)


def test_steps_pass_back_what_unbind_does() -> None:
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda given: sum(t * step.exp() for t, step in enumerate(steps_of(given))), x)
