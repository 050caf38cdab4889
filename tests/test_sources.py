"""Several sources, from the command line and from Python: learnt, saved, loaded, predicted, measured."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dragoman.config import ConfigError
from dragoman.errors import UserError
from dragoman.evaluation.evaluate import evaluate
from dragoman.inference.build import build_frontend
from dragoman.inference.system import System
from dragoman.training.plan import plan
from dragoman.training.run import train

STATES = ("cold", "hot")
OTHERS = ("ann", "bob", "cid", "dan", "eve")
SMALL: dict[str, Any] = {
    "source": {"embedding": 16, "dropout": 0.0, "tokenizer": {"kind": "words"}},
    "encoder": {"width": 16},
    "decoder": {"width": 32, "embedding": 16, "dropout": 0.0},
    "training": {
        "threads": 1, "batch_tokens": 256, "max_updates": 300, "max_epochs": 200, "average": 1, "validate_every": 100,
        "label_smoothing": 0.0, "optim": {"learning_rate": 5e-3, "warmup": 30},
    },
}  # fmt: skip


def rows(count: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """A story says hot or cold, the question asks for the same or the opposite: neither alone gives the answer."""
    chance = random.Random(seed)
    found: dict[tuple[str, str, str], None] = {}
    while len(found) < count:
        state, turned = chance.randrange(2), chance.randrange(2)
        story = f"{chance.choice(OTHERS)} {STATES[state]} {chance.choice(OTHERS)}"
        question = f"{chance.choice(OTHERS)} {('same', 'opposite')[turned]}"
        found[story, question, STATES[state ^ turned]] = None
    return list(found)


def write(path: Path, table: list[tuple[str, str, str]], header: str = "story\tquestion\tanswer") -> Path:
    lines = [header] * bool(header) + ["\t".join(row) for row in table]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The run and its file."""
    place = tmp_path_factory.mktemp("sources")
    file = write(place / "qa.tsv", rows(230))
    data = {"source": ["story", "question"], "target": "answer"}
    train(file, out=place / "run", settings=SMALL | {"data": data})
    return place / "run", file


def test_a_row_may_have_more_than_the_sources(asked: tuple[Path, Path]) -> None:
    system = System.load(asked[0])
    row: dict[str, Any] = {"story": "a b", "question": "a"}
    answer = system.predict(row)
    for more in ({"answer": "yes"}, {"answer": None, "number": 3}):
        found = system.predict(row | more)
        assert (found.text, found.source) == (answer.text, row)
        assert [each.text for each in system.predict([row | more])] == [answer.text]
    with pytest.raises(UserError, match=r"this run reads story, question, but got \['answer', 'story'\]"):
        system.predict({"story": "a b", "answer": "yes"})


def test_an_answer_that_needs_both_sources_is_learnt(asked: tuple[Path, Path]) -> None:
    system = System.load(asked[0])
    assert list(system.modalities) == ["story", "question"]
    found = json.loads((asked[0] / "evaluation.json").read_text())
    assert found["scores"]["exact"]["value"] > 90, "a model that sees one source alone gets about half"
    assert found["confusion"]["labels"] == list(STATES)
    assert found["confusion"]["accuracy"] == pytest.approx(found["scores"]["exact"]["value"])


def test_csv_may_be_piped_if_its_header_names_the_sources(asked: tuple[Path, Path], call: Any) -> None:
    source = {"story": "ann red bob blue", "question": "what has bob"}
    answer = call("predict", asked[0], stdin=b"question,story\nwhat has bob,ann red bob blue\n")
    assert answer.code == 0 and answer.lines == [System.load(asked[0])(source)], answer.err


def test_predictions_say_which_source_a_position_belongs_to(asked: tuple[Path, Path]) -> None:
    system = System.load(asked[0])
    source = {"story": "ann red bob blue", "question": "what has bob"}
    (prediction,) = system.predict([source])
    assert prediction.text == system(source)
    told = prediction.to_json()
    spans = [(one["name"], one["kind"], one["begin"], one["end"]) for one in told["sources"]]
    first = len(prediction.axes["story"].labels)
    assert spans == [("story", "text", 0, first), ("question", "text", first, len(prediction.labels))]
    assert prediction.attention is not None and prediction.attention.shape[-1] == len(prediction.labels)
    assert np.allclose(prediction.attention.sum(-1), 1, atol=1e-4)
    # in a batch with longer and shorter ones it is the same
    others = [{"story": "ann red", "question": "what has ann"}, source, {"story": "x " * 9, "question": "who"}]
    assert np.allclose(system.predict(others)[1].attention, prediction.attention, atol=1e-5)
    assert system.predict([source], maps=True)[0].self_attention is None
    with pytest.raises(UserError, match="story, question"):
        system("ann red bob blue")


