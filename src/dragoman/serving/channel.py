"""What is said between the server and its workers, and how both look for it."""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import NamedTuple

from dragoman.serving.compute import Item, Task


class Compute(NamedTuple):
    """Says to a worker: compute these inputs."""

    number: int  # of the batch
    task: Task
    items: Mapping[int, Item]
    is_continuous: bool  # further messages with this number add inputs


class Drop(NamedTuple):
    """Says to a worker: nobody waits for some inputs any more."""

    number: int  # of the batch
    indices: Sequence[int] | None  # None: all


class Inbox:
    """What comes to a worker through its pipe."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._poller = select.poll()  # quicker than the pipe's own, which is made anew each time
        self._poller.register(pipe.fileno(), select.POLLIN)
        self._number = 0  # of the batch that is computed
        self._is_stopped = False
        self._next: Compute | None = None  # has come before the one before it was over for this worker

    def wait(self) -> Compute:
        """Wait for the next batch."""
        message, self._next = self._next, None
        while not isinstance(message, Compute):  # another one is about a batch that is done
            message = self._pipe.recv()
        self._number, self._is_stopped = message.number, False
        return message

    def receive(self) -> tuple[dict[int, Item], list[int]]:
        """Return inputs that enter the batch, and those that nobody waits for any more, without waiting."""
        added: dict[int, Item] = {}
        gone: list[int] = []
        while self._next is None and self._poller.poll(0):
            message = self._pipe.recv()
            if isinstance(message, Compute):
                if message.number == self._number:
                    added |= message.items
                else:  # all answers have been sent, so this batch is over for the server
                    self._next = message
            elif message.number == self._number:
                self._is_stopped |= message.indices is None
                gone += message.indices or ()
        return added, gone

    def is_stopped(self) -> bool:
        """Tell whether nobody waits for the batch any more."""
        if not self._is_stopped:
            self.receive()
        return self._is_stopped


class Bell:
    """Wakes a thread that waits for several things at once."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()  # the sockets of other workers are closed in each of them
        self._is_ringing = False

    def __del__(self) -> None:
        self._ours.close()
        self._theirs.close()

    def fileno(self) -> int:
        return self._ours.fileno()

    def ring(self) -> None:
        """Wake the thread. Any thread may call this, under the lock that the woken one takes next."""
        if not self._is_ringing:
            self._is_ringing = True
            self._theirs.send(b"!")

    def silence(self) -> None:
        """Be ready for the next time."""
        self._ours.recv(64)
        self._is_ringing = False
