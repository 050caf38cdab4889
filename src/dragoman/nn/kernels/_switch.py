"""The switch between fast kernels and their plain twins, and what a kernel declares for its test.

The process starts with what the environment variable ``DRAGOMAN_KERNELS`` says, ``fast`` or
``plain``; without it, with ``fast``. ``use`` changes the setting of the whole process, for every
thread. ``plain()`` and ``fast()`` override it inside a ``with`` block and for the calling thread
only, so that threads which share a model cannot disturb each other.

A pass that began under one setting is differentiated under it too: the choice is made in the
forward pass.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from dragoman.errors import UserError
from dragoman.nn.kernels._precision import autocasts

VARIABLE = "DRAGOMAN_KERNELS"
Mode: TypeAlias = Literal["fast", "plain"]


def _checked(mode: str, name: str) -> Mode:
    if mode not in ("fast", "plain"):
        raise UserError(f"{name} is {mode!r}; it can be 'fast' or 'plain'")
    return "fast" if mode == "fast" else "plain"


_of_process: Mode = _checked(os.environ.get(VARIABLE) or "fast", VARIABLE)
_of_thread: ContextVar[Mode | None] = ContextVar("kernels", default=None)


def use(mode: Mode) -> None:
    """Choose the kernels of the whole process."""
    global _of_process
    _of_process = _checked(mode, "kernels.use: the mode")


@contextmanager
def plain() -> Iterator[None]:
    """Run the plain twins inside a ``with`` block, in this thread."""
    reset = _of_thread.set("plain")
    try:
        yield
    finally:
        _of_thread.reset(reset)


@contextmanager
def fast() -> Iterator[None]:
    """Run the fast kernels inside a ``with`` block, in this thread."""
    reset = _of_thread.set("fast")
    try:
        yield
    finally:
        _of_thread.reset(reset)


def is_fast() -> bool:
    """Return whether the fast kernels are switched on."""
    return (_of_thread.get() or _of_process) == "fast"


def trains_fast(x: Tensor) -> bool:
    """Return whether the fast kernels are on and ``x`` is trained on a CPU, without autocast."""
    return (
        torch.is_grad_enabled() and x.requires_grad and x.device.type == "cpu" and not autocasts(x) and is_fast()
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Twin:
    """A kernel and its plain twin, with inputs on which a test compares their values and gradients.

    Every module of this folder whose name does not begin with an underscore lists its own in
    ``TWINS``.
    """

    function: Callable[..., Any]  # what models call; it chooses between the kernel and the twin
    plain: Callable[..., Any]  # the same in ordinary torch
    inputs: Callable[[], Iterator[tuple[Any, ...]]]  # float64 tensors and other arguments, some calls' worth
    draws: int = 1  # of a kernel that draws random numbers: how many calls are averaged before comparing
    tolerance: float = 1e-9


def sample(*shape: int) -> Tensor:
    """Draw a leaf tensor for the inputs of a twin."""
    return torch.randn(shape, dtype=torch.float64).requires_grad_()
