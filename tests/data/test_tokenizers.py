"""The laws of ``Tokenizer``, held by every file of the folder: a new kind is tested without being named here."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dragoman.data.tokenizers import Tokenizer, TokenizerConfig, fit, kinds, load, tokenizer_class
from dragoman.data.vocabulary import BOS, EOS, PAD, UNK
from dragoman.errors import UserError

TEXTS = [
    "The cat sat on the mat, twice!",
    "the  dog\tsat (on the log).",
    " ein führender Satz mit Umlauten äöü ",
    "na\u0303o é claro: हिन्दी ภาษา 日本語",
    "1,024 cats; 3.5 dogs",
]
OPEN = {"bytes", "subwords"}  # kinds for which nothing is unknown
any_text = st.text(max_size=60)
odd_text = st.text(alphabet="ab \u2581\u2585\ufdd0\ufdd1\ufdd2\u200d\x00\n\r\t⁇<>/s😀\u0301\ud800", max_size=20)
known_text = st.text(alphabet=sorted(set("".join(TEXTS))), max_size=40)
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module", params=kinds())
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return fit(TokenizerConfig(kind=request.param), TEXTS)


def same(first: Tokenizer, second: Tokenizer) -> bool:
    probe = [*TEXTS, "unseen ☃ words", "a  b"]
    return (
        type(first) is type(second)
        and first.vocabulary == second.vocabulary
        and first.normalize == second.normalize
        and [first.encode(text) for text in probe] == [second.encode(text) for text in probe]
    )


def test_the_folder_is_the_list_of_kinds() -> None:
    assert kinds() == ["bytes", "characters", "subwords", "symbols", "words"] or len(kinds()) > 5
    for kind in kinds():
        assert tokenizer_class(kind).kind == kind
        assert inspect.getdoc(sys.modules[tokenizer_class(kind).__module__])


@quick
@given(text=any_text | odd_text | known_text | st.sampled_from(TEXTS))
@example(text="")
@example(text=" ")
@example(text="  a \n")
@example(text="\u2581\ufdd1\ufdd0\ufdd1")
@example(text="</s><unk><0x41>")
@example(text="\ud83d")
def test_round_trip_and_range(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert all(0 <= index < tokenizer.size for index in ids)
    assert not {PAD, BOS, EOS} & set(ids)
    assert tokenizer.unknown(text) == ids.count(UNK)
    decoded = tokenizer.decode(ids)
    if UNK not in ids:
        assert decoded == tokenizer.canonical(text)
    if tokenizer.kind in OPEN:
        assert UNK not in ids
    # Specials anywhere among the ids change nothing.
    assert tokenizer.decode([BOS, *(x for index in ids for x in (index, PAD)), EOS, EOS]) == decoded


@quick
@given(text=any_text | odd_text)
def test_canonical_text_is_the_text_unless_the_kind_says_otherwise(tokenizer: Tokenizer, text: str) -> None:
    expected = "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    if tokenizer.kind == "symbols":
        expected = " ".join(symbol for symbol in expected.split(" ") if symbol)
    assert tokenizer.canonical(text) == expected
    assert tokenizer.canonical(expected) == expected


@quick
@given(data=st.data())
def test_any_ids_decode_and_have_printable_pieces(tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.size - 1), max_size=20))
    text = tokenizer.decode(iter(ids))
    for special in ("<pad>", "<unk>", "<s>", "</s>"):
        assert special not in text
    pieces = tokenizer.pieces(iter(ids))
    assert len(pieces) == len(ids)
    assert all(piece and piece.isprintable() and " " not in piece for piece in pieces)
    assert tokenizer.pieces([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]


@quick
@given(text=any_text | odd_text | known_text | st.sampled_from(TEXTS))
@example(text=" a")
def test_spans_are_in_order_and_cover_the_text(tokenizer: Tokenizer, text: str) -> None:
    ids = [*tokenizer.encode(text), EOS]
    decoded, spans = tokenizer.decode(ids), tokenizer.spans(ids)
    assert len(spans) == len(ids) and spans[-1] == (len(decoded), len(decoded))
    assert all(0 <= begin <= end <= len(decoded) for begin, end in spans)
    assert spans == sorted(spans)
    covered = {place for begin, end in spans for place in range(begin, end)}
    spaces = {place for place, character in enumerate(decoded) if character == " "}
    assert covered | spaces == set(range(len(decoded)))
    if tokenizer.kind != "symbols":  # whose spaces are nobody's
        assert covered == set(range(len(decoded)))


@quick
@given(data=st.data())
def test_any_ids_have_spans_within_their_text(tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.size - 1), max_size=12))
    decoded, spans = tokenizer.decode(ids), tokenizer.spans(ids)
    assert len(spans) == len(ids)
    assert all(0 <= begin <= end <= len(decoded) for begin, end in spans)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_bytes_of_tokens_are_those_of_the_text(tokenizer: Tokenizer, data: st.DataObject) -> None:
    spelling = tokenizer.spelling()
    ids = data.draw(st.lists(st.integers(0, tokenizer.size - 1), max_size=12))
    ids = [index for index in ids if spelling.spelled[0][index] is not None]
    try:
        text = spelling.spell(ids).decode("utf-8")
    except UnicodeDecodeError:
        return
    if not any("\ufdd0" <= character <= "\ufdd2" for character in text):
        assert text == tokenizer.decode(ids)


def test_training_text_is_known_and_counted(tokenizer: Tokenizer) -> None:
    counts = [0] * tokenizer.size
    for text in TEXTS:
        assert tokenizer.unknown(text) == 0
        for index in tokenizer.encode(text):
            counts[index] += 1
    assert list(tokenizer.counts) == counts


def test_ids_out_of_range_are_refused(tokenizer: Tokenizer) -> None:
    for index in (-1, tokenizer.size):
        with pytest.raises(ValueError, match=str(index)):
            tokenizer.decode([index])
        with pytest.raises(ValueError, match=str(index)):
            tokenizer.pieces([index])


def test_unseen_symbols_are_unknown_or_bytes(tokenizer: Tokenizer) -> None:
    text = "☃☃☃"
    if tokenizer.kind in OPEN:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    else:
        assert tokenizer.unknown(text) > 0
        assert "⁇" in tokenizer.decode(tokenizer.encode(text))


def test_empty_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""
    assert tokenizer.pieces([]) == []


def test_fit_is_deterministic(tokenizer: Tokenizer) -> None:
    again = fit(TokenizerConfig(kind=tokenizer.kind), iter(TEXTS))
    assert same(tokenizer, again)


def test_save_and_load_change_nothing(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path, "source")
    loaded = load(tmp_path, "source")
    assert same(tokenizer, loaded)
    assert same(tokenizer, type(tokenizer).load(tmp_path, "source"))
    loaded.save(tmp_path, "target")
    names = sorted(path.name for path in tmp_path.iterdir())
    suffixes = [".spm", ".tokenizer.json"] if tokenizer.kind == "subwords" else [".tokenizer.json"]
    assert names == sorted(side + suffix for side in ("source", "target") for suffix in suffixes)
    for suffix in suffixes:
        assert (tmp_path / f"source{suffix}").read_bytes() == (tmp_path / f"target{suffix}").read_bytes()


def test_missing_and_damaged_files_are_named(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"side\.tokenizer\.json: no such file"):
        load(tmp_path, "side")
    tokenizer.save(tmp_path, "side")
    path = tmp_path / "side.tokenizer.json"
    whole = path.read_bytes()
    record = json.loads(whole)
    damages = [b"", b"[]", b"\xff\xfe", whole[: len(whole) // 2], b"[" * 100_000]
    for change in (
        {"format": 99},
        {"kind": "no_such_kind"},
        {"kind": ["words"]},
        {"normalize": "nfx"},
        {"symbols": record["symbols"][:-1]},
        {"symbols": [*record["symbols"][:-1], record["symbols"][0]]},
        {"symbols": None},
        {"counts": record["counts"][1:]},
        {"counts": [*record["counts"][1:], -1]},
        {"counts": [*record["counts"][1:], "7"]},
    ):
        damages.append(json.dumps(record | change).encode())
    for damage in damages:
        path.write_bytes(damage)
        with pytest.raises(UserError, match=r"side\.tokenizer\.json: damaged"):
            load(tmp_path, "side")


def test_loading_as_another_kind_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path, "side")
    other = next(kind for kind in kinds() if kind != tokenizer.kind)
    with pytest.raises(UserError, match=r"side\.tokenizer\.json"):
        tokenizer_class(other).load(tmp_path, "side")


@pytest.mark.parametrize("kind", kinds())
def test_nfc_is_applied_before_all_else(kind: str, tmp_path: Path) -> None:
    decomposed = [unicodedata.normalize("NFD", text) for text in TEXTS]
    tokenizer = fit(TokenizerConfig(kind=kind, normalize="nfc"), decomposed)
    assert same(tokenizer, fit(TokenizerConfig(kind=kind, normalize="nfc"), TEXTS))
    text = unicodedata.normalize("NFD", "führender Satz")
    assert tokenizer.decode(tokenizer.encode(text)) == "führender Satz"
    tokenizer.save(tmp_path, "side")
    assert load(tmp_path, "side").encode(text) == tokenizer.encode("führender Satz")


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize(
    "texts", [[" "], ["a"], ["", "  ", "\n"], ["\x00\x00"], ["\ud800"], ["xyz" * 30_000], ["\u2585"]]
)
def test_strange_training_text_does_not_crash(kind: str, texts: list[str]) -> None:
    tokenizer = fit(TokenizerConfig(kind=kind), texts)
    for text in texts:
        assert tokenizer.unknown(text) == 0
        assert tokenizer.decode(tokenizer.encode(text)) == tokenizer.canonical(text)


@pytest.mark.parametrize("kind", ["auto", *kinds()])
def test_no_text_at_all_is_the_users_mistake(kind: str) -> None:
    for texts in ([], [""], iter(["", ""])):
        with pytest.raises(UserError, match="target: there is no text"):
            fit(TokenizerConfig(kind=kind), texts, "target")


@pytest.mark.parametrize("kind", kinds())
def test_one_tokenizer_can_serve_both_sides(kind: str) -> None:
    source, target = ["a b c", "b c"], ["x y", "z y x"]
    shared = fit(TokenizerConfig(kind=kind), [*source, *target])
    assert all(shared.decode(shared.encode(text)) == text for text in source + target)


def test_importing_is_light() -> None:
    code = (
        "import sys; import dragoman.data.tokenizers as t; [t.tokenizer_class(k) for k in t.kinds()]; "
        "sys.exit('torch' in sys.modules or 'sentencepiece' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}).returncode == 0
