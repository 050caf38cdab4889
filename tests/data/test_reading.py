"""Formats, columns, headers; and the law over any bytes whatever: nothing but UserError, and the counts add up."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from dragoman.data.audit.audit import CATEGORIES, fate
from dragoman.data.examples import tidy
from dragoman.data.options import DataConfig
from dragoman.data.reading.read import Corpus, read
from dragoman.errors import UserError

PIECES = [
    b"a", b"b c", b"\t", b"\t", b"\n", b"\n", b"\n", b"\r\n", b"\r", b" ", b"\x00", b"\xff",
    b"\xe2\x80\xa8", b"\xef\xbb\xbf",
    "é".encode(), "e\u0301".encode(), b"\x85", b"\xc2\x85", b"\x0b", b"source", b"target",
    b'{"source":"a","target":"b"}',
    b'{"source":"', b'"}', b'"', b"[", b"\\ud800", b"\\n", b"\x1f\x8b", b"xxxxxxxxxxxx", b"\xe2\x80\x8b", b"|||", b",",
]  # fmt: skip
dirty = st.one_of(st.lists(st.sampled_from(PIECES), max_size=60).map(b"".join), st.binary(max_size=60))


def balanced(corpus: Corpus, lines: int) -> None:
    audit = corpus.audit
    assert audit.rows == audit.used + audit.dropped
    assert audit.used == len(corpus.examples)
    assert audit.dropped == sum(audit.count(category) for category in CATEGORIES if fate(category) == "dropped")
    assert lines - audit.rows in (0, 1)  # a header
    numbers = [example.line for example in corpus.examples]
    assert numbers == sorted(set(numbers))
    for example in corpus.examples:
        for text in (*example.sources.values(), example.target):
            assert text and tidy(text) == text and len(text) <= 10
    audit.report()


def count_lines(content: bytes) -> int:
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))


@settings(max_examples=400, deadline=None)
@given(
    dirty,
    st.sampled_from(["auto", "tsv", "csv", "jsonl", "json", "text"]),
    st.sampled_from(["auto", "yes", "no"]),
    st.booleans(),
)
def test_any_bytes_are_read_or_refused_and_the_counts_add_up(
    content: bytes, kind: Any, header: Any, zipped: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.gz" if zipped else "file")
        path.write_bytes(gzip.compress(content) if zipped else content)
        try:
            corpus = read([path], DataConfig(format=kind, header=header, max_characters=10))
        except UserError as error:
            assert str(error).startswith(str(path))
            return
        # the objects of an array may share lines, and a record of CSV may have several
        by_line = corpus.audit.unit == "line" and corpus.audit.format != "csv"
        if by_line and (zipped or not content.startswith(b"\x1f\x8b")):
            balanced(corpus, count_lines(content))


@settings(max_examples=200, deadline=None)
@given(dirty, dirty)
def test_any_two_files_are_read_only_if_equally_long(first: bytes, second: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, "s"), Path(folder, "t")]
        for path, content in zip(paths, (first, second), strict=True):
            path.write_bytes(content)
        try:
            corpus = read(paths, DataConfig(max_characters=10))
        except UserError as error:
            assert str(error).startswith(folder)
            return
        if not first.startswith(b"\x1f\x8b") and not second.startswith(b"\x1f\x8b"):
            assert count_lines(first) == count_lines(second) == corpus.audit.rows
            balanced(corpus, count_lines(first))


def write(tmp_path: Path, text: str, name: str = "pairs.tsv") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


def pairs(corpus: Corpus) -> list[tuple[tuple[str, ...], str]]:
    return [(tuple(example.sources.values()), example.target) for example in corpus.examples]


@pytest.mark.parametrize(
    ("text", "config", "expected"),
    [
        ("source\ttarget\na\tb\n", {}, [(("a",), "b")]),
        ("target\tsource\nb\ta\n", {}, [(("a",), "b")]),
        ("Word\tPronunciation\na\tb\n", {}, [(("a",), "b")]),
        ("id\tsrc\ttgt\n1\ta\tb\n", {}, [(("a",), "b")]),
        ("source\ttarget\na\tb\n", {"header": "no"}, [(("source",), "target"), (("a",), "b")]),
        ("source\ttarget\n", {}, [(("source",), "target")]),  # alone, it cannot be told from a row
        ("de\ten\na\tb\n", {}, [(("de",), "en"), (("a",), "b")]),
        ("de\ten\na\tb\n", {"header": "yes"}, [(("a",), "b")]),
        ("de\ten\na\tb\n", {"source": "en"}, [(("b",), "a")]),
        ("de\ten\na\tb\n", {"source": 2, "target": 1}, [(("en",), "de"), (("b",), "a")]),
        ("a\tb\n", {"target": 1}, [(("b",), "a")]),
        ("a\tb\tc\n", {"source": 3, "target": 1}, [(("c",), "a")]),
        ("a\tb\tc\n", {"source": "3", "target": "1"}, [(("c",), "a")]),
        ("a\tb\tc\n", {"source": [1, 3]}, [(("a", "c"), "b")]),
        ("a\tb\tc\n", {"source": [1], "target": 2}, [(("a",), "b")]),
        ("p\tq\tanswer\na\tb\tc\n", {"source": ["q", "p"]}, [(("b", "a"), "c")]),
        ("a\tb\tc\n", {"source": {"question": 2, "picture": 1}, "target": 3}, [(("b", "a"), "c")]),
        ("a\nb\n", {"format": "text"}, [((), "a"), ((), "b")]),
        ("a\nb\n", {"source": []}, [((), "a"), ((), "b")]),
        ("a\tb\n", {"source": [], "target": 2}, [((), "b")]),
    ],
)
def test_columns(tmp_path: Path, text: str, config: dict[str, Any], expected: Any) -> None:
    assert pairs(read(write(tmp_path, text), DataConfig(**config))) == expected


def test_names_of_several_sources(tmp_path: Path) -> None:
    path = write(tmp_path, "p\tq\tanswer\na\tb\tc\n")
    assert read(path, DataConfig(source=["q", "p"])).examples[0].sources == {"q": "b", "p": "a"}
    assert read(path, DataConfig(source=[1, 2], header="yes")).examples[0].sources == {"source1": "a", "source2": "b"}
    assert read(path, DataConfig(source={"x": "q"})).examples[0].sources == {"x": "b"}


@pytest.mark.parametrize(
    ("line", "config", "expected"),
    [
        ('{"source":"a","target":"b"}', {}, (("a",), "b")),
        ('{"target":"b","source":"a"}', {}, (("a",), "b")),
        ('{"id":"7","input":"a","output":"b"}', {}, (("a",), "b")),
        ('{"de":"a","n":5,"en":"b"}', {}, (("a",), "b")),
        ('{"de":"a","en":"b"}', {"source": "en"}, (("b",), "a")),
        ('{"p":"a","q":"b","r":"c"}', {"source": ["q", "p"], "target": "r"}, (("b", "a"), "c")),
        ('{"text":"a"}', {"source": []}, ((), "a")),
        ('{"1":"a","2":"b"}', {"source": "2", "target": "1"}, (("b",), "a")),
    ],
)
def test_keys(tmp_path: Path, line: str, config: dict[str, Any], expected: Any) -> None:
    for name in ("p.jsonl", "p.txt", "p.JSONL"):
        assert pairs(read(write(tmp_path, line + "\n", name), DataConfig(**config))) == [expected]


def test_what_was_decided_is_said(tmp_path: Path) -> None:
    def notes(text: str, **config: Any) -> str:
        return " | ".join(read(write(tmp_path, text), DataConfig(**config)).audit.notes)

    assert "source = column 2 (src), target = column 1 (tgt)" in notes("tgt\tsrc\nb\ta\n")
    assert "line 1 is a header, not a row; if it is data: --set data.header=no" in notes("tgt\tsrc\nb\ta\n")
    for names in ("word\tgerman", "Wort\tAussprache"):
        said = f"line 1 is a row ({names.replace(chr(9), ', ')}); if it names the columns: --set data.header=yes"
        assert said in notes(f"{names}\na\tb\n")
    assert "source = column 1, target = column 2" in notes("a\tb\n")
    assert "is a header" not in notes("a\tb\n")
    two = [write(tmp_path, "a\n", "s"), write(tmp_path, "b\n", "t")]
    assert any("not used" in note for note in read(two, DataConfig(source=1)).audit.notes)


def test_columns_that_are_not_used_are_named(tmp_path: Path) -> None:
    def notes(text: str, **config: Any) -> str:
        return " | ".join(read(write(tmp_path, text), DataConfig(**config)).audit.notes)

    said = notes("story\tquestion\tanswer\na\tb\tc\n")
    assert "source = column 2 (question), target = column 3 (answer)" in said
    assert "not used: column 1 (story); to read it too: --source story --source question --target answer |" in said
    assert "not used: column 2 |" in notes("a\tb\tc\n", source=1, target=3)
    assert "not used" not in notes("a\tb\n")
    many = "\t".join([*"abcdefg", "source", "target"])
    assert "column 5 (e) and 2 more |" in notes(f"{many}\n{many.upper()}\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sources\tanswer\na\tb\n", "no column is called 'source'; did you mean 'sources'?"),
        ("7.4.61\t2061-04-07\n", "The first row is: 7.4.61 | 2061-04-07. If it is a header, select columns by "
         "these names; if it is data, by number, for example: --source 1 --target 2"),
        ("2061\n", "and 2 columns are read (source, target), but the first row has 1: 2061; give another file"),
    ],
)  # fmt: skip
def test_a_first_row_without_the_selected_names_is_not_taken_for_names(
    tmp_path: Path, text: str, expected: str
) -> None:
    """A run that was trained on named columns reads every other table by these names."""
    path = write(tmp_path, text + "x\ty\n" * 3)
    with pytest.raises(UserError) as refused:
        read(path, DataConfig(source="source", target="target"))
    assert expected in str(refused.value) and "choose from" not in str(refused.value)


def test_a_tsv_file_in_quotes_is_said(tmp_path: Path) -> None:
    quoted = write(tmp_path, '"a"\t"b"\n"c"\t"d"\n')
    assert "every cell is in quotes" in read(quoted).audit.notes[-1]
    assert "--set data.format=csv" in read(quoted).audit.notes[-1]
    assert pairs(read(quoted, DataConfig(format="csv"))) == [(("a",), "b"), (("c",), "d")]
    assert "quotes" not in " ".join(read(write(tmp_path, '"a"\tb\n"c"\td\n')).audit.notes)


def test_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def feed(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    feed(b"a\tb\n")
    corpus = read("-")
    assert pairs(corpus) == [(("a",), "b")] and corpus.examples[0].file == "<stdin>"
    feed(gzip.compress(b"x\n"))
    assert pairs(read([write(tmp_path, "y\n", "s.txt"), "-"])) == [(("y",), "x")]
    feed(b"")
    with pytest.raises(UserError, match=r"^<stdin>: the file is empty"):
        read("-")


def test_line_numbers_are_of_the_file(tmp_path: Path) -> None:
    corpus = read(write(tmp_path, "source\ttarget\n\na\tb\nx\nc\td\n"))
    assert [(example.line, example.file) for example in corpus.examples] == [
        (3, str(tmp_path / "pairs.tsv")),
        (5, str(tmp_path / "pairs.tsv")),
    ]


def test_rows_beyond_the_sample_are_held_to_the_same_columns(tmp_path: Path) -> None:
    corpus = read(write(tmp_path, "a\tb\n" * 1500 + "a\tb\tc\n" + "c\td\n"))
    assert corpus.audit.rows == 1502 and corpus.audit.count("wrong_columns") == 1
    assert corpus.audit.findings["wrong_columns"].places[0].line == 1501
    assert corpus.examples[-1].target == "d"


@pytest.mark.parametrize(
    "settings_",
    [{"target": 0}, {"source": [1, 1]}, {"source": {"target": 1}}, {"dev_share": 0.5, "test_share": 0.5},
     {"max_characters": 0}, {"sorce": 1}, {"source": True}, {"source": ""}],
)  # fmt: skip
def test_settings_that_cannot_be_meant(settings_: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DataConfig(**settings_)


def test_reading_needs_no_torch(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{row}\t{row}\n" for row in range(20)))
    code = (
        "import sys; from dragoman.data.splits import split; from dragoman.data.reading.read import read\n"
        "split(read(sys.argv[1]).examples); sys.exit('torch' in sys.modules)"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "a.tsv")]
    assert subprocess.run(arguments, env=environment, check=False).returncode == 0
