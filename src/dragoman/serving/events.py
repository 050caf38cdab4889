"""Tokens as server-sent events: each as soon as it is found, then the whole answer."""

from __future__ import annotations

import asyncio
from typing import Any

from dragoman.errors import MissingExtra
from dragoman.serving.batches import BatchedJob, Question
from dragoman.serving.batching import Batcher
from dragoman.serving.compute import Refused, to_json
from dragoman.serving.questions import problem, wait_for_disconnect

try:
    from starlette.responses import Response
except ImportError:
    raise MissingExtra("fastapi and uvicorn", "serve", "dragoman serve") from None


class EventStream(Response):
    """The answer to a question whose tokens are followed.

    Events: ``token`` with the index of the input, the token and the text so far; at the end ``done`` with the answer
    that the request would have had without streaming, or ``error`` with a ``Problem``.
    """

    media_type = "text/event-stream"

    def __init__(self, batcher: Batcher, seconds: float) -> None:
        super().__init__()
        del self.headers["content-length"]  # nobody knows it before the end
        self._batcher, self._seconds = batcher, seconds
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[bytes | None] = asyncio.Queue()  # None: there are no more
        self._job: BatchedJob | None = None
        self._model = ""

    def add(self, event: bytes) -> None:
        """Add a token; called by the thread of a worker."""
        self._loop.call_soon_threadsafe(self._events.put_nowait, _frame("token", event))

    def start(self, question: Question, model: str) -> EventStream:
        """Submit the question. Raises ``RequestRefused`` if too many wait already."""
        self._model = model
        self._job = self._batcher.submit(question, seconds=self._seconds)
        self._job.future.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._events.put_nowait, None))
        return self

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert self._job is not None
        gone = asyncio.ensure_future(wait_for_disconnect(receive))
        until = self._loop.time() + self._seconds
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while True:
                following = asyncio.ensure_future(self._events.get())
                waits = {gone, following}
                left = max(0.0, until - self._loop.time())
                await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    following.cancel()
                    return
                if not following.done():
                    following.cancel()
                    event: bytes | None = _frame("error", problem(str(self._job.too_late())))
                    is_last = True
                else:
                    event = following.result()
                    is_last = event is None
                await send(_part(self._last() if event is None else event, not is_last))
                if is_last:
                    return
        finally:
            gone.cancel()
            self._job.cancel()

    def _last(self) -> bytes:
        assert self._job is not None
        answers = self._job.future.result()
        for each in answers:
            if isinstance(each, Refused):
                return _frame("error", problem(each.sentence))
        parts = b", ".join(each for each in answers if isinstance(each, bytes))
        return _frame("done", b'{"model": %s, "predictions": [%s]}' % (to_json(self._model), parts))


def _frame(name: str, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)  # JSON has no line breaks


def _part(body: bytes, has_more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": has_more}
