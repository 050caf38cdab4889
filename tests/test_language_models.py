"""Language models: plain text read as such, running text in streams that carry a state, and every verb on them."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

import dragoman
from dragoman.config import ConfigError, merge
from dragoman.data.corpus.running import RunningText
from dragoman.data.examples import Example, overlap
from dragoman.data.options import DataConfig
from dragoman.data.reading.read import read
from dragoman.data.splits import split_running
from dragoman.data.vocabulary import BOS, EOS, PAD
from dragoman.errors import UserError
from dragoman.evaluation.evaluate import evaluate
from dragoman.evaluation.metrics import measure_text
from dragoman.files import write_json
from dragoman.inference.steps import SearchCancelled
from dragoman.inference.system import System
from dragoman.recipe.layers import gather_settings
from dragoman.recipe.schema import make_recipe
from dragoman.training import validation
from dragoman.training.corpus import training_corpus
from dragoman.training.events import Stepped
from dragoman.training.parallel.group import deal, join_states
from dragoman.training.plan import plan
from dragoman.training.run import train

SMALL: dict[str, Any] = {
    "decoder": {"width": 32, "embedding": 16, "layers": 1, "dropout": 0.1},
    "target": {"tokenizer": {"kind": "characters"}},
    "training": {
        "threads": 1,
        "batch_tokens": 128,
        "max_updates": 30,
        "validate_every": 10,
        "log_every": 1,
        "chunk": 9,
    },
}
TRANSFORMER = merge(SMALL, {"decoder": {"width": 16, "layers": 2, "heads": 2, "feed_forward": 32}})


def small(kind: str = "rnn", **more: Any) -> dict[str, Any]:
    return merge(SMALL if kind == "rnn" else TRANSFORMER, more)


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chance = random.Random(3)
    words = ["ab", "abba", "cab", "bad", "dab", "ace"]
    lines = [" ".join(chance.choices(words, k=chance.randint(1, 5))) for _ in range(120)]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def by_line(text: Path, tmp_path_factory: pytest.TempPathFactory) -> System:
    return train(text, out=tmp_path_factory.mktemp("line") / "run", preset="lm-rnn", settings=small())


@pytest.fixture(scope="module", params=["rnn", "transformer"])
def running(request: pytest.FixtureRequest, text: Path, tmp_path_factory: pytest.TempPathFactory) -> System:
    asked = small(request.param, data={"running": True})
    return train(text, out=tmp_path_factory.mktemp("running") / "run", preset=f"lm-{request.param}", settings=asked)


# ---- reading


def write(tmp_path: Path, content: str, name: str = "text.txt") -> Path:
    path = tmp_path / name
    path.write_text(content)
    return path


def test_plain_text_is_one_sequence_a_line_and_a_tab_is_a_character(tmp_path: Path) -> None:
    corpus = read(write(tmp_path, "one line\n\na\tb\n  x \n"), DataConfig(source=[]))
    assert [(dict(one.sources), one.target) for one in corpus.examples] == [({}, "one line"), ({}, "a\tb"), ({}, "x")]
    assert corpus.audit.format == "text" and corpus.audit.count("blank_line") == 1
    assert not any("tab" in note for note in corpus.audit.notes)
    pairs = read(write(tmp_path, "a\tb\n" * 9), DataConfig(source=[]))
    assert any("--target" in note for note in pairs.audit.notes)


@pytest.mark.parametrize(
    ("name", "content", "config", "expected"),
    [
        ("a.tsv", "a\tb\nc\td\n", {"target": 2}, ["b", "d"]),
        ("a.txt", "a\tb\nc\td\n", {"target": 1}, ["a", "c"]),
        ("a.jsonl", '{"text": "a b"}\n{"text": "c"}\n', {}, ["a b", "c"]),
        ("a.txt", '{"id": "1", "text": "a b"}\n', {"target": "text"}, ["a b"]),
    ],
)
def test_one_column_of_a_table_can_be_the_text(
    tmp_path: Path, name: str, content: str, config: dict[str, Any], expected: list[str]
) -> None:
    found = read(write(tmp_path, content, name), DataConfig(source=[], **config)).examples
    assert [one.target for one in found] == expected and not any(one.sources for one in found)


def test_running_text_keeps_blank_lines_and_long_ones(tmp_path: Path) -> None:
    path = write(tmp_path, "one\n\n" + "x" * 6000 + "\n\nend\n")
    corpus = read(path, DataConfig(running=True))
    assert [len(one.target) for one in corpus.examples] == [3, 0, 6000, 0, 3]
    assert corpus.audit.used == corpus.audit.rows == 5 and not corpus.audit.count("duplicate")
    assert [one.target for one in read(path, DataConfig(source=[])).examples] == ["one", "end"]


def test_what_is_no_text_for_a_language_model_is_refused(text: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no tab: .*--preset lm-rnn"):
        plan(text)
    several = read([text, write(tmp_path, "a\n")], DataConfig(source=[]))  # texts, one after the other
    assert several.examples[-1].target == "a" and several.examples[-1].line == 1
    with pytest.raises(UserError, match="which is the target is not clear"):
        plan(write(tmp_path, "a\tb\n" * 20, "pairs.tsv"), preset="lm-rnn")
    with pytest.raises(ConfigError, match="lm-transformer"):
        plan(text, settings={"data": {"format": "text"}})
    with pytest.raises(UserError, match=r"text\.txt: too few to hold some out.*3 distinct lines"):
        plan(write(tmp_path, "a\nb\nc\n"), preset="lm-rnn")


def test_no_source_is_said_by_an_empty_table() -> None:
    for recipe in (
        make_recipe(gather_settings("lm-rnn")),
        make_recipe(gather_settings(overrides=["sources={}"])),
        make_recipe(gather_settings("bahdanau2015", overrides=["sources={}"])),
    ):
        assert recipe.is_language_model and recipe.reading.is_plain
    assert not make_recipe(gather_settings("bahdanau2015")).is_language_model


def test_held_out_lines_are_chosen_by_hash_and_running_text_in_pieces(text: Path) -> None:
    rows = plan(text, preset="lm-rnn", settings=small()).data
    assert {one.target for one in rows.train}.isdisjoint({one.target for one in [*rows.dev, *rows.test]})
    assert "hash of the line" in rows.held_out
    whole = plan(text, preset="lm-rnn", settings=small(data={"running": True})).data
    joined = [one.target for one in [*whole.train, *whole.dev, *whole.test]]
    assert joined == text.read_text().splitlines()
    assert (len(whole.dev), len(whole.test)) == (12, 12) and "one piece" in whole.held_out


@given(st.integers(10, 60), st.sampled_from([0.0, 0.01, 0.1, 0.3]), st.sampled_from([0.0, 0.1, 0.4]), st.integers(1, 9))
def test_pieces_of_a_running_text(lines: int, dev: float, test: float, limit: int) -> None:
    rows = [Example({}, str(line), line, "f") for line in range(lines)]
    sides = split_running(rows, dev, test, limit=limit)
    assert [*sides[0], *sides[1], *sides[2]] == rows and sides[0]
    assert bool(sides[1]) == bool(dev) and bool(sides[2]) == bool(test)
    assert len(sides[1]) <= limit and len(sides[2]) <= limit


def test_overlap_of_texts_is_told_as_such() -> None:
    rows = [Example({}, word, line, "f") for line, word in enumerate(["a", "b"], 1)]
    assert "1 of 1 held-out lines (100.0%)" in overlap(rows, rows[:1]).report()
    assert "None of the 1 held-out lines" in overlap(rows[1:], rows[:1]).report()


# ---- streams

LINES = st.lists(st.lists(st.integers(4, 30), max_size=7).map(lambda line: [*line, EOS]), min_size=1, max_size=30)


@given(LINES, st.integers(1, 11), st.integers(1, 60), st.integers(0, 3))
def test_streams_are_the_text_in_order(lines: list[list[int]], chunk: int, budget: int, epoch: int) -> None:
    flat = [token for line in lines for token in line]
    text = RunningText(np.array(flat), chunk=chunk, carries=True, bos=BOS, eos=EOS, pad=PAD)
    batches = text.batches(budget, seed=1, epoch=epoch)
    assert len(batches) == len(text.batches(budget, seed=1, epoch=epoch + 1))
    made = [text.batch(rows) for rows in batches]
    assert sum(batch.tokens for batch in made) == text.tokens == len(flat)
    streams: list[int] = []
    for row in range(len(made[0].inputs)):
        read_so_far: list[int] = []
        for batch in made:
            size = int(batch.mask[row].sum())
            inputs, targets = batch.inputs[row, :size].tolist(), batch.targets[row, :size].tolist()
            if read_so_far:  # goes on behind the chunk before
                assert inputs[0] == (BOS if read_so_far[-1] == EOS else read_so_far[-1])
            assert inputs[1:] == [BOS if token == EOS else token for token in targets[:-1]]
            assert 0 < size <= chunk + 1
            read_so_far += targets
        streams += read_so_far
    # behind each other, they are the text from some place on, round to that place
    assert any(streams == flat[cut:] + flat[:cut] for cut in range(len(flat)))


def test_chunks_with_a_carried_state_are_the_whole_text(text: Path) -> None:
    planned = plan(text, preset="lm-rnn", settings=small(data={"running": True}, decoder={"dropout": 0.0}))
    model, data = planned.system.model.eval(), training_corpus(planned.system, planned.rows.select(np.arange(10)))
    assert isinstance(data, RunningText) and data.carries
    chunks = data.batches(9, seed=1, epoch=0)
    whole = data.batch(np.stack([chunks[0][:, 0], [data.tokens]], 1))  # one chunk, from where the epoch begins
    state, pieces = None, []
    for rows in chunks:
        step = model.teach(replace(data.batch(rows), state=state))
        pieces.append(step.log_probs)
        state = step.state.detach()
    assert torch.allclose(torch.cat(pieces, 1), model.teach(whole).log_probs, atol=1e-5)


def test_streams_dealt_out_among_cores_carry_their_own_states(text: Path) -> None:
    planned = plan(text, preset="lm-rnn", settings=small(data={"running": True}))
    model, data = planned.system.model.eval(), training_corpus(planned.system, planned.rows)
    state = None
    for rows in data.batches(63, seed=1, epoch=0)[:3]:  # seven streams for three cores
        batch = replace(data.batch(rows), state=state)
        dealt = join_states([model.teach(deal(batch, index, 3)).state for index in range(3)])
        state = model.teach(batch).state
        assert dealt.sources == state.sources == 7
        assert torch.allclose(dealt.carry["hidden"], state.carry["hidden"], atol=1e-6)  # type: ignore[call-overload]


# ---- going on


@pytest.mark.parametrize(("accumulate", "streams", "threads"), [(1, 4, 1), (2, 4, 1), (1, 9, 2)])
def test_running_text_in_sittings_is_running_text_in_one(
    text: Path, tmp_path: Path, accumulate: int, streams: int, threads: int
) -> None:
    training = {"accumulate": accumulate, "max_updates": 23, "batch_tokens": 9 * streams, "threads": threads}
    asked = small(data={"running": True}, training=training)
    train(text, out=tmp_path / "whole", preset="lm-rnn", settings=asked)
    for updates in (1, 5, 3, 9):
        stop = iter(range(1, updates + 1))
        train(
            text, out=tmp_path / "pieces", preset="lm-rnn", settings=asked,
            should_stop=lambda stop=stop, updates=updates: next(stop) == updates,
        )  # fmt: skip
        assert any(name.startswith("carried") for name in load_file(tmp_path / "pieces" / "checkpoint.safetensors"))
    train(text, out=tmp_path / "pieces", preset="lm-rnn", settings=asked)
    assert digest(tmp_path / "pieces") == digest(tmp_path / "whole")


def test_running_text_after_a_crash(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates behind the last checkpoint are lost and done again; and forgetting the state would be noticed."""
    asked = small(data={"running": True}, training={"batch_tokens": 36, "max_updates": 20, "save_every": 1e-6})
    train(text, out=tmp_path / "whole", preset="lm-rnn", settings=asked)

    def crash(event: Any) -> None:
        if isinstance(event, Stepped) and event.update == 8:
            raise RuntimeError("the power is gone")

    for name, forgets in (("crashed", False), ("forgetful", True)):
        with pytest.raises(RuntimeError, match="power"):
            train(text, out=tmp_path / name, preset="lm-rnn", settings=asked, on_event=crash)
        with monkeypatch.context() as patch:
            if forgets:
                patch.setattr("dragoman.training.checkpoints.checkpoint.Checkpoint.carried", lambda *_: None)
            train(text, out=tmp_path / name, preset="lm-rnn", settings=asked)
    assert digest(tmp_path / "crashed") == digest(tmp_path / "whole") != digest(tmp_path / "forgetful")


