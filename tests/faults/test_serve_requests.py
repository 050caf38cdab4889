"""Hostile requests to ``dragoman serve``: each gets the right status and a sentence, and others are answered meanwhile.

The short form sends them all at once. ``make faults`` also measures how long each takes by itself.
"""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from hostile_requests import PATIENCE, Hostile, ask, find_wrong, head, post, send

for needed in ("fastapi", "uvicorn", "python_multipart", "prometheus_client"):
    pytest.importorskip(needed)

PREDICT, SCORE, TRANSLATE = "/v1/predict", "/v1/score", "/translate"
QUESTION = json.dumps({"inputs": "abcd"}).encode()
JSON = "Content-Type: application/json"
BOUNDARY = "Content-Type: multipart/form-data; boundary=b"


def deep_schema(levels: int) -> dict[str, Any]:
    """Return a JSON schema of arrays of arrays."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def bombs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield constraints that are allowed, and that cost much more than their length."""
    doubling = "\n".join(f"a{number}: a{number + 1} a{number + 1} | " for number in range(200))
    inputs = ["a" * (900 + number) for number in range(4)]
    yield "repetitions of repetitions", {"match": "((a{1000}){1000}){1000}", "beam": 32}
    yield "10^8 repetitions", {"match": "(a|aa)*b{99999999}", "beam": 32}
    yield "many states", {"match": "(.*a.{20})|(.*b.{20})|(.*c.{20})", "beam": 32}
    yield "a grammar that doubles", {"grammar": f'start: a0\n{doubling}\na200: "a"', "beam": 32}
    yield "an ambiguous grammar", {"grammar": 'start: start start | "a" | ', "beam": 32}
    yield "intersections", {"grammar": "start: A\nA: " + " & ".join(f"/.*{letter}.*/" for letter in "abcdefgh")}
    yield "a deep JSON schema", {"json_schema": deep_schema(30)}
    yield "10^8 elements", {"json_schema": {"type": "array", "items": {}, "minItems": 10**8}}
    yield "backtracking", {"inputs": inputs, "keep": ["(a|aa)+[^a]"]}
    yield "backtracking without an end", {"inputs": inputs, "keep": ["(a+)(a+)(a+)(a+)[bc]"] * 20}


def form(*parts: tuple[str, bytes]) -> bytes:
    """Return a body of multipart/form-data: the parameters of each part, and its content."""
    return b"".join(
        b"--b\r\nContent-Disposition: form-data; " + about.encode() + b"\r\n\r\n" + content + b"\r\n"
        for about, content in parts
    ) + b"--b--\r\n"  # fmt: skip


