"""Every attention map can be asked for, of the output that is returned, and asking changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dragoman
from dragoman.config import merge
from dragoman.inference.ensembles import ensemble
from dragoman.inference.system import System
from dragoman.training.run import train

INPUTS = ["abc", "", "hgfedcba", "d"]
LAYERS, HEADS = 2, 4


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, pairs_file: Callable[..., Path], tiny_settings: Any) -> System:
    place = tmp_path_factory.mktemp("transformer")
    side = {"kind": "transformer", "width": 16, "layers": LAYERS, "heads": HEADS, "feed_forward": 16}
    settings = merge(tiny_settings, {"encoder": side, "decoder": side, "training": {"max_updates": 5}})
    return train(pairs_file(place / "pairs.tsv", 60), out=place / "run", settings=settings)


@pytest.mark.parametrize("search", [{"beam": 1}, {"beam": 3, "n_best": 2}, {"sample": True, "samples": 2}])
def test_maps_of_what_is_returned(system: System, search: dict[str, Any]) -> None:
    plain = system.predict(INPUTS, max_length=6, **search)
    told = system.predict(INPUTS, max_length=6, maps=True, **search)
    for one, other in zip(plain, told, strict=True):
        assert one.self_attention is None and all(output.self_attention is None for output in one.outputs)
        assert [(a.text, a.score, a.log_probs) for a in one.outputs] == [
            (b.text, b.score, b.log_probs) for b in other.outputs
        ]
        if not other.source:
            assert other.self_attention is None
            continue
        positions = len(other.labels)
        assert other.self_attention is not None
        assert other.self_attention.shape == (LAYERS, HEADS, positions, positions)
        assert np.allclose(other.self_attention.sum(-1), 1, atol=1e-5)
        for output in other.outputs:
            length = len(output.tokens)
            assert output.attention is not None and output.attention.shape == (length, LAYERS * HEADS, positions)
            looked = output.self_attention
            assert looked is not None and looked.shape == (LAYERS, HEADS, length, length)
            assert np.allclose(looked.sum(-1), 1, atol=1e-5) and (np.triu(looked, 1) == 0).all()


def test_maps_as_json(call: Any, system: System) -> None:
    (line,) = call("predict", system.folder, "--json", "--maps", stdin=b"abc\n").lines
    record = json.loads(line)
    (output,) = record["outputs"]
    positions, length = len(record["labels"]), len(output["tokens"])
    assert np.shape(record["self_attention"]) == (LAYERS, HEADS, positions, positions)
    assert np.shape(output["self_attention"]) == (LAYERS, HEADS, length, length)
    maps = np.array(output["attention_maps"])
    assert maps.shape == (LAYERS * HEADS, length, positions)
    assert np.allclose(maps.mean(0), output["attention"], atol=1e-4)


def test_a_model_without_self_attention_says_so(call: Any, tiny_run: Any) -> None:
    told = dragoman.load(tiny_run.folder).predict(["abc"], maps=True)[0]
    assert told.self_attention is None and told.outputs[0].self_attention is None
    record = json.loads(call("predict", tiny_run.folder, "--json", "--maps", stdin=b"abc\n").lines[0])
    assert record["self_attention"] is None and record["outputs"][0]["self_attention"] is None
    assert len(record["outputs"][0]["attention_maps"]) == 1


def test_maps_need_json(call: Any, tiny_run: Any) -> None:
    answer = call("predict", tiny_run.folder, "--maps", stdin=b"abc\n")
    assert answer.code == 2 and "add --json" in answer.err


def test_several_runs_tell_the_maps_of_the_first(system: System) -> None:
    alone = system.predict(INPUTS, max_length=6, maps=True)
    together = ensemble([system, system]).predict(INPUTS, max_length=6, maps=True)
    for one, other in zip(alone, together, strict=True):
        if one.self_attention is None:
            assert other.self_attention is None
            continue
        assert other.self_attention is not None
        assert np.allclose(one.self_attention, other.self_attention, atol=1e-6)
        mine, theirs = one.outputs[0].self_attention, other.outputs[0].self_attention
        assert mine is not None and theirs is not None and np.allclose(mine, theirs, atol=1e-6)
