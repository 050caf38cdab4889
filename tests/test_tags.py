"""Tags as features: they take no positions, the audit recognises them, and plans and exports know them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dragoman
from dragoman.config import ConfigError, merge
from dragoman.data.audit.text_statistics import TextStatistics
from dragoman.data.tokenizers import TokenizerConfig
from dragoman.data.tokenizers import fit as fit_tokenizer
from dragoman.errors import UserError
from dragoman.export.ctranslate2_spec import check_shape
from dragoman.inference.build import build_frontend
from dragoman.modalities.text import Text
from dragoman.nn.encoders.transformer import Transformer
from dragoman.recipe import auto
from dragoman.recipe.schema import spell_out
from dragoman.training.plan import plan
from dragoman.types import Memory, Padded

TRANSFORMER = {"kind": "transformer", "width": 16, "layers": 1, "heads": 2, "feed_forward": 16}


def make_rows(count: int = 60) -> list[tuple[str, str]]:
    """Return words whose tags say whether they are written twice, and in which direction."""
    generator = random.Random(2)
    rows = []
    for _ in range(count):
        letters = generator.choices("abcdefgh", k=generator.randint(2, 5))
        times, turned = generator.choice([1, 2]), generator.random() < 0.5
        word = "".join(letters[::-1] if turned else letters)
        rows.append((" ".join([f"<{times}>", *["<R>"] * turned, *letters]), word * times))
    return rows


@pytest.fixture(scope="module")
def rows_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tags") / "rows.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in make_rows()), encoding="utf-8")
    return path


def encode(text: str, kind: str = "sinusoidal") -> tuple[Text, Memory]:
    texts = [source for source, _ in make_rows()]
    modality = Text(Text.Config(tags=True, embedding=16), fit_tokenizer(TokenizerConfig(kind="symbols"), texts))
    torch.manual_seed(1)
    frontend = build_frontend(modality).eval()
    settings = {key: value for key, value in TRANSFORMER.items() if key != "kind"}
    encoder = Transformer(Transformer.Config(**settings, positions=kind), input_width=16).eval()
    array = modality.array(text)
    return modality, encoder(frontend(Padded.from_numpy(*modality.collate([array]))))


@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
def test_where_tags_are_makes_no_difference(kind: str) -> None:
    (_, first), (_, second) = (encode(text, kind) for text in ("<1> <R> a b c", "a <R> b c <1>"))
    order = [4, 1, 0, 2, 3, 5]  # where the tokens of the first are in the second, the end symbol last
    torch.testing.assert_close(first.states[0], second.states[0][order])


def test_letters_are_counted_without_tags() -> None:
    texts = [source for source, _ in make_rows()]
    modality = Text(Text.Config(tags=True), fit_tokenizer(TokenizerConfig(kind="symbols"), texts))
    frontend = build_frontend(modality).eval()
    rows = [modality.array(text) for text in ("<1> <R> a b", "a b c", "a <1> b")]
    numbers = frontend(Padded.from_numpy(*modality.collate(rows))).numbers
    assert numbers is not None
    assert numbers[0].tolist() == [-1, -1, 0, 1, 2]
    assert numbers[1, :4].tolist() == [0, 1, 2, 3] and numbers[2, :4].tolist() == [0, -1, 1, 2]


def test_special_tokens_are_no_tags() -> None:
    tokenizer = fit_tokenizer(TokenizerConfig(kind="symbols"), ["<V> a b", "<unk> a"])
    flags = Text(Text.Config(tags=True), tokenizer).frontend_options()["tags"]
    assert not flags[:4].any()
    assert sorted(tokenizer.pieces(np.flatnonzero(flags))) == ["<V>", "<unk>"]


def test_the_audit_recognises_a_small_closed_set_in_nearly_every_row() -> None:
    tagged = [source for source, _ in make_rows()]
    assert TextStatistics.of(tagged).has_tags
    found = TextStatistics.of(tagged)
    assert (found.distinct_tags, found.tagged_share) == (3, 1.0)
    assert found.total_tags == sum(text.count("<") for text in tagged)
    assert not TextStatistics.of([*tagged, *["a b c"] * 10]).has_tags  # one row in seven has none
    assert not TextStatistics.of([f"<{index}> a b" for index in range(60)]).has_tags  # names, not tags
    assert not TextStatistics.of(["a < b > c", "<<a>>", "<>"] * 20).has_tags
    assert TextStatistics.from_json(found.to_json()) == found


def test_the_plan_says_how_tags_are_read(rows_file: Path, tiny_settings: dict[str, Any]) -> None:
    base = spell_out(tiny_settings)
    planned = plan(rows_file, settings=base)
    assert any("read as any other symbol" in reason for reason in planned.reasons)
    assert "tags in angle brackets" in planned.data.audits["train"].report()
    asked = plan(rows_file, settings=merge(base, spell_out({"source": {"tags": True}})))
    assert any("take no positions" in reason for reason in asked.reasons)
    assert asked.system.model.parameters_count > planned.system.model.parameters_count


def test_tags_that_are_not_tokens_are_refused(rows_file: Path, tiny_settings: dict[str, Any]) -> None:
    characters = {"source": {"tags": True, "tokenizer": {"kind": "characters"}}}
    with pytest.raises(ConfigError, match="no token of the vocabulary is a tag"):
        plan(rows_file, settings=merge(spell_out(tiny_settings), spell_out(characters)))
    with pytest.raises(ConfigError, match="states = 'tokens'"):
        plan(rows_file, settings=spell_out({"source": {"tags": True, "states": "sentences"}}))


def test_a_run_with_tags_answers_alike_everywhere(
    rows_file: Path, tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    training = {**tiny_settings["training"], "max_updates": 30}
    parts = {"source": {"tags": True, "embedding": 16}, "encoder": TRANSFORMER, "decoder": TRANSFORMER}
    settings = {**parts, "training": training}
    system = dragoman.train(rows_file, out=tmp_path / "run", settings=spell_out(settings))
    inputs = ["<2> <R> a b c", "a b", "h <1> g", "<R>"]
    expected = [prediction.text for prediction in dragoman.load(tmp_path / "run", engine="torch").predict(inputs)]
    assert [prediction.text for prediction in system.predict(inputs)] == expected
    if (tmp_path / "run" / "model.dragoman").exists():
        native = dragoman.load(tmp_path / "run", engine="native").predict(inputs)
        assert [prediction.text for prediction in native] == expected
    with pytest.raises(UserError, match="tags take no positions"):
        check_shape(dragoman.load(tmp_path / "run", engine="torch").model.lower())


def test_auto_tells_a_transformer_of_tags_and_leaves_what_was_asked_for(
    rows_file: Path, tiny_settings: dict[str, Any]
) -> None:
    def uses_tags(more: dict[str, Any]) -> bool:
        modality: Any = plan(rows_file, settings=merge(spell_out(base), spell_out(more))).system.recipe.sources[
            "source"
        ]
        return bool(modality.modality.tags)

    base = {"training": tiny_settings["training"], "source": {"embedding": 16}, "decoder": {"width": 16}}
    assert uses_tags({"encoder": TRANSFORMER})
    assert not uses_tags({"encoder": {"width": 16}})
    assert not uses_tags({"encoder": TRANSFORMER, "source": {"embedding": 16, "tags": False}})
    assert not uses_tags({"encoder": TRANSFORMER, "source": {"embedding": 16, "states": "sentences"}})
    assert auto.choose_tags({"a": "rnn"}) == {"sources": {}}