def test_a_run_of_an_earlier_version_goes_on(text: Path, tmp_path: Path) -> None:
    """Settings that it did not know have their defaults."""
    asked = small(training={"max_updates": 4, "chunk": 64})
    train(text, out=tmp_path, preset="lm-rnn", settings=asked)
    record = json.loads((tmp_path / "run.json").read_text())
    del record["recipe"]["training"]["chunk"], record["recipe"]["data"]["running"]
    write_json(tmp_path / "run.json", record)
    train(text, out=tmp_path, preset="lm-rnn", settings=merge(asked, {"training": {"max_updates": 6}}))
    with pytest.raises(UserError, match="another run"):
        train(text, out=tmp_path, preset="lm-rnn", settings=merge(asked, {"data": {"running": True}}))


# ---- predicting

PROMPTS = ["", "ab", "cab da", "  ab ", "", "zzz ✗ ab", "ab" * 40]


def test_outputs_are_prompts_gone_on(by_line: System) -> None:
    for options in ({"beam": 1}, {"beam": 4, "n_best": 3}, {"sample": True, "samples": 3}):
        for prompt, prediction in zip(PROMPTS, by_line.predict(PROMPTS, **options), strict=True):
            assert all(output.text.startswith(prompt.strip()) for output in prediction.outputs)
            assert prediction.outputs[0].tokens[-1] == "</s>" or not prediction.outputs[0].finished
    assert by_line.predict([""])[0].text == by_line("") != ""
    assert by_line.search_config().beam == 1  # greedy, if nothing else is said


