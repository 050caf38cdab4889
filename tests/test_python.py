"""The package from Python: every argument means what it means on the command line, and one input gives one answer."""

from __future__ import annotations

import inspect
import json
import pathlib
from typing import Any

import pytest

import dragoman
from dragoman.errors import UserError
from dragoman.files import write_json
from dragoman.inference.predictions import Prediction, Scored
from dragoman.inference.system import System


@pytest.fixture(scope="module")
def system(tiny_run: Any) -> System:
    return dragoman.load(tiny_run.folder)


# ---- one input, one answer


@pytest.mark.parametrize(
    "single", ["abcd", {"source": "abcd"}, pathlib.PurePath("abcd")], ids=["text", "mapping", "path"]
)
def test_one_input_gives_one_prediction_and_a_list_gives_a_list(system: System, single: Any) -> None:
    for asked in (system, system.session()):
        alone = asked.predict(single)
        assert isinstance(alone, Prediction)
        (listed,) = asked.predict([single])
        assert alone.tokens == listed.tokens
        assert [one.tokens for one in asked.stream(single)] == [listed.tokens]
    assert [one.tokens for one in system.predict(each for each in ("abcd", "abcd"))] == [listed.tokens] * 2


def test_a_text_is_scored_as_a_whole_and_not_letter_by_letter(system: System) -> None:
    alone = system.score("abcd", "dcba")
    assert isinstance(alone, Scored)
    assert system.score(["abcd"], ["dcba"]) == [alone]
    assert len(alone.tokens) == 5


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda system: system.predict(5), "list of them, not int"),
        (lambda system: system.predict(b"abc"), "list of them, not bytes"),
        (lambda system: system.predict(None), "not NoneType"),
        (lambda system: system.predict({"other": "abc"}), r"reads source, but got \['other'\]"),
        (lambda system: system.predict("abc", batch=0), "batch is the number .* 1 or more; got 0"),
        (lambda system: system.predict("abc", batch="many"), "batch is the number"),
        (lambda system: system.predict("abc", forbid=[3]), "what is forbidden is a text; got int"),
        (lambda system: system.score("abc", ["cba"]), "one source and one target, or a list of each"),
        (lambda system: system.score(["abc"], "cba"), "one source and one target, or a list of each"),
        (lambda system: system.score(["abc"], [3]), "a target is a text; got int"),
        (lambda system: system.score(["abc"], 3), "a target is a text; give one, or a list of them, not int"),
        (lambda system: system.score("abc"), "scoring needs targets"),
        (lambda system: system.predict("abc", sample=True, n_best=4, samples=3), "n_best = 4 and samples = 3"),
    ],
)
def test_wrong_arguments_are_refused_with_a_sentence(system: System, ask: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        ask(system)


# ---- the same meaning as on the command line


def test_n_best_with_sampling_is_the_number_of_samples(system: System, tiny_run: Any, call: Any) -> None:
    prediction = system.predict("abcd", sample=True, n_best=4, temperature=2.0)
    assert len(prediction.outputs) == 4
    line = call("predict", tiny_run.folder, "--sample", "--n-best", 4, "--temperature", 2, stdin=b"abcd\n").lines[0]
    assert line.split("\t") == [output.text for output in prediction.outputs]
    assert len(system.predict("abcd", n_best=4).outputs) == 4


def test_forbidden_texts_and_prefixes_are_those_of_the_command_line(system: System, tiny_run: Any, call: Any) -> None:
    inputs = ["abcd", "hgfa", "bad"]
    answer = call("predict", tiny_run.folder, "--forbid", "a", "--forbid", "dc", "--prefix", "b",
                  stdin="\n".join(inputs).encode())  # fmt: skip
    texts = [one.text for one in system.predict(inputs, forbid=["a", "dc"], prefix="b")]
    assert texts == answer.lines
    assert all(text.startswith("b") and "a" not in text and "dc" not in text for text in texts)
    assert "a" not in system.predict("abcd", forbid="a").text


def test_the_number_of_outputs_is_the_runs_own_unless_given(
    system: System, tiny_run: Any, call: Any, tmp_path: pathlib.Path
) -> None:
    import shutil

    run = tmp_path / "run"
    shutil.copytree(tiny_run.folder, run)
    config = json.loads((run / "config.json").read_text())
    config["recipe"]["search"]["n_best"] = 3
    write_json(run / "config.json", config)
    assert len(dragoman.load(run).predict("abcd").outputs) == 3
    assert len(call("predict", run, stdin=b"abcd\n").lines[0].split("\t")) == 3


def test_a_system_can_be_looked_at(system: System, tiny_run: Any) -> None:
    """Tools that list members read every property; none of them may raise."""
    for thing in (system, dragoman.load([tiny_run.folder] * 2), dragoman.load(tiny_run.folder).session()):
        assert inspect.getmembers(thing)
        assert inspect.getmembers(thing.engine)