def hostile() -> Iterator[Hostile]:
    """Yield the requests."""
    for name, sent, status in (
        ("a body of 3 MB", post(PREDICT, b'{"inputs": "' + b"a" * 3_000_000 + b'"}'), 413),
        ("10^15 bytes are announced", head(PREDICT, "Content-Length: " + "1" + "0" * 15, JSON), 413),
        ("a form of 10^9 bytes", head(PREDICT, "Content-Length: 1000000000", BOUNDARY), 413),
        ("no length", head(PREDICT, JSON) + QUESTION, 411),
        ("two lengths", head(PREDICT, "Content-Length: 5", "Content-Length: 6", JSON) + QUESTION, 400),
        ("100,000 brackets", post(PREDICT, b'{"inputs": ' + b"[" * 100_000), 400),
        ("a million values", post(PREDICT, b'{"inputs": [' + b'"",' * 600_000 + b'""]}'), 400),
        ("no JSON", post(PREDICT, b"inputs=abc"), 400),
        ("not UTF-8", post(PREDICT, b'{"inputs": "\xff\xfe"}'), 400),
        ("NaN", post(PREDICT, b'{"inputs": "a", "temperature": NaN}'), 400),
        ("a number of 100,000 digits", post(PREDICT, b'{"inputs": "a", "beam": ' + b"9" * 100_000 + b"}"), 400),
        ("inputs that are a number", ask(PREDICT, inputs=7), 400),
        ("inputs inside inputs", ask(PREDICT, inputs=[["a"]]), 400),
        ("an unknown key", ask(PREDICT, inputs="a", beem=3), 400),
        ("a form that is no form", post(PREDICT, QUESTION, "Content-Type: application/x-www-form-urlencoded"), 415),
        ("UTF-16", post(PREDICT, QUESTION, "Content-Type: application/json; charset=utf-16"), 415),
        ("gzip", post(PREDICT, gzip.compress(b" " * 10**7), "Content-Encoding: gzip"), 415),
        ("a text of 200,000 characters", ask(PREDICT, inputs="ab " * 66_667), 422),
        ("10,000 inputs", ask(PREDICT, inputs=["a"] * 10_000), 422),
        ("10,000 sources", ask(PREDICT, inputs={str(number): "a" for number in range(10_000)}), 422),
        ("a beam of 10^9", ask(PREDICT, inputs="ab", beam=10**9), 422),
        ("a beam of -1", ask(PREDICT, inputs="ab", beam=-1), 400),
        ("10^9 outputs", ask(PREDICT, inputs="ab", n_best=10**9), 422),
        ("10^9 alternatives", ask(TRANSLATE, q="a", source="de", target="en", alternatives=10**9), 422),
        ("a path as a lexicon", ask(PREDICT, inputs="ab", lexicon="/etc/passwd"), 400),
        ("a path as a glossary", ask(PREDICT, inputs="ab", glossary="/etc/passwd"), 400),
        ("a path as known answers", ask(PREDICT, inputs="ab", known="/etc/passwd"), 400),
        ("a path as a grammar", ask(PREDICT, inputs="ab", grammar="/etc/passwd"), 400),
        ("a path in a JSON schema", ask(PREDICT, inputs="ab", json_schema={"$ref": "file:///etc/passwd"}), 400),
        ("a lexicon of 10^6 entries", ask(PREDICT, inputs="ab", lexicon=["a"] * 10**6), 413),
        ("a lexicon of 10,001 entries", ask(PREDICT, inputs="ab", lexicon=["a"] * 10_001), 422),
        ("a lexicon of 1 MB", ask(PREDICT, inputs="ab", lexicon=["a" * 1_000] * 1_000), 413),
        ("a pattern of 100,000 characters", ask(PREDICT, inputs="ab", match="a" * 100_000), 422),
        ("a pattern of 300 brackets", ask(PREDICT, inputs="ab", match="(" * 300 + "a" + ")*" * 300), 400),
        ("a JSON schema of 100 levels", ask(PREDICT, inputs="ab", json_schema=deep_schema(100)), 400),
        ("an endless number in a JSON schema", ask(PREDICT, inputs="ab", json_schema={"multipleOf": 999_999_937}), 400),
        ("confidence of 2", ask(PREDICT, inputs="ab", abstain=2), 400),
        ("a model with ..", ask(PREDICT, inputs="ab", model="../../etc/passwd"), 404),
        ("a score without targets", ask(SCORE, inputs="ab"), 400),
        ("a path as an upload", post(PREDICT, form(('name="source"', b"/etc/passwd")), BOUNDARY), 200),
        (
            "a file with .. in its name",
            post(PREDICT, form(('name="source"; filename="../../x.png"', b"x")), BOUNDARY),
            400,
        ),
        ("a form without an end", post(PREDICT, b"--b\r\nContent-Disposition: form-data; name=", BOUNDARY), 400),
        ("a form without a boundary", post(PREDICT, form(), "Content-Type: multipart/form-data"), 400),
        ("5,000 parts", post(PREDICT, form(*[('name="source"', b"a")] * 5_000), BOUNDARY), 400),
        ("another host", head("/v1/models", method="GET", host="evil.example"), 403),
        ("no host", head("/v1/models", method="GET", host=None), 400),
        ("another site", post(PREDICT, QUESTION, "Origin: http://evil.example"), 403),
        ("an unknown method", head("/v1/models", method="BREW"), 405),
        ("the wrong method", head(PREDICT, method="GET"), 405),
        ("a path of 10,000 bytes", head("/" + "a" * 10_000, method="GET"), 414),
        ("headers of 1 MB", head("/v1/models", *(f"X-{n}: {'a' * 1000}" for n in range(1000)), method="GET"), 431),
        ("a path with ..", head("/v1/..%2f..%2fetc%2fpasswd", method="GET"), 404),
        ("not HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200) + b"\r\n\r\n", 400),
    ):
        yield Hostile(name, (sent,), status)
    endless = head(PREDICT, "Transfer-Encoding: chunked", JSON)
    yield Hostile("chunks without an end", (endless, *([b"5\r\nabcde\r\n", 0.05] * 30)), 411)
    slow = head(PREDICT, "Content-Length: 1000", JSON)
    yield Hostile("a slow body", (slow, *([b"a", 0.1] * 30)), 408)
    slow_form = head(PREDICT, "Content-Length: 100000", BOUNDARY)
    opening = b'--b\r\nContent-Disposition: form-data; name="source"\r\n\r\n'
    yield Hostile("a slow form", (slow_form + opening, *([b"a", 0.1] * 30)), 408)
    yield Hostile("a body that does not come", (slow, 3.0), 408)
    yield Hostile("slow headers", (head("/v1/models", method="GET")[:-2], *([b"X-A: b\r\n", 0.1] * 30)), 408)


@contextmanager
def serving(run: Path, place: Path, start: Callable[..., Any]) -> Iterator[tuple[int, Any]]:
    """Start a server in a process of its own; give its port and the process."""
    child = start(place / "output", "serve", f"run={run}", "--port", "0", "--languages", "de:en", "--workers", "2")
    try:
        began = time.monotonic()
        while (found := re.search(r"127\.0\.0\.1:(\d+)", child.text if child.output.exists() else "")) is None:
            assert not child.poll() and time.monotonic() - began < PATIENCE, child.text
            time.sleep(0.01)
        yield int(found[1]), child
    finally:
        child.kill()


def predict(port: int, text: str, **options: Any) -> tuple[int, Any]:
    """Return the status and the answer of another client."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    asked = json.dumps({"inputs": text, **options})
    connection.request("POST", PREDICT, asked, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    return answer.status, body


def test_hostile_requests_are_refused_and_others_answered(
    tiny_run: Any, start: Callable[..., Any], tmp_path: Path, amount: Callable[[int, int], int],
    record: Callable[[str, dict[str, Any]], None],
) -> None:  # fmt: skip
    cases = [case for case in hostile() if case.status != 200]
    harmless = [case for case in hostile() if case.status == 200]
    with serving(tiny_run.folder, tmp_path, start) as (port, child):
        alone = predict(port, "abcd")
        with ThreadPoolExecutor(len(cases)) as pool:
            sent = [pool.submit(send, port, case) for case in cases]
            others = [predict(port, "abcd") for _ in range(10)]
            answers = [each.result() for each in sent]
        wrong = find_wrong(cases, answers)
        assert not wrong, "\n".join(wrong)
        assert alone[0] == 200 and others == [alone] * 10
        for case in harmless:  # a path is read as a text here, and never opened
            assert send(port, case)[0] == 200
        if amount(0, 1):
            taken = {case.name: send(port, case) for case in cases}
            record(
                "hostile requests to the server",
                {
                    "hostile requests": len(cases),
                    "slowest (s)": round(max(seconds for _, _, seconds in taken.values()), 2),
                    "each (status, ms)": {
                        name: [status, round(1000 * seconds)] for name, (status, _, seconds) in taken.items()
                    },
                },
            )
        assert "Traceback" not in child.text, child.text


def test_constraints_that_cost_much_end_and_others_are_answered(
    tiny_run: Any, start: Callable[..., Any], tmp_path: Path, amount: Callable[[int, int], int],
    record: Callable[[str, dict[str, Any]], None],
) -> None:  # fmt: skip
    """Each ends with outputs, with the error of an input or with a refusal; none makes a worker end."""
    pytest.importorskip("llguidance")
    with serving(tiny_run.folder, tmp_path, start) as (port, child):
        alone = predict(port, "abcd")
        cases = dict(bombs())
        with ThreadPoolExecutor(len(cases)) as pool:
            sent = {name: pool.submit(predict, port, "abcd", **options) for name, options in cases.items()}
            others = [predict(port, "abcd") for _ in range(5)]
            answers = {name: each.result() for name, each in sent.items()}
        wrong = {name: answer for name, answer in answers.items() if answer[0] not in (200, 400, 503, 504)}
        assert not wrong
        for name in ("backtracking", "backtracking without an end"):
            status, body = answers[name]
            assert status in (503, 504) or all("error" in each for each in body["predictions"]), name
        assert alone[0] == 200 and others == [alone] * 5
        if amount(0, 1):
            taken = {}
            for name, options in cases.items():
                began = time.monotonic()
                taken[name] = [predict(port, "abcd", **options)[0], round(1000 * (time.monotonic() - began))]
            record("constraints that cost much", {"constraints": len(cases), "each (status, ms)": taken})
        assert "Traceback" not in child.text and "failed" not in child.text, child.text
