"""Run folders written by an earlier version load, and give the outputs and scores they gave then."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import dragoman
from dragoman.errors import Unverified

if TYPE_CHECKING:
    from conftest import CallsMain

RUNS = Path(__file__).parent / "fixtures" / "runs"
NAMES = ("recurrent", "transformer", "picture")
FRACTION = re.compile(r"-?\d+\.\d+(?:e-?\d+)?(?=[,}\]])")  # a JSON number that is not whole


def read_inputs(name: str) -> list[tuple[str, str]]:
    lines = (RUNS / name / "expected" / "inputs.tsv").read_text(encoding="utf-8").splitlines()
    return [(source, target) for source, target in (line.split("\t") for line in lines)]


def assert_same_json(actual: str, expected: str) -> None:
    """Compare two JSON texts byte for byte, except that fractions may differ by rounding.

    The last digits of a sum depend on the CPU. Attention is written with five decimals, so one unit of the fifth is
    rounding too.
    """
    assert FRACTION.sub("#", actual) == FRACTION.sub("#", expected)
    numbers = [[float(number) for number in FRACTION.findall(text)] for text in (actual, expected)]
    assert numbers[0] == pytest.approx(numbers[1], abs=1.5e-5)


@pytest.mark.parametrize("name", NAMES)
def test_predict_gives_the_recorded_output(name: str, call: CallsMain, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RUNS / name / "expected"
    monkeypatch.chdir(folder)  # pictures are named relative to it
    sources = "".join(f"{source}\n" for source, _ in read_inputs(name))
    given = ("inputs.tsv", b"") if name == "picture" else ("-", sources.encode())
    answer = call("predict", "..", given[0], "--json", "--n-best", 2, stdin=given[1])
    assert answer.code == 0, answer.err
    assert_same_json(answer.out.decode(), (folder / "predictions.jsonl").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_score_gives_the_recorded_log_probabilities(
    name: str, call: CallsMain, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RUNS / name / "expected"
    monkeypatch.chdir(folder)
    answer = call("score", "..", "inputs.tsv", "--json")
    assert answer.code == 0, answer.err
    assert_same_json(answer.out.decode(), (folder / "scores.jsonl").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_python_gives_the_recorded_tokens_and_scores(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(RUNS / name / "expected")
    recorded = [json.loads(line) for line in Path("predictions.jsonl").read_text(encoding="utf-8").splitlines()]
    with pytest.warns(Unverified, match="carries no checksum") as said:
        system = dragoman.load(RUNS / name)
    assert len(said) == 1
    predictions = system.predict([source for source, _ in read_inputs(name)], n_best=2)
    assert len(predictions) == len(recorded) == 2
    for prediction, expected in zip(predictions, recorded, strict=True):
        assert len(prediction.outputs) == len(expected["outputs"]) == 2
        for output, line in zip(prediction.outputs, expected["outputs"], strict=True):
            assert list(output.tokens) == line["tokens"]
            assert output.score == pytest.approx(line["score"], abs=1e-5)
            assert list(output.log_probs) == pytest.approx(line["log_probs"], abs=1e-5)


def test_the_fixtures_are_small_and_name_no_folder_of_a_machine() -> None:
    files = [path for path in RUNS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 300_000
    for path in files:
        assert not re.search(rb'"/[a-z]+/', path.read_bytes()), path