def test_outputs_do_not_depend_on_company(by_line: System) -> None:
    for options in ({"beam": 3, "n_best": 2}, {"sample": True, "seed": 5}):
        together = by_line.predict(PROMPTS, **options)
        for number, (prompt, prediction) in enumerate(zip(PROMPTS, together, strict=True)):
            alone = next(iter(by_line.stream([prompt], first=number, **options)))
            assert [one.text for one in alone.outputs] == [one.text for one in prediction.outputs]


def test_a_prompt_leaves_room_to_go_on(by_line: System) -> None:
    long = "ab " * 200 + "ab"
    longest = by_line.lengths.limit(0)
    output = by_line.predict([long], min_length=len(long) + longest - 1)[0].outputs[0]
    assert len(output.tokens) == len(long) + longest


def test_what_is_no_prompt_is_refused(by_line: System) -> None:
    with pytest.raises(UserError, match="prefix"):
        list(by_line.stream(["a"], prefix=["b"]))
    with pytest.raises(UserError, match="give it texts"):
        by_line.predict([{"source": "a"}])
    with pytest.raises(UserError, match=r"system\.score\(texts\)"):
        by_line.score(["a"], ["b"])


def test_the_folder_is_all_that_is_needed(by_line: System, running: System) -> None:
    for system in (by_line, running):
        loaded = dragoman.load(system.folder or "")
        for one, other in zip(system.predict(PROMPTS, beam=2), loaded.predict(PROMPTS, beam=2, batch=3), strict=True):
            assert one.text == other.text and one.score == pytest.approx(other.score, abs=1e-4)
        assert [x.log_prob for x in loaded.score(["ab", "cab"])] == pytest.approx(
            [x.log_prob for x in system.score(["ab", "cab"])], abs=1e-4
        )
        step = loaded.model(torch.full((3, 1), BOS), loaded.model.start(None, 3))  # as another search may use it
        assert step.log_probs.shape == (3, 1, loaded.target.size)


