"""One request: read its body as a record, and wait for its answer from the queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from dragoman.errors import UserError
from dragoman.files.reading import parse_json
from dragoman.serving.limits import RequestRefused

MOST_VALUES = 20_000  # of one question

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Question = TypeVar("Question", bound=BaseModel)
Value = TypeVar("Value")


def parse_question(body: bytes, kind: type[Question]) -> Question:
    """Return a body as a record. Raise a ``UserError`` that names the field for one that is none."""
    try:
        value = parse_json(body, _refuse_constant, MOST_VALUES)
    except UnicodeDecodeError:
        raise UserError("the request is not UTF-8; send JSON in UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"the request is not JSON that can be read: {error}") from None
    return validate_question(value, kind)


def validate_question(value: Any, kind: type[Question]) -> Question:
    """Return a value as a record. Raise a ``UserError`` that names the field for one that is none."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(name) for name in first["loc"])
        raise UserError(f"{field[:100] or 'the request'}: {first['msg'][:300]}") from None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


class Submitted(Protocol):
    """A question that was submitted to a queue."""

    @property
    def future(self) -> Future[Any]: ...

    def cancel(self) -> None: ...

    def too_late(self) -> RequestRefused: ...


class Submits(Protocol):
    """A queue: one that computes questions in turns, or one that computes their inputs together."""

    def submit(self, work: Any, *, seconds: float, is_long: bool = False) -> Submitted: ...


async def answer(queue: Submits, receive: Receive, work: Any, *, seconds: float, is_long: bool = False) -> Any:
    """Let the queue compute an answer, and return it.

    ``receive`` is that of the ASGI request, whose body has been read. If the client goes away, or
    ``seconds`` are over, the work ends at its next checkpoint, and ``RequestRefused`` is raised
    without waiting for that.
    """
    job = queue.submit(work, seconds=seconds, is_long=is_long)
    gone = asyncio.ensure_future(wait_for_disconnect(receive))
    done = _as_future(job.future)
    try:
        await asyncio.wait({gone, done}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if done.done():
            return done.result()
        if gone.done():
            raise RequestRefused(499, "the client went away")
        raise job.too_late()
    finally:
        job.cancel()
        gone.cancel()


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client of a request, whose body has been read, goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _as_future(future: Future[Value]) -> asyncio.Future[Value]:
    """Return a future of the event loop. Its error counts as seen: nobody may wait for it any more."""
    wrapped = asyncio.wrap_future(future)
    wrapped.add_done_callback(lambda each: each.cancelled() or each.exception())
    return wrapped


def problem(sentence: str) -> bytes:
    """Return the body of every answer that is none: a JSON object with a sentence."""
    return json.dumps({"error": sentence}, ensure_ascii=False).encode("utf-8", "replace")
