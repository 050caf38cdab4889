"""One line of JSON for each request, with its id, and never with texts unless that was asked for."""

from __future__ import annotations

import json
import re
import secrets
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any

from dragoman.serving.guard import Application, Scope, Send
from dragoman.serving.questions import Message, Receive

REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
NOTES = "dragoman.notes"  # in the scope of a request: what its line says besides

Count = Callable[[str, int, float], None]  # the path, the status, the seconds


class RequestLog:
    """An ASGI application around another one, which writes a line for each request and counts it.

    ``paths`` are those that are counted by their names; all others together, so that nobody can fill memory with
    names of paths.
    """

    def __init__(
        self,
        app: Application,
        *,
        paths: tuple[str, ...],
        count_request: Count,
        write: Callable[[str], Any] | None = None,
    ) -> None:
        self.app, self.paths, self.count_request = app, frozenset(paths), count_request
        self.write = write or _write_line
        self._ids = (b"%s-%x" % (secrets.token_hex(4).encode(), number) for number in count(1))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), 499  # what a client that goes away would have got
        notes: dict[str, Any] = {}
        scope[NOTES] = notes
        given = next((value for name, value in scope["headers"] if name.lower() == b"x-request-id"), b"")
        identity = given if REQUEST_ID.fullmatch(given) else next(self._ids)

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                message = {**message, "headers": [*message.get("headers", []), (b"x-request-id", identity)]}
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            seconds = time.monotonic() - began
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.count_request(path, status, seconds)
            line = {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "id": identity.decode(),
                "method": scope["method"][:20],
                "path": path,
                "status": status,
                "seconds": round(seconds, 4),
                **notes,
            }
            self.write(json.dumps(line, ensure_ascii=False))


def _write_line(line: str) -> None:
    sys.stderr.write(f"{line.encode('utf-8', 'replace').decode()}\n")
