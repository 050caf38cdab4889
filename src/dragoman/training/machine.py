"""What of the machine is used: which device, how many cores."""

from __future__ import annotations

import os

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
