"""Recurrent layers, run over whole sequences, or step by step where a step needs the last output.

A state is (B, L, P, D): L layers of P parts (hidden; LSTM: hidden and cell). Both ways of running
use the same parameters. Cells: tanh and ReLU (Elman 1990), GRU (Cho et al. 2014; the reset gate is
applied after the product, as in cuDNN), LSTM (Hochreiter & Schmidhuber 1997, with forget gates,
which are open at first: Jozefowicz et al. 2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from dragoman.nn import kernels
from dragoman.nn.blocks.layers import Dropout
from dragoman.nn.init import draw_orthogonal
from dragoman.nn.lowering import Lowering, to_array

Cell = Literal["tanh", "relu", "gru", "lstm"]


def state_parts(cell: Cell) -> int:
    """Return P, the parts of a cell's state."""
    return 2 if cell == "lstm" else 1


def make_layer(cell: Cell, input_width: int, width: int, bidirectional: bool = False) -> nn.RNNBase:
    """Make one recurrent layer with its initial weights."""
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
                draw_orthogonal(block)
        elif name.startswith("weight_ih"):
            for block in parameter.data.split(width):
                nn.init.xavier_uniform_(block)
        else:
            nn.init.zeros_(parameter)
            if cell == "lstm" and name.startswith("bias_ih"):
                parameter.data[width : 2 * width] = 1.0
    return layer


