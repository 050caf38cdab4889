"""Tell OpenMP that threads which wait for each other should soon sleep instead of spinning.

By default a waiting thread spins for milliseconds at the end of every operation. On a machine that
does other work too, it so occupies the core that the thread it waits for needs, and two threads
become many times slower than one. A thousand iterations, some microseconds, are enough on an idle
machine. Settings of the user (``OMP_WAIT_POLICY``, ``GOMP_SPINCOUNT``) are kept.
"""

from __future__ import annotations

import os
import sys

SPIN_COUNT = "1000"


def limit_openmp_spinning() -> bool:
    """Limit the spinning of waiting threads and return whether it was set.

    OpenMP reads the setting when torch is imported, so after that nothing is set.
    """
    if "torch" in sys.modules or os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        return False
    os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT
    return True
