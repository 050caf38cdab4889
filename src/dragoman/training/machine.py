"""What of the machine is used: which device, how many cores, which arithmetic."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dragoman.errors import UserError


def pick_device(name: str) -> torch.device:
    """``auto``: a CUDA device, else the CPU. Apple's MPS has no numbers of 64 bits, which losses are summed in."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device, dtype=torch.float64)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise UserError(f"--device {name}: not usable here ({str(error).splitlines()[0]}); try --device auto") from None
    return device


def cores() -> int:
    """As many as a person allows (OMP_NUM_THREADS), or all that this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def tiny_is_zero() -> Iterator[None]:
    """In this thread, what is smaller than any full float32 (1.2e-38) becomes 0.

    A processor takes many times as long for such numbers: a product of matrices that hold some, up to 40 times. They
    are not rare. Where attention has settled on one position, weights and gradients of the others are that small.
    """
    kept = bool(torch.full((1,), 1e-39) * 1 != 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if kept:  # the thread may be a caller's
            torch.set_flush_denormal(False)
