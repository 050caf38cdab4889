"""How the processes that torchrun has started find each other, also after a restart.

torchrun keeps one store for all restarts. In it are still the addresses of processes that have died,
and a new one that reads them waits for nobody. So the living agree on a name for their meeting first,
and everything else is stored under that name.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store

from dragoman.errors import UserError

PATIENCE = 600.0  # seconds until all processes have to be there
PAUSE = 0.02  # seconds between two looks at the store


def find_meeting(store: Store, rank: int, count: int) -> Store:
    """Return a part of the store that the processes of this meeting have to themselves.

    Each process leaves a number that nobody has used before. The first one invites those whose
    numbers it sees, under the name of the meeting, until all have accepted. A process accepts an
    invitation that has its number; an older one does not have it.
    """
    if rank == 0:
        name = uuid.uuid4().hex
        for _ in _looks():
            guests = [_read(store, f"guest/{guest}") for guest in range(1, count)]
            store.set("dragoman/invitation", json.dumps({"name": name, "guests": guests}))
            if all(_read(store, f"accepted/{guest}") == name for guest in range(1, count)):
                return PrefixStore(f"dragoman/{name}", store)
        raise _nobody_came(rank, count)
    number = uuid.uuid4().hex
    store.set(f"dragoman/guest/{rank}", json.dumps(number))
    for _ in _looks():
        invitation = _read(store, "invitation")
        if isinstance(invitation, Mapping) and invitation["guests"][rank - 1 : rank] == [number]:
            store.set(f"dragoman/accepted/{rank}", json.dumps(invitation["name"]))
            return PrefixStore(f"dragoman/{invitation['name']}", store)
    raise _nobody_came(rank, count)


def _nobody_came(rank: int, count: int) -> UserError:
    return UserError(
        f"process {rank} of {count} has waited {PATIENCE:g} s for the others; are all of them running, and can they "
        "reach each other?"
    )


def _looks() -> Iterator[None]:
    """Yield again and again, for as long as a process waits for the others."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        yield
        time.sleep(PAUSE)


def _read(store: Store, key: str) -> Any:
    """Return what is stored, or None."""
    return json.loads(store.get(f"dragoman/{key}")) if store.check([f"dragoman/{key}"]) else None