# ---- scoring


def test_the_score_of_an_output_is_the_score_of_its_text(by_line: System) -> None:
    for prediction in by_line.predict(["", "ab", "cab b"], beam=3):
        output = prediction.outputs[0]
        assert output.finished
        assert by_line.score([output.text])[0].log_prob == pytest.approx(output.log_prob, abs=1e-4)


def test_probabilities_of_all_short_texts_sum_to_one_at_most(by_line: System) -> None:
    texts = ["", *(a for a in "abcde"), *(a + b for a in "abcde" for b in "abcde")]
    total = sum(math.exp(one.log_prob) for one in by_line.score(texts))
    assert 0 < total < 1


def test_running_scores_are_those_of_the_text_in_one_piece(running: System) -> None:
    lines = ["ab cab", "", "bad", "abba ace ab dab", "ab"]
    gold = [[*running.target.encode(line), EOS] for line in lines]
    flat = [token for line in gold for token in line]
    inputs = [BOS, *(BOS if token == EOS else token for token in flat[:-1])]
    chunk = len(flat) if running.model.decoder.has_bounded_state else running.recipe.training.chunk
    found: list[float] = []
    for begin in range(0, len(flat), chunk):
        tokens = torch.tensor([inputs[begin : begin + chunk]])
        log_probs = running.model(tokens, running.model.start(None, 1)).log_probs[0]
        found += [log_probs[i, token].item() for i, token in enumerate(flat[begin : begin + chunk])]
    for batch in (1, 64):
        scored = running.score(lines, batch=batch)
        assert [len(one.tokens) for one in scored] == [len(line) for line in gold]
        assert [x for one in scored for x in one.log_probs] == pytest.approx(found, abs=1e-4)
    apart = running.score(lines, running=False)
    assert apart[0].log_prob == pytest.approx(scored[0].log_prob, abs=1e-4)
    assert apart[3].log_prob != pytest.approx(scored[3].log_prob, abs=1e-4)


