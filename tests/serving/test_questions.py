"""A request is read within limits, and its work ends when the client goes away or time is over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from dragoman.errors import UserError
from dragoman.serving.guard import BoundedBody, Guard
from dragoman.serving.limits import Limits, RequestRefused
from dragoman.serving.questions import answer, parse_question
from dragoman.serving.queue import Job, Queue

PATIENCE = 60.0
RunAsync = Callable[..., Any]


class Sum(BaseModel):
    a: int
    b: list[int] = []


async def stay() -> dict[str, Any]:
    """Receive nothing: the client waits for its answer."""
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("ends", ["the client goes away", "the deadline passes"])
def test_work_ends_when_nobody_waits_for_it(ends: str, make_queue: Callable[..., Queue], run_async: RunAsync) -> None:
    queue = make_queue(slots=1, reserved=0)
    has_begun, has_ended = threading.Event(), threading.Event()

    def work(job: Job) -> None:
        has_begun.set()
        try:
            while True:
                job.checkpoint()
        finally:
            has_ended.set()

    async def leave() -> dict[str, Any]:
        await asyncio.to_thread(has_begun.wait, PATIENCE)
        return {"type": "http.disconnect"}

    goes = ends == "the client goes away"
    with pytest.raises(RequestRefused) as refused:
        run_async(answer(queue, leave if goes else stay, work, seconds=PATIENCE if goes else 0.01))
    assert refused.value.status in ((499,) if goes else (503, 504))
    assert has_ended.wait(PATIENCE) or not has_begun.is_set()


def test_an_answer_or_its_error_is_returned(make_queue: Callable[..., Queue], run_async: RunAsync) -> None:
    queue = make_queue()
    assert run_async(answer(queue, stay, lambda _: 7, seconds=PATIENCE)) == 7

    def fail(_: Job) -> int:
        raise UserError("a mistake")

    with pytest.raises(UserError, match="a mistake"):
        run_async(answer(queue, stay, fail, seconds=PATIENCE))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1', "not JSON"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b'{"a": ' + b"[" * 1000, "brackets"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "digits"),
        (b'{"a": 1, "b": [' + b"1," * 30_000 + b"1]}", "values"),
        (b'{"a": "x"}', "a: "),
        (b"[]", "the request: "),
    ],
)
def test_what_is_no_question_is_refused_with_a_sentence(body: bytes, words: str) -> None:
    with pytest.raises(UserError, match=words) as refused:
        parse_question(body, Sum)
    assert len(str(refused.value)) < 300
    assert parse_question(b'{"a": 1}', Sum) == Sum(a=1)


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ([b"ab", b"cd"], 0),
        ([b"ab", None], 408),  # None: nothing more arrives
        ([None], 408),
        ([b"abc", b"de"], 413),
    ],
)
def test_a_body_has_to_arrive_in_time_and_to_be_as_long_as_announced(
    pieces: list[bytes | None], status: int, run_async: RunAsync
) -> None:
    left = list(pieces)

    async def receive() -> dict[str, Any]:
        piece = left.pop(0)
        if piece is None:
            return await stay()
        return {"type": "http.request", "body": piece, "more_body": bool(left)}

    async def read() -> bytes:
        body, data, more = BoundedBody(receive, 4, Limits(patience=0.01 if None in pieces else PATIENCE)), b"", True
        while more:
            message = await body.receive()
            data, more = data + message["body"], message["more_body"]
        return data

    if not status:
        assert run_async(read()) == b"abcd"
        return
    with pytest.raises(RequestRefused) as refused:
        run_async(read())
    assert refused.value.status == status


def test_refusals_have_the_headers_of_all_answers(run_async: RunAsync) -> None:
    sent: list[Any] = []

    async def application(*_: Any) -> None:
        raise AssertionError("a refused request reached the application")

    async def send(message: Any) -> None:
        sent.append(message)

    guard = Guard(application, limits=Limits(), hosts=("localhost",), headers={"X-Mark": "yes"})
    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"", "headers": []}
    run_async(guard(scope, stay, send))
    assert sent[0]["status"] == 403 and (b"x-mark", b"yes") in sent[0]["headers"]
    assert b'{"error": ' in sent[1]["body"]


def test_the_limits_are_checked_by_name() -> None:
    limits = Limits(beam=10, characters=5, sources=2)
    limits.check("beam", 10)
    limits.check("beam", None)
    limits.check_texts({"a": "12345", "b": ""})
    for refused in (
        lambda: limits.check("beam", 11),
        lambda: limits.check_texts("123456"),
        lambda: limits.check_texts(dict.fromkeys("abc", "")),
    ):
        with pytest.raises(RequestRefused) as error:
            refused()
        assert error.value.status == 422


def test_the_page_says_the_limits_that_hold() -> None:
    page = (Path(__file__).parents[2] / "docs" / "inside.md").read_text(encoding="utf-8")
    section = " ".join(page.partition("### Limits")[2].partition("### Predict")[0].split())
    limits = Limits()
    for numbers in (
        f"{limits.head_bytes:,} and {limits.path_bytes:,} bytes",
        f"{limits.body_bytes // 10**6} MB and {limits.upload_bytes // 10**6} MB",
        f"{limits.patience:g} s, and 1 s more for every {limits.slowest_body // 1000} kB",
        f"| connections | {limits.connections} |",
        f"{limits.sources} and {limits.characters:,} |",
        f"{limits.tokens:,} and {limits.frames:,} |",
        f"| beam, number of outputs | {limits.beam} each |",
        f"{limits.prefix_tokens:,} and {limits.forbidden} |",
        f"{limits.weights // 10**6} million and {limits.nodes:,} |",
        f"{limits.table_bytes // 10**6} MB |",
        f"| questions that wait | {limits.waiting} |",
        f"{limits.question_seconds:g} s; {limits.table_seconds / 60:g} minutes",
    ):
        assert numbers in section, numbers
