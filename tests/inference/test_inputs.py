"""What ``predict`` reads: a table is read as a table, a text of lines as lines, and every row has its answer."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.errors import UserError
from dragoman.inference.steps import is_out_of_memory
from dragoman.inference.system import System
from dragoman.training.run import train

WORDS = ["abc", "hgfe", "bad", "cafe"]
ROWS = [(word, word[::-1]) for word in WORDS]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_run: Any) -> Path:
    """A run whose source was the third column, under an unusual name."""
    folder = tmp_path_factory.mktemp("named")
    pairs = [line.split("\t") for line in tiny_run.pairs.read_text().splitlines()]
    lines = ["id\tlaut\twort", *(f"{number}\t{target}\t{source}" for number, (source, target) in enumerate(pairs))]
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = tiny_run.settings | {
        "data": {"source": "wort", "target": "laut"},
        "training": tiny_run.settings["training"] | {"max_updates": 20},
    }
    train(folder / "pairs.tsv", out=folder / "run", settings=settings)
    return folder / "run"


@pytest.fixture(scope="module")
def expected(run: Path) -> list[str]:
    return [prediction.text for prediction in dragoman.load(run).predict(WORDS)]


def write(path: Path, rows: list[Any]) -> Path:
    """Write rows, the first of which are the names, in the format that the file name says."""
    if path.suffix in (".tsv", ".txt"):
        path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".csv":
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
    elif path.suffix in (".jsonl", ".json"):
        objects = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
        text = json.dumps(objects) if path.suffix == ".json" else "".join(json.dumps(each) + "\n" for each in objects)
        path.write_text(text, encoding="utf-8")
    elif path.suffix == ".xlsx":
        book = pytest.importorskip("openpyxl").Workbook()
        for row in rows:
            book.active.append(row)
        book.save(path)
    else:
        columns = dict(zip(rows[0], map(list, zip(*rows[1:], strict=True)), strict=True))
        table = pytest.importorskip("pyarrow").table(columns)
        pytest.importorskip("pyarrow.parquet").write_table(table, path)
    return path


NAMED = [("wort", "laut"), *ROWS]


def test_many_wrong_rows_are_counted_not_listed(call: Any, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("wort,laut\n" + "bad\n" * 30, encoding="utf-8")
    answer = call("predict", run, file)
    assert answer.code == 1 and len(answer.lines) == 30
    assert answer.err.count("1 column, but") == 20
    assert answer.err.endswith("dragoman: 10 more of 30 inputs could not be answered\n")


def test_the_weights_of_a_model_are_no_text(call: Any, run: Path) -> None:
    answer = call("predict", run, run / "model.safetensors")
    assert answer.code == 2 and "the weights of a model (safetensors), not text" in answer.err


def test_a_first_row_without_the_names_is_said_to_be_an_input(call: Any, run: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", [("a", "b", "c"), ("0", "x", "abc")])
    answer = call("predict", run, file)
    assert len(answer.lines) == 2 and "the first row is an input" in answer.err
    assert "the first row is an input" not in call("predict", run, write(tmp_path / "u.csv", NAMED)).err


@pytest.mark.parametrize("name", ["t.tsv", "t.txt", "t.csv", "t.jsonl", "t.json", "t.xlsx", "t.parquet"])
def test_a_table_is_read_as_a_table(call: Any, run: Path, expected: list[str], tmp_path: Path, name: str) -> None:
    """Before, the whole line with its target was the input of a run with one text source."""
    file = write(tmp_path / name, NAMED)
    answer = call("predict", run, file)
    assert answer.code == 0 and answer.lines == expected, answer.err
    said = "the key 'wort' is the source" if "json" in name else "column 1 ('wort') is the source; column 2 ('laut')"
    assert answer.err.startswith(f"dragoman: {file}: {said}")
    assert call("predict", run, file, "--quiet").err == ""


def test_a_table_without_a_header_is_read_as_in_training(
    call: Any, run: Path, expected: list[str], tiny_run: Any, tmp_path: Path
) -> None:
    three = write(tmp_path / "three.tsv", [(str(index), target, source) for index, (source, target) in enumerate(ROWS)])
    answer = call("predict", run, three)
    assert answer.lines == expected
    assert "column 3 is the source; column 1, column 2 are not used; --lines reads whole lines" in answer.err
    two = write(tmp_path / "two.txt", ROWS)
    wanted = [prediction.text for prediction in dragoman.load(tiny_run.folder).predict(WORDS)]
    answer = call("predict", tiny_run.folder, two)
    assert answer.lines == wanted and "column 1 is the source; column 2 is not used" in answer.err
    assert call("predict", tiny_run.folder, stdin=two.read_bytes()).lines == wanted


def test_lines_are_taken_as_they_are(call: Any, run: Path, tiny_run: Any, tmp_path: Path) -> None:
    two = write(tmp_path / "two.tsv", ROWS)
    whole = [prediction.text for prediction in dragoman.load(tiny_run.folder).predict(["\t".join(row) for row in ROWS])]
    answer = call("predict", tiny_run.folder, two, "--lines")
    assert answer.lines == whole and "column" not in answer.err
    few = tmp_path / "few.txt"  # a text with a tab here and there is no table
    few.write_text('abc\na\tb\nbad\n[1]\n{"a": 1}\n', encoding="utf-8")
    answer = call("predict", tiny_run.folder, few)
    assert len(answer.lines) == 5 and "column" not in answer.err and answer.code == 0
    assert answer.lines[1] == dragoman.load(tiny_run.folder)("a\tb")
    assert call("predict", tiny_run.folder, few, "--lines", "--source", "1").code == 2


def test_an_empty_file_is_noted(call: Any, tiny_run: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    answer = call("predict", tiny_run.folder, tmp_path / "empty.txt")
    assert (answer.code, answer.out) == (0, b"") and "there was no input, so there is no output" in answer.err
    assert not call("predict", tiny_run.folder, tmp_path / "empty.txt", "--quiet").err


def test_columns_can_be_named(call: Any, run: Path, expected: list[str], tmp_path: Path) -> None:
    other = [("x1", "x2", "x3", "x4"), *((target, "-", source, "-") for source, target in ROWS)]
    for name in ("o.tsv", "o.csv", "o.jsonl", "o.parquet"):
        file = write(tmp_path / name, other)
        assert call("predict", run, file, "--source", "x3").lines == expected, name
        assert "no column is called 'y'" in call("predict", run, file, "--source", "y").err
    numbered = write(tmp_path / "n.tsv", other[1:])
    assert call("predict", run, numbered, "--source", "3").lines == expected
    assert "give a column for each" in call("predict", run, numbered, "--source", "3", "--source", "1").err


def test_every_row_has_a_line_and_a_problem_a_place(call: Any, run: Path, expected: list[str], tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(
        'wort,laut\nabc,cba\n\n"hgfe",x\nbad,x,y\n"a"b,c\nbad\n"bad",dab\n,x\n"ca\nfe",efac\n', encoding="utf-8"
    )
    answer = call("predict", run, file)
    assert answer.code == 1
    assert answer.lines[:8] == [expected[0], "", expected[1], "", "", "", expected[2], ""] and len(answer.lines) == 9
    assert f"dragoman: {file}:5: 3 columns, but the table has 2" in answer.err
    assert f"dragoman: {file}:6: text follows the closing quote" in answer.err
    assert f"dragoman: {file}:7: 1 column, but" in answer.err
    rows = tmp_path / "t.jsonl"
    rows.write_text('{"wort": "abc"}\n{"laut": "x"}\n\n{"wort": null}\n{"wort": ["x"]}\n[]\n', encoding="utf-8")
    answer = call("predict", run, rows)
    assert answer.code == 1 and answer.lines == [expected[0], "", "", "", "", ""]
    assert f"{rows}:2: no text under the key 'wort'" in answer.err and f"{rows}:6: a list, not an object" in answer.err


def test_batch_changes_nothing_for_a_table_that_is_piped(call: Any, run: Path, expected: list[str]) -> None:
    piped = "".join("\t".join(row) + "\n" for row in NAMED).encode()
    for options in ([], ["--batch", "1"]):
        answer = call("predict", run, *options, stdin=piped)
        assert answer.lines == expected and answer.err.startswith("dragoman: standard input: column 1 ('wort')")


def test_a_language_model_reads_lines_and_named_tables(call: Any, tmp_path: Path, tiny_settings: Any) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"ab cd {number}\n" for number in range(40)), encoding="utf-8")
    training = tiny_settings["training"] | {"max_updates": 2}
    train(text, out=tmp_path / "lm", preset="lm-rnn", settings={"decoder": {"width": 8}, "training": training})
    lines = call("predict", tmp_path / "lm", "--max-length", 3, stdin=b"ab\tcd\nab\n")
    assert len(lines.lines) == 2 and "column" not in lines.err
    file = write(tmp_path / "p.csv", [("prompt", "note"), ("ab", "x"), ("cd", "y")])
    table = call("predict", tmp_path / "lm", file, "--max-length", 3)
    assert [line[:2] for line in table.lines] == ["ab", "cd"] and "column 1 ('prompt') is the source" in table.err


def test_frames_are_inputs_in_python(run: Path, expected: list[str]) -> None:
    system = dragoman.load(run)
    rows = [dict(zip(("wort", "laut"), row, strict=True)) for row in ROWS]
    frames = [pytest.importorskip("pandas").DataFrame(rows), pytest.importorskip("polars").DataFrame(rows)]
    frames.append(pytest.importorskip("pyarrow").Table.from_pylist(rows))
    for frame in frames:
        assert [prediction.text for prediction in system.predict(frame)] == expected
    assert len(system.score(frames[0], [target for _, target in ROWS])) == len(ROWS)
    gap = pytest.importorskip("pandas").DataFrame({"wort": ["abc", None, ["x"]]})
    found = system.predict(gap)
    assert [prediction.text for prediction in found] == [expected[0], "", ""]
    assert found[1].error is None and found[2].error == "row 3 of the DataFrame: column 1 ('wort') is a list, not text"


def test_columns_of_frames_are_named_by_an_argument(run: Path, expected: list[str]) -> None:
    system = dragoman.load(run)
    frame = pytest.importorskip("pandas").DataFrame({"a": WORDS, "b": [target for _, target in ROWS]})
    with pytest.raises(UserError, match=r"there are a, b; name them with source$"):
        system.predict(frame)
    for source in ("a", ["a"], 1):
        assert [prediction.text for prediction in system.predict(frame, source=source)] == expected
    assert [prediction.text for prediction in system.stream(frame, source="a")] == expected
    with pytest.raises(UserError, match=r"no column is called 'c'; there are: a, b"):
        system.predict(frame, source="c")
    with pytest.raises(UserError, match=r"^source: this run reads source; give a column for each"):
        system.predict(frame, source=["a", "b"])
    with pytest.raises(UserError, match=r"source names columns of a table: .*; got list"):
        system.predict(WORDS, source="a")


def test_unknown_options_are_told_what_there_is(run: Path) -> None:
    system = dragoman.load(run)
    for wrong, right in (("sourc", "source"), ("beem", "beam"), ("prefx", "prefix"), ("glosary", "glossary")):
        with pytest.raises(UserError, match=f"unknown option '{wrong}'; did you mean '{right}'?"):
            system.predict("abc", **{wrong: 1})
    with pytest.raises(UserError, match="unknown option 'qqq'; choose from: ") as caught:
        system.predict("abc", qqq=1)
    offered = str(caught.value).partition("choose from: ")[2].split(", ")
    assert {"beam", "source", "prefix", "forbid", "match", "seed"} <= {*offered}
    assert {*offered}.isdisjoint(["only", "forbidden_runs", "keep_arrays", "cancelled", "step"])


# ---- what is too long, and what is closed


def test_a_very_long_line_is_refused_and_the_others_are_answered(call: Any, tiny_run: Any, tmp_path: Path) -> None:
    """Before, a line of a megabyte ended the program with a traceback where memory was short."""
    file = tmp_path / "big.txt"
    file.write_bytes(b"abc\n" + b"a" * (1 << 20) + b"\nbad\n")
    answer = call("predict", tiny_run.folder, file)
    assert answer.code == 1 and len(answer.lines) == 3 and answer.lines[1] == "" and all(answer.lines[::2])
    assert f"{file}:2: the input has 1,048,576 characters, and this run reads at most 5,000" in answer.err


def test_a_line_beyond_all_bounds_is_not_held_in_memory(
    call: Any, tiny_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dragoman.data.reading import lines

    monkeypatch.setattr(lines, "LINE_LIMIT", 10)
    file = tmp_path / "big.txt"
    file.write_bytes(b"abc\n" + b"a" * 50 + b"\nbad\n")
    answer = call("predict", tiny_run.folder, file)
    assert answer.code == 1 and [bool(line) for line in answer.lines] == [True, False, True]
    assert f"{file}:2: more than 10 bytes in one line" in answer.err


def test_memory_that_runs_out_concerns_one_input(tiny_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dragoman.inference.session import Session

    search = Session.search

    def short_of_memory(self: Session, inputs: Any, *arguments: Any, **options: Any) -> Any:
        if max(prepared.length for prepared in inputs) > 20:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9")
        return search(self, inputs, *arguments, **options)

    system = System.load(tiny_run.folder)
    wanted = [prediction.text for prediction in system.predict(["abc", "bad"])]
    monkeypatch.setattr(Session, "search", short_of_memory)
    first, long, last = system.predict(["abc", "a" * 30, "bad"])
    assert [first.text, long.text, last.text] == [wanted[0], "", wanted[1]]
    assert long.error == "there is not enough memory for an input of 31 positions; shorten or split it"
    assert is_out_of_memory(MemoryError()) and not is_out_of_memory(RuntimeError("a fault"))


def test_a_closed_standard_input_is_answered_with_a_sentence(environment: dict[str, str], tiny_run: Any) -> None:
    line = f"{sys.executable} -m dragoman predict {tiny_run.folder} <&-"
    done = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "there is no standard input; give a file" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_terminal_is_never_asked_for_more_than_a_line(tiny_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dragoman.inference.inputs import InputReader

    class Typed(io.RawIOBase):
        """Gives one line at each call, as a terminal does."""

        def __init__(self) -> None:
            self.given = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            self.given += 1
            buffer[:4] = b"abc\n"
            return 4

    typed = Typed()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(typed)))
    inputs = InputReader(System.load(tiny_run.folder)).read(["-"])
    for count in (1, 2, 3):
        assert next(inputs).raw == "abc"
        assert typed.given == count