# ---- measuring


def test_units_of_perplexity() -> None:
    report = measure_text(["ab cd", ""], [-6.0, -1.0], [4, 1], token_kind="subwords", unknown=1, resamples=10)
    assert report.headline == "perplexity" and report.value == pytest.approx(math.exp(7 / 5))
    assert report.scores["word_perplexity"].value == pytest.approx(math.exp(7 / 4))
    assert report.scores["character_perplexity"].value == pytest.approx(math.exp(7 / 7))
    assert report.scores["bits_per_character"].value == pytest.approx(1 / math.log(2))
    assert "5 subwords" in report.to_text() and "<unk>" in report.to_text()


def test_evaluation_is_the_score_of_the_text(by_line: System, running: System, text: Path) -> None:
    for system in (by_line, running):
        examples = read(text, system.recipe.reading).examples
        scored = system.score([one.target for one in examples])
        tokens = sum(len(one.tokens) for one in scored)
        expected = math.exp(-sum(one.log_prob for one in scored) / tokens)
        assert evaluate(system, examples).value == pytest.approx(expected, rel=1e-5)
        card = (system.folder / "README.md").read_text()  # type: ignore[operator]
        assert "A language model" in card and "perplexity per word" in card


def test_a_paired_run_may_be_chosen_by_perplexity(
    tmp_path: Path, pairs_file: Callable[..., Path], tiny_settings: dict[str, Any]
) -> None:
    more = {"metric": "perplexity", "training": {"max_updates": 6, "validate_every": 3}}
    system = train(pairs_file(tmp_path / "pairs.tsv"), out=tmp_path / "run", settings=merge(tiny_settings, more))
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["headline"] == "perplexity"
    with pytest.raises(UserError, match=r"system\.score\(sources, targets\)"):
        system.score(["abc"])


# ---- learning


def test_a_carried_state_remembers_the_line_before(tmp_path: Path) -> None:
    """Every second line repeats a letter: ln 2 for six tokens to who remembers, twice that to who does not."""
    chance = random.Random(1)
    asked = "".join(f"q{letter}\na{letter}\n" for letter in chance.choices("xy", k=900))
    settings = small(
        data={"running": True},
        training={
            "chunk": 5, "batch_tokens": 80, "max_updates": 250, "validate_every": 50, "average": 1,
            "optim": {"learning_rate": 0.01, "schedule": "cosine", "warmup": 20},
        },
        decoder={"dropout": 0.0},
    )  # fmt: skip
    system = train(write(tmp_path, asked), out=tmp_path / "run", preset="lm-rnn", settings=settings)
    report = evaluate(system, read(tmp_path / "text.txt", system.recipe.reading).examples)
    assert math.log(report.value) < 1.2 * math.log(2) / 6


