"""Tokens that are reported while a search runs are those of its result, whatever decodes."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dragoman.errors import UserError
from dragoman.inference.load import load

TEXTS = ["abc", "hgfed", "ab", "cagebad", "a"]
GREEDY, SAMPLED = {"beam": 1}, {"sample": True, "seed": 4}


@pytest.mark.parametrize("engine", ["torch", "native", "numpy"])
@pytest.mark.parametrize("settings", [GREEDY, SAMPLED, GREEDY | {"prefix": ["ab", "", "b", "", "ab"]}])
def test_reported_tokens_are_those_of_the_output(native_run: Any, engine: str, settings: dict[str, Any]) -> None:
    system = load(native_run.folder, "cpu", engine=engine)
    reported: dict[int, list[tuple[str, str]]] = {row: [] for row in range(len(TEXTS))}
    predictions = system.predict(
        TEXTS, on_token=lambda row, token, text: reported[row].append((token, text)), batch=2, **settings
    )
    plain = load(native_run.folder, "cpu", engine="torch").predict(TEXTS, **settings)
    assert [each.text for each in predictions] == [each.text for each in plain]
    for row, prediction in enumerate(predictions):
        forced = len(settings["prefix"][row]) if "prefix" in settings else 0
        assert [token for token, _ in reported[row]] == list(prediction.tokens[forced:])
        assert reported[row][-1][1] == prediction.text
        texts = [text for _, text in reported[row]]
        assert all(later.startswith(earlier) for earlier, later in pairwise(texts))


@pytest.mark.parametrize("settings", [{"beam": 2}, {"sample": True, "n_best": 2}])
def test_several_hypotheses_cannot_be_followed(tiny_run: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="followed"):
        load(tiny_run.folder, "cpu").predict(TEXTS, on_token=lambda *_: None, **settings)


def test_keys_seed_samples_in_place_of_the_order(tiny_run: Any) -> None:
    system = load(tiny_run.folder, "cpu")
    forwards = system.predict(TEXTS, sample=True, seed=2)
    backwards = system.predict(TEXTS[::-1], sample=True, seed=2, keys=list(range(len(TEXTS)))[::-1])
    assert [each.text for each in forwards] == [each.text for each in backwards][::-1]
    with pytest.raises(UserError, match="sampling key"):
        system.predict(TEXTS, sample=True, keys=[1])


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_alternatives_are_the_likeliest_tokens(native_run: Any, engine: str) -> None:
    system = load(native_run.folder, "cpu", engine=engine)
    for prediction in system.predict(TEXTS, beam=1, alternatives=3):
        (output,) = prediction.outputs
        assert output.alternatives is not None
        greedy = [place[0][0] for place in output.alternatives]  # what greedy search takes, unless it never may
        assert greedy == list(output.tokens) and all(len(place) == 3 for place in output.alternatives)
        assert prediction.to_json()["outputs"][0]["alternatives"][0][0]["token"] == output.tokens[0]
    assert system.predict("abc").outputs[0].alternatives is None


def test_attention_of_the_plain_engine_is_as_wide_when_long_sources_are_done(native_run: Any) -> None:
    plain, other = (load(native_run.folder, "cpu", engine=engine) for engine in ("numpy", "torch"))
    pairs = zip(plain.predict(TEXTS, beam=1), other.predict(TEXTS, beam=1), strict=True)
    for one, two in pairs:
        assert one.attention is not None and two.attention is not None
        np.testing.assert_allclose(one.attention, two.attention, atol=1e-4)


def test_the_command_line_lists_alternatives(tiny_run: Any, call: Any) -> None:
    (line,) = call("predict", tiny_run.folder, "--json", "--alternatives", "2", stdin=b"abc\n").lines
    (output,) = json.loads(line)["outputs"]
    assert [len(place) for place in output["alternatives"]] == [2] * len(output["tokens"])
    refused = call("predict", tiny_run.folder, "--alternatives", "2", stdin=b"abc\n")
    assert refused.code == 2 and "--json" in refused.err
