"""Copying in a whole run: unseen symbols of the source are written, scored and shown."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from dragoman import load
from dragoman.config import ConfigError
from dragoman.data.copying import Copier
from dragoman.data.tokenizers import TokenizerConfig, fit
from dragoman.data.vocabulary import EOS, UNK
from dragoman.errors import UserError
from dragoman.inference.ensembles import ensemble
from dragoman.inference.system import System
from dragoman.training.plan import plan
from dragoman.training.run import train
from dragoman.types import NOTHING, SLOT

LETTERS = "abcdefghijklmnopqrst"
SETTINGS: dict[str, Any] = {
    "copying": True, "copy_slots": 3, "source": {"embedding": 32, "tokenizer": {"kind": "symbols"}},
    "target": {"tokenizer": {"kind": "characters"}}, "encoder": {"kind": "rnn", "width": 32},
    "decoder": {"kind": "rnn", "width": 32, "embedding": 32},
    "training": {"max_epochs": 24, "batch_tokens": 256, "threads": 1, "optim": {"learning_rate": 0.01}},
}  # fmt: skip


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> System:
    """A run that copies letters and closes them with a mark; letters from q on are rare."""
    folder = tmp_path_factory.mktemp("copying")
    draw = random.Random(0)
    rows = []
    for _ in range(400):
        letters = draw.choices(LETTERS, weights=[20] * 12 + [1] * 8, k=draw.randint(1, 4))
        rows.append(f"{' '.join(letters)}\t{''.join(letters)}!")
    pairs = folder / "pairs.tsv"
    pairs.write_text("\n".join(rows) + "\n", encoding="utf-8")
    train(pairs, out=folder / "run", settings=SETTINGS)
    return load(folder / "run")


def test_a_symbol_that_was_never_seen_is_written(system: System) -> None:
    predictions = system.predict(["a я b", "ß", "c d ю"], beam=3, n_best=3)
    texts = [prediction.text for prediction in predictions]
    assert texts == ["aяb!", "ß!", "cdю!"]
    for prediction in predictions:
        assert all("⁇" not in output.text for output in prediction.outputs)
        assert "".join(prediction.tokens[:-1]) == prediction.text
        assert prediction.outputs[0].attention is not None and prediction.trace is not None


def test_the_score_of_an_output_is_that_of_its_text(system: System) -> None:
    prediction = system.predict("a я b")
    scored = system.score("a я b", prediction.text)
    assert scored.log_prob == pytest.approx(prediction.outputs[0].log_prob, abs=1e-4)
    assert scored.tokens == prediction.tokens
    assert system.score("a b", "aяb!").log_prob < scored.log_prob - 3  # it is not in this source


def test_copies_are_aligned_and_not_constrained(system: System) -> None:
    alignment = system.predict("a я b").alignment
    assert alignment is not None and len(alignment.target) == len("aяb!")
    assert system.predict("a я b", known={"a я b": "so"}).text == "so"
    with pytest.raises(UserError, match="copies symbols of its sources, which constraints cannot read"):
        system.predict("a я b", lexicon=["aяb!"])


def test_members_of_an_ensemble_copy_alike(system: System) -> None:
    assert ensemble([system, system]).predict("a я b").text == "aяb!"


def test_other_engines_are_refused_with_a_sentence(system: System) -> None:
    with pytest.raises(UserError, match=r"a model that copies source tokens .* runs on torch only"):
        system.model.lower()


def test_tokens_are_matched_by_their_strings() -> None:
    source = fit(TokenizerConfig(kind="words"), ["call foo with bar, twice"])
    target = fit(TokenizerConfig(kind="symbols"), ["foo ( bar )"]).with_slots(2)
    copier = Copier(source, target)
    assert copier.symbols("foo baz") == [" baz"]
    assert copier.encode("foo baz", "foo ( baz qux )")[2:4] == [len(target.vocabulary), UNK]
    assert copier.writer("foo baz").decode([target.vocabulary.id("foo"), len(target.vocabulary)]) == "foo baz"
    written = {text: copier.table[source.encode(text)[0]] for text in ("foo", "bar", "call")}
    assert written["foo"] == target.vocabulary.id("foo") and written["bar"] == target.vocabulary.id("bar")
    assert written["call"] == NOTHING  # no target has it
    assert copier.table[EOS] == NOTHING and copier.table[UNK] == SLOT
    rare = fit(TokenizerConfig(kind="symbols", min_count=2), ["foo ( bar )", "foo ( call )"]).with_slots(2)
    assert Copier(source, rare).table[source.encode("call")[0]] == SLOT  # some targets may have it


@pytest.mark.parametrize("kind", ["characters", "symbols", "words"])
def test_slots_are_written_as_the_symbols_of_the_source(kind: str) -> None:
    texts = ["ab ba", "a b ab"]
    source, target = fit(TokenizerConfig(kind=kind), texts), fit(TokenizerConfig(kind=kind), texts).with_slots(4)
    copier = Copier(source, target)
    for text in ("ab x ba", "x y a", "a b"):
        ids = copier.encode(text, text)
        assert UNK not in ids and copier.writer(text).decode(ids) == text
    many = " ".join("uvwxyz")
    assert copier.encode(many, many).count(UNK) == 2  # more than there are slots
    assert UNK in copier.encode("a", "x")


def test_bytes_have_no_slots() -> None:
    assert fit(TokenizerConfig(kind="bytes"), ["ab"]).with_slots(4).slots == 0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"decoder": {"kind": "concat"}, "encoder": {"kind": "identity"}}, "reads the source itself"),
        ({"encoder": {"kind": "pyramid"}}, "one encoder state for each token"),
        ({"training": {"ctc": 0.3}}, "CTC has no slots"),
    ],
)
def test_what_cannot_copy_is_refused(tmp_path: Path, settings: dict[str, Any], sentence: str) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{letter} a\t{letter}\n" for letter in LETTERS), encoding="utf-8")
    with pytest.raises(ConfigError, match=sentence):
        plan(pairs, settings={"copying": True, **settings})
