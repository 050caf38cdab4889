"""The server answers as the system does, within its limits, and says why where it does not."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dragoman.serving.keys import Keys, read_keys
from dragoman.serving.limits import SERVER

Serve = Callable[..., Any]
TEXTS = ["abc", "hgfed", "ab", "cagebad"]


def predict(served: Any, **asked: Any) -> Any:
    answer = served.http.post("/v1/predict", json=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_outputs_are_those_of_the_system(serve_here: Serve) -> None:
    served = serve_here()
    for options in (
        {},
        {"beam": 3, "n_best": 2, "normalize": "gnmt", "alpha": 0.5},
        {"beam": 1, "max_length": 3},
        {"sample": True, "n_best": 2, "seed": 7, "temperature": 1.5, "top_k": 5},
        {"prefix": "a", "forbid": ["b"]},
    ):
        body = predict(served, inputs=TEXTS, **options)
        expected = served.system.predict(TEXTS, **options)
        assert body["model"] == "run"
        for one, other in zip(body["predictions"], expected, strict=True):
            for output, own in zip(one["outputs"], other.outputs, strict=True):
                assert output["text"] == own.text and output["tokens"] == list(own.tokens)
                assert math.isclose(output["score"], own.score, rel_tol=1e-4)
                assert output["confidence"] == pytest.approx(own.confidence, rel=1e-4)
            assert one.keys() == {"outputs"} | ({"confidence_note"} if other.confidence_note else set())
            assert one.get("confidence_note") == other.confidence_note
    assert predict(served, inputs="abc") == predict(served, inputs=["abc"], model="run")
    assert predict(served, inputs="")["predictions"][0]["outputs"][0]["text"] == ""


def test_samples_do_not_depend_on_who_else_asks(serve_here: Serve) -> None:
    served = serve_here(limits=replace(SERVER, window=0.05))
    asked = {"inputs": TEXTS, "sample": True, "seed": 3}
    alone = predict(served, **asked)
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(predict(served, **asked))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [texts_of(each) for each in answers] == [texts_of(alone)] * 4


def texts_of(body: Any) -> list[str]:
    return [output["text"] for prediction in body["predictions"] for output in prediction["outputs"]]


def test_attention_and_alternatives_come_on_request(serve_here: Serve) -> None:
    served = serve_here()
    (prediction,) = predict(served, inputs="abc", attention=True, alternatives=3)["predictions"]
    (output,) = prediction["outputs"]
    assert prediction["labels"] == ["a", "b", "c", "</s>"]
    assert all(math.isclose(sum(row), 1, abs_tol=1e-3) for row in output["attention"])
    for token, log_prob, place in zip(output["tokens"], output["log_probs"], output["alternatives"], strict=True):
        assert len(place) == 3
        assert [each["log_prob"] for each in place] == sorted((each["log_prob"] for each in place), reverse=True)
        own = [each["log_prob"] for each in place if each["token"] == token]
        assert not own or math.isclose(own[0], log_prob, abs_tol=1e-3)


def test_scores_are_those_of_the_system(serve_here: Serve) -> None:
    served = serve_here()
    targets = [text[::-1] for text in TEXTS]
    body = served.http.post("/v1/score", json={"inputs": TEXTS, "targets": targets}).json()
    for one, other in zip(body["scores"], served.system.score(TEXTS, targets), strict=True):
        assert math.isclose(one["log_prob"], other.log_prob, rel_tol=1e-4) and one["tokens"] == list(other.tokens)
        assert math.isclose(one["perplexity"], other.perplexity, rel_tol=1e-4)


def read_events(text: str) -> list[tuple[str, Any]]:
    events = []
    for part in text.strip().split("\n\n"):
        name, data = part.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


def test_tokens_are_streamed_and_end_with_the_same_answer(serve_here: Serve) -> None:
    served = serve_here()
    for options in ({"beam": 1}, {"sample": True, "seed": 5}, {"beam": 1, "prefix": "ab"}):
        check_stream(served, options)


def check_stream(served: Any, options: dict[str, Any]) -> None:
    answer = served.http.post("/v1/predict", json={"inputs": TEXTS, "stream": True, **options})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *tokens, (last, body) = read_events(answer.text)
    assert last == "done" and {name for name, _ in tokens} == {"token"}
    assert body == predict(served, inputs=TEXTS, **options)
    for index, prediction in enumerate(body["predictions"]):
        own = [event for _, event in tokens if event["index"] == index]
        forced = len(options.get("prefix", ""))
        assert [event["token"] for event in own] == prediction["outputs"][0]["tokens"][forced:]
        assert own[-1]["text"] == prediction["outputs"][0]["text"]


def test_only_one_hypothesis_can_be_streamed(serve_here: Serve) -> None:
    served = serve_here()
    for options in ({"beam": 3}, {"sample": True, "n_best": 2}):
        answer = served.http.post("/v1/predict", json={"inputs": "ab", "stream": True, **options})
        assert answer.status_code == 400 and "followed" in answer.json()["error"]


WRONG: list[tuple[str, dict[str, Any], int, str]] = [
    ("/v1/predict", {"inputs": ["a"] * 129}, 422, "at most 128"),
    ("/v1/predict", {"inputs": "a" * 20_001}, 422, "20,001 characters"),
    ("/v1/predict", {"inputs": "a", "beam": 33}, 422, "beam"),
    ("/v1/predict", {"inputs": "a", "n_best": 33}, 422, "n_best"),
    ("/v1/predict", {"inputs": "a", "sample": True, "n_best": 33}, 422, "samples"),
    ("/v1/predict", {"inputs": "a", "max_length": 3000}, 422, "max_length"),
    ("/v1/predict", {"inputs": "a", "alternatives": 21}, 422, "alternatives"),
    ("/v1/predict", {"inputs": "a", "forbid": ["x"] * 101}, 422, "forbidden"),
    ("/v1/predict", {"inputs": "a", "beam": 2, "n_best": 3}, 400, "n_best = 3"),
    ("/v1/predict", {"inputs": "a", "temperature": 2}, 400, "sampling"),
    ("/v1/predict", {"inputs": "a", "beam": "2"}, 400, "beam"),
    ("/v1/predict", {"inputs": "a", "beem": 2}, 400, "beem"),
    ("/v1/predict", {"inputs": "a", "ctc": 0.5}, 400, "CTC"),
    ("/v1/predict", {"inputs": 7}, 400, "inputs"),
    ("/v1/predict", {"inputs": {"picture": "a"}}, 400, "reads source"),
    ("/v1/predict", {}, 400, "inputs"),
    ("/v1/predict", {"inputs": "a", "model": "other"}, 404, "there is run"),
    ("/v1/score", {"inputs": "a"}, 400, "targets"),
    ("/v1/score", {"inputs": ["a", "b"], "targets": ["c"]}, 400, "1 for 2"),
    ("/translate", {"q": "a", "source": "fr", "target": "en"}, 400, "de to en"),
    ("/translate", {"q": "a", "source": "de", "target": "en", "format": "html"}, 400, "format"),
    ("/translate", {"q": "a", "source": "de", "target": "en", "alternatives": 40}, 422, "alternatives"),
    ("/v2/predict", {}, 404, "not found"),
]


def test_what_is_wrong_or_too_much_is_said(serve_here: Serve) -> None:
    served = serve_here(workers=0)  # everything is refused before any work
    for path, body, status, words in WRONG:
        answer = served.http.post(path, json=body)
        assert answer.status_code == status and words in answer.json()["error"], (body, answer.text)


def test_inputs_of_too_many_tokens_are_refused_and_harm_no_other(serve_here: Serve) -> None:
    served = serve_here(limits=replace(SERVER, tokens=6))
    answer = served.http.post("/v1/predict", json={"inputs": ["abc", "abcdefgh"]})
    assert answer.status_code == 422 and "tokens of source" in answer.json()["error"]
    assert predict(served, inputs="abc")


def test_a_full_queue_and_a_late_answer_have_their_statuses(serve_here: Serve) -> None:
    served = serve_here(limits=replace(SERVER, waiting=1, question_seconds=0.05), workers=0)  # nobody computes
    late = served.http.post("/v1/predict", json={"inputs": "a"})
    assert late.status_code == 503 and int(late.headers["retry-after"]) >= 1
    assert served.batcher.is_idle
    full = serve_here(limits=replace(SERVER, waiting=1), workers=0)
    from dragoman.serving.batches import Question
    from dragoman.serving.compute import Item, Task

    full.batcher.submit(Question(Task("predict", "run"), [Item("a")]), seconds=60)
    answer = full.http.post("/v1/predict", json={"inputs": "a"})
    assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1


def test_a_server_that_is_being_stopped_refuses_and_says_so(serve_here: Serve) -> None:
    served = serve_here()
    assert served.http.get("/readyz").status_code == 200
    served.draining.begin()
    assert served.http.get("/readyz").status_code == 503
    assert served.http.get("/healthz").status_code == 200
    answer = served.http.post("/v1/predict", json={"inputs": "a"})
    assert answer.status_code == 503 and answer.headers["connection"] == "close"


def test_workers_that_are_not_ready_make_a_server_that_is_not(serve_here: Serve) -> None:
    assert serve_here(is_ready=lambda: False).http.get("/readyz").status_code == 503


def test_keys_are_wanted_where_they_are_set(serve_here: Serve, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "keys").write_text("# two keys\nfirst-key-1\n\nsecond-key-2\n", encoding="utf-8")
    monkeypatch.setenv("DRAGOMAN_API_KEY", "third-key-3")
    served = serve_here(keys=read_keys(tmp_path / "keys"))
    asked = {"inputs": "a"}
    for headers, status in (
        ({}, 401),
        ({"Authorization": "Bearer wrong-key"}, 401),
        ({"Authorization": "first-key-1"}, 401),
        ({"Authorization": "Bearer first-key-1"}, 200),
        ({"X-API-Key": "second-key-2"}, 200),
        ({"X-API-Key": "third-key-3"}, 200),
        ({"X-API-Key": "ключ-ключ".encode()}, 401),
    ):
        assert served.http.post("/v1/predict", json=asked, headers=headers).status_code == status
    translation = {"q": "a", "source": "de", "target": "en"}
    assert served.http.post("/translate", json=translation).status_code == 401
    assert served.http.post("/translate", data=translation | {"api_key": "first-key-1"}).status_code == 200
    assert served.http.get("/languages?api_key=first-key-1").status_code == 200
    assert served.http.get("/metrics").status_code == 401
    assert served.http.get("/healthz").status_code == 200 and served.http.get("/readyz").status_code == 200


def test_poor_keys_are_refused(tmp_path: Path) -> None:
    from dragoman.errors import UserError

    for key in ("short", "with space", "schlüssel-lang"):
        with pytest.raises(UserError, match="API key"):
            Keys((key,))
    (tmp_path / "keys").write_text("\n", encoding="utf-8")
    with pytest.raises(UserError, match="has no key"):
        read_keys(tmp_path / "keys")
    with pytest.raises(UserError, match="cannot be read"):
        read_keys(tmp_path / "none")


def test_the_log_has_ids_and_no_texts_unless_asked(serve_here: Serve) -> None:
    quiet, talkative = serve_here(), serve_here(logs_texts=True)
    for served in (quiet, talkative):
        answer = served.http.post("/v1/predict", json={"inputs": "abcabc"}, headers={"X-Request-ID": "mine.7"})
        assert answer.headers["x-request-id"] == "mine.7"
        assert served.log[0]["id"] == "mine.7" and served.log[0]["status"] == 200
        assert served.log[0]["model"] == "run" and served.log[0]["inputs"] == 1
        odd = served.http.get("/healthz", headers={"X-Request-ID": 'a"b c'})
        assert odd.headers["x-request-id"] != 'a"b c'
        refused = served.http.get("/healthz", headers={"Host": "evil.example"})
        assert refused.status_code == 403 and served.log[-1]["status"] == 403
    assert "abcabc" not in json.dumps(quiet.log) and "abcabc" in json.dumps(talkative.log)


def test_numbers_are_counted(serve_here: Serve) -> None:
    served = serve_here()
    predict(served, inputs=TEXTS)
    served.http.get("/nowhere")
    text = served.http.get("/metrics").text
    for line in (
        'dragoman_requests_total{path="/v1/predict",status="200"} 1.0',
        'dragoman_requests_total{path="other",status="404"} 1.0',
        'dragoman_inputs_total{model="run"} 4.0',
        "dragoman_batch_inputs_count 1.0",
        "dragoman_inputs_waiting 0.0",
    ):
        assert line in text


def test_the_page_loads_nothing_and_names_every_endpoint(serve_here: Serve) -> None:
    served = serve_here()
    answer = served.http.get("/")
    page, policy = answer.text, answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "script" not in page
    described = served.http.get("/openapi.json").json()
    assert all(path in page for path in described["paths"]) and "http://" not in page and "https://" not in page


def test_libretranslate_shapes(serve_here: Serve) -> None:
    served = serve_here()
    expected = [prediction.text for prediction in served.system.predict(TEXTS)]
    single = {"q": TEXTS[0], "source": "de", "target": "en"}
    for body in ({"json": single}, {"data": single}, {"files": {name: (None, text) for name, text in single.items()}}):
        assert served.http.post("/translate", **body).json() == {"translatedText": expected[0]}
    many = served.http.post("/translate", json=single | {"q": TEXTS, "source": "auto", "alternatives": 1}).json()
    assert many["translatedText"] == expected and [len(each) for each in many["alternatives"]] == [1] * len(TEXTS)
    assert many["detectedLanguage"] == [{"language": "de"}] * len(TEXTS)
    assert served.http.post("/translate", data=single | {"q": TEXTS}).json()["translatedText"] == expected
    languages = served.http.get("/languages").json()
    assert languages[0] == {"code": "de", "name": "German", "targets": ["en"]}
