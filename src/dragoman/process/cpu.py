"""CPU features: keep oneDNN away from AMX on machines that announce AMX but cannot run it.

Some virtual machines list AMX among the CPU flags but offer no tile palette (CPUID leaves 0x1D and
0x1E are zero). oneDNN, which torch uses for matrix products, convolutions and recurrent layers,
takes its configuration from those leaves: a bfloat16 product then kills the process with an illegal
instruction, and a failed one breaks later float32 primitives of the same thread. So where AMX is
announced, oneDNN is capped to the instruction sets below it, which costs float32 nothing (it gives
the same numbers, bit for bit). Where bfloat16 is asked for, a product is tried in a child process,
and the cap is lifted if the child survives.

oneDNN reads the environment variable when it makes its first primitive, so setting it after
``import torch`` is early enough. A value that the user has set is never changed.
``DRAGOMAN_AMX=can`` or ``cannot`` replaces detection and trial, for tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from dragoman.errors import UserError

CAP = "AVX512_CORE_BF16"  # the widest instruction set below AMX and FP16
VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")  # the second is the older name, which oneDNN still reads
MARK = "DRAGOMAN_ONEDNN_CAPPED"  # tells child processes that the cap is ours and not the user's
TRIAL = (
    "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); (x @ x).sum().item(); "
    "torch.nn.functional.linear(torch.ones(3, 64), torch.ones(32, 64)).sum().item()"
)


def announces_amx() -> bool:
    """Return whether the CPU lists AMX among its flags.

    Only Linux tells; elsewhere this is False.
    """
    if _forced():
        return True
    try:
        return " amx_tile" in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False


def cap_onednn() -> bool:
    """Cap oneDNN below AMX where AMX is announced and the user has set nothing.

    Return whether the cap is ours.
    """
    if MARK in os.environ:
        return True
    if any(name in os.environ for name in VARIABLES) or not announces_amx():
        return False
    os.environ[VARIABLES[0]] = CAP
    os.environ[MARK] = "1"
    return True


def prepare_bfloat16() -> str | None:
    """Make bfloat16 products safe in this process and return what was decided, in a sentence.

    None means that there was nothing to decide. Must run before oneDNN makes its first primitive.
    """
    if MARK not in os.environ:
        return None
    if bfloat16_works(capped=False):
        for name in (VARIABLES[0], MARK):
            del os.environ[name]
        return "bfloat16: this CPU announces AMX, and a trial product in a child process worked; AMX is used"
    if bfloat16_works(capped=True):
        return f"bfloat16: this CPU announces AMX but cannot run it; oneDNN is capped to {CAP}"
    raise UserError(
        "training.autocast: bfloat16 products crash on this CPU, with and without AMX; "
        "leave it off (--set training.autocast=false)"
    )


@cache
def bfloat16_works(*, capped: bool) -> bool:
    """Try a bfloat16 product in a child process, with oneDNN capped below AMX or not."""
    if not capped and _forced():
        return _forced() == "can"
    environment = {name: value for name, value in os.environ.items() if name not in (*VARIABLES, MARK)}
    if capped:
        environment[VARIABLES[0]] = CAP
    trial = subprocess.run([sys.executable, "-c", TRIAL], env=environment, capture_output=True, check=False)
    return trial.returncode == 0


def _forced() -> str:
    value = os.environ.get("DRAGOMAN_AMX", "")
    if value not in ("", "can", "cannot"):
        raise UserError(f"DRAGOMAN_AMX is {value!r}; it can be 'can' or 'cannot'")
    return value
