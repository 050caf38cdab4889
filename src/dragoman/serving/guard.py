"""What stands before an application: requests are refused, and their bodies bounded, before anything reads them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from dragoman.serving.limits import Limits, RequestRefused
from dragoman.serving.questions import Message, Receive, problem

Scope = dict[str, Any]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

METHODS = ("GET", "POST")
URLENCODED, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
ANY_HOST = "*"  # among the hosts: the server answers as whatever it is called


class Guard:
    """An ASGI application around another one.

    ``hosts`` are the names that the server answers as, with or without a port. Listening on
    loopback does not keep other sites out: a page of another site can make the browser send
    requests here, and with a host name that resolves to 127.0.0.1 it can even read the answers (DNS
    rebinding). So requests under other names, and those that a page of another site sends, are
    refused. ``uploads`` are the paths whose bodies are files. All others are JSON; ``forms`` names the
    kinds of forms that some paths take too, even with GET. ``api`` are the beginnings of the paths that
    no page of another site may ask. ``headers`` are added to every answer.
    """

    def __init__(
        self,
        app: Application,
        *,
        limits: Limits,
        hosts: tuple[str, ...],
        uploads: tuple[str, ...] = (),
        forms: Mapping[str, tuple[str, ...]] | None = None,
        api: tuple[str, ...] = ("/api/",),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.app, self.limits, self.hosts, self.uploads = app, limits, hosts, uploads
        self.forms, self.api = forms or {}, api
        self.headers = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *self.headers]}
            await send(message)

        try:
            size = self.check(scope)
        except RequestRefused as refusal:
            await respond(send_with_headers, refusal)
            return
        await self.app(scope, BoundedBody(receive, size, self.limits).receive, send_with_headers)

    def check(self, scope: Scope) -> int:
        """Return how long the body is. Raise ``RequestRefused`` for a request that is not answered."""
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
        limits, path = self.limits, str(scope["path"])
        self._check_origin(headers, is_api=path.startswith(self.api))
        if len(scope.get("raw_path") or path.encode()) + len(scope.get("query_string", b"")) > limits.path_bytes:
            raise RequestRefused(414, f"the path has more than {limits.path_bytes:,} bytes; shorten it")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > limits.head_bytes:
            raise RequestRefused(431, f"the headers have more than {limits.head_bytes:,} bytes; send fewer")
        if scope["method"] not in METHODS:
            sentence = f"the method {scope['method'][:20]} is not known here; use GET or POST"
            raise RequestRefused(405, sentence, headers={"Allow": ", ".join(METHODS)})
        size = headers.get("content-length", "")
        if scope["method"] == "GET" and (path not in self.forms or size in ("", "0")):
            if size not in ("", "0") or "transfer-encoding" in headers:
                raise RequestRefused(400, "a GET request has no body; leave it out, or use POST")
            return 0
        return self._check_body(headers, size, path)

    def _check_origin(self, headers: Mapping[str, str], is_api: bool) -> None:
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if name not in self.hosts and ANY_HOST not in self.hosts:
            raise RequestRefused(403, f"this server answers on this machine only, not as {host[:100]!r}")
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site", "none")
        if (origin is not None and origin not in (f"http://{host}", f"https://{host}")) or (
            is_api and site not in ("none", "same-origin")
        ):
            raise RequestRefused(403, "this server answers its own page only, not another site")

    def _check_body(self, headers: Mapping[str, str], size: str, path: str) -> int:
        kind, _, parameters = headers.get("content-type", "").lower().partition(";")
        kind, is_upload = kind.strip(), path in self.uploads
        is_form = kind in self.forms.get(path, ())
        most = self.limits.upload_bytes if is_upload or (is_form and kind == MULTIPART) else self.limits.body_bytes
        if "transfer-encoding" in headers or not (size.isascii() and size.isdecimal()):
            raise RequestRefused(411, "the Content-Length header is missing; send the body in one piece")
        if len(size) > 20 or int(size) > most:
            what = "the file is too large" if is_upload else "the request is too long"
            raise RequestRefused(413, f"{what}; send at most {most:,} bytes")
        if headers.get("content-encoding", "identity") != "identity":
            raise RequestRefused(415, "compressed bodies are not read; send the body as it is")
        charset = parameters.partition("charset=")[2].partition(";")[0].strip().strip('"')
        is_known = is_upload or is_form or kind == "application/json"
        if not is_known or (not is_upload and charset not in ("", "utf-8", "utf8")):
            kinds = " or ".join(("application/json", *self.forms.get(path, ())))
            raise RequestRefused(415, f"the body has to be JSON in UTF-8: Content-Type: {kinds}")
        return int(size)


class BoundedBody:
    """The body of a request: of at most ``size`` bytes, which arrive in good time."""

    def __init__(self, receive: Receive, size: int, limits: Limits) -> None:
        self._receive, self._size, self._limits = receive, size, limits
        self._began = time.monotonic()
        self._read = 0
        self._is_complete = False

    async def receive(self) -> Message:
        """Return the next message of the request. Raise ``RequestRefused`` for a body that is too long or too slow."""
        if self._is_complete:
            return await self._receive()  # nothing follows but the end of the connection
        pending = asyncio.ensure_future(self._receive())
        allowed = self._limits.patience + self._read / self._limits.slowest_body
        # what has arrived while this process was busy is in time: asyncio.wait returns it even then
        await asyncio.wait({pending}, timeout=max(0.0, self._began + allowed - time.monotonic()))
        if not pending.done():
            pending.cancel()
            raise RequestRefused(
                408, f"the body did not arrive: {self._read:,} bytes in {allowed:.2g} s; send it again"
            )
        message = pending.result()
        if message["type"] == "http.request":
            self._read += len(message.get("body", b""))
            if self._read > self._size:
                raise RequestRefused(413, "the body is longer than its Content-Length")
            self._is_complete = not message.get("more_body", False)
        return message


async def respond(send: Send, refusal: RequestRefused) -> None:
    """Answer a request that is refused."""
    body = problem(str(refusal))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in refusal.headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
