"""Recurrent layers in two ways of running: over whole sequences, and step by step when a step needs the last output.

State is (B, L, P, D): L layers of P parts (hidden; LSTM: hidden and cell). Both ways use the same parameters.
Cells: tanh and ReLU (Elman 1990), GRU (Cho et al. 2014; reset applied after the product, as in cuDNN),
LSTM (Hochreiter & Schmidhuber 1997, with forget gates, which start open: Jozefowicz et al. 2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from dragoman.nn.deferred import loop_linear, room_of
from dragoman.nn.joined_steps import Room
from dragoman.nn.layers import Dropout, fast_tanh
from dragoman.nn.precision import full_precision

Cell = Literal["tanh", "relu", "gru", "lstm"]
# a gradient and the function's value → the gradient of its argument, in one pass
_tanh_slope, _tanh_slope_into = torch.ops.aten.tanh_backward.default, torch.ops.aten.tanh_backward.grad_input
_sigmoid_slope = torch.ops.aten.sigmoid_backward.grad_input
HOLD = 1e4  # the sigmoid of it is 1, of its negative 0, whatever is added to it


def parts_of(cell: Cell) -> int:
    return 2 if cell == "lstm" else 1


def make_layer(cell: Cell, input_width: int, width: int, bidirectional: bool = False) -> nn.RNNBase:
    options: dict[str, Any] = {"batch_first": True, "bidirectional": bidirectional}
    layer: nn.RNNBase
    if cell == "lstm":
        layer = nn.LSTM(input_width, width, **options)
    elif cell == "gru":
        layer = nn.GRU(input_width, width, **options)
    else:
        layer = nn.RNN(input_width, width, nonlinearity=cell, **options)
    for name, parameter in layer.named_parameters():
        if name.startswith("weight_hh"):
            for block in parameter.data.split(width):
                nn.init.orthogonal_(block)
        elif name.startswith("weight_ih"):
            for block in parameter.data.split(width):
                nn.init.xavier_uniform_(block)
        else:
            nn.init.zeros_(parameter)
            if cell == "lstm" and name.startswith("bias_ih"):
                parameter.data[width : 2 * width] = 1.0
    return layer


@full_precision
def run_layer(layer: nn.RNNBase, x: Tensor, state: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Whole sequences through one layer.

    x (B, T, D); state (B, directions, P, H) or None = zeros; lengths (B,) on the CPU or None = all full.
    Returns outputs (B, T, directions * H), zero on padding, and the last states (B, directions, P, H).
    """
    is_lstm = layer.mode == "LSTM"
    if is_lstm and lengths is not None and x.device.type == "cpu":
        return _run_padded(layer, x, state, lengths)
    hidden: Any = None
    if state is not None:
        parts = [part.contiguous() for part in state.permute(2, 1, 0, 3)]  # P of (directions, B, H)
        hidden = tuple(parts) if is_lstm else parts[0]
    if lengths is None:
        outputs, last = layer(x, hidden)
    else:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        outputs, last = layer(packed, hidden)
        outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])
    stacked = torch.stack(last) if is_lstm else last[None]  # (P, directions, B, H)
    return outputs, stacked.permute(2, 1, 0, 3)


def reversal(mask: Tensor) -> Tensor:
    """(B, S) indices that reverse the real positions and leave padding in place; its own inverse."""
    positions = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    flipped = mask.sum(1, keepdim=True) - 1 - positions
    return torch.where(mask, flipped, positions)


def reorder_steps(x: Tensor, order: Tensor) -> Tensor:
    """x (B, S, D) in the order (B, S) of each row."""
    return x.gather(1, order[:, :, None].expand_as(x))


def _run_padded(layer: nn.RNNBase, x: Tensor, state: Tensor | None, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """An LSTM straight through the padding: torch's way with lengths, step by step, takes up to twice as long.

    (Of the other cells it does not, which have no kernel for whole sequences.)

    Padding stands behind the real steps, so it cannot change their outputs; the second direction reads each row's
    real steps backwards. The cell is no output, so it must come through the padding as it was: one more input,
    1 on padding and 0 elsewhere, shuts the input gate and holds the forget gate open there, exactly.
    """
    mask = torch.arange(x.shape[1])[None] < lengths[:, None]  # (B, T)
    real = mask[:, :, None].to(x.dtype)
    x = x.masked_fill(~mask[:, :, None], 0.0)  # whatever stood there must not outweigh the hold
    width = layer.hidden_size
    hold = x.new_tensor([-HOLD, HOLD, 0.0, 0.0]).repeat_interleave(width)[:, None]  # (4 H, 1), gates i f g o
    ends = (lengths - 1)[:, None, None].expand(-1, 1, width)  # (B, 1, H)
    outputs, lasts = [], []
    for direction, suffix in enumerate(("", "_reverse")[: 1 + layer.bidirectional]):
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        into, *others = (getattr(layer, name + suffix) for name in names)
        order = reversal(mask) if direction else None
        steps = torch.cat([x if order is None else reorder_steps(x, order), 1 - real], -1)  # (B, T, D + 1)
        start = x.new_zeros(2, 1, len(x), width)
        if state is not None:
            start = state[:, direction, :, None].permute(1, 2, 0, 3).contiguous()  # (P, 1, B, H)
        # biases, one layer, no dropout, gradients, one direction, batch first
        rest = (True, 1, 0.0, torch.is_grad_enabled(), False, True)
        found, _, cells = torch.lstm(steps, (start[0], start[1]), [torch.cat([into, hold], 1), *others], *rest)
        lasts.append(torch.stack([found.gather(1, ends)[:, 0], cells[0]], 1))  # (B, 2, H)
        outputs.append((found if order is None else reorder_steps(found, order)) * real)
    return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)), torch.stack(lasts, 1)


