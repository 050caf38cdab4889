"""How much memory the process may use."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

# The limit of a container: version 2 and version 1 of control groups.
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def total_memory() -> int | None:
    """Return the bytes of memory that the machine, or the container, has; None where nobody tells.

    It is the whole memory, not what is free at the moment, so that it is the same every time.
    """
    sizes = []
    with suppress(OSError, ValueError, AttributeError):  # AttributeError: there is no sysconf on Windows
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in LIMITS:
        with suppress(OSError, ValueError):  # ValueError: "max", no limit
            sizes.append(int(Path(path).read_text(encoding="ascii")))
    return min((size for size in sizes if size > 0), default=None)
