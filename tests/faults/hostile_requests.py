"""Raw requests to a server, for campaigns of hostile ones: what is sent, and what comes back."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PATIENCE = 60.0  # seconds until a test gives up waiting


@dataclass(frozen=True)
class Hostile:
    """What is sent, piece by piece, and the status that is right for it. A number is a pause in seconds."""

    name: str
    pieces: tuple[bytes | float, ...]
    status: int


def head(path: str, *headers: str, method: str = "POST", host: str | None = "127.0.0.1") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *([f"Host: {host}"] if host is not None else []), *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def post(path: str, body: bytes, *headers: str) -> bytes:
    kind = (
        () if any(each.lower().startswith("content-type") for each in headers) else ("Content-Type: application/json",)
    )
    return head(path, f"Content-Length: {len(body)}", *kind, *headers) + body


def ask(path: str, **question: Any) -> bytes:
    return post(path, json.dumps(question).encode())


def send(port: int, case: Hostile) -> tuple[int, str, float]:
    """Return the status, the sentence and the seconds that a request takes."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        began = time.monotonic()
        threading.Thread(target=_feed, args=(connection, case.pieces), daemon=True).start()
        answer = b""
        while not (_is_whole(answer)):
            received = connection.recv(65536)
            if not received:
                break
            answer += received
        seconds = time.monotonic() - began
    status = re.match(rb"HTTP/1\.1 (\d+)", answer)
    body = answer.partition(b"\r\n\r\n")[2]
    assert status is not None, f"{case.name}: {answer[:200]!r}"
    return int(status[1]), json.loads(body).get("error", ""), seconds


def _feed(connection: socket.socket, pieces: tuple[bytes | float, ...]) -> None:
    try:
        for piece in pieces:
            if isinstance(piece, bytes):
                connection.sendall(piece)
            else:
                time.sleep(piece)
    except OSError:
        pass  # the server has had enough


def _is_whole(answer: bytes) -> bool:
    length = re.search(rb"content-length: (\d+)", answer.partition(b"\r\n\r\n")[0], re.IGNORECASE)
    return length is not None and len(answer.partition(b"\r\n\r\n")[2]) >= int(length[1])


def find_wrong(cases: Sequence[Hostile], answers: Sequence[tuple[int, str, float]]) -> list[str]:
    return [
        f"{case.name}: {status} instead of {case.status} ({sentence})"
        for case, (status, sentence, _) in zip(cases, answers, strict=True)
        if status != case.status or not sentence
    ]
