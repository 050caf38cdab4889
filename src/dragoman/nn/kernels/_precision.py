"""Keep autocast away from kernels and hand-written gradients, which know one type of number."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


def autocasts(tensor: Tensor) -> bool:
    """Return whether autocast is on for the device of this tensor."""
    return torch.is_autocast_enabled(tensor.device.type)


def full_precision(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a function to run without autocast, on arguments cast to float32 if it was on."""
    untyped = cast(Callable[..., Result], function)

    @wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        first = next(argument for argument in args if isinstance(argument, Tensor))
        if not autocasts(first):
            return function(*args, **kwargs)
        with torch.autocast(first.device.type, enabled=False):
            return untyped(*map(_to_float32, args), **{name: _to_float32(value) for name, value in kwargs.items()})

    return call


def _to_float32(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.float() if value.is_floating_point() else value
    return tuple(map(_to_float32, value)) if isinstance(value, tuple) else value
