"""A trained system: what it predicts does not depend on company, and its folder is all it needs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import dragoman
from dragoman.data.vocabulary import EOS
from dragoman.errors import UserError
from dragoman.files import read_tensor_header, write_json, write_tensors
from dragoman.inference.predictions import Prediction
from dragoman.inference.system import System
from dragoman.runs.weights import named_weights
from dragoman.training.plan import plan
from dragoman.training.run import train

UNUSUAL = [
    "abc",
    "",
    "😀🏳️‍🌈",
    "שלום עולם",
    "   ",
    "a" * 500,
    "漢字かな",
    "\u2028",
    "a\nb\r\nc",
    "a\tb",
    "\ufeffabc",
    "e\u0301",
    "\udc80",
    "\x00\x1b",
    "</s><pad>",
    "hgf",
]


@pytest.fixture(scope="module")
def system(tiny_run: Any) -> System:
    return dragoman.load(tiny_run.folder)


@pytest.fixture(scope="module")
def inputs(tiny_run: Any) -> list[str]:
    """Sixty real inputs of very different length."""
    lines = tiny_run.pairs.read_text(encoding="utf-8").splitlines()
    sources = [line.split("\t")[0] for line in lines[:55]]
    return [*sources, "a", "abcdefgh" * 3, "hhhhhhhhhhhhhh", "xyz", "ab cd"]


@pytest.fixture
def copied(tiny_run: Any, tmp_path: Path) -> Path:
    """A run folder that may be damaged."""
    return Path(shutil.copytree(tiny_run.folder, tmp_path / "copy"))


def same(first: Prediction, second: Prediction, tolerance: float = 1e-4) -> bool:
    if len(first.outputs) != len(second.outputs):
        return False
    return all(
        a.text == b.text
        and a.tokens == b.tokens
        and a.finished == b.finished
        and abs(a.score - b.score) < tolerance
        and np.allclose(a.log_probs, b.log_probs, atol=tolerance, rtol=0)
        for a, b in zip(first.outputs, second.outputs, strict=True)
    )


# ---- predictions


def test_what_training_returns_is_what_loading_gives(
    tmp_path: Path, pairs_file: Callable[..., Path], tiny_settings: dict[str, Any]
) -> None:
    trained = train(pairs_file(tmp_path / "pairs.tsv", 60), out=tmp_path / "run", settings=tiny_settings)
    loaded = dragoman.load(tmp_path / "run")
    assert loaded.recipe == trained.recipe
    assert loaded.lengths == trained.lengths
    texts = ["abc", "hgfe", "a", "", "xyz"]
    for first, second in zip(trained.predict(texts), loaded.predict(texts), strict=True):
        assert same(first, second, 1e-9)


def test_one_prediction_an_input_in_order(system: System, inputs: list[str]) -> None:
    predictions = system.predict(inputs, batch=7)
    assert [one.source for one in predictions] == inputs
    for index in (0, 17, 59):
        assert same(predictions[index], system.predict([inputs[index]])[0])


def test_no_inputs_no_predictions(system: System) -> None:
    assert system.predict([]) == []
    assert system.score([], []) == []


@pytest.mark.parametrize("beam", [1, 3])
def test_unusual_inputs_have_an_output_each(system: System, beam: int) -> None:
    predictions = system.predict(UNUSUAL, beam=beam)
    assert [one.source for one in predictions] == UNUSUAL
    for raw, prediction in zip(UNUSUAL, predictions, strict=True):
        assert "\n" not in prediction.text
        if not raw.strip():
            assert (prediction.text, prediction.tokens, prediction.score) == ("", (), 0.0)
            json.dumps(prediction.to_json())
    assert predictions[0].text == predictions[UNUSUAL.index("\ufeffabc")].text


def test_texts_pass_through_the_same_door_as_in_training(system: System) -> None:
    first, second = system.predict(["  abc\u3000", "abc"])
    assert same(first, second, 1e-9)


@pytest.mark.parametrize("beam", [1, 5])
def test_batch_size_changes_nothing(system: System, inputs: list[str], beam: int) -> None:
    runs = [system.predict(inputs, batch=batch, beam=beam, n_best=beam) for batch in (1, 7, 64)]
    for index, raw in enumerate(inputs):
        assert same(runs[0][index], runs[1][index]), raw
        assert same(runs[0][index], runs[2][index]), raw


def test_the_best_one_is_the_first_of_five(system: System, inputs: list[str]) -> None:
    for one, five in zip(
        system.predict(inputs, beam=5, n_best=1), system.predict(inputs, beam=5, n_best=5), strict=True
    ):
        assert len(one.outputs) == 1
        assert one.outputs[0].tokens == five.outputs[0].tokens
        assert one.score == pytest.approx(five.score, abs=1e-6)
        scores = [output.score for output in five.outputs]
        assert len({output.tokens for output in five.outputs}) == len(five.outputs)
        finished = [output.finished for output in five.outputs]
        assert sorted(finished, reverse=True) == finished
        assert scores == sorted(scores, reverse=True) or not all(finished)


def test_asking_for_more_outputs_widens_the_beam(system: System) -> None:
    assert len(system.predict(["abcd"], n_best=8)[0].outputs) == 8


def test_a_beam_narrower_than_the_outputs_is_refused(system: System) -> None:
    with pytest.raises(UserError, match="n_best"):
        system.predict(["abcd"], beam=2, n_best=3)
    with pytest.raises(UserError, match=r"beem.*did you mean 'beam'"):
        system.predict(["abcd"], beem=2)


def test_attention_or_trace_do_not_change_the_output(system: System, inputs: list[str]) -> None:
    bare = system.predict(inputs[:20], attention=False, trace=False)
    for one, full in zip(bare, system.predict(inputs[:20]), strict=True):
        assert one.attention is None and one.trace is None
        assert full.attention is not None and full.trace is not None
        assert same(one, full)


def test_the_score_of_an_output_is_the_forced_score_of_its_text(system: System, inputs: list[str]) -> None:
    compared = 0
    predictions = system.predict(inputs, beam=3, n_best=3)
    for output, raw in [(output, one.source) for one in predictions for output in one.outputs]:
        tokens = tuple(system.target.pieces([*system.target.encode(output.text), EOS]))
        if output.finished and tokens == output.tokens:
            scored = system.score([raw], [output.text])[0]
            assert scored.tokens == output.tokens
            assert scored.log_prob == pytest.approx(output.log_prob, abs=1e-4)
            assert np.allclose(scored.log_probs, output.log_probs, atol=1e-4)
            compared += 1
    assert compared > 60  # of 180: the comparison is not empty


def test_scores_do_not_depend_on_company(system: System, inputs: list[str]) -> None:
    targets = [raw[::-1] for raw in inputs]
    together = system.score(inputs, targets, batch=64)
    for index, alone in enumerate(system.score(inputs, targets, batch=1)):
        assert alone.tokens == together[index].tokens
        assert alone.log_prob == pytest.approx(together[index].log_prob, abs=1e-4)
        assert alone.log_prob == pytest.approx(sum(alone.log_probs))
        assert alone.perplexity == pytest.approx(np.exp(-alone.log_prob / len(alone.tokens)))


def test_scoring_needs_a_target_a_source(system: System) -> None:
    with pytest.raises(UserError, match="got 1 for 2"):
        system.score(["a", "b"], ["a"])


def test_attention_has_a_row_a_token_and_a_column_a_label(system: System, inputs: list[str]) -> None:
    for prediction in system.predict(inputs, beam=3, n_best=2, batch=16):
        modality = system.modalities["source"]
        assert prediction.labels == modality.axis(modality.array(str(prediction.source))).labels
        for output in prediction.outputs:
            assert output.attention is not None
            assert output.attention.shape == (len(output.tokens), 1, len(prediction.labels))
            assert np.allclose(output.attention.sum(-1), 1, atol=1e-5)
            assert (output.attention >= 0).all()


def test_a_forced_prefix_begins_every_output(system: System, inputs: list[str]) -> None:
    begins = [("hg", "", "aab", "c")[index % 4] for index in range(len(inputs))]
    runs = [system.predict(inputs, prefix=begins, beam=beam, batch=batch) for beam, batch in ((1, 64), (4, 5), (4, 64))]
    for run in runs:
        assert all(one.text.startswith(begin) for one, begin in zip(run, begins, strict=True))
    assert all(same(first, second) for first, second in zip(runs[1], runs[2], strict=True))
    free = system.predict(inputs, beam=4)
    assert all(same(one, free[index]) for index, one in enumerate(runs[2]) if not begins[index])
    with pytest.raises(UserError, match="prefix"):
        system.predict(inputs, prefix=["a"])


def test_a_prefix_is_given_back_as_it_was_written(system: System) -> None:
    (found,) = system.predict(["abc"], prefix=["Zü"], beam=2)
    assert found.text.startswith("Zü"), "letters the model does not know"


def test_inputs_may_be_paths_and_nothing_else(system: System) -> None:
    assert system(Path("abc")) == system("abc")  # type: ignore[arg-type]
    for wrong in (5, b"abc", None, {"source": 5}):
        with pytest.raises(UserError, match="an input is a text"):
            system.predict([wrong])  # type: ignore[list-item]


def test_loading_draws_no_random_numbers(tiny_run: Any) -> None:
    torch.manual_seed(3)
    wanted = torch.rand(4)
    torch.manual_seed(3)
    System.load(tiny_run.folder)
    assert torch.equal(torch.rand(4), wanted)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_what_is_too_long_for_the_model_has_no_answer_and_the_others_have(
    pairs_file: Callable[..., Path], tmp_path: Path, side: str
) -> None:
    narrow = {"width": 16, "layers": 1}
    settings: dict[str, Any] = {
        "source": {"embedding": 16}, "encoder": dict(narrow), "decoder": {**narrow, "embedding": 16},
        "training": {"threads": 1},
    }  # fmt: skip
    settings[side]["max_positions"] = 12
    system = plan(pairs_file(tmp_path / "pairs.tsv"), preset="gehring2017", settings=settings).system
    rows = ["abc", "a" * 40, "bca"]
    if side == "encoder":
        given: dict[str, Any] = {"max_length": 8}
    else:
        given = {"prefix": ["", "a" * 20, ""], "max_length": 8}
    found = system.predict(rows, **given)
    assert found[1].text == "" and "max_positions = 12" in str(found[1].error)
    for index in (0, 2):
        alone = {key: [value[index]] if key == "prefix" else value for key, value in given.items()}
        (wanted,) = system.predict([rows[index]], **alone)
        assert found[index].error is None and found[index].tokens == wanted.tokens


def test_samples_depend_on_the_seed_and_the_input_alone(system: System, inputs: list[str]) -> None:
    def draw(seed: int, batch: int, **more: Any) -> list[tuple[str, ...]]:
        return [one.tokens for one in system.predict(inputs, sample=True, seed=seed, batch=batch, **more)]

    first = draw(3, 64)
    assert draw(3, 64) == first
    assert draw(3, 7) == first
    assert draw(3, 1) == first
    assert draw(4, 64) != first
    several = system.predict(inputs, sample=True, seed=3, samples=4)
    assert all(len(one.outputs) == 4 for one in several)
    assert any(len({output.tokens for output in one.outputs}) > 1 for one in several)


def test_samples_of_a_part_are_those_of_the_whole(system: System, inputs: list[str]) -> None:
    whole = [one.tokens for one in system.predict(inputs, sample=True)]
    part = [one.tokens for one in system.stream(inputs[20:], first=20, sample=True)]
    assert part == whole[20:]


def test_stream_gives_out_before_all_is_read(system: System, inputs: list[str]) -> None:
    stream = system.stream(sorted(inputs, key=len), batch=10)
    assert isinstance(stream, Iterator)
    assert next(stream).source == min(inputs, key=len)


def test_a_call_takes_one_input(system: System) -> None:
    assert system("abc") == system.predict(["abc"])[0].text
    with pytest.raises(UserError, match=r"one input.*system\.predict"):
        system(["abc"])  # type: ignore[arg-type]
    with pytest.raises(UserError, match="source"):
        system.predict([{"picture": "abc"}])
    assert system({"source": "abc"}) == system("abc")


def test_special_symbols_are_never_produced(system: System, inputs: list[str]) -> None:
    for prediction in system.predict(inputs, sample=True, temperature=5.0):
        assert not {"<pad>", "<unk>", "<s>"} & set(prediction.tokens)
        assert "</s>" not in prediction.tokens[:-1]


def test_outputs_end_somewhere(system: System) -> None:
    long = system.predict(["a" * 500])[0]
    assert len(long.tokens) <= system.lengths.most
    assert len(system.predict(["abc"], max_length=2)[0].tokens) <= 2
    assert len(system.predict(["abc"], min_length=5)[0].tokens) >= 6


# ---- folder


def test_the_folder_holds_data_only(tiny_run: Any) -> None:
    files = [path for path in tiny_run.folder.rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert {"config.json", "model.safetensors", "audit.json", "metrics.jsonl", "README.md"} <= names
    assert {path.suffix for path in files} <= {".json", ".jsonl", ".safetensors", ".md", ".spm", ".dragoman"}
    assert not [name for name in names if "partial" in name]
    for path in files:
        assert not path.read_bytes().startswith((b"PK", b"\x80"))  # neither a zip archive nor a pickle
        if path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
    weights = load_file(tiny_run.folder / "model.safetensors")
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())


def test_the_folder_can_be_moved(tiny_run: Any, copied: Path, system: System) -> None:
    elsewhere = copied.parent / "name with spaces ü" / "deeper"
    elsewhere.parent.mkdir()
    copied.rename(elsewhere)
    for name in ("checkpoint.safetensors", "run.json", "audit.json", "metrics.jsonl", "README.md", "evaluation.json"):
        (elsewhere / name).unlink()
    shutil.rmtree(elsewhere / "snapshots")
    moved = dragoman.load(str(elsewhere))
    texts = ["abc", "hgfed", ""]
    assert all(same(a, b, 1e-9) for a, b in zip(moved.predict(texts), system.predict(texts), strict=True))


def test_saving_again_gives_the_same_files(tiny_run: Any, tmp_path: Path, system: System) -> None:
    dragoman.load(tiny_run.folder).save(tmp_path / "again")
    for name in ("model.safetensors", "config.json", "source.tokenizer.json", "target.tokenizer.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tiny_run.folder / name).read_bytes()


NEEDED = ["config.json", "model.safetensors", "source.tokenizer.json", "target.tokenizer.json"]


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("damage", ["missing", "empty", "half", "noise", "folder"])
def test_a_damaged_folder_is_refused_by_the_name_of_the_file(copied: Path, name: str, damage: str) -> None:
    path = copied / name
    data = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes({"empty": b"", "half": data[: len(data) // 2], "noise": b"\xff\x00" * 50}[damage])
    with pytest.raises(UserError, match=name.replace(".", r"\.")):
        dragoman.load(copied)


@pytest.mark.parametrize(
    "change",
    [
        lambda plain: plain.clear(),
        lambda plain: plain.update(format=99),
        lambda plain: plain.update(recipe=[1]),
        lambda plain: plain.update(recipe=3),
        lambda plain: plain.update(lengths={"ratio": "x"}),
        lambda plain: plain.update(lengths=None),
        lambda plain: plain["recipe"].update(decoder={"kind": "os"}),
        lambda plain: plain["recipe"].update(decoder={"kind": "../../evil"}),
        lambda plain: plain["recipe"]["decoder"].update(width="wide"),
        lambda plain: plain["recipe"]["sources"].update(source=3),
    ],
)
def test_a_config_that_makes_no_sense_is_refused_by_name(copied: Path, change: Callable[[Any], None]) -> None:
    path = copied / "config.json"
    plain = json.loads(path.read_text(encoding="utf-8"))
    change(plain)
    write_json(path, plain)
    with pytest.raises(UserError, match=r"config\.json"):
        dragoman.load(copied)


def test_weights_of_another_shape_are_refused(copied: Path) -> None:
    path = copied / "config.json"
    plain = json.loads(path.read_text(encoding="utf-8"))
    plain["recipe"]["decoder"]["width"] = 48
    write_json(path, plain)
    with pytest.raises(UserError, match=r"model\.safetensors: does not fit the config.*other shape: \['decoder"):
        dragoman.load(copied)


@pytest.mark.parametrize("change", ["missing", "unknown"])
def test_weights_by_other_names_are_refused(copied: Path, change: str) -> None:
    path = copied / "model.safetensors"
    weights = load_file(path)
    if change == "missing":
        del weights[min(weights)]
    else:
        weights["decoder.new"] = torch.zeros(1)
    write_tensors(path, weights, read_tensor_header(path).metadata)
    with pytest.raises(UserError, match=rf"model\.safetensors.*{change}: \["):
        dragoman.load(copied)


def test_a_pickle_in_place_of_the_weights_is_not_executed(copied: Path, tmp_path: Path) -> None:
    torch.save({"weights": Evil(tmp_path / "executed")}, copied / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.safetensors"):
        dragoman.load(copied)
    assert not (tmp_path / "executed").exists()


class Evil:
    """Unpickling it would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("place", ["nowhere", "file"])
