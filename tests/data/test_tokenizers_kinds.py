"""What each kind promises beyond the laws, and the settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from dragoman.data.tokenizers import TokenizerConfig, fit, load, resolve
from dragoman.data.tokenizers.subwords import default_size, escape, unescape
from dragoman.data.tokenizers.words import units
from dragoman.data.vocabulary import UNK, Vocabulary
from dragoman.errors import UserError

quick = settings(max_examples=60, deadline=None)
SENTENCES = [f"the {a} {b} and the {c} {b}s" for a in ["red", "green", "blue"] for b in ("cat", "dog") for c in "xyz"]
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
ONES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
NUMBERS = [f"{one} hundred and {ten} {other}" for one in ONES for ten in TENS for other in ONES]


# Vocabulary


@quick
@given(st.dictionaries(st.text(max_size=4), st.integers(1, 9), max_size=12), st.integers(1, 5), st.integers(4, 20))
def test_vocabulary_keeps_the_most_frequent(seen: dict[str, int], min_count: int, size: int) -> None:
    vocabulary = Vocabulary.build(seen, min_count=min_count, size=size)
    assert len(vocabulary) <= size
    assert sum(vocabulary.counts) == sum(seen.values())
    kept = [seen[symbol] for symbol in vocabulary.symbols]
    assert kept == sorted(kept, reverse=True)
    assert all(count >= min_count for count in kept)
    left_out = [count for symbol, count in seen.items() if symbol not in vocabulary and count >= min_count]
    assert not left_out or (len(vocabulary) == size and (not kept or max(left_out) <= kept[-1]))
    for symbol in seen:
        index = vocabulary.id(symbol)
        assert vocabulary.symbol(index) == symbol if symbol in vocabulary else index == UNK


def test_vocabulary_as_a_record() -> None:
    vocabulary = Vocabulary(["a", "</s>", "\n", "é"], [0, 0, 0, 0, 4, 3, 2, 1])
    assert Vocabulary.from_record(json.loads(json.dumps(vocabulary.to_record()))) == vocabulary
    with pytest.raises(ValueError, match="0 counts for 5 ids"):
        Vocabulary.from_record({"symbols": ["a"], "counts": []})


def test_vocabulary_refuses_repeated_symbols() -> None:
    with pytest.raises(ValueError, match="once"):
        Vocabulary(["a", "a"])


# Words


@quick
@given(st.text(max_size=40))
def test_units_are_a_cut_of_the_text(text: str) -> None:
    assert "".join(units(text)) == (" " + text if text else "")


def test_units_of_ordinary_writing() -> None:
    assert units("Hello, world") == [" Hello", ",", " world"]
    assert units("a  b ") == [" a", "  ", "b", " "]
    assert units("हिन्दी में") == [" हिन्दी", " में"]
    assert units("می\u200cخواهم") == [" می\u200cخواهم"]


@quick
@given(st.lists(st.sampled_from(["cat", "dog", ",", "."]), max_size=8), st.data())
def test_any_spacing_of_known_words_survives(words: list[str], data: st.DataObject) -> None:
    tokenizer = fit(TokenizerConfig(kind="words"), ["cat dog,", "."])
    text = data.draw(st.sampled_from(["", " ", "  "]))
    for previous, word in zip(["", *words], words, strict=False):
        glue = ["", " ", "  "] if not (previous.isalpha() and word.isalpha()) else [" ", "   "]
        text += data.draw(st.sampled_from(glue)) + word
    assert tokenizer.unknown(text) == 0
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_known_words_are_known_in_any_spacing() -> None:
    tokenizer = fit(TokenizerConfig(kind="words"), ["cat dog,"])
    for text in ("dog cat", "dog ,cat", "  cat", "cat,,dog  ", ",", "cat   ,dog"):
        assert tokenizer.unknown(text) == 0
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_unknown_words_keep_their_spacing() -> None:
    tokenizer = fit(TokenizerConfig(kind="words"), ["the cat, the dog"])
    for text in ("the wolf, the dog", "wolf", "wolf cat", "the cat,wolf"):
        assert tokenizer.unknown(text) == 1
        assert tokenizer.decode(tokenizer.encode(text)) == text.replace("wolf", "⁇")


def test_word_size_and_rarity() -> None:
    for size in (8, 10, 12):
        tokenizer = fit(TokenizerConfig(kind="words", size=size), SENTENCES)
        assert tokenizer.size == size
        assert tokenizer.counts[UNK] > 0
        assert list(tokenizer.counts) == _recount(tokenizer, SENTENCES)
    rare = fit(TokenizerConfig(kind="words", min_count=2), ["a a b"])
    assert rare.unknown("a b") == 1


def _recount(tokenizer: object, texts: list[str]) -> list[int]:
    counts = [0] * tokenizer.size  # type: ignore[attr-defined]
    for text in texts:
        for index in tokenizer.encode(text):  # type: ignore[attr-defined]
            counts[index] += 1
    return counts


# Symbols, characters, bytes


def test_symbols_split_on_the_space_only() -> None:
    tokenizer = fit(TokenizerConfig(kind="symbols"), ["a\u00a0b  ŋ͡m c\td "])
    assert tokenizer.encode(" ŋ͡m   c\td") == tokenizer.encode("ŋ͡m c\td")
    assert tokenizer.decode(tokenizer.encode("c\td  a\u00a0b")) == "c\td a\u00a0b"
    assert tokenizer.unknown("a b") == 2


@pytest.mark.parametrize("kind", ["characters", "symbols", "words"])
def test_min_count_leaves_out_the_rare(kind: str) -> None:
    tokenizer = fit(TokenizerConfig(kind=kind, min_count=3), ["a b a", "a b c"])
    assert tokenizer.unknown("a") == 0
    assert tokenizer.unknown("c") == 1
    assert tokenizer.counts[UNK] == 3


def test_characters_show_marks_and_controls() -> None:
    tokenizer = fit(TokenizerConfig(kind="characters"), ["a\u0303 \n"])
    assert tokenizer.pieces(tokenizer.encode("a\u0303 \n")) == ["a", "◌\u0303", "▁", "\\n"]


def test_bytes_have_a_fixed_vocabulary() -> None:
    tokenizer = fit(TokenizerConfig(kind="bytes"), ["x"])
    assert tokenizer.size == 260
    assert tokenizer.decode(tokenizer.encode("é")[:1]) == "\ufffd"
    assert tokenizer.pieces(tokenizer.encode("a é")) == ["a", "▁", "<0xC3>", "<0xA9>"]


# Subwords


@quick
@given(st.text(max_size=30) | st.text(alphabet="a \u2581\u2585\ufdd0\ufdd1\ufdd2", max_size=12))
def test_escape_is_undone_and_hides_reserved_characters(text: str) -> None:
    assert unescape(escape(text)) == text
    assert not set(escape(text)) & {"\u2581", "\u2585"}


@pytest.mark.parametrize("model", ["bpe", "unigram"])
@settings(max_examples=25, deadline=None)
@given(texts=st.lists(st.text(max_size=20), min_size=1, max_size=8).filter(any), probe=st.text(max_size=20))
def test_any_corpus_gives_subwords_that_round_trip(model: str, texts: list[str], probe: str) -> None:
    tokenizer = fit(TokenizerConfig.model_validate({"kind": "subwords", "model": model}), texts)
    for text in [*texts, probe]:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("model", ["bpe", "unigram"])
def test_subword_size(model: str) -> None:
    config = TokenizerConfig.model_validate({"kind": "subwords", "model": model, "size": 290})
    tokenizer = fit(config, NUMBERS)
    assert tokenizer.size == 290
    assert tokenizer.notes == []
    large = fit(config.model_copy(update={"size": 30_000}), NUMBERS)
    assert 290 <= large.size < 1000
    assert large.notes == [f"{large.size} subwords were learnt from the text; 30000 were asked for"]


def test_subwords_with_more_characters_than_room() -> None:
    texts = ["".join(chr(0x4E00 + i) for i in range(200)), "aaa bbb aaa"]
    tokenizer = fit(TokenizerConfig(kind="subwords", size=270), texts)
    assert tokenizer.size <= 270
    assert any("spelled as bytes" in note for note in tokenizer.notes)
    assert tokenizer.decode(tokenizer.encode(texts[0])) == texts[0]
    assert len(tokenizer.encode("aaa")) <= 4


def test_subwords_too_few() -> None:
    with pytest.raises(UserError, match=r"tokenizer\.size = 100"):
        fit(TokenizerConfig(kind="subwords", size=100), SENTENCES)


def test_long_lines_are_learnt_from() -> None:
    line = "zebra quokka " * 10_000  # beyond sentencepiece's own limit of 4192 bytes
    tokenizer = fit(TokenizerConfig(kind="subwords"), [line, "short"])
    assert len(tokenizer.encode("zebra quokka")) == 2


def test_a_word_of_many_characters_does_not_end_the_process() -> None:
    tokenizer = fit(TokenizerConfig(kind="subwords"), ["xyz" * 30_000, "short"])
    text = "zyx" * 40_000
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_word_is_cut_alike_at_the_start_and_inside() -> None:
    tokenizer = fit(TokenizerConfig(kind="subwords"), SENTENCES)
    assert tokenizer.encode("green cat")[-1:] == tokenizer.encode("cat")
    assert tokenizer.pieces(tokenizer.encode("cat")) == ["▁cat"]


def test_damaged_model_file_is_named(tmp_path: Path) -> None:
    fit(TokenizerConfig(kind="subwords"), SENTENCES).save(tmp_path, "side")
    path = tmp_path / "side.spm"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"side\.spm: damaged"):
        load(tmp_path, "side")
    path.unlink()
    with pytest.raises(UserError, match=r"side\.spm: no such file"):
        load(tmp_path, "side")


def test_default_size_grows_with_the_text_and_stops_at_its_words() -> None:
    def size(sentences: int, distinct_words: int, distinct_characters: int = 80) -> int:
        total = sentences * 65
        characters = {str(i): total // distinct_characters for i in range(distinct_characters)}
        return default_size(characters, dict.fromkeys(map(str, range(distinct_words)), 1))

    assert 7_000 <= size(30_000, 20_000) <= 9_000
    assert 2_000 <= size(3_000, 20_000) <= 3_000
    assert size(10_000_000, 10**5) == 32_000
    assert size(30_000, 500) <= 500 + 80 + 268
    assert size(100, 10, distinct_characters=3_000) > 3_260
    assert default_size({"a": 10**6}, {"a" * 10**6: 1}) > 4_000  # no spaces: the one "word" is no limit
    sizes = [size(rows, 10**5) for rows in (10, 100, 1_000, 10_000, 100_000)]
    assert sizes == sorted(sizes)


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "word"}, "did you mean 'words'"),
        ({"kind": "base"}, "no such tokenizer"),
        ({"kind": "bytes", "size": 500}, "'size' has no meaning for bytes"),
        ({"kind": "characters", "model": "unigram"}, "'model' has no meaning for characters"),
        ({"kind": "subwords", "min_count": 2}, "'min_count' has no meaning for subwords"),
        ({"kind": "words", "drop": 0.1}, "'drop' has no meaning for words"),
        ({"kind": "subwords", "model": "unigram", "drop": 0.1}, "unigram"),
        ({"model": "unigram", "drop": 0.1}, "unigram"),
        ({"kind": "subwords", "drop": 1.0}, "drop"),
        ({"size": 0}, "size"),
        ({"min_count": 0}, "min_count"),
        ({"lowercase": True}, "lowercase"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TokenizerConfig.model_validate(settings)


def test_resolved_settings_can_be_written_and_read_again() -> None:
    config, reason = resolve(TokenizerConfig(size=500, min_count=2), ["anna", "bert", "carla"], "source")
    assert (config.kind, config.min_count, config.size) == ("characters", 2, None)
    assert "size has no meaning" in reason
    assert TokenizerConfig.model_validate_json(config.model_dump_json()) == config
    assert resolve(config, ["anna"], "source") == (config, "")


def test_auto_says_why() -> None:
    tokenizer = fit(TokenizerConfig(), ["anna", "bert", "carla"], "source")
    assert tokenizer.kind == "characters"
    assert tokenizer.notes[0].startswith("source: characters, because")
