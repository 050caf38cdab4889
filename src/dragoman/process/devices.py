"""Which device, how many cores and which arithmetic the process uses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dragoman.errors import UserError
from dragoman.process.place import Place, find_place

if TYPE_CHECKING:
    import torch

GRAPHICS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # of drivers for NVIDIA, AMD, and Windows' Linux


def pick_device(name: str) -> torch.device:
    """Return the device of this name. ``auto`` is a CUDA device if there is one, else the CPU.

    Apple's MPS is refused: it has no 64-bit floats, in which losses are summed. Where several
    processes train together, ``cuda`` is a device of its own for each process of a machine.
    """
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = own_device(torch.device(name), find_place())
        torch.zeros(1, device=device, dtype=torch.float64)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise UserError(
            f"device {name}: not usable here ({str(error).splitlines()[0]}); auto takes what there is"
        ) from None
    return device


def is_surely_cpu(name: str) -> bool:
    """Tell, without importing torch, whether ``pick_device`` would return the CPU; False: perhaps not."""
    if name != "auto":
        return name == "cpu"
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1"):
        return True
    if os.name == "nt":
        from ctypes.util import find_library

        return find_library("nvcuda") is None
    return not any(map(os.path.exists, GRAPHICS))


def own_device(device: torch.device, place: Place) -> torch.device:
    """Return the device with the number of this process, where several share a machine's devices."""
    if device.type == "cpu" or ":" in str(device) or place.count == 1:
        return device
    import torch

    return torch.device(device.type, place.local_rank)


def available_cores() -> int:
    """Return how many cores to use: ``OMP_NUM_THREADS`` if it is set, else all of this process."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    if limit.isdecimal() and int(limit):
        return int(limit)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Treat numbers too small for a normal float32 (1.2e-38) as 0, in this thread.

    A processor takes many times as long for such numbers: a matrix product with some of them, up to
    40 times. They are not rare. Where attention has settled on one position, the weights and
    gradients of the others are that small.
    """
    import torch

    keeps_denormals = bool(torch.full((1,), 1e-39) * 1 != 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if keeps_denormals:  # the thread may belong to the caller
            torch.set_flush_denormal(False)
