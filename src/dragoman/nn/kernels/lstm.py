"""LSTM kernels: one step inside a loop over time, and whole sequences of different lengths.

Gates are in torch's order: input, forget, new cell ("g"), output.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from dragoman.nn.kernels._switch import Twin, is_fast, sample
from dragoman.nn.kernels.deferred import arena_of, deferred_gradients, loop_linear
from dragoman.nn.kernels.time_steps import GradientArena, unbind_steps
from dragoman.nn.padding import reorder_positions, reversed_order

# (gradient, value of the function) → gradient of its argument, in one pass
_tanh_backward, _tanh_backward_into = torch.ops.aten.tanh_backward.default, torch.ops.aten.tanh_backward.grad_input
_sigmoid_backward_into = torch.ops.aten.sigmoid_backward.grad_input
HOLD = 1e4  # its sigmoid is exactly 1, and that of its negative exactly 0, whatever is added to it


def loop_lstm_step(gates: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Advance an LSTM by one step of a loop; return the new hidden state and cell, (N, H) each.

    ``gates`` (N, 4 H) is the input's share with all biases; ``weight`` (4 H, H) multiplies the
    hidden state.
    """
    gates = loop_linear(hidden, weight, gates)
    if not is_fast():
        return plain_lstm_gates(gates, cell)
    if not torch.is_grad_enabled():
        opened, squashed, after = _open_gates(gates, cell)
        return squashed.mul_(opened[:, -cell.shape[-1] :]), after
    return _LSTMGates.apply(gates, cell, arena_of(weight))


def plain_lstm_gates(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Return the new hidden state and cell from the complete gates."""
    enter, forget, new, out = gates.chunk(4, -1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(out) * torch.tanh(cell), cell


def _open_gates(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gates after their functions (N, 4 H), the squashed new cell, and the new cell, (N, H) each."""
    width = cell.shape[-1]
    opened = torch.empty_like(gates)
    torch.sigmoid(gates[:, : 2 * width], out=opened[:, : 2 * width])
    torch.sigmoid(gates[:, 3 * width :], out=opened[:, 3 * width :])
    enter, forget, new, _ = opened.split(width, -1)
    torch.mul(gates[:, 2 * width : 3 * width], 2, out=new)
    new.sigmoid_().mul_(2).sub_(1)  # tanh(x) = 2 sigmoid(2x) - 1
    after = torch.addcmul(enter * new, forget, cell)
    return opened, (after * 2).sigmoid_().mul_(2).sub_(1), after


class _LSTMGates(torch.autograd.Function):
    """The elementwise half of an LSTM step, as one autograd node.

    Six small nodes would cost more than the work itself.
    """

    @staticmethod
    def forward(ctx: Any, gates: Tensor, cell: Tensor, arena: GradientArena | None) -> tuple[Tensor, Tensor]:
        opened, squashed, after = _open_gates(gates, cell)
        ctx.save_for_backward(opened, cell, squashed)
        ctx.arena = arena
        return opened[:, -cell.shape[-1] :] * squashed, after

    @staticmethod
    def backward(ctx: Any, to_hidden: Tensor, to_cell: Tensor) -> tuple[Tensor, Tensor, None]:
        opened, cell, squashed = ctx.saved_tensors
        enter, forget, new, out = opened.split(cell.shape[-1], -1)
        to_after = _tanh_backward(to_hidden * out, squashed).add_(to_cell)  # gradient of the new cell
        to_gates = torch.empty_like(opened) if ctx.arena is None else ctx.arena.slot(opened)
        to_enter, to_forget, to_new, to_out = to_gates.split(cell.shape[-1], -1)
        _sigmoid_backward_into(to_after * new, enter, grad_input=to_enter)
        _sigmoid_backward_into(to_after * cell, forget, grad_input=to_forget)
        _tanh_backward_into(to_after * enter, new, grad_input=to_new)
        _sigmoid_backward_into(to_hidden * squashed, out, grad_input=to_out)
        return to_gates, to_after * forget, None


def padded_lstm(layer: nn.RNNBase, x: Tensor, state: Tensor | None, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Run an LSTM layer over rows of different lengths.

    x (B, T, D); state (B, directions, 2, H) or None = zeros; lengths (B,) on the CPU. Returns
    outputs (B, T, directions * H), zero on padding, and the last states (B, directions, 2, H).
    """
    if is_fast() and x.device.type == "cpu":
        return _run_through_padding(layer, x, state, lengths)
    return plain_padded_lstm(layer, x, state, lengths)


def plain_padded_lstm(layer: nn.RNNBase, x: Tensor, state: Tensor | None, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Run an LSTM layer over rows of different lengths, packed as torch does it."""
    start = None if state is None else tuple(part.contiguous() for part in state.permute(2, 1, 0, 3))
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    outputs, last = layer(packed, start)
    outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])
    return outputs, torch.stack(last).permute(2, 1, 0, 3)


