"""Rows of different lengths through a recurrent layer at once are what each row is alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dragoman.nn.blocks.recurrent import Cell, make_layer, run_layer


@pytest.mark.parametrize("cell", ["tanh", "relu", "gru", "lstm"])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("starts", [False, True])
def test_outputs_last_states_and_gradients_are_those_of_each_row_alone(cell: Cell, both: bool, starts: bool) -> None:
    torch.manual_seed(1)
    layer = make_layer(cell, 6, 5, bidirectional=both)
    lengths = torch.tensor([7, 1, 4, 7, 2])
    x = (torch.randn(5, 7, 6) * 3).requires_grad_()
    state = torch.randn(5, 1 + both, 1 + (cell == "lstm"), 5) if starts else None

    def gradients(outputs: Tensor, last: Tensor) -> list[Tensor]:
        loss = (outputs.sin().sum() + (last * 1.5).cos().sum()) / 10
        return list(torch.autograd.grad(loss, [x, *layer.parameters()]))

    outputs, last = run_layer(layer, x, state, lengths)
    rows = [
        run_layer(layer, x[i : i + 1, :length], None if state is None else state[i : i + 1], None)
        for i, length in enumerate(lengths.tolist())
    ]
    alone = torch.cat([nn.functional.pad(one, (0, 0, 0, 7 - one.shape[1])) for one, _ in rows])
    ends = torch.cat([end for _, end in rows])
    torch.testing.assert_close(outputs, alone, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(last, ends, atol=1e-5, rtol=1e-5)
    for together, apart in zip(gradients(outputs, last), gradients(alone, ends), strict=True):
        torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-4)


def test_padding_is_not_seen_however_large() -> None:
    torch.manual_seed(1)
    layer = make_layer("lstm", 6, 5, bidirectional=True)
    lengths, x = torch.tensor([4, 2]), torch.randn(2, 4, 6)
    wild = x.clone()
    wild[1, 2:] = torch.tensor([1e9, float("inf")])[:, None]
    for clean, seen in zip(run_layer(layer, x, None, lengths), run_layer(layer, wild, None, lengths), strict=True):
        torch.testing.assert_close(clean, seen, atol=0, rtol=0)
