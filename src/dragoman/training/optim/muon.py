"""Muon (Jordan et al. 2024): orthogonalised momentum for matrices, Adam for all else.

A step along the momentum of a matrix mostly strengthens a few dominant directions. If all its
singular values are set to 1, every direction moves equally far: fewer updates learn as much, at the
cost of a few more matrix products per update. Token tables and the output layer, of which an update
uses few rows, and everything that is no matrix are Adam's. A step is about as large as one of
Adam's (Liu et al. 2025, "Muon is scalable for LLM training", eq. 4), so that one learning rate
serves both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from dragoman.nn.blocks.layers import Embedding
from dragoman.nn.blocks.positions import Positions
from dragoman.nn.contracts import Decoder
from dragoman.nn.model import Model

MOMENTUM = 0.95
ITERATION = (3.4445, -4.7750, 2.0315)  # a, b, c of x ↦ ax + bx³ + cx⁵, which brings every singular value near 1
ITERATIONS = 5
LIKE_ADAM = 0.2  # root mean square of one of Adam's steps at learning rate 1


class Muon(torch.optim.Optimizer):
    """Muon and Adam as one optimizer: it has the groups, the states and the steps of both."""

    grad_scale: Tensor | None = None  # gradients are divided by it, as torch's fused optimisers do

    def __init__(
        self, matrices: Mapping[nn.Parameter, int], rest: torch.optim.Optimizer, weight_decay: float = 0.0
    ) -> None:
        """``matrices``: each with the number of matrices stacked in it; ``rest``: of all else."""
        self.parts = dict(matrices)
        super().__init__(list(matrices), {"lr": rest.param_groups[0]["lr"], "weight_decay": weight_decay})
        self.rest, self.own = rest, self.param_groups[0]
        self.param_groups += rest.param_groups
        rest.state = self.state

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.rest.grad_scale = self.grad_scale  # type: ignore[attr-defined]
        self.rest.step()
        matrices = [matrix for matrix in self.own["params"] if matrix.grad is not None]
        momenta = [cut_into_blocks(self._momentum(matrix), self.parts[matrix]) for matrix in matrices]
        rate, decay = self.own["lr"], self.own["weight_decay"]
        for matrix, blocks in zip(matrices, orthogonalise(momenta), strict=True):
            if decay:
                matrix.mul_(1 - rate * decay)
            size = LIKE_ADAM * max(blocks.shape[1:]) ** 0.5
            matrix.add_(join_blocks(blocks, matrix.shape, self.parts[matrix]), alpha=-rate * size)

    def _momentum(self, matrix: nn.Parameter) -> Tensor:
        """Update the momentum of a matrix and return Nesterov's, which is one step ahead."""
        assert matrix.grad is not None
        gradient = matrix.grad if self.grad_scale is None else matrix.grad / self.grad_scale
        if "momentum" not in self.state[matrix]:
            self.state[matrix]["momentum"] = torch.zeros_like(matrix)
        momentum: Tensor = self.state[matrix]["momentum"]
        momentum.lerp_(gradient, 1 - MOMENTUM)
        return torch.lerp(gradient, momentum, MOMENTUM)


def hidden_matrices(model: Model) -> dict[nn.Parameter, int]:
    """Return the matrices from vectors to vectors, with the number of matrices stacked in each.

    Tables of vectors and layers that score a vocabulary are not among them. The gates of a
    recurrent cell are stacked.
    """
    tables: set[nn.Parameter] = set()
    gates: dict[nn.Parameter, int] = {}
    for module in model.modules():
        if isinstance(module, (Embedding, Positions)) or module is model.ctc:
            tables.update(module.parameters(recurse=False))
        elif isinstance(module, Decoder):
            layers = (child for child in module.children() if isinstance(child, nn.Linear))
            outputs = (layer for layer in layers if layer.out_features == module.vocabulary)
            tables.update(parameter for layer in outputs for parameter in layer.parameters())
        elif isinstance(module, nn.RNNBase):
            gates |= {matrix: len(matrix) // module.hidden_size for matrix in module.parameters(recurse=False)}
    return {
        parameter: gates.get(parameter, 1)
        for parameter in model.parameters()
        if parameter.dim() == 2 and min(parameter.shape) > 1 and parameter not in tables
    }


def cut_into_blocks(matrix: Tensor, parts: int = 1) -> Tensor:
    """Return a matrix of stacked parts as blocks (n, rows, columns).

    A part becomes squares where one side is a multiple of the other. So Q, K and V of one product
    are matrices of their own, and so are the gates of a cell.
    """
    height, columns = matrix.shape
    rows = height // parts
    if rows % columns == 0:
        return matrix.reshape(-1, columns, columns)
    if columns % rows == 0:
        return matrix.reshape(parts, rows, -1, rows).transpose(1, 2).reshape(-1, rows, rows)
    return matrix.reshape(parts, rows, columns)


def join_blocks(blocks: Tensor, shape: torch.Size, parts: int = 1) -> Tensor:
    """Return the matrix that ``cut_into_blocks`` cut: its inverse."""
    height, columns = shape
    rows = height // parts
    if columns > rows and columns % rows == 0:
        blocks = blocks.reshape(parts, -1, rows, rows).transpose(1, 2)
    return blocks.reshape(shape)


def orthogonalise(matrices: Iterable[Tensor]) -> list[Tensor]:
    """Return the nearest matrices whose singular values are all about 1, (n, rows, columns) each.

    By Newton-Schulz iteration, which needs products only, of all matrices of one shape at once.
    """
    stacks = list(matrices)
    shapes: dict[torch.Size, list[int]] = {}
    for index, stack in enumerate(stacks):
        shapes.setdefault(stack.shape[1:], []).append(index)
    results: dict[int, Tensor] = {}
    for (rows, columns), where in shapes.items():
        x = torch.cat([stacks[index] for index in where])
        x = x.transpose(1, 2) if rows > columns else x  # the smaller product of the two
        x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
        a, b, c = ITERATION
        for _ in range(ITERATIONS):
            square = torch.bmm(x, x.transpose(1, 2))
            x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
        x = x.transpose(1, 2) if rows > columns else x
        parts = torch.split(x, [len(stacks[index]) for index in where])
        results |= zip(where, parts, strict=True)
    return [results[index] for index in range(len(stacks))]
