"""Portable exports: they say what the run says, one that does not is refused, and ``auto`` takes one that fits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import dragoman
from dragoman.errors import UserError
from dragoman.export import portable, tokenizer_table
from dragoman.inference.engine.choice import choose_engine
from dragoman.inference.system import System
from dragoman.nn.model import Model
from dragoman.runtime.library import why_unavailable

if TYPE_CHECKING:
    from conftest import CallsMain, TinyRun

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason="the native library is not built")

INPUTS = ["abcdefgh"[first : first + length] for length in (1, 3, 5, 8) for first in range(5)]


def test_an_export_answers_as_the_run_does(tiny_run: TinyRun, tmp_path: Path) -> None:
    run = System.load(tiny_run.folder)
    parity = dragoman.export_run(run, "portable", tmp_path / "out", inputs=INPUTS)
    assert (parity.equal + parity.ties, parity.different) == (40, 0)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"model.dragoman", "export.json"}
    assert json.loads((tmp_path / "out" / "export.json").read_text())["parity"]["inputs"] == 20
    model = dragoman.runtime.load(tmp_path / "out" / "model.dragoman")  # type: ignore[attr-defined]
    assert model.about["parity"] == parity.to_json()
    small = dragoman.export_run(run, "portable", tmp_path / "small", inputs=INPUTS, int8=True)
    assert small.different <= 4
    sizes = [(tmp_path / name / "model.dragoman").stat().st_size for name in ("small", "out")]
    assert sizes[0] < 0.6 * sizes[1]


def test_the_native_engine_shows_all_that_torch_shows(native_run: TinyRun) -> None:
    native, torch = (dragoman.load(native_run.folder, "cpu", engine=engine) for engine in ("native", "torch"))
    for settings in ({"beam": 1}, {"beam": 4, "n_best": 3}, {"sample": True, "samples": 2, "seed": 3}):
        for one, other in zip(*(each.predict(INPUTS, **settings) for each in (native, torch)), strict=True):
            assert [each.tokens for each in one.outputs] == [each.tokens for each in other.outputs]
            assert one.trace is not None and other.trace is not None
            for step, wanted in zip(one.trace.steps, other.trace.steps, strict=True):
                assert step.text == wanted.text
                np.testing.assert_array_equal(step.parent, wanted.parent)
                np.testing.assert_array_equal(step.fate, wanted.fate)
                np.testing.assert_allclose(step.total, wanted.total, atol=1e-4)
            np.testing.assert_allclose(one.outputs[0].attention, other.outputs[0].attention, atol=1e-5)
            assert one.axes == other.axes
    pairs = INPUTS[:5], ["cba", "", "abcdefgh", "h", "aaaa"]
    for one, other in zip(*(each.score(*pairs) for each in (native, torch)), strict=True):
        assert one.tokens == other.tokens
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)
    assert native.strides == torch.strides
    assert repr(native) == repr(torch)
    one, other = (each.session().represent([each.session().prepare("abc").read()]) for each in (native, torch))
    np.testing.assert_allclose(one[0], other[0], atol=1e-5)
    # an ensemble drives the library token by token, while short and long sources leave
    twice = [dragoman.load([native_run.folder] * 2, "cpu", engine=engine) for engine in ("native", "torch")]
    one, other = (each.predict(INPUTS, beam=2) for each in twice)
    assert [each.text for each in one] == [each.text for each in other]


def test_auto_takes_what_fits_the_weights(native_run: TinyRun, tiny_run: TinyRun, tmp_path: Path) -> None:
    assert dragoman.load(native_run.folder).engine.name == "native"
    assert dragoman.load([native_run.folder] * 2).engine.name == "ensemble"
    missing = dragoman.load(tiny_run.folder)
    assert missing.engine.name == "torch" and "has no model.dragoman" in missing.describe_engine()
    folder = tmp_path / "run"
    shutil.copytree(native_run.folder, folder)
    data = (folder / "model.dragoman").read_bytes()
    (folder / "model.dragoman").write_bytes(data[:-1])
    assert "damaged" in dragoman.load(folder).describe_engine()
    with pytest.raises(UserError, match="damaged"):
        dragoman.load(folder, engine="native")
    (folder / "model.dragoman").write_bytes(data)
    system = System.load(folder)
    system.model.decoder.embedding.weight.data[5] += 1
    system.save(folder)
    stale = dragoman.load(folder)
    assert stale.engine.name == "torch" and "was not written from the weights" in stale.describe_engine()
    with pytest.raises(UserError, match="there is no such engine; did you mean 'native'"):
        dragoman.load(folder, engine="natve")


def test_int8_is_taken_only_when_asked_for(tiny_run: TinyRun, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(tiny_run.folder, folder)
    dragoman.export_run(folder, "portable", inputs=INPUTS, int8=True)
    assert (folder / "portable" / "model.dragoman").exists()
    assert dragoman.load(folder).engine.name == "torch"
    assert dragoman.load(folder, engine="native").engine.name == "native"


def test_an_export_is_taken_in_place_of_the_file_of_training(native_run: TinyRun, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(native_run.folder, folder)
    dragoman.export_run(folder, "portable", inputs=INPUTS, int8=True)
    for engine, is_small in (("native", True), ("auto", False)):
        container = choose_engine(folder, "cpu", engine).container
        assert container is not None and bool(container.about()["int8"]) == is_small
    (folder / "portable" / "model.dragoman").unlink()
    assert choose_engine(folder, "cpu", "native").container is not None


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
        dragoman.export_run(tiny_run.folder, "portable", tmp_path / "out", inputs=INPUTS)
    assert not (tmp_path / "out" / "model.dragoman").exists()


def test_a_wrong_table_of_a_tokeniser_is_refused(
    tiny_run: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = System.load(tiny_run.folder)
    modality, target = run.modalities["source"], run.target
    for tokenizer in (modality.tokenizer, target):
        assert tokenizer is not None
        tokenizer.normalize = "nfc"  # now texts are composed before they are split
    tables = list(tokenizer_table._normalization())
    tables[-1] = b""  # nothing is composed any more
    monkeypatch.setattr(tokenizer_table, "_normalization", lambda: tuple(tables))
    vocabulary = target.vocabulary.symbols
    assert "é" not in vocabulary
    with pytest.raises(UserError, match=r"its tokeniser of '.*' reads .* differently"):
        dragoman.export_run(run, "portable", tmp_path / "out", inputs=INPUTS)
    assert not (tmp_path / "out" / "model.dragoman").exists()


def test_wrong_settings_are_refused(tiny_run: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = portable.pack_settings

    def shortened(search: Any, limits: Any, bos: int, eos: int) -> list[float]:
        return pack({**search, "max_length": 1}, limits, bos, eos)

    monkeypatch.setattr(portable, "pack_settings", shortened)
    with pytest.raises(UserError, match=r"the run answers .*, and the runtime"):
        dragoman.export_run(tiny_run.folder, "portable", tmp_path / "out", inputs=INPUTS)


def test_the_commands(tiny_run: TinyRun, tmp_path: Path, call: CallsMain) -> None:
    folder = tmp_path / "run"
    shutil.copytree(tiny_run.folder, folder)
    missing = call("predict", folder, "--engine", "native", stdin=b"abc\n")
    assert missing.code == 2 and "has no model.dragoman; write it: dragoman export" in missing.err
    done = call("export", folder, "--to", "portable", "--rows", "5")
    assert done.code == 0 and b"outputs of 5 inputs are the same" in done.out
    native, torch = (
        call("predict", folder, "--engine", engine, "--verbose", stdin=b"abc\nhgfed\n") for engine in ("auto", "torch")
    )
    assert "engine native on cpu" in native.err and "engine torch on cpu" in torch.err
    assert native.lines == torch.lines


def test_training_writes_the_file_and_a_change_of_the_weights_removes_it(
    tmp_path: Path, tiny_settings: dict[str, Any], pairs_file: Any
) -> None:
    pairs = pairs_file(tmp_path / "pairs.tsv", 60)
    short = {**tiny_settings["training"], "native": True, "max_updates": 6}
    settings = {**tiny_settings, "training": short}
    dragoman.train(pairs, out=tmp_path / "run", settings=settings)
    first = (tmp_path / "run" / "model.dragoman").read_bytes()
    native, torch = dragoman.load(tmp_path / "run"), dragoman.load(tmp_path / "run", engine="torch")
    assert native.engine.name == "native"
    assert [each.tokens for each in native.predict(INPUTS)] == [each.tokens for each in torch.predict(INPUTS)]
    longer = {**settings, "training": {**short, "max_updates": 12}}
    dragoman.train(pairs, out=tmp_path / "run", settings=longer)
    assert (tmp_path / "run" / "model.dragoman").read_bytes() != first
    assert dragoman.load(tmp_path / "run").engine.name == "native"
    off = {**settings, "training": {**short, "max_updates": 18, "native": False}}
    dragoman.train(pairs, out=tmp_path / "run", settings=off)
    assert not (tmp_path / "run" / "model.dragoman").exists()
