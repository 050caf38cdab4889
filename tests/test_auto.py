"""What ``auto`` chooses: from sizes alone, valid whatever they are, and never against what a person said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.recipe.auto import LARGE_VOCABULARY, MANY_TOKENS, SOME_TOKENS, Shape, choose, wants_transformer
from dragoman.recipe.schema import make_recipe
from dragoman.training.plan import plan


def shape(target_tokens: int, vocabulary: int = 40, rows: int = 100, **others: Any) -> Shape:
    return Shape(rows, target_tokens, target_tokens, vocabulary, vocabulary, 30, **others)


@given(
    tokens=st.integers(1, 10**9), source=st.integers(0, 10**9), vocabulary=st.integers(5, 60_000),
    rows=st.integers(1, 10**8), longest=st.integers(1, 400),
)  # fmt: skip
def test_any_size_gives_a_valid_recipe(tokens: int, source: int, vocabulary: int, rows: int, longest: int) -> None:
    chosen = choose(Shape(rows, source, tokens, vocabulary, vocabulary, longest))
    recipe = make_recipe(chosen)
    assert recipe.training.batch_tokens >= longest, "the longest row fits into a batch"
    assert recipe.training.max_epochs and recipe.training.validate_every >= 20


@given(tokens=st.integers(1, 10**7), more=st.integers(0, 10**7), vocabulary=st.integers(5, 60_000))
def test_more_data_never_turns_back(tokens: int, more: int, vocabulary: int) -> None:
    if wants_transformer(shape(tokens, vocabulary)):
        assert wants_transformer(shape(tokens + more, vocabulary))
        assert wants_transformer(shape(tokens + more, vocabulary + more))


def test_files_are_read_by_encoders_made_for_them() -> None:
    many = shape(10 * MANY_TOKENS, rows=1000, frames={"source": 200})
    assert choose(many, {"source": "speech"})["decoder"]["kind"] == "rnn"


@pytest.mark.parametrize(
    ("tokens", "vocabulary", "family"),
    [
        (MANY_TOKENS - 1, LARGE_VOCABULARY - 1, "rnn"),
        (MANY_TOKENS, 40, "transformer"),
        (SOME_TOKENS - 1, LARGE_VOCABULARY, "rnn"),
        (SOME_TOKENS, LARGE_VOCABULARY, "transformer"),
    ],
)
def test_the_family_is_of_encoder_and_decoder(tokens: int, vocabulary: int, family: str) -> None:
    chosen = choose(shape(tokens, vocabulary))
    assert chosen["decoder"]["kind"] == chosen["sources"]["source"]["encoder"]["kind"] == family


@pytest.fixture(scope="module")
def much(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough tokens in letters for a Transformer, in few rows."""
    file = tmp_path_factory.mktemp("much") / "pairs.tsv"
    lines = (f"{'ab' * 150}{number}\t{'ba' * 150}{number}" for number in range(1_900))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("said", "kinds"),
    [
        ({}, ("Transformer", "Transformer")),
        ({"decoder": {"layers": 2}}, ("Transformer", "Transformer")),
        ({"decoder": {"timing": "before"}}, ("RNN", "RNN")),
        ({"decoder": {"attention": {"kind": "additive"}}}, ("RNN", "RNN")),
        ({"encoder": {"direction": "both"}}, ("RNN", "RNN")),
        ({"encoder": {"kind": "conv"}}, ("Conv", "RNN")),
    ],
)
def test_what_a_person_said_decides_the_family(said: dict[str, Any], kinds: tuple[str, str], much: Path) -> None:
    settings = {"data": {"header": "no"}, "target": {"tokenizer": {"kind": "characters"}}} | said
    settings = {"source": {"tokenizer": {"kind": "characters"}}} | settings
    model = plan(much, settings=settings).system.model
    found = type(model.encoders["source"]).__name__, type(model.decoder).__name__
    assert tuple(name.replace("Decoder", "").replace("Encoder", "") for name in found) == kinds
