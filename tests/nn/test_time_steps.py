"""Gradients of a loop's steps that lie one behind the other are taken as they lie."""

from __future__ import annotations

import torch

from dragoman.nn.kernels.time_steps import GradientArena, concatenate, unbind_steps


def test_what_lies_in_an_arena_is_joined_without_a_copy() -> None:
    arena, like = GradientArena(), torch.randn(2, 5)
    for _ in range(2):  # a graph may be passed back twice
        arena.steps = 3
        slots = [arena.slot(like).fill_(float(step)) for step in (2, 1, 0)][::-1]
        whole = concatenate(slots)
        assert whole.data_ptr() == slots[0].data_ptr()
        torch.testing.assert_close(whole, torch.cat(slots))


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
        torch.testing.assert_close(concatenate(parts), torch.cat(parts))
    torch.testing.assert_close(concatenate([whole[0], whole[1]], 1), torch.cat([whole[0], whole[1]], 1))


def test_an_arena_serves_steps_of_other_sizes_too() -> None:
    arena = GradientArena()
    arena.steps = 2
    first, second = arena.slot(torch.zeros(2, 5)), arena.slot(torch.zeros(3, 5))
    assert first.shape == (2, 5) and second.shape == (3, 5)


def test_steps_pass_back_what_unbind_does() -> None:
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda given: sum(t * step.exp() for t, step in enumerate(unbind_steps(given))), x)
