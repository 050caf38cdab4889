"""Initial weights: how parts draw them, and how to build a model without drawing any.

A model that is about to be loaded needs no initial weights: drawing them can take longer than
reading the file. Inside ``without_initialisation()`` its parts are built as ever, with the same
parameters and buffers, but random numbers are not drawn. Parameters then hold whatever was in their
memory, so all of them must be loaded before the model is used. Everything that is computed without
random numbers keeps its value: zeros, ones, tables, and buffers that are not saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_skips: ContextVar[bool] = ContextVar("skips_initialisation", default=False)


def draw_xavier(module: nn.Module) -> None:
    """Draw the weights of all linear layers inside (Glorot & Bengio 2010); biases become zero."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def draw_orthogonal(matrix: Tensor) -> None:
    """Draw an orthogonal matrix (Saxe et al. 2014)."""
    if not _skips.get():  # its QR decomposition is not a random function, which would be skipped anyway
        nn.init.orthogonal_(matrix)


def drawn_vector(width: int) -> nn.Parameter:
    """Return a new vector (width,), uniform in ±1 / sqrt(width)."""
    vector = torch.empty(width)
    nn.init.uniform_(vector, -(width**-0.5), width**-0.5)
    return nn.Parameter(vector)


@contextmanager
def without_initialisation() -> Iterator[None]:
    """Build modules without drawing initial weights, in a ``with`` block of this thread."""
    reset = _skips.set(True)
    try:
        with _SkipRandomNumbers():
            yield
    finally:
        _skips.reset(reset)


class _SkipRandomNumbers(TorchFunctionMode):
    """Leave tensors as they are where torch would fill them with random numbers.

    Holds for one thread.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _FILLS:
            return args[0]
        if func in _INITIALISERS:  # those that torch lets a mode see pass their arguments by name
            return kwargs["tensor"]
        if func in _FACTORIES:
            return _FACTORIES[func](*args, **{name: value for name, value in kwargs.items() if name != "generator"})
        return func(*args, **kwargs)


_FILLS = frozenset(
    {
        Tensor.bernoulli_,
        Tensor.exponential_,
        Tensor.normal_,
        Tensor.random_,
        Tensor.uniform_,
    }
)
_INITIALISERS = frozenset(
    {
        nn.init.kaiming_normal_,
        nn.init.kaiming_uniform_,
        nn.init.normal_,
        nn.init.trunc_normal_,
        nn.init.uniform_,
        nn.init.xavier_normal_,
        nn.init.xavier_uniform_,
    }
)
_FACTORIES: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    torch.rand: torch.empty,
    torch.rand_like: torch.empty_like,
    torch.randn: torch.empty,
    torch.randn_like: torch.empty_like,
}
