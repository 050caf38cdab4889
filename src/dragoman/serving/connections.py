"""Connections that are slow, broken or too many: what happens before there is a request that could be guarded."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from dragoman.errors import MissingExtra
from dragoman.serving.limits import Limits
from dragoman.serving.questions import problem

try:
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError:
    raise MissingExtra("uvicorn", "studio", "a server") from None

if TYPE_CHECKING:
    import uvicorn


class Connection(h11.Connection):
    """The state of a connection, which remembers why a request could not be read."""

    error: h11.RemoteProtocolError | None = None

    def next_event(self) -> Any:
        try:
            return super().next_event()
        except h11.RemoteProtocolError as error:
            self.error = error
            raise


class JoinedWrites:
    """A transport that sends what is written in one turn of the event loop with one call of the system.

    uvicorn writes the head and the body of an answer one after the other.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._written: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data soon."""
        if not self._written:
            self._loop.call_soon(self._flush)
        self._written.append(data)

    def write_eof(self) -> None:
        """Send what was written, and the end."""
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Close the connection after what was written is sent."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        written, self._written = self._written, []
        if written and not self._transport.is_closing():
            self._transport.write(b"".join(written))


def make_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """Return the protocol to give to ``uvicorn.Config(http=…)``."""

    class LimitedProtocol(H11Protocol):
        """HTTP/1.1 with a time limit for heads, a limit of connections, and sentences in JSON."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.conn = self._connection = Connection(h11.SERVER, limits.head_bytes)
            self._timer: asyncio.TimerHandle | None = None
            self._is_refused = False  # what still arrives is thrown away
            self._has_begun = False  # some of a head has arrived

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(cast(asyncio.Transport, JoinedWrites(transport, self.loop)))
            if len(self.connections) > limits.connections:
                self._refuse(503, f"there are {limits.connections:,} connections already; close some, or ask later")
                return
            self._start_timer(limits.idle_seconds, self._close)

        def data_received(self, data: bytes) -> None:
            if self._is_refused:
                return
            if self.conn.their_state is h11.IDLE and not self._has_begun:
                self._has_begun = True
                self._start_timer(limits.patience, self._refuse_slow_head)
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._has_begun = False
                if self.conn.our_state is not h11.DONE and not self._is_refused:  # else what follows is thrown away
                    self._stop_timer()
            elif not self.conn.trailing_data[0]:  # a request was thrown away to its end
                self._has_begun = False
                self._stop_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY:
                # The request was refused before its end. Closing at once would reset the connection,
                # and the client might lose the answer.
                self._start_timer(limits.patience, self._close)

        def send_400_response(self, msg: str) -> None:
            error = self._connection.error
            status = 400 if error is None else error.error_status_hint
            if status == 431 and b"\n" not in self.conn.trailing_data[0]:
                self._refuse(414, f"the path has more than {limits.head_bytes:,} bytes; shorten it")
            elif status == 431:
                self._refuse(431, f"the headers have more than {limits.head_bytes:,} bytes; send fewer")
            else:
                self._refuse(status, f"the request is not HTTP that can be read: {error or msg}")

        def _refuse_slow_head(self) -> None:
            self._refuse(408, f"the headers did not arrive within {limits.patience:g} s; send the request again")

        def _refuse(self, status: int, sentence: str) -> None:
            """Answer, and close the connection soon."""
            self._is_refused = True
            has_answered = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
            if has_answered or self.transport.is_closing():
                self._close()
                return
            if self.cycle is not None:
                self.cycle.disconnected = True  # nothing more is sent for the request before
                self.cycle.message_event.set()
            body = problem(sentence)
            head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
            head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            self.transport.write(head.encode("ascii") + body)
            self.transport.write_eof()
            self._start_timer(limits.patience, self._close)

        def _close(self) -> None:
            if not self.transport.is_closing():
                self.transport.close()

        def _start_timer(self, seconds: float, action: Any) -> None:
            self._stop_timer()
            self._timer = self.loop.call_later(seconds, action)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return LimitedProtocol


def configure(app: Any, limits: Limits) -> uvicorn.Config:
    """Return settings of uvicorn for an application with these limits."""
    import uvicorn

    return uvicorn.Config(
        app,
        http=make_protocol(limits),
        ws="none",
        log_level="error",
        timeout_graceful_shutdown=5,
    )