def test_what_is_no_run_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(UserError, match="not the folder of a run"):
        dragoman.load(tmp_path / place)


# ---- other kinds of systems, as a whole

VARIANTS: dict[str, dict[str, Any]] = {
    "shared vocabulary and vectors": {"share_vocabulary": True, "share_embeddings": True},
    "no attention": {"decoder": {"context": "initial", "bridge": "dense"}},
    "context at every step": {"decoder": {"context": "every-step", "cell": "gru"}, "encoder": {"cell": "gru"}},
    "before, subwords": {
        "decoder": {"timing": "before"},
        "source": {"tokenizer": {"kind": "subwords", "size": 280}},
        "target": {"tokenizer": {"kind": "subwords", "size": 280}},
    },
    "input feeding, bytes": {"decoder": {"input_feeding": True}, "target": {"tokenizer": {"kind": "bytes"}}},
    "another metric": {"metric": "bleu", "data": {"test_share": 0}},
    "a size that the chosen tokeniser does not heed": {"target": {"tokenizer": {"size": 500}}},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_each_variant_trains_saves_loads_and_decodes(
    name: str, tmp_path: Path, pairs_file: Callable[..., Path], tiny_settings: dict[str, Any]
) -> None:
    from dragoman.config import merge
    from dragoman.recipe.schema import spell_out

    settings = merge(spell_out(merge(tiny_settings, VARIANTS[name])), {"training": {"max_updates": 8}})
    trained = train(pairs_file(tmp_path / "pairs.tsv", 80), out=tmp_path / "run", settings=settings)
    loaded = dragoman.load(tmp_path / "run")
    assert named_weights(loaded.model).keys() == load_file(tmp_path / "run" / "model.safetensors").keys()
    texts = ["abc", "hgfe", "", "xyz", "ab cd"]
    for first, second in zip(trained.predict(texts, beam=3), loaded.predict(texts, beam=3, batch=2), strict=True):
        assert same(first, second)
