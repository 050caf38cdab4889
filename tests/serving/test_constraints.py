"""Constraints and confidence over HTTP: as the system has them, from contents only, bounded, and harmless to others."""

from __future__ import annotations

import json
import shutil
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.errors import MissingExtra, OtherSearch, UserError
from dragoman.inference import constraint_files
from dragoman.runs.confidence import CONFIDENCE
from dragoman.search.constraints import formats, lexicon
from dragoman.serving.asking import Asker
from dragoman.serving.constraints import Sessions, as_settings
from dragoman.serving.limits import SERVER
from dragoman.serving.models import Model, Models
from dragoman.serving.records import PredictRequest

Serve = Callable[..., Any]
TEXTS = ["abc", "hgfed", "ab", "cagebad"]
GRAMMAR = "start: (A | B)+\nA: /[a-d]/\nB: /[e-h]/"
SLOW = "(a|aa)+[^a]"  # more than a second for every text of some hundred times a


def predict(served: Any, **asked: Any) -> Any:
    answer = served.http.post("/v1/predict", json=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()["predictions"]


def refuse(served: Any, status: int, **asked: Any) -> str:
    answer = served.http.post("/v1/predict", json={"inputs": "abc", **asked})
    assert answer.status_code == status, answer.text
    return str(answer.json()["error"])


def texts_of(predictions: Any) -> list[str]:
    return [output["text"] for prediction in predictions for output in prediction["outputs"]]


def outputs_of(prediction: Any) -> tuple[Any, ...]:
    """Return the texts of a prediction of either side, and what is said about it."""
    if isinstance(prediction, dict):
        texts = [output["text"] for output in prediction["outputs"]]
        return (*texts, *(prediction.get(name) or None for name in ("error", "known", "abstained", "confidence_note")))
    texts = [output.text for output in prediction.outputs]
    return (
        *texts,
        prediction.error,
        prediction.known or None,
        prediction.abstained or None,
        prediction.confidence_note,
    )


@pytest.mark.parametrize(
    ("sent", "given"),
    [
        ({"lexicon": ["cba", "ba", "defgh"]}, None),
        ({"lexicon": ["cba", "ba"], "lexicon_words": True, "n_best": 2}, None),
        ({"match": "[a-h]{2,4}"}, None),
        ({"match": "[a-c]{2}", "beam": 1}, None),
        ({"grammar": GRAMMAR, "sample": True, "seed": 3}, None),
        ({"glossary": {"abc": "hh|gg", "ab": "cc"}}, None),
        ({"glossary": [["abc", "hh|gg"]]}, {"glossary": {"abc": ["hh", "gg"]}}),
        ({"keep": ["[de]+", "b"]}, None),
        ({"keep": "[de]+"}, None),
        ({"known": {"abc": "said before"}}, None),
        ({"known": [["abc", "said before"]]}, {"known": {"abc": "said before"}}),
        ({"json_schema": {"type": "string"}}, None),
        ({"abstain": 0.5}, None),
        ({"abstain": 1}, None),
        ({"abstain": 0.0, "beam": 2}, None),
    ],
)  # fmt: skip
def test_answers_are_those_of_the_system(serve_here: Serve, sent: dict[str, Any], given: dict[str, Any] | None) -> None:
    served = serve_here()
    found = predict(served, inputs=TEXTS, **sent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OtherSearch)  # which an answer has as a note
        expected = served.system.predict(TEXTS, **(sent if given is None else given))
    assert [outputs_of(each) for each in found] == [outputs_of(each) for each in expected]
    for one, other in zip(found, expected, strict=True):
        assert (one["outputs"][0].get("confidence") or 0.0) == pytest.approx(other.confidence or 0.0, rel=1e-4)


def test_a_client_returns_them_and_reads_files_on_its_side(serve_here: Serve, tmp_path: Path) -> None:
    served = serve_here()
    words, terms, pairs, grammar = (tmp_path / name for name in ("words.txt", "terms.tsv", "pairs.tsv", "one.lark"))
    words.write_text("cba\nba\n")
    terms.write_text("abc\thh|gg\n")
    pairs.write_text("abc\tsaid before\n")
    grammar.write_text(GRAMMAR)
    with dragoman.Client(str(served.http.base_url)) as client:
        for options in (
            {"lexicon": words},
            {"lexicon": str(words)},
            {"lexicon": {"cba", "ba"}},
            {"glossary": terms},
            {"glossary": {"abc": ("hh", "gg")}},
            {"known": str(pairs)},
            {"known": {("abc",): "said before"}},
            {"grammar": grammar},
            {"json_schema": {"type": "string"}},
            {"keep": ("b", "[de]")},
            {"abstain": 1.0},
        ):
            found, expected = client.predict(TEXTS, **options), served.system.predict(TEXTS, **options)
            assert [outputs_of(each) for each in found] == [outputs_of(each) for each in expected]
            assert [each.confidence for each in found] == pytest.approx([each.confidence for each in expected])
        assert client.predict("abc", known={"abc": "x"}).known and client.predict("abc", abstain=1.0).abstained
        (*_, last) = client.stream("abc", beam=1, match="[a-c]{2}")
        assert isinstance(last, dragoman.Prediction) and len(last.text) == 2


def test_no_client_makes_the_server_read_a_file(
    serve_here: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve_here()
    secret = tmp_path / "secret.txt"
    secret.write_text("start: /topsecret/\n")
    opened: list[Any] = []
    monkeypatch.setattr(constraint_files, "open_regular", lambda path: opened.append(path))
    path = str(secret)
    for name in ("lexicon", "glossary", "known"):
        assert name in refuse(served, 400, **{name: path})
    for asked in (
        {"grammar": path},
        {"grammar": f"%import {path}\nstart: A"},
        {"json_schema": path},
        {"json_schema": {"$ref": f"file://{path}"}},
        {"json_schema": {"$ref": "http://127.0.0.1:9/x"}},
        {"glossary": [path]},
        {"known": [path]},
        {"lexicon": {"path": path}},
        {"lexicon": [[path]]},
    ):
        assert "topsecret" not in refuse(served, 400, **asked)
    for asked in ({"lexicon": [path, "cba"]}, {"keep": path}, {"match": f"{path}|cba"}, {"glossary": {path: path}}):
        assert "topsecret" not in json.dumps(predict(served, inputs="abc", **asked))
    with pytest.raises(UserError, match="reads no files"):
        as_settings({"lexicon": path})
    assert not opened


LONG = "x" * 11_000
TOO_MUCH: list[tuple[dict[str, Any], int, str]] = [
    ({"lexicon": ["a"] * 10_001}, 422, "at most 10,000"),
    ({"glossary": {str(number): "a" for number in range(10_001)}}, 422, "entries of glossary"),
    ({"known": {str(number): "a" for number in range(10_001)}}, 422, "entries of known"),
    ({"lexicon": ["a"] * 30_000}, 400, "more than 20,000 values"),
    ({"lexicon": ["a" * 100] * 6_000}, 413, "at most 500,000"),
    ({"match": LONG}, 422, "11,000 characters"),
    ({"grammar": LONG}, 422, "11,000 characters"),
    ({"json_schema": {"const": LONG}}, 422, "json_schema has"),
    ({"keep": ["a" * 501]}, 422, "at most 500"),
    ({"keep": ["a"] * 21}, 422, "at most 20"),
    ({"abstain": 1.5}, 400, "abstain"),
    ({"abstain": "0.5"}, 400, "abstain"),
    ({"abstain": 0.5, "stream": True, "beam": 1}, 400, "without stream"),
    ({"lexicon": []}, 400, "no entry"),
    ({"lexicon": ["ÄÖÜ"]}, 400, "can be spelled"),
    ({"lexicon": ["a" * 1_001]}, 400, "at most 1,000"),
    ({"lexicon_words": True}, 400, "give a lexicon as well"),
    ({"glossary": [["a", "b"], ["a", "c"]]}, 400, "two targets"),
    ({"glossary": [["a"]]}, 400, "glossary"),
    ({"known": [["a", "b"], ["a", "c"]]}, 400, "two answers"),
    ({"known": [["a", "b", "c"]]}, 400, "give a text for each"),
    ({"match": "("}, 400, "match"),
    ({"match": "a(?=b)"}, 400, "match"),
    ({"grammar": "start: A"}, 400, "grammar"),
    ({"json_schema": "{"}, 400, "json_schema"),
    ({"json_schema": 7}, 400, "json_schema"),
    ({"json_schema": {"multipleOf": 999_999_937}}, 400, "multipleOf"),
    ({"json_schema": '{"multiple\\u004ff": 999999937}'}, 400, "multipleOf"),
    ({"grammar": 'start: %json {"multipleOf": 999999937}'}, 400, "%json"),
    ({"keep": ["("]}, 400, "not a regular expression"),
    ({"keep": ["a{99999999999999999999}"]}, 400, "not a regular expression"),
]


def test_what_is_wrong_or_too_much_is_said(serve_here: Serve) -> None:
    served = serve_here()
    for asked, status, words in TOO_MUCH:
        assert words in refuse(served, status, **asked), asked
    assert "match" in refuse(served, 400, inputs=TEXTS, match="(")


def test_settings_of_nothing_are_settings(tiny_run: Any) -> None:
    """Zero and false are not the same as leaving a setting out: the run may have another one."""
    asker = Asker(Models([Model("run", dragoman.load(tiny_run.folder))]), SERVER)
    given: dict[str, Any] = {"min_length": 0, "sample": False, "ctc": 0.0, "abstain": 0.0}
    _, question = asker.predict(PredictRequest(inputs="abc", attention=False, alternatives=0, **given))
    assert json.loads(question.task.options) == given


def test_a_constraint_that_cannot_be_met_is_an_error_of_its_input(serve_here: Serve) -> None:
    served = serve_here()
    found = predict(served, inputs=["abc", "gfe"], glossary={"abc": "ÄÖ"})
    assert "cannot spell" in found[0]["error"] and found[0]["outputs"][0]["text"] == ""
    assert "error" not in found[1] and found[1]["outputs"][0]["text"]
    found = predict(served, inputs=["abc", "h" * 9], match="(ab){500}", max_length=10)
    assert all("no output of at most 10 tokens" in each["error"] and not each["outputs"][0]["text"] for each in found)
    found = predict(served, inputs=["a" * 900, "gfe"], keep=SLOW)
    assert "takes more than" in found[0]["error"] and "error" not in found[1]


def test_a_missing_extra_is_a_sentence(serve_here: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise MissingExtra("llguidance", "constraints", "an output format")

    monkeypatch.setattr(formats, "import_llguidance", missing)
    assert "constraints" in refuse(serve_here(), 400, match="a+")


def test_a_run_without_confidence_cannot_abstain(serve_here: Serve, tiny_run: Any, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    shutil.copytree(tiny_run.folder, folder)
    (folder / CONFIDENCE).unlink()
    served = serve_here({"plain": folder})
    sentence = refuse(served, 400, abstain=0.9)
    assert "plain has no confidence" in sentence and str(tmp_path) not in sentence
    (found,) = predict(served, inputs="abc")
    assert "confidence" not in found["outputs"][0]


def test_constraints_are_built_once_for_many_requests(serve_here: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve_here(limits=replace(SERVER, batch=4, window=0.02))
    built: list[int] = []
    make = lexicon.make_lexicon
    monkeypatch.setattr(lexicon, "make_lexicon", lambda *given: built.append(1) or make(*given))  # type: ignore[func-returns-value]
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(predict, served, inputs=TEXTS * 3, lexicon=["cba", "ba"]) for _ in range(8)]
        answers = [each.result() for each in asked]
    assert len(built) == 1 and all(texts_of(answer) == texts_of(answers[0]) for answer in answers)
    for _ in range(2):
        assert "spelled" in refuse(served, 400, inputs=TEXTS, lexicon=["ÄÖÜ"])
    assert len(built) == 2, "what cannot be built is remembered"
    predict(served, inputs="abc", lexicon=["ba", "cba"])
    assert len(built) == 3


def test_few_sessions_are_kept(tiny_run: Any) -> None:
    sessions = Sessions(2)
    system = dragoman.load(tiny_run.folder)

    def find(entry: str) -> Any:
        return sessions.find("run", system, json.dumps({"lexicon": [entry], "prefix": "a"}))

    first, asked = find("abc")
    assert asked == {"prefix": "a"}
    find("abd")
    assert find("abc")[0] is first
    find("abe")
    find("abf")
    assert find("abc")[0] is not first
    assert len(sessions._kept) == 2


def test_a_slow_pattern_ends_at_the_deadline_and_others_are_answered(serve_here: Serve) -> None:
    served = serve_here(limits=replace(SERVER, question_seconds=2.0), workers=2)
    alone = predict(served, inputs="abc")
    slow: dict[str, Any] = {"inputs": ["a" * (900 + number) for number in range(32)], "keep": SLOW}
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(served.http.post("/v1/predict", json=slow)))
    thread.start()
    others = []
    while thread.is_alive():
        others.append(predict(served, inputs="abc"))
    thread.join()
    assert answers[0].status_code == 504 and "no answer within" in answers[0].json()["error"]
    assert len(others) > 1 and all(each == alone for each in others)
    until = time.monotonic() + 60.0
    while not served.batcher.is_idle:  # the worker stops as well
        assert time.monotonic() < until
        time.sleep(0.05)
    assert predict(served, inputs="abc", keep="b")