class Stack(nn.Module):
    """Layers on top of each other, read from left to right, with dropout between them."""

    def __init__(self, cell: Cell, input_width: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.cell: Cell = cell
        self.width, self.depth, self.parts = width, layers, parts_of(cell)
        widths = [input_width] + [width] * (layers - 1)
        self.layers = nn.ModuleList(make_layer(cell, w, width) for w in widths)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x (N, T, D), state (N, L, P, H) → outputs of the top layer (N, T, H), state.

        ``lengths`` (N,), on the CPU, are those of rows with padding behind them; None = all full.
        """
        last = []
        for index, layer in enumerate(self.layers):
            x = self.dropout(x) if index else x
            x, end = run_layer(layer, x, state[:, index, None], lengths)  # type: ignore[arg-type]
            last.append(end[:, 0])
        return x, torch.stack(last, 1)

    def hoist(self, x: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """What a loop over ``step`` can do beforehand for all steps at once.

        x (N, T, D') is the left part of the first layer's input; the rest comes as ``fed`` in ``step``. Returns the
        share of x in the first layer's gates (T, N, G*H), and the (input, hidden) weights of each layer, of the first
        layer's input only the columns behind D'.
        """
        first: Any = self.layers[0]
        left, right = first.weight_ih_l0.split([x.shape[-1], first.input_size - x.shape[-1]], 1)
        bias = first.bias_ih_l0 if self.cell == "gru" else first.bias_ih_l0 + first.bias_hh_l0
        above: Any = self.layers[1:]
        pairs = [(right, first.weight_hh_l0), *((layer.weight_ih_l0, layer.weight_hh_l0) for layer in above)]
        return nn.functional.linear(x.transpose(0, 1), left, bias), pairs

    def step(
        self,
        projected: Tensor,
        fed: Tensor | None,
        state: Sequence[tuple[Tensor, ...]],
        weights: list[tuple[Tensor, Tensor]],
    ) -> list[tuple[Tensor, ...]]:
        """One step: projected (N, G*H) from ``hoist``, fed (N, D'') or None, state: P tensors (N, H) a layer."""
        result: list[tuple[Tensor, ...]] = []
        for index, (layer, (left, right)) in enumerate(zip(self.layers, weights, strict=True)):
            if index == 0:
                gates = projected if fed is None else loop_linear(fed, left, projected)
            else:
                below = self.dropout(result[-1][0])
                gates = loop_linear(below, left) + self._bias(layer)
            bias_hidden: Any = layer.bias_hh_l0
            result.append(advance(self.cell, gates, state[index], right, bias_hidden))
        return result

    def _bias(self, layer: Any) -> Tensor:
        return layer.bias_ih_l0 if self.cell == "gru" else layer.bias_ih_l0 + layer.bias_hh_l0


@full_precision
def advance(
    cell: Cell, gates: Tensor, state: tuple[Tensor, ...], right: Tensor, bias_hidden: Tensor
) -> tuple[Tensor, ...]:
    """One cell. ``gates`` (N, G*H) holds the input's share (and, but for GRU, every bias)."""
    hidden = state[0]
    if cell == "lstm":
        return _LSTMGates.apply(loop_linear(hidden, right, gates), state[1], room_of(right))
    if cell == "gru":
        width = hidden.shape[-1]
        recurrent = loop_linear(hidden, right) + bias_hidden
        both = torch.sigmoid(gates[:, : 2 * width] + recurrent[:, : 2 * width])
        reset, update = both.split(width, -1)
        new = fast_tanh(gates[:, 2 * width :] + reset * recurrent[:, 2 * width :])
        return (torch.lerp(new, hidden, update),)
    total = loop_linear(hidden, right, gates)
    return (fast_tanh(total) if cell == "tanh" else torch.relu(total),)


class _LSTMGates(torch.autograd.Function):
    """The elementwise half of an LSTM step as one node: six small nodes a step would cost more than the work."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, cell: Tensor, room: Room | None) -> tuple[Tensor, Tensor]:
        width = cell.shape[-1]
        scaled = torch.empty_like(gates)
        torch.sigmoid(gates[:, : 2 * width], out=scaled[:, : 2 * width])
        torch.sigmoid(gates[:, 3 * width :], out=scaled[:, 3 * width :])
        enter, forget, new, out = scaled.split(width, -1)
        torch.mul(gates[:, 2 * width : 3 * width], 2, out=new)
        new.sigmoid_().mul_(2).sub_(1)  # tanh(x) = 2 sigmoid(2x) - 1
        after = torch.addcmul(enter * new, forget, cell)
        squashed = (after * 2).sigmoid_().mul_(2).sub_(1)
        ctx.save_for_backward(scaled, cell, squashed)
        ctx.room = room
        return out * squashed, after

    @staticmethod
    def backward(ctx: Any, to_hidden: Tensor, to_cell: Tensor) -> tuple[Tensor, Tensor, None]:
        scaled, cell, squashed = ctx.saved_tensors
        enter, forget, new, out = scaled.split(cell.shape[-1], -1)
        total = _tanh_slope(to_hidden * out, squashed).add_(to_cell)  # gradient of the new cell
        to_gates = torch.empty_like(scaled) if ctx.room is None else ctx.room.take(scaled)
        to_enter, to_forget, to_new, to_out = to_gates.split(cell.shape[-1], -1)
        _sigmoid_slope(total * new, enter, grad_input=to_enter)
        _sigmoid_slope(total * cell, forget, grad_input=to_forget)
        _tanh_slope_into(total * enter, new, grad_input=to_new)
        _sigmoid_slope(to_hidden * squashed, out, grad_input=to_out)
        return to_gates, total * forget, None