@kernels.full_precision
def run_layer(layer: nn.RNNBase, x: Tensor, state: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Run whole sequences through one layer.

    x (B, T, D); state (B, directions, P, H) or None for zeros; lengths (B,) on the CPU, or None if
    there is no padding. Returns outputs (B, T, directions * H), zero on padding, and the last
    states (B, directions, P, H).
    """
    is_lstm = layer.mode == "LSTM"
    if is_lstm and lengths is not None:
        return kernels.padded_lstm(layer, x, state, lengths)
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


def lower_layer(
    program: Lowering, layer: nn.RNNBase, x: str, state: Sequence[str] = (), backward: bool = False
) -> tuple[str, tuple[str, ...]]:
    """Add the operations of one layer over x (S, D); return the outputs and the P parts of the last state.

    ``state`` are the parts of the first state; without it they are zeros. ``backward`` runs a layer
    of one direction from the last row to the first.
    """
    cell = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "tanh", "RNN_RELU": "relu"}[layer.mode]
    width = layer.hidden_size
    ran = []
    for suffix in ("", "_reverse")[: 2 if layer.bidirectional else 1]:
        parameters: list[Tensor] = [
            getattr(layer, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
        bias, hidden_bias = to_array(parameters[2]), to_array(parameters[3])
        new_bias = []
        if cell == "gru":  # the bias of the new gate is inside the product with the reset gate
            new_bias = [program.parameter(parameters[3], ".new", hidden_bias[2 * width :])]
            hidden_bias = np.concatenate([hidden_bias[: 2 * width], np.zeros(width, np.float32)])
        weights = [
            program.parameter(parameters[0]),
            program.parameter(parameters[1]),
            program.parameter(parameters[2], ".sum", bias + hidden_bias),
            *new_bias,
        ]
        reverse = int(backward or suffix == "_reverse")
        ran.append(program.add_all("recurrent", x, *state, weights=weights, cell=cell, reverse=reverse))
    columns = [program.join_columns([outputs[index] for outputs in ran]) for index in range(1 + len(_parts(cell)))]
    return columns[0], tuple(columns[1:])


def _parts(cell: str) -> tuple[str, ...]:
    return ("hidden", "cell") if cell == "lstm" else ("hidden",)


class RecurrentStack(nn.Module):
    """Layers on top of each other, run from left to right, with dropout between them."""

    def __init__(self, cell: Cell, input_width: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.cell: Cell = cell
        self.width, self.depth, self.parts = width, layers, state_parts(cell)
        widths = [input_width] + [width] * (layers - 1)
        self.layers = nn.ModuleList(make_layer(cell, w, width) for w in widths)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Run whole sequences; return the outputs of the top layer (N, T, H) and the last state.

        x (N, T, D), state (N, L, P, H); lengths (N,) on the CPU, or None if there is no padding.
        """
        last_states = []
        for index, layer in enumerate(self.layers):
            x = self.dropout(x) if index else x
            x, last = run_layer(layer, x, state[:, index, None], lengths)  # type: ignore[arg-type]
            last_states.append(last[:, 0])
        return x, torch.stack(last_states, 1)

    def lower(self, program: Lowering, x: str, state: Sequence[Sequence[str]]) -> tuple[str, list[tuple[str, ...]]]:
        """Add the operations over x (S, D); return the outputs of the top layer and the last states."""
        states = []
        for layer, first in zip(self.layers, state, strict=True):
            x, last = lower_layer(program, layer, x, first)  # type: ignore[arg-type]
            states.append(last)
        return x, states

    def project_inputs(self, x: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Compute what a loop over ``step`` needs for all steps at once.

        x (N, T, D') is the left part of the first layer's input; the rest is passed to ``step`` as
        ``fed``. Returns the contribution of x to the first layer's gates (T, N, G * H), and the
        (input, hidden) weights of each layer; the first layer's input weights are the columns after
        D'.
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
        """Advance all layers by one step and return their states.

        projected (N, G * H) and ``weights`` come from ``project_inputs``; fed (N, D'') or None; the
        state is a tuple of P tensors (N, H) for each layer.
        """
        states: list[tuple[Tensor, ...]] = []
        for index, (layer, (input_weight, hidden_weight)) in enumerate(zip(self.layers, weights, strict=True)):
            if index == 0:
                gates = projected if fed is None else kernels.loop_linear(fed, input_weight, projected)
            else:
                below = self.dropout(states[-1][0])
                gates = kernels.loop_linear(below, input_weight) + self._bias(layer)
            hidden_bias: Any = layer.bias_hh_l0
            states.append(cell_step(self.cell, gates, state[index], hidden_weight, hidden_bias))
        return states

    def step_alone(
        self, x: Tensor, fed: Tensor | None, state: Sequence[tuple[Tensor, ...]]
    ) -> list[tuple[Tensor, ...]]:
        """Do what ``step`` does after ``project_inputs``, for one step without gradients, x (N, D').

        The first layer's input is put together, so that its weight is used whole, as it is stored.
        """
        states: list[tuple[Tensor, ...]] = []
        below = x if fed is None else torch.cat([x, fed], 1)
        for index, layer in enumerate(self.layers):
            weight: Any = layer.weight_ih_l0
            gates = kernels.linear(below, weight, self._bias(layer))
            hidden_weight: Any = layer.weight_hh_l0
            hidden_bias: Any = layer.bias_hh_l0
            states.append(cell_step(self.cell, gates, state[index], hidden_weight, hidden_bias))
            below = states[-1][0]
        return states

    def _bias(self, layer: Any) -> Tensor:
        return layer.bias_ih_l0 if self.cell == "gru" else layer.bias_ih_l0 + layer.bias_hh_l0


@kernels.full_precision
def cell_step(
    cell: Cell, gates: Tensor, state: tuple[Tensor, ...], hidden_weight: Tensor, hidden_bias: Tensor
) -> tuple[Tensor, ...]:
    """Advance one cell by one step and return its state, P tensors (N, H).

    ``gates`` (N, G * H) is the contribution of the input, with all biases (GRU: without that of the
    hidden state).
    """
    hidden = state[0]
    if cell == "lstm":
        return kernels.loop_lstm_step(gates, hidden, state[1], hidden_weight)
    if cell == "gru":
        width = hidden.shape[-1]
        recurrent = kernels.loop_linear(hidden, hidden_weight) + hidden_bias
        both = torch.sigmoid(gates[:, : 2 * width] + recurrent[:, : 2 * width])
        reset, update = both.split(width, -1)
        new = kernels.quick_tanh(gates[:, 2 * width :] + reset * recurrent[:, 2 * width :])
        return (torch.lerp(new, hidden, update),)
    total = kernels.loop_linear(hidden, hidden_weight, gates)
    return (kernels.quick_tanh(total) if cell == "tanh" else torch.relu(total),)