def test_the_command_line_reads_tables_and_json(asked: tuple[Path, Path], call: Any, tmp_path: Path) -> None:
    run, file = asked
    table = rows(12, seed=3)
    expected = [one.text for one in System.load(run).predict([{"story": s, "question": q} for s, q, _ in table])]
    given = {
        "header": "answer\tquestion\tstory\n" + "".join(f"{a}\t{q}\t{s}\n" for s, q, a in table),
        "plain": "".join(f"{s}\t{q}\n" for s, q, _ in table),
        "json": "".join(json.dumps({"question": q, "story": s}) + "\n" for s, q, _ in table),
    }
    for name, text in given.items():
        answer = call("predict", run, "-", stdin=text.encode())
        assert answer.code == 0 and answer.lines == expected, name
    broken = given["plain"].splitlines()
    broken[2:2] = ["one column only", ""]
    answer = call("predict", run, stdin="\n".join(broken).encode())
    assert answer.code == 1 and answer.lines == [*expected[:2], "", "", *expected[2:]]
    assert "standard input:3: 1 column, but the run reads story, question" in answer.err
    measured = json.loads(call("evaluate", run, file, "--json").out)
    assert measured["rows"] == 230 and measured["confusion"]["accuracy"] > 90
    renamed = write(tmp_path / "other.tsv", table, "s\tq\ta")
    assert call("evaluate", run, renamed, "--source", "s", "--source", "q", "--target", "a").code == 0
    assert "give a column for each" in call("score", run, renamed, "--source", "s", "--target", "a").err
    misspelt = write(tmp_path / "misspelt.tsv", table, "story\tquestoin\tanswer")
    answer = call("predict", run, misspelt)
    assert answer.code == 2 and not answer.out, "before, the header was answered as an input"
    assert "no column is called 'question'" in answer.err and "did you mean 'questoin'?" in answer.err
    named = call("predict", run, misspelt, "--source", "story", "--source", "questoin")
    assert named.code == 0 and named.lines == expected
    scored = call("score", run, renamed, "--source", "s", "--source", "q", "--target", "a")
    assert scored.code == 0 and len(scored.lines) == len(table)


def test_a_table_is_known_by_its_first_line_that_says_something(asked: tuple[Path, Path], call: Any) -> None:
    table = rows(3, seed=4)
    expected = [one.text for one in System.load(asked[0]).predict([{"story": s, "question": q} for s, q, _ in table])]
    plain = "".join(f"{s}\t{q}\n" for s, q, _ in table)
    told = "".join(json.dumps({"story": s, "question": q}) + "\n" for s, q, _ in table)
    for text in (f"\n{plain}", f"\n\nstory\tquestion\n{plain}", f" \n{told}"):
        answer = call("predict", asked[0], stdin=text.encode())
        assert answer.code == 0 and [line for line in answer.lines if line] == expected, text
        blank = text.split("story")[0].split(table[0][0])[0].split("{")[0].count("\n")
        assert answer.lines[:blank] == [""] * blank
    answer = call("predict", asked[0], stdin=f"one column\n{plain}".encode())
    assert answer.code == 1 and answer.lines == ["", *expected] and "standard input:1: 1 column" in answer.err


