"""Made-up rows: made of training rows alone, the same for the same seed, never a source of dev or test, all counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dragoman
from dragoman.data.augment.apply import BACK_MARK, COPY_MARK, augment_data, turn_round
from dragoman.data.augment.hallucinating import SHORTEST_STEM, find_stems, hallucinate
from dragoman.data.augment.spelling import SPACE, Spelling, is_tag
from dragoman.data.corpus.mapped.folder import Workspace
from dragoman.data.options import DataConfig
from dragoman.data.splits import Data, read_data
from dragoman.errors import UserError
from dragoman.training.plan import plan

LETTERS, SYMBOLS = Spelling(False), Spelling(True)
texts = st.text(alphabet="abcdeXY <>", max_size=20).filter(lambda text: SPACE not in text)
words = st.text(alphabet="abcdefgh", min_size=1, max_size=12)


@given(texts)
def test_units_join_to_their_text(text: str) -> None:
    assert LETTERS.join(LETTERS.units(text)) == text
    assert SYMBOLS.join(SYMBOLS.units(text)) == " ".join(text.split())


@given(words, words)
def test_stems_are_the_same_on_both_sides_and_in_order(source: str, target: str) -> None:
    stems = find_stems(list(source), list(target))
    ends = (0, 0)
    for begin, place, size in stems:
        assert size >= SHORTEST_STEM and source[begin : begin + size] == target[place : place + size]
        assert begin >= ends[0] and place >= ends[1]
        ends = begin + size, place + size


@given(st.lists(st.tuples(words, words, words), min_size=1, max_size=5), st.integers(0, 9))
def test_only_stems_are_changed(parts: list[tuple[str, str, str]], seed: int) -> None:
    pairs = [(f"<V> {' '.join(stem + end)}", stem + other) for stem, end, other in parts]
    made = list(hallucinate(pairs, (SYMBOLS, LETTERS), 5, seed))
    assert made == list(hallucinate(pairs, (SYMBOLS, LETTERS), 5, seed))
    assert len({source for _, source, _ in made}) == len(made) <= 5
    for number, source, target in made:
        before = SYMBOLS.units(pairs[number][0]), LETTERS.units(pairs[number][1])
        after = SYMBOLS.units(source), LETTERS.units(target)
        stems = find_stems(*before)
        for side in (0, 1):
            inside = {stem[side] + offset for stem in stems for offset in range(stem[2])}
            assert len(before[side]) == len(after[side])
            assert all(before[side][at] == after[side][at] for at in range(len(before[side])) if at not in inside)
        for begin, place, size in stems:
            assert after[0][begin : begin + size] == after[1][place : place + size]


def test_tags_stay_where_they_are() -> None:
    assert turn_round("<V> <PST> g o", "went", (SYMBOLS, LETTERS)) == (f"{BACK_MARK} <V> <PST> w e n t", "go")
    assert turn_round("go home", "ging heim", (LETTERS, LETTERS)) == (f"{BACK_MARK}ging heim", "go home")
    assert turn_round("<V>", "went", (SYMBOLS, LETTERS)) is None
    assert is_tag("<PST>") and not is_tag("PST") and not is_tag("<a b>")


# ---- data


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "verbs.tsv"
    stems = [first + middle + last for first in "bdfgk" for middle in ("and", "ind", "ust", "elt") for last in "enr"]
    file.write_text("".join(f"{stem}en\tge{stem}t\n" for stem in stems), encoding="utf-8")
    return file


def read(pairs: Path, **augment: Any) -> Data:
    config = DataConfig(header="no", augment=augment)
    return augment_data(read_data(pairs, None, None, config), config)


ALL: dict[str, Any] = {"hallucinate": 40, "copy_targets": True, "both_ways": True}


def test_rows_are_made_of_training_rows_and_counted(pairs: Path) -> None:
    plain, data = read(pairs), read(pairs, **ALL)
    assert (data.dev, data.test) == (plain.dev, plain.test), "dev and test are what they were"
    real = [row for row in data.train if not row.made]
    made = [row for row in data.train if row.made]
    assert real == plain.train and data.train == [*real, *made]
    assert data.augmented == {"hallucinated": 40, "copied": len(real), "turned round": len(real)}
    assert "40 hallucinated" in data.audits["train"].report()
    assert data.to_json()["augmented"] == data.augmented
    held_out = {row.sources["source"] for row in [*data.dev, *data.test]}
    assert not held_out & {row.sources["source"] for row in made}
    assert all(row.sources["source"].startswith(COPY_MARK) == (row.made == "copied") for row in made)
    assert data.fingerprint() == read(pairs, **ALL).fingerprint()
    assert data.fingerprint() != read(pairs, **ALL, seed=2).fingerprint()


def test_a_source_of_dev_is_never_made(pairs: Path, tmp_path: Path) -> None:
    dev = read(pairs).dev[0]
    (tmp_path / "made.tsv").write_text(f"source\ttarget\n{dev.sources['source']}\tx\nnew\ty\n", encoding="utf-8")
    data = read(pairs, rows=str(tmp_path / "made.tsv"))
    assert data.augmented == {"from a file": 1}, "the row of the dev source is left out"
    (tmp_path / "targets.txt").write_text("gefunden\n\ngefunden\n", encoding="utf-8")
    data = read(pairs, targets=str(tmp_path / "targets.txt"))
    assert [dict(row.sources) for row in data.train if row.made] == [{"source": f"{COPY_MARK}gefunden"}]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"data.store": "disk"}, "data.store=memory"),
        ({"preset": "lm-rnn", "data.target": 2}, "one source and a target"),
        ({"data.augment.targets": "missing.txt"}, "missing.txt: No such file"),
    ],
)
def test_what_no_rows_can_be_made_of_is_refused(
    pairs: Path, tmp_path: Path, settings: dict[str, Any], sentence: str
) -> None:
    asked = {"data.header": "no", "data.augment.copy_targets": True, **settings}
    with pytest.raises(UserError, match=sentence):
        plan(pairs, settings=asked, workspace=Workspace(tmp_path / "corpus"))


def test_a_run_with_made_rows_resumes_exactly(pairs: Path, tmp_path: Path, tiny_settings: dict[str, Any]) -> None:
    settings = {**tiny_settings, "data": {"header": "no", "augment": ALL}}
    settings["training"] = {**tiny_settings.get("training", {}), "max_updates": 6, "r_drop": 1.0}
    asked = iter([False, False, True])
    whole = dragoman.train(pairs, out=tmp_path / "whole", settings=settings, quiet=True)
    dragoman.train(pairs, out=tmp_path / "parts", settings=settings, quiet=True, should_stop=lambda: next(asked, True))
    parts = dragoman.train(pairs, out=tmp_path / "parts", settings=settings, quiet=True)
    weights, others = whole.model.state_dict(), parts.model.state_dict()
    assert all(torch.equal(weights[name], others[name]) for name in weights)


# ---- the verb


def test_augment_writes_what_train_reads(pairs: Path, tmp_path: Path) -> None:
    settings = {"data.header": "no"}
    made = dragoman.augment(pairs, out=tmp_path / "made.tsv", hallucinate=10, both_ways=True, settings=settings)
    assert made.counts["hallucinated"] == 10 and len(made.rows) == sum(made.counts.values())
    data = read(pairs, rows=str(tmp_path / "made.tsv"))
    assert [(row.sources["source"], row.target) for row in data.train if row.made] == list(made.rows)


def test_augment_labels_texts_with_runs(tiny_run: Any, tmp_path: Path, pairs_file: Callable[..., Path]) -> None:
    texts = [line.split("\t")[0] for line in tiny_run.pairs.read_text(encoding="utf-8").splitlines()[:3]]
    (tmp_path / "more.txt").write_text("".join(f"{text}{text}\n" for text in texts), encoding="utf-8")
    more = tmp_path / "more.txt"
    made = dragoman.augment(tiny_run.pairs, sources=more, model=tiny_run.folder)
    system = dragoman.load(tiny_run.folder)
    expected = [(text + text, system(text + text)) for text in texts]
    assert list(made.rows) == [row for row in expected if row[1]]
    back = dragoman.augment(tiny_run.pairs, targets=more, reverse_model=tiny_run.folder)
    assert [target for _, target in back.rows] == [source for source, _ in made.rows]
    with pytest.raises(UserError, match="--model"):
        dragoman.augment(tiny_run.pairs, sources=more)
    with pytest.raises(UserError, match="--hallucinate"):
        dragoman.augment(tiny_run.pairs)
