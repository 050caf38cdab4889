"""Where autocast must not reach: kernels and hand-written gradients that know one type of number."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

Result = TypeVar("Result")
Given = ParamSpec("Given")


def autocasts(like: Tensor) -> bool:
    """Is autocast on for the device of this tensor?"""
    return torch.is_autocast_enabled(like.device.type)


def trains_here(x: Tensor) -> bool:
    """Is this a pass that will be gone back through, on a CPU, in the precision of the numbers?"""
    return torch.is_grad_enabled() and x.requires_grad and x.device.type == "cpu" and not autocasts(x)


def full_precision(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Under autocast: it is off inside, and all tensors among the arguments come in as float32."""
    plain = cast(Callable[..., Result], function)

    @wraps(function)
    def call(*given: Given.args, **named: Given.kwargs) -> Result:
        like = next(one for one in given if isinstance(one, Tensor))
        if not autocasts(like):
            return function(*given, **named)
        with torch.autocast(like.device.type, enabled=False):
            return plain(*map(_full, given), **{name: _full(one) for name, one in named.items()})

    return call


def _full(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.float() if value.is_floating_point() else value
    return tuple(map(_full, value)) if isinstance(value, tuple) else value
