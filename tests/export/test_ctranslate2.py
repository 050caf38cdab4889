"""Exports to CTranslate2: they say what the run says, and one that does not is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("ctranslate2", reason="ctranslate2 is an extra")

import dragoman
from dragoman.data.vocabulary import EOS
from dragoman.errors import UserError
from dragoman.export import ctranslate2 as export
from dragoman.export import ctranslate2_spec as spec
from dragoman.export import parity
from dragoman.inference.engine.torch import TorchEngine
from dragoman.program.table import Operation, Source
from dragoman.search.trace import Result
from dragoman.types import Hypothesis, Trace

if TYPE_CHECKING:
    from conftest import RunsCommand, TinyRun
    from dragoman.inference.system import System

INPUTS = ["abcdefgh"[first : first + length] for length in (1, 3, 5, 8) for first in range(5)]
BLOCKS = {"width": 16, "layers": 2, "heads": 2, "feed_forward": 32}


def train_small(pairs: Path, folder: Path, updates: int, encoder: Any, decoder: Any, embedding: int) -> System:
    training = {"threads": 1, "batch_tokens": 96, "max_updates": updates, "average": 1}
    return dragoman.train(
        pairs,
        out=folder,
        settings={
            "preset": "transformer-tiny",
            "source": {"embedding": embedding},
            "encoder": BLOCKS | encoder,
            "decoder": BLOCKS | decoder,
            "training": training,
        },
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, pairs_file: Callable[..., Path]) -> System:
    """A Transformer with tied vectors, trained for so long that the vector of the start symbol has moved."""
    folder = tmp_path_factory.mktemp("ctranslate2")
    return train_small(pairs_file(folder / "pairs.tsv"), folder / "run", 40, {}, {}, 16)


def test_an_export_answers_as_the_run_does(small: System, tmp_path: Path) -> None:
    figures = dragoman.export_run(small, "ctranslate2", tmp_path / "out", inputs=INPUTS)
    assert figures.equal + figures.ties >= 20  # all of greedy search
    assert figures.worst < 1e-4
    assert json.loads((tmp_path / "out" / "export.json").read_text())["parity"] == figures.to_json()
    assert {"config.json", "export.json", "model"} <= {path.name for path in (tmp_path / "out").iterdir()}
    assert {"model.bin", "config.json"} <= {path.name for path in (tmp_path / "out" / "model").iterdir()}


def test_quantising_leaves_the_run_alone(small: System, tmp_path: Path) -> None:
    """CTranslate2 rounds the arrays that it is given in place."""
    before = {name: tensor.clone() for name, tensor in small.model.state_dict().items()}
    for int8 in (False, True):
        export.write_model(small, small.model.lower(), tmp_path / str(int8), int8)
    after = small.model.state_dict()
    assert all(np.array_equal(tensor.numpy(), after[name].numpy()) for name, tensor in before.items())
    sizes = [(tmp_path / str(int8) / "model.bin").stat().st_size for int8 in (False, True)]
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize(
    ("encoder", "decoder", "embedding"),
    [
        ({"norm": "post", "positions": "learned"}, {"norm": "post", "heads": 4}, 12),
        ({"width": 24, "layers": 1}, {"embedding": 12, "tie_embeddings": False}, 24),
        ({}, {"embedding": 12}, 16),
    ],
    ids=["post-norm, learned positions", "widths that differ", "tied through a linear layer"],
)
def test_shapes(encoder: Any, decoder: Any, embedding: int, tmp_path: Path, pairs_file: Callable[..., Path]) -> None:
    run = train_small(pairs_file(tmp_path / "pairs.tsv"), tmp_path / "run", 4, encoder, decoder, embedding)
    assert dragoman.export_run(run, "ctranslate2", tmp_path / "out", inputs=INPUTS[:8]).worst < 1e-4


def test_an_exported_run_answers(small: System, tmp_path: Path) -> None:
    assert small.folder is not None
    folder = tmp_path / "run"
    shutil.copytree(small.folder, folder)
    dragoman.export_run(folder, "ctranslate2", inputs=INPUTS)
    exported = dragoman.load(folder, engine="ctranslate2")
    for settings in (
        {"no_repeat_ngram": 2}, {"min_length": 9}, {"max_length": 3}, {"forbid": ["c", "ab"]}, {"normalize": "none"},
    ):  # fmt: skip
        wanted, got = (each.predict(["abc", "hgfed"], beam=1, **settings) for each in (small, exported))
        assert [each.tokens for each in got] == [each.tokens for each in wanted], settings
        assert [each.score for each in got] == pytest.approx([each.score for each in wanted], abs=1e-4)
    best = exported.predict("abcd", beam=4, n_best=3).outputs
    assert len({output.tokens for output in best}) == 3
    assert [output.score for output in best] == sorted((output.score for output in best), reverse=True)
    for output in best:
        assert small.score("abcd", output.text).log_prob == pytest.approx(output.log_prob, abs=1e-4)
    assert len(exported.predict("abcd", sample=True, samples=3, top_k=4).outputs) == 3
    assert exported.predict(["", "abc"])[0].text == ""
    for wrong, name in (
        ({"prefix": "d"}, "forced prefixes"), ({"stop": "certain"}, "stop = certain"),
        ({"maps": True}, "self-attention"), ({"sample": True, "seed": 3}, "seed"), ({"ctc": 0.3}, "CTC"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=f"'ctranslate2' has no {name}"):
            exported.predict("abc", **wrong)
    with pytest.raises(UserError, match="has no scores of given outputs"):
        exported.score("abc", "cba")
    with pytest.raises(UserError, match="has no scores of given outputs, ensembles"):
        dragoman.load([folder, folder], engine="ctranslate2").predict("abc")
    model = folder / "ctranslate2" / "model" / "model.bin"
    model.write_bytes(model.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"model\.bin: differs from what the export wrote"):
        dragoman.load(folder, engine="ctranslate2")


def test_rows_have_limits_of_their_own(small: System, tmp_path: Path) -> None:
    """CTranslate2 has one limit for a batch."""
    dragoman.export_run(small, "ctranslate2", tmp_path / "out", inputs=INPUTS)
    engine = export.CTranslate2Engine(small.inputs, tmp_path / "out" / "model")
    session = replace(small, combined=engine).session(beam=3, n_best=1, min_length=20)
    rows = [each.arrays for each in session.prepare_all(["a", "abcdefgh"])]
    found = engine.search(rows, session.config, limits=[2, 30])
    assert len(found[0].best.tokens) == 2
    assert not found[0].best.finished
    assert len(found[1].best.tokens) > 20


def flip(make: Any) -> Any:
    made = make()
    made.decoder.layer[0].ffn.linear_0.weight *= -1
    return made


def start_from_zero(make: Any) -> Any:
    made = make()
    made.decoder.start_from_zero_embedding = True
    return made


def shift_positions(make: Any) -> Any:
    made = make()
    made.encoder.position_encodings.encodings = made.encoder.position_encodings.encodings[1:].copy()
    return made


def leave_out_the_end(make: Any) -> Any:
    made = make()
    made.config.add_source_eos = False
    return made


@pytest.mark.parametrize("damage", [flip, start_from_zero, shift_positions, leave_out_the_end])
def test_a_wrong_export_is_refused(
    small: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[..., Any]
) -> None:
    make = spec.make_spec
    monkeypatch.setattr(export, "make_spec", lambda *given: damage(lambda: make(*given)))
    with pytest.raises(UserError, match="does not say what the run says"):
        dragoman.export_run(small, "ctranslate2", tmp_path / "out", inputs=INPUTS)
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_expressed_is_named(small: System, tiny_run: TinyRun, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it has recurrent layers"):
        dragoman.export_run(tiny_run.folder, "ctranslate2", tmp_path / "out", inputs=INPUTS)
    program = small.model.lower()
    (source,) = program.sources
    odd = Operation("convolve", ("x",), ("y",))
    for changes, sentence in (
        ({"sources": ()}, "it is a language model"),
        ({"sources": (source, replace(source, name="other"))}, r"several sources \(source, other\)"),
        ({"sources": (Source("photo", "picture", 3),)}, "it reads pictures"),
        ({"sources": (Source("sound", "frames", 80),)}, "it reads sound or feature sequences"),
        ({"encode": (odd, *program.encode)}, "it has convolutions"),
        ({"step": (*program.step, replace(odd, kind="softmax"))}, "it has the operation 'softmax'"),
        ({"begin": program.states}, "one network reads source and target"),
        ({"step": (*program.step, program.step[1])}, "after the last layer"),
        ({"step": program.step[:-1]}, "missing at the end|where a Transformer has"),
        ({"encode": (program.encode[0], *program.encode[2:])}, "where a Transformer has"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=sentence):
            spec.make_spec(replace(program, **changes), *[["a", "b", "c", "d"]] * 2, 100)


class Liar(TorchEngine):
    """Gives another output with the score and the log-probabilities of the right one."""

    def search(self, rows: Any, config: Any, **options: Any) -> list[Result]:
        wrong = Hypothesis((5, EOS), (-0.1, -0.1), -0.1, True, ())
        return [Result((wrong,), Trace((), ())) for _ in rows]


def test_the_run_itself_judges_other_outputs(small: System) -> None:
    liar = Liar(small.model, small.inputs)
    for options in ({}, {"own_search": True}, {"quantized": True}):
        with pytest.raises(UserError, match="does not say what the run says"):
            parity.check_parity(small, liar, "liar", INPUTS, **options)


def test_a_search_of_its_own_must_be_as_good(small: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity, "LOSS", -1.0)
    with pytest.raises(UserError, match="finds worse outputs"):
        dragoman.export_run(small, "ctranslate2", tmp_path / "out", inputs=INPUTS)
    assert not (tmp_path / "out").exists()


def test_the_command(small: System, tmp_path: Path, command: RunsCommand) -> None:
    assert small.folder is not None
    folder = tmp_path / "run"
    shutil.copytree(small.folder, folder)
    with pytest.raises(UserError, match="has no CTranslate2 export; write one: dragoman export"):
        dragoman.load(folder, engine="ctranslate2")
    dragoman.export_run(folder, "ctranslate2", inputs=INPUTS[:5])
    said = command("predict", folder, "--engine", "ctranslate2", "--beam", "1", stdin=b"abc\n")
    assert said.returncode == 0, said.stderr
    assert said.stdout.decode().strip() == small.predict("abc", beam=1).text
