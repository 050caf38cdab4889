"""Connections that are too many, silent or broken are closed, with a sentence where something was asked."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("uvicorn")

import uvicorn

from dragoman.serving.connections import configure
from dragoman.serving.limits import Limits

PATIENCE = 60.0


async def greet(scope: Any, receive: Any, send: Any) -> None:
    """Answer with a word, without reading the body."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


@contextmanager
def serving(limits: Limits) -> Iterator[int]:
    config = configure(greet, limits)
    config.lifespan = "off"
    server = uvicorn.Server(config)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listener.close()


def connect(port: int, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE)
    connection.sendall(sent)
    return connection


def read_all(connection: socket.socket) -> bytes:
    """Return what arrives until the server closes the connection."""
    with connection:
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_broken_connections_are_answered_and_closed() -> None:
    with serving(Limits(patience=0.05, idle_seconds=0.05, head_bytes=500)) as port:
        assert read_all(connect(port)) == b""  # it said nothing: browsers open connections in advance
        for sent, status in (
            (b"GET / HTTP/1.1\r\nHost: a\r\nX: ", 408),
            (b"GET /" + b"a" * 1000, 414),
            (b"GET / HTTP/1.1\r\nX: " + b"a" * 1000, 431),
            (b"hello\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\n\r\n", 400),
        ):
            answer = read_all(connect(port, sent))
            assert answer.startswith(b"HTTP/1.1 %d " % status), answer
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]


def test_what_follows_an_early_answer_is_not_read_for_ever() -> None:
    with serving(Limits(patience=0.05)) as port:
        answer = read_all(connect(port, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\nab"))
        assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"hello")


def test_connections_stay_open_for_more_requests() -> None:
    request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"
    with serving(Limits(patience=PATIENCE, idle_seconds=PATIENCE)) as port, connect(port) as connection:
        for _ in range(3):
            connection.sendall(request)
            answer = b""
            while not answer.endswith(b"hello"):
                answer += connection.recv(65536)


def test_too_many_connections_are_refused() -> None:
    with serving(Limits(connections=2, patience=0.05)) as port:
        kept = [connect(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n") for _ in range(2)]
        for connection in kept:
            assert connection.recv(12) == b"HTTP/1.1 200"
        assert read_all(connect(port)).startswith(b"HTTP/1.1 503 ")
        for connection in kept:
            connection.close()