def _run_through_padding(layer: nn.RNNBase, x: Tensor, state: Tensor | None, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Run an LSTM over real steps and padding alike: packed sequences take up to twice as long.

    (The other cells gain nothing by it, because torch has no kernel for whole sequences of them.)

    Padding comes after the real steps, so it cannot change their outputs; the second direction
    reads each row's real steps backwards. The last cell is no output, so it must pass through the
    padding unchanged: one more input, 1 on padding and 0 elsewhere, shuts the input gate and holds
    the forget gate open there, exactly.
    """
    mask = torch.arange(x.shape[1])[None] < lengths[:, None]  # (B, T)
    real = mask[:, :, None].to(x.dtype)
    x = x.masked_fill(~mask[:, :, None], 0.0)  # large numbers on padding must not outweigh HOLD
    width = layer.hidden_size
    hold = x.new_tensor([-HOLD, HOLD, 0.0, 0.0]).repeat_interleave(width)[:, None]  # (4 H, 1)
    ends = (lengths - 1)[:, None, None].expand(-1, 1, width)  # (B, 1, H)
    outputs, last_states = [], []
    for direction, (weight, *others) in enumerate(layer.all_weights):
        order = reversed_order(mask) if direction else None
        steps = torch.cat([x if order is None else reorder_positions(x, order), 1 - real], -1)  # (B, T, D + 1)
        start = x.new_zeros(2, 1, len(x), width)
        if state is not None:
            start = state[:, direction, :, None].permute(1, 2, 0, 3).contiguous()  # (2, 1, B, H)
        # has biases, one layer, no dropout, whether it trains, one direction, batch first
        options = (True, 1, 0.0, torch.is_grad_enabled(), False, True)
        made, _, cells = torch.lstm(steps, (start[0], start[1]), [torch.cat([weight, hold], 1), *others], *options)
        last_states.append(torch.stack([made.gather(1, ends)[:, 0], cells[0]], 1))  # (B, 2, H)
        outputs.append((made if order is None else reorder_positions(made, order)) * real)
    return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)), torch.stack(last_states, 1)


def _step_loop(gates: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    with deferred_gradients():
        for step in unbind_steps(gates):
            hidden, cell = loop_lstm_step(step, hidden, cell, weight)
    return hidden, cell


def _plain_step_loop(gates: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    for step in gates:
        hidden, cell = plain_lstm_gates(torch.addmm(step, hidden, weight.t()), cell)
    return hidden, cell


def _step_inputs() -> Iterator[tuple[Any, ...]]:
    yield sample(4, 2, 12), sample(2, 3), sample(2, 3), sample(12, 3)


def _padded_inputs() -> Iterator[tuple[Any, ...]]:
    lengths = torch.tensor([7, 1, 4])
    for both in (False, True):
        layer = nn.LSTM(6, 5, batch_first=True, bidirectional=both).double()
        yield layer, sample(3, 7, 6), None, lengths
        yield layer, sample(3, 7, 6), sample(3, 1 + both, 2, 5), lengths


TWINS = (Twin(_step_loop, _plain_step_loop, _step_inputs), Twin(padded_lstm, plain_padded_lstm, _padded_inputs))
