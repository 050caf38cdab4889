"""BPE-dropout: without chance it is sentencepiece's own cut; with it, every cut spells the text and can be repeated."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.config import ConfigError
from dragoman.data.corpus.columns import ArrayColumn
from dragoman.data.modality import pad_tokens
from dragoman.data.tokenizers import Tokenizer, TokenizerConfig, fit, load
from dragoman.data.tokenizers._bpe_dropout import LONGEST, SAMPLES
from dragoman.data.tokenizers.subwords import Subwords, escape
from dragoman.data.vocabulary import BOS, EOS, PAD, UNK

TEXTS = [
    f"{who} {what} the {where}, twice"
    for who in ("lower", "newest", "widest", "größer")
    for what in ("lowered", "renews", "widened", "日本語で")
    for where in ("lowlands", "newness", "width", "straße")
]
quick = settings(max_examples=80, deadline=None)
writing = st.text(alphabet=sorted(set("".join(TEXTS))), max_size=60) | st.text(max_size=30)


def fitted(drop: float = 0.3) -> Subwords:
    tokenizer = fit(TokenizerConfig(kind="subwords", size=400, drop=drop), TEXTS)
    assert isinstance(tokenizer, Subwords)
    return tokenizer


TOKENIZER = fitted()


def chance(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@quick
@given(writing | st.sampled_from(TEXTS))
def test_with_every_merge_done_it_is_sentencepieces_own_cut(text: str) -> None:
    merges = TOKENIZER._dropout
    words = ["▁" + word for word in escape(TOKENIZER.canonical(text)).split(" ")[1:]]
    ids = [index for word in words for piece in merges.segment(word) for index in merges.ids(piece)]
    assert ids == TOKENIZER.encode(text)


@quick
@given(writing | st.sampled_from(TEXTS), st.integers(0, 5))
def test_every_cut_spells_the_text(text: str, seed: int) -> None:
    ids = TOKENIZER.sample(text, chance(seed))
    assert not {PAD, BOS, EOS, UNK} & set(ids)
    assert TOKENIZER.decode(ids) == TOKENIZER.canonical(text)
    assert ids == TOKENIZER.sample(text, chance(seed))


def test_cuts_differ_and_do_not_depend_on_what_was_cut_before(tmp_path: Path) -> None:
    cuts = {tuple(TOKENIZER.sample(TEXTS[0], chance(seed))) for seed in range(50)}
    assert len(cuts) > 20
    TOKENIZER.save(tmp_path, "target")
    for other in (fitted(), load(tmp_path, "target")):
        for text in reversed(TEXTS):
            assert other.sample(text, chance(3)) == TOKENIZER.sample(text, chance(3))


def test_how_often_a_merge_is_left_out() -> None:
    """A word of two characters has one merge, and one chance of missing it."""
    tokenizer = fit(TokenizerConfig(kind="subwords", size=263, drop=0.4), ["b b b"] * 9)
    assert isinstance(tokenizer, Subwords)
    merges = tokenizer._dropout
    assert merges.segment("▁b") == ["▁b"]
    kept = [len(merges._samples("▁b")[draw]) == 1 for draw in range(SAMPLES)]
    assert 8 <= SAMPLES - sum(kept) <= 18  # 12.8 expected
    none = fit(TokenizerConfig(kind="subwords", size=400, drop=0.0), TEXTS)
    assert not none.varies
    assert all(none.sample(text, chance()) == none.encode(text) for text in TEXTS)


def test_pieces_that_only_such_cuts_show_are_counted() -> None:
    """A token that was counted as never seen would be hidden behind <unk> wherever training meets it."""
    seen = {index for seed in range(3) for text in TEXTS for index in TOKENIZER.sample(text, chance(seed))}
    plain = {index for text in TEXTS for index in TOKENIZER.encode(text)}
    assert len(seen - plain) > 10
    often = [index for index in seen - plain if TOKENIZER.counts[index] > 0]
    assert len(often) > 0.8 * len(seen - plain)


def test_a_script_without_spaces_takes_time_by_its_length_alone() -> None:
    text = "lowernewestwidest" * 600  # 10,200 characters
    began = time.process_time()
    assert TOKENIZER.decode(TOKENIZER.sample(text, chance())) == text
    assert time.process_time() - began < 5
    parts = TOKENIZER._dropout._parts(text)
    assert "".join(parts) == text
    assert max(map(len, parts)) <= LONGEST


@quick
@given(st.lists(writing | st.sampled_from(TEXTS), max_size=5), st.integers(0, 5))
def test_many_texts_are_cut_as_one_is(texts: list[str], seed: int) -> None:
    cut = TOKENIZER.sampler(texts, EOS)
    ids, lengths = cut(chance(seed))
    rows = np.split(ids, np.cumsum(lengths)[:-1]) if texts else []
    assert len(lengths) == len(texts) and lengths.sum() == len(ids)
    for text, row in zip(texts, rows, strict=True):
        assert row[-1] == EOS and not {PAD, BOS, EOS, UNK} & set(row[:-1].tolist())
        assert TOKENIZER.decode(row.tolist()) == TOKENIZER.canonical(text)
        alone, _ = TOKENIZER.sampler([text], EOS)(chance(seed))
        assert alone.tolist() == [*TOKENIZER.sample(text, chance(seed)), EOS]
    again, _ = cut(chance(seed))
    assert np.array_equal(ids, again)


def test_more_words_than_are_remembered_are_cut_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out, _ = TOKENIZER.sampler(TEXTS, EOS)(chance())
    monkeypatch.setattr("dragoman.data.tokenizers._bpe_dropout.MOST_WORDS", 3)
    ids, lengths = TOKENIZER.sampler(TEXTS, EOS)(chance())
    rows = [row.tolist() for row in np.split(ids, np.cumsum(lengths)[:-1])]
    assert [TOKENIZER.decode(row) for row in rows] == [TOKENIZER.canonical(text) for text in TEXTS]
    assert ids.dtype == laid_out.dtype and all(row[-1] == EOS for row in rows)


def test_many_texts_are_cut_in_the_ways_of_each() -> None:
    """Every way of a word comes about as often as it was drawn, wherever the word stands."""
    word = "newness"
    cut = TOKENIZER.sampler([f"{word} lower", f"lower {word}"], EOS)
    ways = Counter(TOKENIZER._dropout.samples("▁" + word))
    seen = [Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()]
    generator = chance()
    for _ in range(2000):
        ids, lengths = cut(generator)
        for row, counts, ends in zip(np.split(ids, lengths[:1]), seen, (False, True), strict=True):
            spelled = row[:-1].tolist()
            found = [way for way in ways if tuple(spelled[-len(way) :] if ends else spelled[: len(way)]) == way]
            counts[max(found, key=len)] += 1
    for counts in seen:
        assert all(abs(counts[way] / 2000 - share / SAMPLES) < 0.05 for way, share in ways.items())


@pytest.mark.parametrize("kind", ["words", "characters", "symbols", "bytes"])
def test_other_kinds_have_one_cut(kind: str) -> None:
    tokenizer: Tokenizer = fit(TokenizerConfig(kind=kind), TEXTS)
    assert not tokenizer.varies
    assert tokenizer.sample(TEXTS[0], chance()) == tokenizer.encode(TEXTS[0])


def test_rows_vary_with_epoch_and_side_and_never_outgrow_their_room() -> None:
    arrays = [np.arange(3), np.arange(5)]
    rows = ArrayColumn(
        arrays, pad_tokens, lambda chance: [np.full(int(chance.integers(1, 9)), row) for row in range(2)]
    )
    assert np.array_equal(rows.array(1, None), arrays[1])
    other = ArrayColumn(arrays, pad_tokens, rows.augment, stream=1)
    drawn = {epoch: [side.array(0, (1, epoch)) for side in (rows, other)] for epoch in range(40)}
    lengths = {epoch: tuple(len(one) for one in sides) for epoch, sides in drawn.items()}
    assert max(max(pair) for pair in lengths.values()) == 5
    assert len(set(lengths.values())) > 5
    assert any(first != second for first, second in lengths.values())
    assert all(np.array_equal(rows.array(0, (1, e)), sides[0]) for e, sides in drawn.items())
    assert all(rows.epoch_lengths((1, e))[0] == len(sides[0]) for e, sides in drawn.items())
    assert all(np.array_equal(rows.array(0, (1, e)), sides[0]) for e, sides in drawn.items())  # kept or not
    roomy = ArrayColumn(arrays, pad_tokens, rows.augment, max_length=7)
    assert max(len(roomy.array(0, (1, epoch))) for epoch in range(40)) == 7


def test_a_tokenizer_that_is_taken_over_is_cut_as_the_new_run_says() -> None:
    plain = fit(TokenizerConfig(kind="subwords", size=400), TEXTS)
    varied = plain.with_drop(0.3, TEXTS)
    assert varied.vocabulary.symbols == plain.vocabulary.symbols and varied.varies
    assert varied.sample(TEXTS[0], chance(1)) == TOKENIZER.sample(TEXTS[0], chance(1))
    assert list(varied.counts) == list(TOKENIZER.counts)
    assert not varied.with_drop(0.0, TEXTS).varies
    for kind in ({"kind": "subwords", "model": "unigram", "size": 400}, {"kind": "words"}):
        with pytest.raises(ConfigError, match=r"tokenizer\.drop"):
            fit(TokenizerConfig.model_validate(kind), TEXTS).with_drop(0.1, TEXTS)
