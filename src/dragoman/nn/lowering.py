"""Lower a model to a program: every part says once, in its own file, how it computes in use.

A part's ``lower`` method adds operations (``program/table.py``) for one source and one hypothesis.
There is no batch and no padding, so no masks; and no dropout. ``Lowering`` turns parameters into
named weights and knows the layers that many parts have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from dragoman.errors import UserError
from dragoman.program.build import Builder
from dragoman.program.table import SettingValue


@dataclass(frozen=True, slots=True)
class LoweredMemory:
    """The names of the values that a ``Memory`` has in a program."""

    states: str  # (S, D) keys
    width: int  # D
    values: str | None = None  # (S, D); None: the states
    summary: tuple[tuple[str, ...], ...] | None = None  # L of P values (1, D)

    @property
    def read(self) -> str:
        """Return the value that attention reads: the values, or the states."""
        return self.states if self.values is None else self.values


class Lowering(Builder):
    """A builder of programs that knows the parameters of a model by their names."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        # by vectors (S, D) of which some take no position: the value (S, 1) that is 1 for those that do, else 0
        self.counted: dict[str, str] = {}
        # of parameters that are shared, the first name counts
        self._names = {id(tensor): name for name, tensor in reversed(list(model.named_parameters()))}

    def parameter(self, tensor: Tensor, suffix: str = "", array: np.ndarray | None = None) -> str:
        """Store a parameter, or with a suffix an ``array`` computed from it, and return its name."""
        name = self._names[id(tensor)] + suffix
        return self.weight(name, to_array(tensor) if array is None else array)

    def linear(self, layer: nn.Module, x: str, activation: str = "none") -> str:
        """Apply a linear layer, or nothing where the layer is an identity."""
        if isinstance(layer, nn.Identity):
            return x
        assert isinstance(layer, nn.Linear)
        weights = [self.parameter(layer.weight)]
        if layer.bias is not None:
            weights.append(self.parameter(layer.bias))
        return self.add("linear", x, weights=weights, activation=activation)

    def layer_norm(self, layer: nn.Module, x: str) -> str:
        """Apply a layer norm, or nothing where the layer is an identity."""
        if isinstance(layer, nn.Identity):
            return x
        assert isinstance(layer, nn.LayerNorm)
        weights = [self.parameter(layer.weight), self.parameter(layer.bias)]
        return self.add("layer_norm", x, weights=weights, epsilon=layer.eps)

    def batch_norm(self, norm: nn.BatchNorm1d | nn.BatchNorm2d, x: str, activation: str = "none") -> str:
        """Apply a batch norm with its running statistics, as a scale and a shift per channel."""
        assert norm.running_mean is not None and norm.running_var is not None
        deviation = np.sqrt(to_array(norm.running_var) + np.float32(norm.eps))
        scale = to_array(norm.weight) / deviation
        shift = to_array(norm.bias) - to_array(norm.running_mean) * scale
        weights = [self.parameter(norm.weight, ".scale", scale), self.parameter(norm.bias, ".shift", shift)]
        return self.add("affine", x, weights=weights, activation=activation)

    def convolution(self, layer: nn.Conv1d, x: str, **settings: SettingValue) -> str:
        """Apply a convolution over rows."""
        kernel = np.ascontiguousarray(to_array(layer.weight).transpose(0, 2, 1))  # (O, I, k) → (O, k, I)
        weights = [self.parameter(layer.weight, ".rows", kernel)]
        if layer.bias is not None:
            weights.append(self.parameter(layer.bias))
        return self.add("convolve", x, weights=weights, **settings)

    def join_columns(self, values: Sequence[str]) -> str:
        """Put values side by side."""
        return values[0] if len(values) == 1 else self.add("join", *values, axis="columns")


def to_array(tensor: Tensor) -> np.ndarray:
    """Return the numbers of a tensor as float32."""
    return np.asarray(tensor.detach().float().cpu().numpy())


def cannot_lower(part: object) -> UserError:
    """Return the error for a part that does not say how it computes in use."""
    module, kind = type(part).__module__, type(part).__name__
    family, _, name = module.rpartition(".")
    family = family.rpartition(".")[2].removesuffix("s")
    return UserError(
        f"the {family} {name!r} ({kind}) has no `lower` method, so a model with it runs on torch only; "
        "write one (CONTRIBUTING.md), or train with another part"
    )
