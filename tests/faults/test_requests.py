"""Hostile requests to a studio: each gets the right status and a sentence, and others are answered meanwhile.

The short form sends them all at once and looks at the answers. ``make faults`` also measures how
long each takes by itself, and how long the predictions of another client take while nothing else
happens, while the hostile requests arrive, and while a slow question is computed.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hostile_requests import PATIENCE, Hostile, ask, find_wrong, head, post, send

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

PREDICT, ERRORS = "/api/runs/run/predict", "/api/runs/run/errors"
QUESTION = json.dumps({"input": "abcd"}).encode()


def hostile(folder: Path) -> Iterator[Hostile]:
    """Yield the requests. ``folder`` is one that the studio reads; it gets files that it must not read."""
    os.mkfifo(folder / "pipe.tsv")
    (folder / "link.tsv").symlink_to("/etc/hosts")
    (folder / "device.tsv").symlink_to("/dev/zero")
    (folder / "large.tsv").touch()
    os.truncate(folder / "large.tsv", 300_000_000)
    json_kind = "Content-Type: application/json"
    for name, sent, status in (
        ("a body of 3 MB", post(PREDICT, b'{"input": "' + b"a" * 3_000_000 + b'"}'), 413),
        ("10^15 bytes are announced", head(PREDICT, "Content-Length: " + "1" + "0" * 15, json_kind), 413),
        ("10^30 bytes are announced", head(PREDICT, "Content-Length: " + "1" + "0" * 30, json_kind), 400),
        ("no length", head(PREDICT, json_kind) + QUESTION, 411),
        ("two lengths", head(PREDICT, "Content-Length: 5", "Content-Length: 6", json_kind) + QUESTION, 400),
        ("a negative length", head(PREDICT, "Content-Length: -5", json_kind) + QUESTION, 400),
        ("100,000 brackets", post(PREDICT, b'{"input": ' + b"[" * 100_000), 400),
        ("a million values", post(PREDICT, b'{"input": "a", "forbidden": [' + b"1," * 900_000 + b"1]}"), 400),
        ("no JSON", post(PREDICT, b"input=abc"), 400),
        ("not UTF-8", post(PREDICT, b'{"input": "\xff\xfe"}'), 400),
        ("NaN", post(PREDICT, b'{"input": "a", "beam": NaN}'), 400),
        ("a number of 100,000 digits", post(PREDICT, b'{"input": "a", "beam": ' + b"9" * 100_000 + b"}"), 400),
        ("an input that is a number", ask(PREDICT, input=7), 400),
        ("an unknown key", ask(PREDICT, input="a", beem=3), 400),
        ("a form", post(PREDICT, QUESTION, "Content-Type: application/x-www-form-urlencoded"), 415),
        ("UTF-16", post(PREDICT, QUESTION, "Content-Type: application/json; charset=utf-16"), 415),
        ("gzip", post(PREDICT, gzip.compress(b" " * 10**7), "Content-Encoding: gzip"), 415),
        ("a question of 200,000 tokens", ask(PREDICT, input="ab " * 66_667), 422),
        ("10,000 sources", ask(PREDICT, input={str(number): "a" for number in range(10_000)}), 422),
        ("a beam of 10^9", ask(PREDICT, input="ab", beam=10**9), 422),
        ("a beam of -1", ask(PREDICT, input="ab", beam=-1), 400),
        ("10^9 outputs", ask(PREDICT, input="ab", n_best=10**9), 422),
        ("a prefix of 5,000 tokens", ask(PREDICT, input="ab", prefix_tokens=[5] * 5_000), 422),
        ("a token of 10^9", ask("/api/runs/run/attention", input="ab", tokens=[10**9]), 400),
        ("another host", head("/api/runs", method="GET", host="evil.example"), 403),
        ("no host", head("/api/runs", method="GET", host=None), 400),
        ("another site", post(PREDICT, QUESTION, "Origin: http://evil.example"), 403),
        ("an unknown method", head("/api/runs", method="BREW"), 405),
        ("a path of 10,000 bytes", head("/" + "a" * 10_000, method="GET"), 414),
        ("a path of 1 MB", head("/" + "a" * 1_000_000, method="GET"), 414),
        ("headers of 1 MB", head("/api/runs", *(f"X-{n}: {'a' * 1000}" for n in range(1000)), method="GET"), 431),
        ("a path with ..", head("/api/uploads/..%2f..%2f..%2fetc%2fpasswd", method="GET"), 404),
        ("a path with NUL", head("/api/runs/%00/training", method="GET"), 404),
        ("a run with ..", ask("/api/runs/..%2f..%2fetc/predict", input="ab"), 404),
        ("not HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200) + b"\r\n\r\n", 400),
        ("a file with ..", ask(ERRORS, file=f"{folder}/../../../../../../../../../../etc/hosts"), 403),
        ("a link that leads elsewhere", ask(ERRORS, file=str(folder / "link.tsv")), 403),
        ("a link to a device", ask(ERRORS, file=str(folder / "device.tsv")), 403),
        ("a device", ask(ERRORS, file="/dev/zero"), 403),
        ("a pipe", ask(ERRORS, file=str(folder / "pipe.tsv")), 400),
        ("a folder", ask(ERRORS, file=str(folder)), 400),
        ("a file with NUL", ask(ERRORS, file=f"{folder}/a\0b.tsv"), 400),
        ("a name of 1,000 characters", ask(ERRORS, file=f"{folder}/{'a' * 1000}"), 400),
        ("a path of 20,000 characters", ask(ERRORS, file=f"{folder}/{'a/' * 10_000}"), 400),
        ("a file of 300 MB", ask(ERRORS, file=str(folder / "large.tsv")), 413),
        ("an upload of 40 MB", head("/api/upload?name=a.png", "Content-Length: 40000000"), 413),
        ("an upload with a strange name", post("/api/upload?name=..%2f..%2fx.exe", b"x"), 400),
    ):
        yield Hostile(name, (sent,), status)
    endless = head(PREDICT, "Transfer-Encoding: chunked", json_kind)
    yield Hostile("chunks without an end", (endless, *([b"5\r\nabcde\r\n", 0.05] * 30)), 411)
    slow = head(PREDICT, "Content-Length: 1000", json_kind)
    yield Hostile("a slow body", (slow, *([b"a", 0.1] * 30)), 408)
    yield Hostile("a body that does not come", (slow, 3.0), 408)
    yield Hostile("slow headers", (head("/api/runs", method="GET")[:-2], *([b"X-A: b\r\n", 0.1] * 30)), 408)


def predict(port: int, text: str, **settings: Any) -> tuple[int, float]:
    """Return the status of a question of another client, and its seconds."""
    from http.client import HTTPConnection

    began = time.monotonic()
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("POST", PREDICT, json.dumps({"input": text, **settings}), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, time.monotonic() - began


def texts() -> Iterator[str]:
    """Yield short texts that differ, so that no answer is remembered."""
    letters = "abcdefgh"
    for number in range(8**6):
        yield "".join(letters[(number >> 3 * place) & 7] for place in range(6))


@contextmanager
def serving(run: Path, place: Path, start: Callable[..., Any]) -> Iterator[tuple[int, Path, Any]]:
    """Start a studio in a process of its own; give its port, the folder of its run, and the process."""
    shutil.copytree(run, place / "run")
    child = start(place / "output", "studio", place / "run", "--no-browser", "--port", "0")
    try:
        began = time.monotonic()
        while (found := re.search(r"127\.0\.0\.1:(\d+)", child.text if child.output.exists() else "")) is None:
            assert not child.poll() and time.monotonic() - began < PATIENCE, child.text
            time.sleep(0.01)
        yield int(found[1]), place / "run", child
    finally:
        child.kill()


def test_hostile_requests_are_refused_and_others_answered(
    tiny_run: Any, start: Callable[..., Any], tmp_path: Path
) -> None:
    with serving(tiny_run.folder, tmp_path, start) as (port, folder, child):
        cases, inputs = list(hostile(folder)), texts()
        with ThreadPoolExecutor(len(cases)) as pool:
            sent = [pool.submit(send, port, case) for case in cases]
            others = [predict(port, next(inputs)) for _ in range(10)]
            answers = [each.result() for each in sent]
        wrong = find_wrong(cases, answers)
        assert not wrong, "\n".join(wrong)
        assert {status for status, _ in others} == {200}
        assert "Traceback" not in child.text, child.text


MEDIUM: dict[str, Any] = {
    "source": {"embedding": 256},
    "encoder": {"kind": "transformer", "width": 256, "layers": 3, "heads": 4, "feed_forward": 1024},
    "decoder": {"kind": "transformer", "width": 256, "layers": 3, "heads": 4, "feed_forward": 1024},
    "training": {"threads": 1, "max_updates": 40, "average": 1},
}


def test_others_are_answered_as_fast_while_hostile_or_slow_questions_run(
    tiny_run: Any, start: Callable[..., Any], tmp_path: Path, amount: Callable[[int, int], int],
    record: Callable[[str, dict[str, Any]], None],
) -> None:  # fmt: skip
    from dragoman.training.run import train

    rounds, predictions = amount(0, 4), 100
    if not rounds:
        pytest.skip("measured by make faults")
    train(tiny_run.pairs, out=tmp_path / "medium", settings=MEDIUM)
    inputs = texts()
    taken: dict[str, list[tuple[int, float]]] = {
        "alone": [],
        "beside hostile requests": [],
        "beside a slow question": [],
    }

    def measure(port: int, name: str) -> None:
        taken[name] += [predict(port, next(inputs)) for _ in range(predictions)]

    with serving(tmp_path / "medium", tmp_path / "place", start) as (port, folder, child):
        cases = list(hostile(folder))
        assert predict(port, next(inputs))[0] == 200  # the run is loaded
        alone = [send(port, case) for case in cases]
        wrong = find_wrong(cases, alone)
        assert not wrong, "\n".join(wrong)
        done = threading.Event()
        attacks, slow = 0, []

        def attack(number: int) -> int:
            sent = 0
            while not done.is_set():
                send(port, cases[(number + 4 * sent) % len(cases)])
                sent += 1
            return sent

        def ask_slowly() -> list[tuple[int, float]]:
            answers = []
            while not done.is_set():
                answers.append(predict(port, next(inputs) * 600, beam=100))
            return answers

        for _ in range(rounds):  # in turns, since other programs may slow the machine down for a while
            measure(port, "alone")
            done.clear()
            with ThreadPoolExecutor(4) as pool:
                attackers = [pool.submit(attack, number) for number in range(4)]
                measure(port, "beside hostile requests")
                done.set()
                attacks += sum(each.result() for each in attackers)
            done.clear()
            with ThreadPoolExecutor(1) as pool:
                asked = pool.submit(ask_slowly)
                measure(port, "beside a slow question")
                done.set()
                slow += asked.result()
        assert "Traceback" not in child.text, child.text
    assert {status for answers in taken.values() for status, _ in answers} == {200}
    figures: dict[str, Any] = {"predictions of the other client": rounds * predictions}
    for name, answers in taken.items():
        ordered = sorted(1000 * seconds for _, seconds in answers)
        place = math.ceil(0.99 * len(ordered)) - 1
        figures[f"{name} (ms)"] = {"p50": round(statistics.median(ordered), 1), "p99": round(ordered[place], 1)}
    figures["hostile requests meanwhile"] = attacks
    figures["slow questions"] = [[status, round(seconds, 1)] for status, seconds in slow]
    figures |= {
        "hostile requests": len(cases),
        "slowest (s)": round(max(seconds for _, _, seconds in alone), 2),
        "each (status, ms)": {
            case.name: [status, round(1000 * seconds)] for case, (status, _, seconds) in zip(cases, alone, strict=True)
        },
    }
    record("hostile requests to the studio", figures)
