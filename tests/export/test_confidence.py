"""The confidence of exported runs: that of the run for the same output, with ONNX Runtime and with CTranslate2."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.errors import OtherSearch, UserError
from dragoman.inference.predictions import Output
from dragoman.inference.system import System
from dragoman.runs.confidence import CONFIDENCE, write_confidence
from dragoman.runtime.confidence import Logistic

INPUTS = ["abc", "hgfed", "ab", "cagebad", "ddd"]
BLOCKS = {"width": 16, "layers": 2, "heads": 2, "feed_forward": 32}
ENGINES = {"onnx": "onnxruntime", "ctranslate2": "ctranslate2"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, pairs_file: Callable[..., Path]) -> Path:
    """A small Transformer with its exports, and with a confidence that every feature changes."""
    folder = tmp_path_factory.mktemp("confidence")
    settings = {
        "preset": "transformer-tiny",
        "source": {"embedding": 16},
        "encoder": BLOCKS,
        "decoder": BLOCKS,
        "training": {"threads": 1, "batch_tokens": 96, "max_updates": 40, "average": 1, "native": False},
    }
    run = folder / "run"
    system = dragoman.train(pairs_file(folder / "pairs.tsv"), out=run, settings=settings)
    assert system.confidence is not None
    best = Logistic(
        2.0, {"total": 0.3, "raw_mean": 0.2, "doubt": -0.1, "length": 0.5, "least": 0.2, "unfinished": -1.0}
    )
    others = Logistic(0.5, {"total": 0.3, "behind": -0.4, "second": 0.1, "unsure": -0.1})
    write_confidence(run, system.made_of, replace(system.confidence, smoothing=0.1, best=best, others=others))
    return run


@pytest.fixture(scope="module", params=list(ENGINES))
def both(request: pytest.FixtureRequest, exported: Path) -> tuple[System, System]:
    """The run by torch, and by the engine of an export."""
    pytest.importorskip(ENGINES[request.param], reason="it is an extra")
    pytest.importorskip("onnx", reason="it is an extra")
    dragoman.export_run(exported, request.param, inputs=INPUTS)
    return dragoman.load(exported, engine="torch"), dragoman.load(exported, engine=request.param)


def rate_forced(run: System, source: str, outputs: tuple[Output, ...], sampled: bool) -> list[float | None]:
    """Return the confidences of outputs by what the run itself says of their tokens."""
    assert run.confidence is not None
    given = []
    for output in outputs:
        scored = run.score(source, output.text)
        assert scored.tokens[: len(output.tokens)] == output.tokens
        given.append((scored.log_probs[: len(output.tokens)], output.finished))
    return run.confidence.rate(given, sampled=sampled)


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"beam": 1}, {"n_best": 3}, {"beam": 1, "max_length": 3}, {"beam": 1, "min_length": 9},
        {"forbid": ["a"]}, {"sample": True, "n_best": 3},
    ],
    ids=str,
)  # fmt: skip
def test_the_same_output_has_the_same_confidence(both: tuple[System, System], settings: dict[str, Any]) -> None:
    run, _ = both
    expected, found = (each.predict(INPUTS, attention=False, **settings) for each in both)
    sampled = "sample" in settings
    for ours, theirs in zip(expected, found, strict=True):
        assert theirs.confidence_note == ours.confidence_note
        own = rate_forced(run, str(theirs.source), theirs.outputs, sampled)
        assert [each.confidence for each in theirs.outputs] == pytest.approx(own, abs=1e-4)
        if [each.tokens for each in ours.outputs] == [each.tokens for each in theirs.outputs]:
            pairs = zip(ours.outputs, theirs.outputs, strict=True)
            assert all(one.confidence == pytest.approx(two.confidence, abs=1e-4) for one, two in pairs)
        else:
            assert sampled or settings.get("beam") != 1, "greedy search is the same everywhere"
    assert len({each.confidence for each in found}) > 1


def test_an_output_without_tokens_is_rated_by_its_end(both: tuple[System, System]) -> None:
    ours, theirs = (each.predict("abc", beam=1, attention=False, forbid=list("abcdefgh")) for each in both)
    assert theirs.tokens == ours.tokens == ("</s>",)
    assert theirs.outputs[0].log_probs == pytest.approx(ours.outputs[0].log_probs, abs=1e-4)
    assert theirs.confidence == pytest.approx(ours.confidence, abs=1e-4)


def test_unsure_outputs_are_left_out(both: tuple[System, System]) -> None:
    _, other = both
    usual = other.predict(INPUTS, beam=1, attention=False)
    least = sorted(each.confidence or 0 for each in usual)[2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OtherSearch)
        held = other.predict(INPUTS, beam=1, attention=False, abstain=least)
    assert [each.abstained for each in held] == [(each.confidence or 0) < least for each in usual]
    assert sum(each.abstained for each in held) == 2
    assert all(each.text == "" for each in held if each.abstained)


def test_the_command_line(both: tuple[System, System], call: Any, tmp_path: Path) -> None:
    run, other = both
    inputs = tmp_path / "in.txt"
    inputs.write_text("".join(f"{each}\n" for each in INPUTS))
    usual = other.predict(INPUTS, attention=False)
    asked = ["predict", run.folder, inputs, "--engine", other.engine.name]
    rows = [line.split("\t") for line in call(*asked, "--confidence").lines]
    assert rows == [[each.text, f"{each.confidence:.4f}"] for each in usual]
    least = sorted(each.confidence or 0 for each in usual)[2]
    done = call(*asked, "--abstain", least + 1e-6, "--abstain-file", tmp_path / "unsure.txt")
    assert done.code == 0 and "3 of 5 outputs left out" in done.err
    assert done.lines == ["" if (each.confidence or 0) <= least else each.text for each in usual]
    answers = [json.loads(line) for line in call(*asked, "--json").lines]
    assert [each["outputs"][0]["confidence"] for each in answers] == pytest.approx([each.confidence for each in usual])


def test_without_a_confidence_it_is_refused(both: tuple[System, System]) -> None:
    run, other = both
    assert run.folder is not None
    kept = (run.folder / CONFIDENCE).read_bytes()
    (run.folder / CONFIDENCE).unlink()
    try:
        bare = dragoman.load(run.folder, engine=other.engine.name)
        assert bare.predict("abc", attention=False).confidence is None
        with pytest.raises(UserError, match="has no confidence"):
            bare.predict("abc", abstain=0.5)
    finally:
        (run.folder / CONFIDENCE).write_bytes(kept)
