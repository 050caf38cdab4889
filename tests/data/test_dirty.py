"""Dirty files: each is repaired and counted, dropped and counted, or refused with its place. Exact counts and lines."""

from __future__ import annotations

import bz2
import gzip
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dragoman.data.options import DataConfig
from dragoman.data.reading import lines
from dragoman.data.reading.read import read
from dragoman.errors import UserError


@dataclass(frozen=True)
class Case:
    """One file (or two) and everything that must be found in it: category → lines, and nothing else."""

    name: str
    content: bytes
    found: dict[str, list[int]] = field(default_factory=dict)
    used: list[tuple[str, str]] = field(default_factory=list)
    file: str = "pairs.tsv"
    second: bytes | None = None
    config: dict[str, Any] = field(default_factory=dict)


GOOD = b"a\tb\nc\td\n"
PAIRS = [("a", "b"), ("c", "d")]

JA = b'{"source":"a","target":"b"}\n'
JC = b'{"source":"c","target":"d"}\n'

CASES = [
    Case("clean", GOOD, used=PAIRS),
    Case("no newline at the end", b"a\tb\nc\td", used=PAIRS),
    Case("one column too few", b"a\tb\nbroken\nc\td\n", {"wrong_columns": [2]}, PAIRS),
    Case("one column too many", b"a\tb\nx\ty\tz\nc\td\n", {"wrong_columns": [2]}, PAIRS),
    Case("tab at the end of a row", b"a\tb\nx\ty\t\nc\td\n", {"wrong_columns": [2]}, PAIRS),
    Case("first row broken", b"broken\na\tb\nc\td\n", {"wrong_columns": [1]}, PAIRS),
    Case("empty source", b"a\tb\n\tx\nc\td\n", {"empty_side": [2]}, PAIRS),
    Case("empty target", b"a\tb\nx\t\nc\td\n", {"empty_side": [2]}, PAIRS),
    Case("both sides empty", b"a\tb\n\t\nc\td\n", {"empty_side": [2]}, PAIRS),
    Case("side of white space", b"a\tb\n \t \xc2\xa0\nc\td\n", {"empty_side": [2]}, PAIRS),
    Case("side of invisible characters", "a\tb\nx\t\u200b\u200d\nc\td\n".encode(), {"empty_side": [2]}, PAIRS),
    Case("blank lines", b"a\tb\n\n   \nc\td\n\n", {"blank_line": [2, 3, 5]}, PAIRS),
    Case("Latin-1 row", b"a\tb\ncaf\xe9\tx\nc\td\n", {"invalid_utf8": [2]}, PAIRS),
    Case("cut-off UTF-8", b"a\tb\nc\td\nx\t\xe2\x82", {"invalid_utf8": [3]}, PAIRS),
    Case("overlong UTF-8", b"a\tb\nx\t\xc0\xaf\nc\td\n", {"invalid_utf8": [2]}, PAIRS),
    Case("surrogate as UTF-8", b"a\tb\nx\t\xed\xa0\x80\nc\td\n", {"invalid_utf8": [2]}, PAIRS),
    Case("NUL", b"a\tb\nx\x00y\tz\nc\td\n", {"control_character": [2]}, PAIRS),
    Case("escape sequence", b"a\tb\n\x1b[1mx\tz\nc\td\n", {"control_character": [2]}, PAIRS),
    Case("delete character", b"a\tb\nx\tz\x7f\nc\td\n", {"control_character": [2]}, PAIRS),
    Case("vertical tab ends no line", b"a\tb\nx\x0by\tz\nc\td\n", {"control_character": [2]}, PAIRS),
    Case("form feed at the edge", b"a\tb\n\x0cx\tz\nc\td\n", {"control_character": [2]}, PAIRS),
    Case("NEL ends no line", "a\tb\nx\x85y\tz\nc\td\n".encode(), {"control_character": [2]}, PAIRS),
    Case("lone CR inside", b"a\tb\nx\ry\tz\nc\td\n", {"control_character": [2]}, PAIRS),
    Case("file separators end no line", b"a\tb\nx\x1c\x1d\x1ey\tz\nc\td\n", {"control_character": [2]}, PAIRS),
    Case(
        "U+2028 is data",
        "a\tb\nx\u2028y\tz\u2029z\nc\td\n".encode(),
        {},
        [PAIRS[0], ("x\u2028y", "z\u2029z"), PAIRS[1]],
    ),
    Case("byte order mark", b"\xef\xbb\xbf" + GOOD, {"byte_order_mark": [1]}, PAIRS),
    Case("byte order mark of a joined file", b"a\tb\n\xef\xbb\xbfc\td\n", {"byte_order_mark": [2]}, PAIRS),
    Case("byte order mark in a column", b"a\tb\nc\t\xef\xbb\xbfd\n", {"byte_order_mark": [2]}, PAIRS),
    Case("byte order mark before the header", b"\xef\xbb\xbfsource\ttarget\n" + GOOD, {"byte_order_mark": [1]}, PAIRS),
    Case("CR LF", b"a\tb\r\nc\td\r\n", {"crlf": [1, 2]}, PAIRS),
    Case("CR CR LF", b"a\tb\r\r\nc\td\n", {"crlf": [1]}, PAIRS),
    Case("CR at the very end", b"a\tb\nc\td\r", {"crlf": [2]}, PAIRS),
    Case("white space around", b" a\tb \nc\td\n", {"white_space": [1]}, PAIRS),
    Case("ideographic and no-break space around", "\u3000a\u00a0\tb\nc\td\n".encode(), {"white_space": [1]}, PAIRS),
    Case("too long", b"a\tb\nc\td\ncccc\tx\nx\tccccc\n", {"too_long": [3, 4]}, PAIRS, config={"max_characters": 3}),
    Case("as long as allowed", b"aaa\tbbb\n", {}, [("aaa", "bbb")], config={"max_characters": 3}),
    Case("exact duplicates", GOOD + b"a\tb\na\tb\n", {"duplicate": [3, 4]}, [*PAIRS, PAIRS[0], PAIRS[0]]),
    Case("duplicate after repair", GOOD + b"a \tb\n", {"duplicate": [3], "white_space": [3]}, [*PAIRS, PAIRS[0]]),
    Case(
        "several targets",
        GOOD + b"a\tx\na\tx\n",
        {"several_targets": [3], "duplicate": [4]},
        [*PAIRS, *[("a", "x")] * 2],
    ),
    Case("target equals source", GOOD + b"x\tx\n", {"copy": [3]}, [*PAIRS, ("x", "x")]),
    Case("not NFC", "a\tb\ne\u0301\td\n".encode(), {"not_nfc": [2]}, [PAIRS[0], ("e\u0301", "d")]),
    Case("zero-width space inside", "a\tb\nx\u200by\td\n".encode(), {"invisible": [2]}, [PAIRS[0], ("x\u200by", "d")]),
    Case("joiners are letters", "می‌خواهم\tb\n".encode(), {}, [("می‌خواهم", "b")]),
    Case("damaged before", "a\tb\nx\ufffd\td\n".encode(), {"replacement_character": [2]}, [PAIRS[0], ("x\ufffd", "d")]),
    Case("quotes are data", b'"a\t"b\n"c"\t\'d\n', {}, [('"a', '"b'), ('"c"', "'d")]),
    Case("backslashes are data", b"a\\tb\tc\\n\n", {}, [("a\\tb", "c\\n")]),
    Case("NA and null are data", b"NA\tnull\nnan\tNone\n", {}, [("NA", "null"), ("nan", "None")]),
    Case("comment signs are data", b"# a\tb\n", {}, [("# a", "b")]),
    Case("header below blank lines", b"\nsource\ttarget\n" + GOOD, {"blank_line": [1]}, PAIRS),
    Case(
        "no header: the names come again",
        b"input\toutput\na\tb\ninput\tc\n",
        {"several_targets": [3]},
        [("input", "output"), PAIRS[0], ("input", "c")],
    ),
    Case("gzip", gzip.compress(GOOD), {}, PAIRS, file="pairs.tsv.gz"),
    Case("gzip without saying so", gzip.compress(GOOD), {}, PAIRS),
    Case("gzip in two members", gzip.compress(b"a\tb\n") + gzip.compress(b"c\td\n"), {}, PAIRS, file="pairs.tsv.gz"),
    Case(
        "everything at once",
        b"\xef\xbb\xbf a\tb\r\n\r\n\xff\t\n\x00\tb\nc\td\td\nc\td\n\t\n",
        {
            "byte_order_mark": [1],
            "crlf": [1, 2],
            "white_space": [1],
            "blank_line": [2],
            "invalid_utf8": [3],
            "control_character": [4],
            "wrong_columns": [5],
            "empty_side": [7],
        },
        PAIRS,
    ),
    # JSON lines
    Case("JSON: not JSON", JA + b'{"source":\n' + JC, {"invalid_json": [2]}, PAIRS, file="p.jsonl"),
    Case("JSON: not objects", JA + b'[1]\n"x"\n7\nnull\n' + JC, {"invalid_json": [2, 3, 4, 5]}, PAIRS, file="p.jsonl"),
    Case("JSON: key missing", JA + b'{"source":"x"}\n' + JC, {"missing_key": [2]}, PAIRS, file="p.jsonl"),
    Case(
        "JSON: not text",
        JA + b'{"source":1,"target":"b"}\n{"source":"x","target":null}\n{"source":"x","target":["y"]}\n' + JC,
        {"empty_side": [3], "missing_key": [4]},
        [PAIRS[0], ("1", "b"), PAIRS[1]],
        file="p.jsonl",
    ),
    Case(
        "JSON: a key twice",
        JA + b'{"source":"x","target":"1","target":"2"}\n' + JC,
        {"invalid_json": [2]},
        PAIRS,
        file="p.jsonl",
    ),
    Case(
        "JSON: lone surrogate",
        JA + b'{"source":"\\ud800","target":"b"}\n' + JC,
        {"invalid_utf8": [2]},
        PAIRS,
        file="p.jsonl",
    ),
    Case(
        "JSON: line breaks in a text",
        JA + b'{"source":"x\\ny\\r\\nz","target":"b\\n"}\n',
        {"line_break": [2], "white_space": [2]},
        [PAIRS[0], ("x y z", "b")],
        file="p.jsonl",
    ),
    Case(
        "JSON: escaped NUL",
        JA + b'{"source":"\\u0000","target":"b"}\n' + JC,
        {"control_character": [2]},
        PAIRS,
        file="p.jsonl",
    ),
    Case("JSON: a tab is data", b'{"source":"a\\tb","target":"c"}\n', {}, [("a\tb", "c")], file="p.jsonl"),
    Case("JSON: nested without end", JA + b"[" * 100_000 + b"\n" + JC, {"invalid_json": [2]}, PAIRS, file="p.jsonl"),
    Case(
        "JSON: an endless number",
        JA + b'{"n":' + b"9" * 5000 + b"}\n" + JC,
        {"missing_key": [2]},
        PAIRS,
        file="p.jsonl",
    ),
    # CSV
    Case("CSV", b"a,b\nc,d\n", {}, PAIRS, file="p.csv"),
    Case("CSV: semicolons", b"a;b\nc;d\n", {}, PAIRS, file="p.csv"),
    Case("CSV: semicolons and decimal commas", b"1,5;2\nc;d\n", {}, [("1,5", "2"), PAIRS[1]], file="p.csv"),
    Case("CSV: tabs", b'"a"\t"b"\nc\td\n', {}, PAIRS, file="p.csv"),
    Case("CSV: CR LF", b"a,b\r\nc,d\r\n", {}, PAIRS, file="p.csv"),
    Case("CSV: gzip", gzip.compress(b"a,b\nc,d\n"), {}, PAIRS, file="p.csv.gz"),
    Case("CSV: a header", b'"source","target"\na,b\nc,d\n', {}, PAIRS, file="p.csv"),
    Case("CSV: quotes", b'"a,""x""",b\nc,5" d\n', {}, [('a,"x"', "b"), ("c", '5" d')], file="p.csv"),
    Case(
        "CSV: a line break moves no line number",
        b'a,b\n"x\n\ny",z\n\nc\nc,d\n',
        {"line_break": [2], "blank_line": [5], "wrong_columns": [6]},
        [PAIRS[0], ("x  y", "z"), PAIRS[1]],
        file="p.csv",
    ),
    Case("CSV: text after a quote", b'a,b\n"x"y,z\nc,d\n', {"invalid_csv": [2]}, PAIRS, file="p.csv"),
    Case("CSV: not UTF-8", b'a,b\n"x\n\xff",z\nc,d\n', {"invalid_utf8": [2]}, PAIRS, file="p.csv"),
    Case("CSV: empty cells", b"a,b\nx,\n,\nc,d\n", {"empty_side": [2, 3]}, PAIRS, file="p.csv"),
    Case("CSV: numbers stay", b"1.50,007\nNA,nan\n", {}, [("1.50", "007"), ("NA", "nan")], file="p.csv"),
    # JSON arrays; their rows are counted, not their lines
    Case("array", b'[{"source":"a","target":"b"},{"source":"c","target":"d"}]', {}, PAIRS, file="p.json"),
    Case(
        "array without a name", b'[\n{"source":"a","target":"b"},\n{"source":"c","target":"d"}]\n', {}, PAIRS, file="p"
    ),
    Case(
        "array: what is no row",
        b'[{"source":"a","target":"b"}, 1, {"source":"x"}, {"source":"x","target":NaN},\n{"source":"c","target":"d"}]',
        {"invalid_json": [2], "missing_key": [3], "empty_side": [4]},
        PAIRS,
        file="p.json",
    ),
    Case("array: as lines all the same", JA + JC, {}, PAIRS, file="p.json"),
    # Parallel files
    Case("parallel: one side empty", b"a\nx\nc\n", {"empty_side": [2]}, PAIRS, file="s.txt", second=b"b\n\nd\n"),
    Case("parallel: both blank", b"a\n\nc\n", {"blank_line": [2]}, PAIRS, file="s.txt", second=b"b\n\nd\n"),
    Case(
        "parallel: one side not UTF-8", b"a\nx\nc\n", {"invalid_utf8": [2]}, PAIRS, file="s.txt", second=b"b\n\xff\nd\n"
    ),
    Case(
        "parallel: both sides not UTF-8",
        b"a\n\xff\nc\n",
        {"invalid_utf8": [2]},
        PAIRS,
        file="s.txt",
        second=b"b\n\xff\nd\n",
    ),
    Case("parallel: no newline at one end", b"a\nc", {}, PAIRS, file="s.txt", second=b"b\nd\n"),
    Case("parallel: CR LF on one side", b"a\r\nc\r\n", {"crlf": [1, 2]}, PAIRS, file="s.txt", second=b"b\nd\n"),
    Case(
        "parallel: U+2028 shifts nothing",
        "a\u2028\u2028z\nc\n".encode(),
        {},
        [("a\u2028\u2028z", "b"), PAIRS[1]],
        file="s.txt",
        second=b"b\nd\n",
    ),
    Case("parallel: a tab is data", b"a\tz\nc\n", {}, [("a\tz", "b"), PAIRS[1]], file="s.txt", second=b"b\nd\n"),
    Case("parallel: gzip on one side", gzip.compress(b"a\nc\n"), {}, PAIRS, file="s.txt.gz", second=b"b\nd\n"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_repaired_or_dropped_and_counted(case: Case, tmp_path: Path) -> None:
    paths = [tmp_path / case.file]
    paths[0].write_bytes(case.content)
    if case.second is not None:
        paths.append(tmp_path / "t.txt")
        paths[1].write_bytes(case.second)
    corpus = read(paths, DataConfig(**case.config))
    audit = corpus.audit
    found = {category: [place.line for place in finding.places] for category, finding in audit.findings.items()}
    assert found == case.found
    assert {category: audit.count(category) for category in found} == {key: len(at) for key, at in case.found.items()}
    assert [(example.sources["source"], example.target) for example in corpus.examples] == case.used
    assert audit.rows == audit.used + audit.dropped
    assert audit.used == len(case.used)


@dataclass(frozen=True)
class Refused:
    """A file that cannot be used as a whole; the message must begin with its place and say what to do."""

    name: str
    content: bytes
    place: str  # how the message begins, after the folder
    says: tuple[str, ...]
    file: str = "pairs.tsv"
    second: bytes | None = None
    config: dict[str, Any] = field(default_factory=dict)


UTF16 = "a\tb\nc\td\n".encode("utf-16")
REFUSED = [
    Refused("empty", b"", "pairs.tsv: ", ("is empty",)),
    Refused("blank lines only", b"\n\n \n", "pairs.tsv:1: ", ("first 3 lines are all blank",)),
    Refused("a header and no rows", b"word\tpron\n", "pairs.tsv:1: ", ("no rows",), config={"header": "yes"}),
    Refused("one column", b"a\nb\n", "pairs.tsv:1: ", ("no tab", "2 of the first 2 lines", "put a tab")),
    Refused("mostly one column", b"a\tb\nb\nc\n", "pairs.tsv:2: ", ("2 of the first 3 lines",)),
    Refused("CSV", b"a,b\nc,d\n", "pairs.tsv:1: ", ("data.format=csv",), file="pairs.tsv"),
    Refused("JSON lines called TSV", b'{"a": "b"}\n', "pairs.tsv:1: ", ("data.format=jsonl",)),
    Refused(
        "three columns, none asked for",
        b"a\tb\tc\n",
        "pairs.tsv:1: ",
        ("3 columns", "--source 1 --source 2 --target 3"),
    ),
    Refused(
        "three columns with names, none usual",
        b"story\tq\ta\nx\ty\tz\n",
        "pairs.tsv:1: ",
        (
            "3 columns",
            "The first row is: story | q | a.",
            "--source story --source q --target a",
            "by number: --source 1",
        ),
    ),
    Refused(
        "five columns, the target asked for",
        b"a\tb\tc\td\te\n",
        "pairs.tsv:1: ",
        ("5 columns", "which is the source", "for example: --source 1"),
        config={"target": 5},
    ),
    Refused("CSV: a quote without end", b'a,b\nc,"d\ne,f\n', "pairs.csv:2: ", ("never closed",), file="pairs.csv"),
    Refused("CSV: one column", b"a\nb\n", "pairs.csv:1: ", ("no second column",), file="pairs.csv"),
    Refused("JSON array: cut off", b'[{"source":"a","target":"b"},', "p.json:1: ", ("not valid JSON",), file="p.json"),
    Refused("JSON array: rubbish behind", b'[{"source":"a"}] x', "p.json:1: ", ("after the end",), file="p.json"),
    Refused("JSON array: not UTF-8", b'[{"source":"\xff"}]', "p.json:1: ", ("0xFF",), file="p.json"),
    Refused("Parquet: damaged", b"PAR1rubbish", "p.parquet: ", ("cannot be read as Parquet",), file="p.parquet"),
    Refused("Arrow: damaged", b"ARROW1rubbish", "p.arrow: ", ("cannot be read as Arrow",), file="p.arrow"),
    Refused("Excel: damaged", b"PK\x03\x04rubbish", "p.xlsx: ", ("cannot be read as Excel",), file="p.xlsx"),
    Refused("a column beyond the last", GOOD, "pairs.tsv:1: ", ("column 3", "there are 2"), config={"target": 3}),
    Refused(
        "a name not in the header",
        b"source\ttarget\na\tb\n",
        "pairs.tsv:1: ",
        ("'sorce'", "did you mean 'source'"),
        config={"source": "sorce"},
    ),
    Refused(
        "a name twice in the header",
        b"x\tx\ty\na\tb\tc\n",
        "pairs.tsv:1: ",
        ("2 columns are called 'x'",),
        config={"source": "x", "target": "y"},
    ),
    Refused(
        "a name without a header", GOOD, "pairs.tsv:1: ", ("use its number",), config={"source": "a", "header": "no"}
    ),
    Refused(
        "a header that is not UTF-8",
        b"\xff\tb\n" + GOOD,
        "pairs.tsv:1: ",
        ("header cannot be read",),
        config={"header": "yes"},
    ),
    Refused("all Latin-1", b"\xe9\tx\n\xe8\ty\n", "pairs.tsv:1: ", ("0xE9 at position 1", "iconv -f WINDOWS-1252")),
    Refused(
        "no row usable",
        b"\tx\ny\t\n\x00\tz\n",
        "pairs.tsv:1: ",
        ("none of the 3 rows", "empty side 2", "control character 1"),
    ),
    Refused(
        "all too long",
        b"aa\tbb\n",
        "pairs.tsv:1: ",
        ("none of the 1 rows", "data.max_characters"),
        config={"max_characters": 1},
    ),
    Refused("UTF-16", UTF16, "pairs.tsv:1: ", ("UTF-16", "iconv")),
    Refused("UTF-16 big-endian", "\ufeffa\tb\n".encode("utf-16-be"), "pairs.tsv:1: ", ("UTF-16", "iconv")),
    Refused("UTF-32", "\ufeffa\tb\n".encode("utf-32-le"), "pairs.tsv:1: ", ("UTF-32", "iconv")),
    Refused("UTF-16 without a mark", UTF16[2:], "pairs.tsv:1: ", ("UTF-16", "without a byte order mark")),
    Refused("binary", bytes([0, 0, 0, 9, 0, 0, 7, 1, 0, 0, 0, 3, 1, 1, 0, 0]), "pairs.tsv:1: ", ("binary",)),
    Refused("spreadsheet", b"PK\x03\x04\x14\x00", "pairs.tsv:1: ", ("zip archive",)),
    Refused("bzip2", bz2.compress(GOOD), "pairs.tsv:1: ", ("bzip2",)),
    Refused("CR alone", b"a\tb\rc\td\r", "pairs.tsv:1: ", ("CR alone", "tr ")),
    Refused("called gzip, is not", GOOD, "pairs.tsv.gz: ", ("not gzip data",), file="pairs.tsv.gz"),
    Refused("gzip cut off", gzip.compress(GOOD)[:-6], "pairs.tsv.gz:", ("damaged or cut off",), file="pairs.tsv.gz"),
    Refused(
        "gzip with a wrong byte",
        gzip.compress(GOOD)[:-8] + b"\0" * 8,
        "pairs.tsv.gz:",
        ("damaged",),
        file="pairs.tsv.gz",
    ),
    Refused(
        "gzip with rubbish behind", gzip.compress(GOOD) + b"rubbish", "pairs.tsv.gz:", ("damaged",), file="pairs.tsv.gz"
    ),
    Refused("gzip header only", b"\x1f\x8b\x08", "pairs.tsv.gz:1: ", ("damaged",), file="pairs.tsv.gz"),
    Refused("gzip of nothing", gzip.compress(b""), "pairs.tsv.gz: ", ("is empty",), file="pairs.tsv.gz"),
    Refused("gzip of UTF-16", gzip.compress(UTF16), "pairs.tsv.gz:1: ", ("UTF-16",), file="pairs.tsv.gz"),
    Refused("JSON: an array", b'[\n {"source":"a"}\n]\n', "p.jsonl:2: ", ("not clear",), file="p.jsonl"),
    Refused(
        "JSON: an array in one line",
        b'[{"source":"a","target":"b"}]\n',
        "p.jsonl:1: ",
        ("a list, not an object", "data.format=json"),
        file="p.jsonl",
    ),
    Refused(
        "JSON: keys unclear",
        b'{"a":"x","b":"y","c":"z"}\n',
        "p.jsonl:1: ",
        ("a, b, c", "--source a --source b --target c"),
        file="p.jsonl",
    ),
    Refused(
        "JSON: no such key",
        b'{"source":"x","target":"y"}\n',
        "p.jsonl:1: ",
        ("did you mean 'target'",),
        file="p.jsonl",
        config={"target": "tagret"},
    ),
    Refused(
        "JSON: a number for a key",
        b'{"source":"x","target":"y"}\n',
        "p.jsonl:1: ",
        ("each row has keys; name the key",),
        file="p.jsonl",
        config={"target": 2},
    ),
    Refused(
        "parallel: source longer",
        b"a\nb\nc\n",
        "s.txt:3: ",
        ("s.txt has 3 lines", "t.txt has 2"),
        file="s.txt",
        second=b"x\ny\n",
    ),
    Refused(
        "parallel: target longer",
        b"a\n",
        "t.txt:2: ",
        ("s.txt has 1 lines", "t.txt has 4", "out of step"),
        file="s.txt",
        second=b"x\ny\nz\nz\n",
    ),
    Refused(
        "parallel: blank lines too many",
        b"a\nb\n\n",
        "s.txt:3: ",
        ("has 3 lines", "has 2", "blank"),
        file="s.txt",
        second=b"x\ny\n",
    ),
    Refused("parallel: one empty", b"a\n", "s.txt:1: ", ("has 1 lines", "has 0"), file="s.txt", second=b""),
    Refused("parallel: both empty", b"", "s.txt", ("empty",), file="s.txt", second=b""),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_refused_with_its_place(case: Refused, tmp_path: Path) -> None:
    paths = [tmp_path / case.file]
    paths[0].write_bytes(case.content)
    if case.second is not None:
        paths.append(tmp_path / "t.txt")
        paths[1].write_bytes(case.second)
    with pytest.raises(UserError) as caught:
        read(paths, DataConfig(**case.config))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/{case.place}"), message
    for part in case.says:
        assert part in message
    assert "\n" not in message


def test_missing_file_folder_and_wrong_numbers_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(GOOD)
    mistakes: list[tuple[list[str | Path], str]] = [
        ([tmp_path / "none.tsv"], "none.tsv: no such file"),
        ([tmp_path], "this is a folder"),
        ([tmp_path / "a.txt", tmp_path / "none"], "none: no such file"),
        ([tmp_path / "a.txt", tmp_path / "a.txt"], "given twice"),
        (["x.tsv", "y.tsv"], "x.tsv: no such file"),
        ([tmp_path / "*.tsv"], "no file has a name of this pattern"),
        (["a\0b"], "NUL"),
        ([], "no file given"),
    ]
    for paths, part in mistakes:
        with pytest.raises(UserError, match=part):
            read(paths)


def test_a_line_without_end_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_LIMIT", 10)
    monkeypatch.setattr(lines, "_BUFFER", 4)
    path = tmp_path / "pairs.tsv"
    path.write_bytes(b"a\tb\n" + b"x" * 95 + b"\nc\td234567\n" + b"a\tb4567890\n" + b"y" * 33)
    corpus = read(path)
    assert [place.line for place in corpus.audit.findings["too_long"].places] == [2, 5]
    assert [example.line for example in corpus.examples] == [1, 3, 4]
    assert corpus.audit.rows == 5


def test_places_name_the_side_of_parallel_files(tmp_path: Path) -> None:
    source, target = tmp_path / "s", tmp_path / "t"
    source.write_bytes(b"a\n\x00\nc\n")
    target.write_bytes(b"b\ny\n\xff\n")
    audit = read([source, target]).audit
    assert str(audit.findings["control_character"].places[0]) == f"{source}:2: U+0000 at character 1 of the source"
    assert str(audit.findings["invalid_utf8"].places[0]) == f"{target}:3: byte 0xFF at position 1"
