"""Ask a server over raw connections, so that the clients take as little of the machine as possible."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any


class Connection:
    """One client's connection, which stays open between requests."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return the status and the body of an answer. Raises OSError or IncompleteReadError if there is none."""
        if self._writer is None or self._writer.is_closing():
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        assert self._reader is not None
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        self._writer.write(head.encode() + b"\r\n" + data)
        answered = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answered.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        content = await self._reader.readexactly(length)
        if b"connection: close" in answered:
            await self.close()
        status = int(answered[9:12])
        return status, json.loads(content) if b"application/json" in answered else content

    async def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@dataclass
class Tally:
    """What the clients have seen."""

    statuses: dict[str, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)  # of the answers with status 200
    wrong: list[str] = field(default_factory=list)  # answers that belong to another input
    lost: list[str] = field(default_factory=list)  # requests without an answer

    def count(self, status: int) -> None:
        """Count an answer."""
        self.statuses[str(status)] = self.statuses.get(str(status), 0) + 1


async def ask_in_turn(
    port: int,
    texts: list[str],
    expected: dict[str, str],
    tally: Tally,
    is_over: Callable[[], bool],
    options: dict[str, Any],
    *,
    once: bool = False,
    until_stopped: bool = False,
) -> None:
    """Be one client: ask for one text after the other, and compare each answer with the expected one.

    ``once``: every text is asked once. ``until_stopped``: the client ends when the server says that it stops.
    """
    connection = Connection(port)
    place = 0
    while not is_over() and not (once and place == len(texts)):
        text = texts[place % len(texts)]
        began = time.monotonic()
        try:
            status, answer = await connection.ask("POST", "/v1/predict", {"inputs": text, **options})
        except (OSError, asyncio.IncompleteReadError) as error:
            if until_stopped and isinstance(error, ConnectionRefusedError):
                break  # nothing was accepted
            tally.lost.append(f"{text}: {type(error).__name__}")
            break
        tally.count(status)
        if status == 200:
            tally.seconds.append(time.monotonic() - began)
            got = answer["predictions"][0]["outputs"][0]["text"]
            if got != expected[text]:
                tally.wrong.append(f"{text}: {got} instead of {expected[text]}")
            place += 1
        elif until_stopped and status == 503:
            break
        else:
            await asyncio.sleep(0.2)
    await connection.close()


async def ask_once(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Return the status and the body of one answer. Raises OSError if nobody listens."""
    connection = Connection(port)
    try:
        return await connection.ask(method, path, body)
    finally:
        await connection.close()
