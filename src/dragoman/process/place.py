"""Which of several processes this one is, as torchrun says in the environment of each."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """The number of this process among those that train together, and how it was started."""

    rank: int = 0  # from 0; the first process writes and prints
    count: int = 1
    local_rank: int = 0  # among the processes of this machine: the number of its GPU
    may_restart: bool = False  # torchrun may run the same command again by itself

    @property
    def is_first(self) -> bool:
        """Return whether this is the process that writes and prints."""
        return self.rank == 0


def find_place() -> Place:
    """Return the place of this process. Without torchrun it is the only one."""
    known = {name: os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    if not os.environ.get("MASTER_ADDR") or not all(value.isdecimal() for value in known.values()):
        return Place()
    rank, count, local_rank = (int(value) for value in known.values())
    return Place(rank, count, local_rank, "TORCHELASTIC_RUN_ID" in os.environ)
