"""Tell OpenMP that threads which wait for each other should soon sleep, not spin.

By default a thread spins for milliseconds at the end of every operation. On a machine that does other work too, it so
takes away the core that the thread it waits for would need, and two threads become many times slower than one. A
thousand turns, some microseconds, are enough where nobody disturbs. What a person has set (OMP_WAIT_POLICY,
GOMP_SPINCOUNT) stays.
"""

from __future__ import annotations

import os
import sys

TURNS = "1000"


def sleep_soon() -> bool:
    """True if it was set. Only what is set before torch is imported is heeded."""
    if "torch" in sys.modules or os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        return False
    os.environ["GOMP_SPINCOUNT"] = TURNS
    return True