@pytest.mark.parametrize("kind", ["rnn", "transformer", "conv"])
def test_every_decoder_learns_as_a_language_model(kind: str, tmp_path: Path) -> None:
    """Three starts are drawn, all else follows: the best that can be had is 3 ln 10 for fifteen tokens."""
    chance = random.Random(1)
    letters = "abcdefghijabcd"
    runs = [letters[at : at + 4] for at in range(10)]
    lines = "".join(" ".join(chance.choices(runs, k=3)) + "\n" for _ in range(600))
    shape = {
        "rnn": {"kind": "rnn", "width": 32, "embedding": 16, "dropout": 0.0},
        "transformer": {
            "kind": "transformer",
            "width": 32,
            "layers": 1,
            "heads": 2,
            "feed_forward": 32,
            "dropout": 0.0,
        },
        "conv": {"kind": "conv", "width": 32, "layers": 2, "embedding": 32, "dropout": 0.0},
    }[kind]
    optim = {"learning_rate": 0.01, "schedule": "cosine", "warmup": 20}
    settings = {
        "sources": {}, "decoder": shape, "target": {"tokenizer": {"kind": "characters"}},
        "training": {"threads": 1, "batch_tokens": 512, "max_updates": 120, "validate_every": 60, "optim": optim},
    }  # fmt: skip
    system = train(write(tmp_path, lines), out=tmp_path / "run", settings=settings)
    report = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert report["side"] == "test"
    assert math.log(report["scores"]["perplexity"]["value"]) < 1.25 * 3 * math.log(10) / 15
    assert system("cd").startswith("cdef ") and system("cdef jabc bcd") == "cdef jabc bcde"


# ---- the command line


def test_every_verb(call: Any, text: Path, by_line: System, tmp_path: Path) -> None:
    run = by_line.folder
    assert call("check", text).code == 2
    checked = call("check", text, "--preset", "lm-rnn", "--dev", text)
    assert checked.code == 0 and b"plain text" in checked.out and b"held-out lines" in checked.out
    flowing = call("check", text, "--preset", "lm-rnn", "--set", "data.running=true", "--json")
    assert json.loads(flowing.out)["train"]["notes"] == ["plain text, one running text"]
    out = call("predict", run, stdin=b"ab\n\nbad c\n")
    assert out.code == 0 and [line[:n] for line, n in zip(out.lines, (2, 0, 5), strict=True)] == ["ab", "", "bad c"]
    assert all(out.lines)
    many = call("predict", run, "--sample", "--n-best", 3, "--seed", 2, stdin=b"ab\n")
    assert len(many.lines[0].split("\t")) == 3
    scored = call("score", run, "-", stdin=b"ab\nbad cab\n")
    assert [line.split("\t")[2] for line in scored.lines] == ["ab", "bad cab"]
    assert "per token" in scored.err and "per word" in scored.err and "per character" in scored.err
    first = call("score", run, "-", "--json", stdin=b"ab\n")
    assert json.loads(first.out)["log_prob"] == pytest.approx(float(scored.lines[0].split("\t")[0]), abs=1e-3)
    measured = json.loads(call("evaluate", run, text, "--json").out)
    assert measured["headline"] == "perplexity" and measured["rows"] == 120
    assert call("score", run, text, "--source", 1).code == 2
    assert "no attention" in call("inspect", run, "ab", "-o", tmp_path / "x.svg").err


def test_a_long_validation_ends_when_training_is_asked_to_stop(
    by_line: System, running: System, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = read(text, DataConfig(format="text")).examples
    monkeypatch.setattr(validation, "PATIENCE", -1.0)
    for system in (by_line, running):
        validation.make_validator(system, dev, "perplexity", None)(system.model)
        with pytest.raises(SearchCancelled):
            validation.make_validator(system, dev, "perplexity", None, lambda: True)(system.model)