@pytest.mark.parametrize("preset", [None, "cho2014", "bahdanau2015", "vaswani2017", "gehring2017", "xu2015"])
@pytest.mark.parametrize("order", [("question", "movie"), ("movie", "question")], ids=" ".join)
def test_a_loaded_model_is_the_one_that_was_saved(tmp_path: Path, preset: str | None, order: tuple[str, str]) -> None:
    """A text and a file of a kind that the preset does not know: their order is that of the data."""
    from PIL import Image

    chance = np.random.default_rng(1)
    lines = ["\t".join([*order, "answer"])]
    for row in range(30):
        if preset == "xu2015":
            path = tmp_path / f"{row}.png"
            Image.fromarray(chance.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(path)
        else:
            path = tmp_path / f"{row}.npy"
            np.save(path, chance.normal(size=(3 + row % 4, 5)).astype(np.float32))
        cells = {"question": f"{OTHERS[row % 5]} {STATES[row % 2]} {row}", "movie": path.name}
        lines.append("\t".join([cells[name] for name in order] + [STATES[row % 2]]))
    file = tmp_path / "table.tsv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    wide = {"encoder": {"width": 32}, "decoder": {"width": 32}, "training": {"threads": 1}}
    narrow = wide if preset in (None, "cho2014", "bahdanau2015", "gehring2017") else {"training": {"threads": 1}}
    data = {"data": {"source": list(order), "target": "answer"}}
    planned = plan(file, preset=preset, settings=narrow | data)
    system, examples = planned.system, planned.data.train
    assert list(system.recipe.sources) == list(system.modalities) == list(order)
    system.save(tmp_path / "run")
    loaded = System.load(tmp_path / "run")
    assert list(loaded.modalities) == list(order)
    given = [dict(example.sources) for example in examples], [example.target for example in examples]
    wanted, found = system.score(*given), loaded.score(*given)
    assert [one.log_prob for one in found] == pytest.approx([one.log_prob for one in wanted], abs=1e-4)


def test_sources_can_be_configured_apart_and_have_defaults(tmp_path: Path) -> None:
    file = write(tmp_path / "qa.tsv", rows(60))
    settings = {
        "sources": {"question": {"encoder": {"kind": "transformer", "width": 24, "heads": 2, "layers": 1}}},
        "data": {"source": ["story", "question"], "target": "answer"},
        "training": {"threads": 1},
    }
    system = plan(file, settings=settings).system
    kinds = [type(encoder).__name__ for encoder in system.model.encoders.values()]
    assert kinds == ["RNN", "Transformer"]
    with_preset = plan(file, preset="bahdanau2015", settings={"data": settings["data"]}).system
    assert [source.encoder.cell for source in with_preset.recipe.sources.values()] == ["gru", "gru"]  # type: ignore[attr-defined]
    shared = plan(file, settings={"data": settings["data"], "share_vocabulary": True, "share_embeddings": True}).system
    tables = {id(shared.model.frontends[name].embedding.weight) for name in ("story", "question")}  # type: ignore[union-attr]
    assert tables == {id(shared.model.decoder.embedding.weight)}  # type: ignore[union-attr]
    named = plan(file, settings={"sources": {"story": {}, "question": {}}, "data": {"target": "answer"}}).system
    assert list(named.modalities) == ["story", "question"], "columns of these names"


def test_text_sources_of_one_table_have_one_kind_of_tokeniser(tmp_path: Path) -> None:
    """Before, a long column got words and a short one characters; the plan now says why they are alike."""
    names = [f"{first}{second}" for first in "bdfglmnprst" for second in ("ana", "ero", "ilu", "oma", "uki")]
    chance = random.Random(7)
    table = [
        (f"{chance.choice(names)} went to the {STATES[row % 2]} house, and {chance.choice(names)} stayed there.",
         f"who {chance.choice(names)}{chance.choice(names)}?", STATES[row % 2])
        for row in range(200)
    ]  # fmt: skip
    settings = {"data": {"source": ["story", "question"], "target": "answer"}, "training": {"threads": 1}}
    planned = plan(write(tmp_path / "qa.tsv", table), settings=settings)
    kinds = {modality.tokenizer.kind for modality in planned.system.modalities.values() if modality.tokenizer}
    assert len(kinds) == 1
    said = [reason for reason in planned.reasons if reason.startswith("story and question: ")]
    assert len(said) == 1 and "one kind was chosen" in said[0]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"decoder": {"kind": "concat"}, "encoder": {"kind": "identity"}}, "one source, not story, question"),
        ({"sources": {"stori": {"encoder": {"width": 8}}}}, "did you mean 'story'"),
        (
            {"data": {"source": {"keys": "story", "question": "question"}, "target": "answer"}},
            "cannot be called 'keys'",
        ),
        (
            {"sources": {"question": {"encoder": {"kind": "grid"}}}},
            "sources.question.encoder.kind = 'grid' reads a pict",
        ),
        ({"joint": {"kind": "grid"}}, "joint.kind = 'grid' reads pictures"),
        ({"joint": {"kind": "pyramid", "layers": 2}}, "joint.kind = 'pyramid' makes fewer states"),
        ({"joint": {}, "data": {"source": "story", "target": "answer"}}, "not several"),
    ],
)
def test_what_cannot_be_joined_is_refused(tmp_path: Path, settings: dict[str, Any], says: str) -> None:
    file = write(tmp_path / "qa.tsv", rows(40))
    data = {"source": ["story", "question"], "target": "answer"}
    with pytest.raises(ConfigError) as caught:
        plan(file, settings={"data": data} | settings)
    assert says in str(caught.value)


