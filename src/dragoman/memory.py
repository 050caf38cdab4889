"""Tell glibc to keep the pages it has: training frees and asks for the same megabytes at every step.

Given back to the kernel, each of those pages is cleared and mapped again at the next step. Keeping them makes training
1.3 to 1.7 times as fast on a CPU. Set DRAGOMAN_KEEP_PAGES=0 to leave the allocator alone.
"""

from __future__ import annotations

import ctypes
import os
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h


def keep_pages() -> bool:
    """True if the allocator took it. Best called before torch is imported; harmless where there is no glibc."""
    if not sys.platform.startswith("linux") or os.environ.get("DRAGOMAN_KEEP_PAGES") == "0":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = ((M_MMAP_THRESHOLD, 2**30), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 2**27))
    return sum(mallopt(option, value) for option, value in settings) == len(settings)
