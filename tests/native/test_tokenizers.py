"""The native tokenisers give what Python's give: ids, texts and printable strings, for every kind and any text."""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from native_tokenizers import NativeTokenizer, library

from dragoman.data.tokenizers import Tokenizer, TokenizerConfig, fit, kinds
from dragoman.errors import UserError
from dragoman.export.tokenizer_table import tokenizer_table

TEXTS = int(os.environ.get("DRAGOMAN_FUZZ_TOKENIZERS", "150"))  # texts of each kind
CONFIGS = [
    {"kind": "subwords", "model": model, "size": 400, "normalize": normalize} if model else
    {"kind": kind, "normalize": normalize}
    for kind in kinds()
    for model in (("bpe", "unigram") if kind == "subwords" else ("",))
    for normalize in ("none", "nfc")
]  # fmt: skip
CORPUS = [
    "the cat sat on the mat, and the dogs saw it; 12.5 % of them ran.",
    "Élan vital à Noël: cœur, façade, Ångström — naïve?",
    "e\u0301lan a\u0300 cote\u0301 q\u0323\u0307 \u0915\u094d\u0937\u093f हिन्दी में लिखा",
    "한국어 문장입니다 \u1112\u1161\u11ab 日本語の文 ▁▅ \ufdd0 tab\there\nnew  two   three ",
    "ترجمة النص العربي ไทยภาษา 😀👍🏽 </s> <unk> <0x41> a_b\u200dc",
] * 12
SPECIAL = (
    " \t\n\r\x00\x1c\x85\xa0\u2003\u3000\u200b\u200c\u200d\ufeff▁▅\ufdd0\ufdd1\ufdd2\ufffd\ud800\udfff\U000e0100"
    "\u0301\u0300\u0323\u0307\u0308\u0327\u0344\u0345\u0340\u0374\u037e\u0387\u212b\u2126\u2add\u1e9b\u1e69\u01d5"
    "\u0958\u09c7\u09be\u0dd9\u0dcf\u0dca\u1100\u1161\u11a7\u11a8\u11c2\u11c3\uac00\uac01\uac1c\ufb1f\ufb2e\uf900"
    "\U0001d15e\U0001d165\U0001d16e\U000110ba\U0001f600\U0010ffff\U0002f800⁇￭◌_aeoqAOU,.1²½Ⅷ"
)
texts = st.one_of(
    st.text(st.sampled_from(SPECIAL + "".join(sorted({*"".join(CORPUS)}))), max_size=40),
    st.text(st.characters(), max_size=20),
    st.lists(st.sampled_from([*" ".join(CORPUS[:5]).split(" "), " ", "", *SPECIAL]), max_size=12).map(" ".join),
    st.lists(st.sampled_from([*" ".join(CORPUS[:5]).split(" "), *SPECIAL]), max_size=12).map("".join),
    st.builds(lambda text, times: text * times, st.text(st.sampled_from(SPECIAL), max_size=4), st.integers(0, 300)),
)


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, NativeTokenizer]:
    tokenizer = fit(TokenizerConfig(**request.param), CORPUS)
    return tokenizer, NativeTokenizer(library(tmp_path_factory.getbasetemp()), tokenizer_table(tokenizer))


each_kind = pytest.mark.parametrize(
    "pair", CONFIGS, indirect=True, ids=lambda config: "-".join(map(str, config.values()))
)
many = settings(max_examples=TEXTS, deadline=None, suppress_health_check=list(HealthCheck), database=None)


def door(text: str) -> bytes:
    """Encode a text for the library; lone surrogates become U+FFFD, as everywhere."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text).encode()


@each_kind
def test_ids_are_those_of_python(pair: tuple[Tokenizer, NativeTokenizer]) -> None:
    tokenizer, native = pair

    @many
    @given(texts)
    def check(text: str) -> None:
        ids = tokenizer.encode(text)
        assert native.encode(door(text)) == (len(ids), ids)
        assert native.decode(ids).decode() == tokenizer.decode(ids)

    check()


@each_kind
def test_texts_are_those_of_python(pair: tuple[Tokenizer, NativeTokenizer]) -> None:
    tokenizer, native = pair

    @many
    @given(st.lists(st.integers(0, tokenizer.size - 1), max_size=30))
    def check(ids: list[int]) -> None:
        assert native.decode(ids).decode() == tokenizer.decode(ids)

    check()


@each_kind
def test_any_bytes_are_read_as_python_decodes_them(pair: tuple[Tokenizer, NativeTokenizer]) -> None:
    tokenizer, native = pair
    parts = st.sampled_from([bytes([value]) for value in range(0x70, 0x100)] + [b"\xe1\x80", b"\xf1\x80\x80", b"a"])

    @many
    @given(st.lists(parts, max_size=12).map(b"".join) | st.binary(max_size=20))
    def check(text: bytes) -> None:
        ids = tokenizer.encode(text.decode("utf-8", errors="replace"))
        assert native.encode(text) == (len(ids), ids)

    check()


@each_kind
def test_pieces_room_and_wrong_ids(pair: tuple[Tokenizer, NativeTokenizer]) -> None:
    tokenizer, native = pair
    assert [native.piece(index) for index in range(tokenizer.size)] == tokenizer.pieces(range(tokenizer.size))
    ids = tokenizer.encode(CORPUS[0])
    assert native.encode(CORPUS[0].encode(), room=3)[0] == len(ids)
    assert native.decode(ids, room=1).decode() == tokenizer.decode(ids)
    for wrong in (-1, tokenizer.size):
        with pytest.raises(ValueError, match="returns 2"):
            native.decode([wrong])
    assert tokenizer_table(tokenizer) == tokenizer_table(tokenizer)


@each_kind
def test_very_long_texts(pair: tuple[Tokenizer, NativeTokenizer]) -> None:
    tokenizer, native = pair
    generator = random.Random(0)
    for text in (" ".join(generator.choices(CORPUS, k=300)), "a" * 5000, "a" + "\u0323\u0301" * 400, "한" * 3000):
        ids = tokenizer.encode(text)
        assert native.encode(text.encode()) == (len(ids), ids)
        assert native.decode(ids).decode() == tokenizer.decode(ids)


@each_kind
def test_a_damaged_table_is_refused_or_harmless(pair: tuple[Tokenizer, NativeTokenizer]) -> None:
    tokenizer, native = pair
    table = tokenizer_table(tokenizer)
    generator = random.Random(0)
    with pytest.raises(ValueError, match="cannot be used"):
        NativeTokenizer(native._library, table[:-4])
    for _ in range(TEXTS):
        damaged = bytearray(table)
        for _ in range(generator.randint(1, 3)):
            place = generator.choice((generator.randrange(120), generator.randrange(len(table))))
            damaged[place] = generator.choice((0, 1, 255, generator.randrange(256)))
        try:
            opened = NativeTokenizer(native._library, bytes(damaged))
        except ValueError as error:
            assert "cannot be used" in str(error)
        else:
            count, ids = opened.encode(door(generator.choice(CORPUS)))
            assert len(ids) == count
            opened.decode(ids)


def test_every_kind_can_be_lowered_and_others_say_so() -> None:
    class Other(Tokenizer):
        fit = _encode = _decode = None  # type: ignore[assignment]

    with pytest.raises(UserError, match="has no `lower` method"):
        tokenizer_table(Other.__new__(Other))
    lowers: list[Callable[..., object]] = [type(fit(TokenizerConfig(**config), CORPUS)).lower for config in CONFIGS]
    assert Tokenizer.lower not in lowers
