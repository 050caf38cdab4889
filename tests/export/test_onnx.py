"""Exports to ONNX: they say what the run says, and one that does not is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx is an extra")
pytest.importorskip("onnxruntime", reason="onnxruntime is an extra")

import dragoman
from dragoman.errors import UserError
from dragoman.export import onnx_graph
from dragoman.nn.model import Model

INPUTS = ["abcdefgh"[first : first + length] for length in (1, 3, 5, 8) for first in range(5)]

if TYPE_CHECKING:
    from conftest import RunsCommand, TinyRun


def test_an_export_answers_as_the_run_does(tiny_run: TinyRun, tmp_path: Path) -> None:
    run = dragoman.load(tiny_run.folder)
    parity = dragoman.export_run(run, "onnx", tmp_path / "out", inputs=INPUTS)
    assert (parity.equal + parity.ties, parity.different) == (40, 0)
    assert json.loads((tmp_path / "out" / "export.json").read_text())["parity"]["inputs"] == 20
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"encode.onnx", "step.onnx", "program.json", "export.json", "config.json"} <= names


def tokens(predictions: Any) -> list[list[tuple[str, ...]]]:
    return [[output.tokens for output in prediction.outputs] for prediction in predictions]


def test_an_exported_run_answers(tiny_run: TinyRun, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(tiny_run.folder, folder)
    dragoman.export_run(folder, "onnx", inputs=INPUTS)
    run, exported = dragoman.load(folder), dragoman.load(folder, engine="onnx")
    for settings in ({"beam": 1}, {"beam": 4, "n_best": 3}, {"sample": True, "samples": 2}):
        wanted, got = (each.predict(["abc", "hgfed"], **settings) for each in (run, exported))
        assert [[o.tokens for o in each.outputs] for each in got] == [
            [o.tokens for o in each.outputs] for each in wanted
        ]
    assert exported.score("abc", "cba").log_prob == pytest.approx(run.score("abc", "cba").log_prob, abs=1e-4)
    together = dragoman.load([folder, folder], engine="onnx").predict("abc", beam=2)
    assert together.text == dragoman.load([folder, folder]).predict("abc", beam=2).text


def test_numpy_samples_and_looks_as_torch_does(tiny_run: TinyRun) -> None:
    run = dragoman.load(tiny_run.folder)
    wanted = run.predict(["abc", "hgfed"], sample=True, samples=2, seed=3)
    plain = dragoman.load(tiny_run.folder, engine="numpy")
    got = plain.predict(["abc", "hgfed"], sample=True, samples=2, seed=3)
    assert tokens(got) == tokens(wanted)
    for one, other in zip(wanted, got, strict=True):
        assert one.outputs[0].attention is not None and other.outputs[0].attention is not None
        np.testing.assert_allclose(one.outputs[0].attention, other.outputs[0].attention, atol=1e-5)
    with pytest.raises(UserError, match="does not show self-attention"):
        plain.predict("abc", maps=True)


def test_a_wrong_weight_is_refused(tiny_run: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lower = Model.lower

    def flipped(model: Model) -> Any:
        program = lower(model)
        weights: Mapping[str, np.ndarray] = {
            name: -array if name.endswith("project.bias") or "embedding" in name else array
            for name, array in program.weights.items()
        }
        return replace(program, weights=weights)

    monkeypatch.setattr(Model, "lower", flipped)
    with pytest.raises(UserError, match="does not say what the run says"):
        dragoman.export_run(tiny_run.folder, "onnx", tmp_path / "out", inputs=INPUTS)
    assert not (tmp_path / "out").exists()


def test_a_missing_mask_is_refused(tiny_run: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_graph._Graph, "masked", lambda graph, scores, mask: scores)
    with pytest.raises(UserError, match="does not say what the run says"):
        dragoman.export_run(tiny_run.folder, "onnx", tmp_path / "out", inputs=INPUTS)
    assert not (tmp_path / "out").exists()


def test_the_command(tiny_run: TinyRun, tmp_path: Path, command: RunsCommand) -> None:
    out = tmp_path / "out"
    done = command("export", tiny_run.folder, "--to", "onnx", "--out", out, "--rows", "5", "--int8")
    assert done.returncode == 0, done.stderr
    assert b"outputs of 5 inputs are the same" in done.stdout
    wrong = command("export", tiny_run.folder, "--to", "onyx", "--out", out)
    assert wrong.returncode == 2
    assert b"there is no such format; choose from: portable, page, node, onnx" in wrong.stderr
    missing = command("predict", tiny_run.folder, "--engine", "onnx", stdin=b"abc\n")
    assert missing.returncode == 2
    assert b"has no ONNX export; write one: dragoman export" in missing.stderr
