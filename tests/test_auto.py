"""What ``auto`` chooses: from sizes alone, valid whatever they are, and never against what a person said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.config import merge
from dragoman.recipe.auto import (
    CTC_SHARE,
    EXTENSION,
    FEWEST_EPOCHS,
    LARGE_VOCABULARY,
    MANY_TOKENS,
    MOST_EPOCHS,
    SOME_TOKENS,
    Shape,
    choose,
    choose_ctc,
    count_epochs,
    wants_transformer,
)
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


@given(rows=st.integers(1, 10**8), more=st.integers(0, 10**8))
def test_epochs_follow_a_slope(rows: int, more: int) -> None:
    assert FEWEST_EPOCHS <= count_epochs(rows + more) <= count_epochs(rows) <= MOST_EPOCHS
    assert abs(count_epochs(rows) - count_epochs(rows + 1)) <= max(2, 0.5 * count_epochs(rows)), "no step"


@given(tokens=st.integers(1, 10**6), rows=st.integers(1, 10**5), frames=st.integers(1, 5_000))
def test_sound_has_ctc_where_its_states_leave_room(tokens: int, rows: int, frames: int) -> None:
    sizes = shape(rows * (tokens + 1), rows=rows, frames={"source": frames})
    chosen = choose_ctc(sizes, {"source": "speech"})
    recipe = make_recipe(merge(choose(sizes, {"source": "speech"}), chosen))
    assert bool(recipe.training.ctc) == bool(chosen) and not recipe.search.ctc
    assert bool(chosen) <= (2 <= tokens <= frames / 2)
    assert not choose_ctc(sizes, {"source": "image"}), "a picture is no sequence"
    assert not choose_ctc(shape(tokens), {"source": "text"})
    both = shape(rows * (tokens + 1), rows=rows, frames={"left": frames, "right": frames})
    assert not choose_ctc(both, {"left": "speech", "right": "speech"})


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty sequences of frames, each with a word of three letters."""
    folder = tmp_path_factory.mktemp("recordings")
    generator = np.random.default_rng(1)
    lines = []
    for number in range(40):
        np.save(folder / f"{number}.npy", generator.normal(size=(60, 4)).astype(np.float32))
        lines.append(f"{number}.npy\t{''.join(generator.choice(list('abc'), 3))}")
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "pairs.tsv"


@pytest.mark.parametrize(
    ("said", "ctc"),
    [
        ({}, CTC_SHARE),
        ({"training": {"ctc": 0.5}}, 0.5),
        ({"training": {"ctc": 0.0}}, 0.0),
        ({"encoder": {"kind": "rnn"}}, 0.0),
    ],
)
def test_ctc_is_chosen_only_where_nobody_chose(said: dict[str, Any], ctc: float, recordings: Path) -> None:
    recipe = plan(recordings, settings={"data": {"header": "no"}} | said).system.recipe
    assert recipe.training.ctc == ctc
    assert recipe.search.ctc == 0.0


def test_who_names_the_end_means_it(recordings: Path) -> None:
    chosen = plan(recordings, settings={"data.header": "no"}).system.recipe.training
    named = plan(recordings, settings={"data.header": "no", "training.max_epochs": 3}).system.recipe.training
    assert (chosen.extend, named.extend, named.max_epochs) == (EXTENSION, 0.0, 3)
    assert (chosen.max_epochs or 0) * 40 / 8 >= 1_000, "a few recordings are read in some thousand updates"