def test_a_joint_encoder_is_saved_and_shows_its_self_attention(tmp_path: Path) -> None:
    file = write(tmp_path / "qa.tsv", rows(60))
    settings = SMALL | {
        "data": {"source": ["story", "question"], "target": "answer"},
        "joint": {"kind": "transformer", "width": 16, "heads": 2, "layers": 2},
        "training": SMALL["training"] | {"max_updates": 5},
    }
    system = train(file, out=tmp_path / "run", settings=settings)
    asked = {"story": "ann hot bob", "question": "cid same"}
    before, after = (one.predict([asked], maps=True)[0] for one in (system, System.load(tmp_path / "run")))
    assert before.text == after.text and before.log_probs == after.log_probs
    assert after.self_attention is not None and after.attention is not None
    assert after.self_attention.shape[:2] == (2, 2) and after.self_attention.shape[-1] == len(after.labels)


def test_one_source_has_no_mark_and_the_weights_it_had(tmp_path: Path) -> None:
    """The pieces of a model with one source are drawn as before there were several: encoder first, then decoder."""
    file = write(tmp_path / "qa.tsv", rows(40))
    system = plan(file, settings={"data": {"source": "story", "target": "answer"}}).system
    assert system.model.joined is None and list(system.modalities) == ["source"]
    torch.manual_seed(system.recipe.training.seed)
    frontend = build_frontend(system.modalities["source"])
    assert torch.equal(frontend.embedding.weight, system.model.frontends["source"].embedding.weight)  # type: ignore[arg-type, union-attr]


def test_a_table_of_confusions_is_for_classes_alone() -> None:
    from dragoman.evaluation import metrics

    gold = [["yes"], ["no"], ["no"], ["maybe so"]] * 5
    report = metrics.measure_outputs(["yes", "no", "yes", "?"] * 5, gold, resamples=10)
    assert report.confusion is not None
    assert report.confusion.labels == ["maybe so", "no", "yes", "(other)"]
    assert report.confusion.counts == [[0, 0, 0, 5], [0, 5, 5, 0], [0, 0, 5, 0]]
    assert report.confusion.accuracy == 50 and "exact match" in report.to_text()
    assert metrics.measure_outputs(["a", "b"] * 4, [["a", "c"], ["b"]] * 4, resamples=10).confusion is None
    assert metrics.measure_outputs(list("abcdefgh"), [[one] for one in "abcdefgh"], resamples=10).confusion is None


def test_a_run_with_several_sources_is_measured_the_same_from_python(asked: tuple[Path, Path]) -> None:
    from dragoman.data.reading.read import read

    system = System.load(asked[0])
    report = evaluate(system, read(asked[1], system.recipe.reading).examples)
    assert report.confusion is not None and report.rows == 230


def test_the_longest_row_of_each_source_is_told(asked: tuple[Path, Path], call: Any) -> None:
    """Before, the plan named the longest of all, and the report did not say which source it measured."""
    settings = SMALL | {"data": {"source": ["story", "question"], "target": "answer"}}
    (memory,) = (reason for reason in plan(asked[1], settings=settings).reasons if reason.startswith("memory:"))
    assert memory.endswith("the longest of each side: story 4, question 3, target 2 tokens")
    answer = call("evaluate", asked[0], asked[1], "--json")
    assert json.loads(answer.out)["length_unit"] == "tokens of the longest source"
