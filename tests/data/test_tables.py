"""Any table: the same pairs in every format and library are the same data, and give the same weights."""

from __future__ import annotations

import csv
import datetime
import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dragoman.data.audit.audit import Refusal
from dragoman.data.options import DataConfig
from dragoman.data.reading.read import Corpus, read
from dragoman.data.reading.values import JsonNumber, to_text
from dragoman.errors import UserError
from dragoman.evaluation.reading import read_examples
from dragoman.inference.system import System
from dragoman.recipe.check import check
from dragoman.runs.folder import default_folder
from dragoman.training.run import train

NAMES = ("source", "target")
ROWS = 1000


def make_rows() -> list[tuple[str | None, str | None]]:
    """Pairs that are clean, with quotes and commas, twice, with several targets, and with a side missing."""
    rows: list[tuple[str | None, str | None]] = []
    for number in range(ROWS):
        word = np.base_repr(number * 7919 % 46656, 36).lower()
        rows.append((word, word[::-1]))
    rows[10] = ('say "a, b; c"', "it's")
    rows[20] = rows[21]
    rows[30] = (rows[31][0], "other")
    rows[40], rows[41] = (None, "x"), ("y", None)
    return rows


PAIRS = make_rows()


def texts() -> list[tuple[str, str]]:
    return [(source or "", target or "") for source, target in PAIRS]


def as_dicts() -> list[dict[str, str | None]]:
    return [dict(zip(NAMES, row, strict=True)) for row in PAIRS]


def write_tsv(folder: Path) -> Path:
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in [NAMES, *texts()]), encoding="utf-8")
    return path


def write_csv(folder: Path, separator: str = ",") -> Path:
    path = folder / f"pairs{ord(separator)}.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=separator, lineterminator="\n").writerows([NAMES, *texts()])
    return path


def write_jsonl(folder: Path) -> Path:
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in as_dicts()), encoding="utf-8")
    return path


def write_json(folder: Path) -> Path:
    path = folder / "pairs.json"
    path.write_text(json.dumps(as_dicts(), indent=1), encoding="utf-8")
    return path


def arrow_table() -> Any:
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.Table.from_pylist(as_dicts())


def write_parquet(folder: Path) -> Path:
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow_table(), folder / "pairs.parquet", row_group_size=300)
    return folder / "pairs.parquet"


def write_arrow(folder: Path) -> Path:
    ipc = pytest.importorskip("pyarrow.ipc")
    table = arrow_table()
    with ipc.new_file(str(folder / "pairs.arrow"), table.schema) as file:
        file.write_table(table, max_chunksize=300)
    return folder / "pairs.arrow"


def write_arrow_stream(folder: Path) -> Path:
    ipc = pytest.importorskip("pyarrow.ipc")
    table = arrow_table()
    with ipc.new_stream(str(folder / "stream.arrow"), table.schema) as file:
        file.write_table(table)
    return folder / "stream.arrow"


def write_feather(folder: Path) -> Path:
    feather = pytest.importorskip("pyarrow.feather")
    feather.write_feather(arrow_table(), str(folder / "pairs.feather"))
    return folder / "pairs.feather"


def write_xlsx(folder: Path) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("Pairs")
    for row in [NAMES, *PAIRS]:
        sheet.append(row)
    book.save(folder / "pairs.xlsx")
    return folder / "pairs.xlsx"


def pandas_frame(_: Path) -> Any:
    return pytest.importorskip("pandas").DataFrame(PAIRS, columns=NAMES)


def polars_frame(_: Path) -> Any:
    return pytest.importorskip("polars").DataFrame(as_dicts())


def polars_lazy_frame(_: Path) -> Any:
    return pytest.importorskip("polars").LazyFrame(as_dicts())


def dataset(_: Path) -> Any:
    return pytest.importorskip("datasets").Dataset.from_list(as_dicts())


FORMS: dict[str, Callable[[Path], Any]] = {
    "tsv": write_tsv,
    "csv": write_csv,
    "csv, semicolons": lambda folder: write_csv(folder, ";"),
    "jsonl": write_jsonl,
    "json": write_json,
    "parquet": write_parquet,
    "arrow": write_arrow,
    "arrow stream": write_arrow_stream,
    "feather": write_feather,
    "xlsx": write_xlsx,
    "pandas": pandas_frame,
    "polars": polars_frame,
    "polars, lazy": polars_lazy_frame,
    "pyarrow": lambda _: arrow_table(),
    "datasets": dataset,
    "tuples": lambda _: list(PAIRS),
    "dicts": lambda _: as_dicts(),
    "generator": lambda _: (row for row in PAIRS),
}

SETTINGS: dict[str, Any] = {
    "source": {"embedding": 8, "tokenizer": {"kind": "characters"}},
    "target": {"tokenizer": {"kind": "characters"}},
    "encoder": {"width": 8},
    "decoder": {"width": 8, "embedding": 8},
    "data": {"dev_share": 0.01, "test_share": 0.01},
    "training": {"threads": 1, "batch_tokens": 64, "max_updates": 20, "average": 1, "validate_every": 20},
}


def counts(corpus: Corpus) -> Any:
    audit = corpus.audit
    found = {category: finding.count for category, finding in audit.findings.items()}
    return audit.rows, audit.used, audit.dropped, found, audit.sources, audit.several, audit.statistics


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("tables")
    file = write_tsv(folder)
    return read(file), train(file, out=folder / "run", settings=SETTINGS).model.state_dict()


@pytest.mark.parametrize("form", FORMS)
def test_the_same_pairs_in_any_form_are_the_same_data(form: str, reference: Any, tmp_path: Path) -> None:
    corpus = read(FORMS[form](tmp_path))
    assert counts(corpus) == counts(reference[0])
    assert corpus.audit.count("empty_side") == 2 and corpus.audit.used == ROWS - 2
    rows = [(example.sources["source"], example.target) for example in corpus.examples]
    assert rows == [(example.sources["source"], example.target) for example in reference[0].examples]
    assert (corpus.columns["source"].name == "source" and corpus.columns["target"].number in (2, None)) or "tuples"


@pytest.mark.parametrize(
    "form",
    ["csv", "jsonl", "json", "parquet", "arrow", "pandas", "polars", "datasets", "tuples", "generator"],
)
def test_the_same_pairs_in_any_form_train_the_same_weights(form: str, reference: Any, tmp_path: Path) -> None:
    system = train(FORMS[form](tmp_path), out=tmp_path / "run", settings=SETTINGS)
    weights = system.model.state_dict()
    assert weights.keys() == reference[1].keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in reference[1].items())


@pytest.mark.parametrize(
    ("form", "place"),
    [
        ("tsv", "{path}:42: "),
        ("csv", "{path}:42: "),
        ("jsonl", "{path}:41: "),
        ("json", "row 41 of {path}: "),
        ("parquet", "row 41 of {path}: "),
        ("arrow", "row 41 of {path}: "),
        ("xlsx", "row 42 of {path}: "),  # as Excel counts, the header included
        ("pandas", "row 41 of the DataFrame: "),
        ("pyarrow", "row 41 of the Table: "),
        ("tuples", "row 41 of the list: "),
        ("generator", "row 41 of the generator: "),
    ],
)
def test_the_audit_names_rows(form: str, place: str, tmp_path: Path) -> None:
    data = FORMS[form](tmp_path)
    audit = read(data).audit
    assert str(audit.findings["empty_side"].places[0]) == place.format(path=data) + "the source is empty"
    listed = "rows 41, 42" if "row 41" in place else "lines 41, 42" if ":41:" in place else "s 42, 43"
    assert f"{listed} (the source is empty)" in audit.report()


# ---- values as texts

MIDNIGHT = datetime.datetime(2024, 5, 3)
VALUES: list[tuple[Any, str]] = [
    (None, ""),
    (math.nan, ""),
    (np.float32("nan"), ""),
    (Decimal("nan"), ""),
    (3, "3"),
    (-3.0, "-3"),
    (1.5, "1.5"),
    (0.1, "0.1"),
    (np.float32(0.1), "0.1"),
    (np.int64(7), "7"),
    (1e300, "1e+300"),
    (Decimal("1.50"), "1.50"),
    (JsonNumber("1.50"), "1.50"),
    (True, "true"),
    (np.False_, "false"),
    (MIDNIGHT, "2024-05-03"),
    (MIDNIGHT.date(), "2024-05-03"),
    (datetime.datetime(2024, 5, 3, 17, 30), "2024-05-03 17:30:00"),
    (MIDNIGHT.replace(tzinfo=datetime.UTC), "2024-05-03 00:00:00+00:00"),
    (datetime.time(17, 30), "17:30:00"),
    (np.datetime64("2024-05-03T17:30:00", "ns"), "2024-05-03 17:30:00"),
    ("NA", "NA"),
]


@pytest.mark.parametrize(("value", "text"), VALUES, ids=lambda value: repr(value))
def test_values_become_texts(value: Any, text: str) -> None:
    assert to_text(value, "x") == text


@pytest.mark.parametrize("value", [[], {}, b"x", object(), datetime.timedelta(1)])
def test_what_is_no_text_is_refused(value: Any) -> None:
    refusal = to_text(value, "'x'")
    assert isinstance(refusal, Refusal) and refusal.category == "missing_key" and "'x' is " in refusal.reason


def typed_columns() -> dict[str, list[Any]]:
    return {
        "whole": [1, None, 3],
        "half": [1.5, 2.0, None],
        "truth": [True, False, None],
        "day": [MIDNIGHT, datetime.datetime(2024, 5, 3, 17, 30), None],
        "text": ["a", "b", "c"],
    }


EXPECTED = {
    "whole": ["1", "", "3"],
    "half": ["1.5", "2", ""],
    "truth": ["true", "false", ""],
    "day": ["2024-05-03", "2024-05-03 17:30:00", ""],
}


def typed_table(library: str, tmp_path: Path) -> Any:
    columns = typed_columns()
    if library == "pandas":
        return pytest.importorskip("pandas").DataFrame(columns)  # a gap makes the integers floats
    if library == "polars":
        return pytest.importorskip("polars").DataFrame(columns)
    if library == "datasets":
        return pytest.importorskip("datasets").Dataset.from_dict(columns)
    if library == "dicts":
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if library == "xlsx":
        openpyxl = pytest.importorskip("openpyxl")
        book = openpyxl.Workbook()
        for row in [list(columns), *zip(*columns.values(), strict=True)]:
            book.active.append(row)
        book.create_sheet("Another")
        book.save(tmp_path / "typed.xlsx")
        return tmp_path / "typed.xlsx"
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    parquet.write_table(pyarrow.table(columns), tmp_path / "typed.parquet")
    return tmp_path / "typed.parquet"


@pytest.mark.parametrize("library", ["pandas", "polars", "datasets", "dicts", "xlsx", "parquet"])
def test_a_value_is_the_same_text_in_every_library(library: str, tmp_path: Path) -> None:
    for column, wanted in EXPECTED.items():
        corpus = read(typed_table(library, tmp_path), DataConfig(source=column, target="text"))
        assert corpus.audit.count("empty_side") == wanted.count("")
        assert [example.sources["source"] for example in corpus.examples] == [text for text in wanted if text], column
        if library == "xlsx":
            assert "sheet 'Sheet', the first of 2 sheets; the others are not read" in corpus.audit.notes[0]


def test_the_proposal_for_one_target_keeps_all_sources(tmp_path: Path) -> None:
    file = tmp_path / "nli.csv"
    file.write_text("premise,hypothesis,label\n" + "a b,c d,yes\ne f,g h,no\n" * 3, encoding="utf-8")
    with pytest.raises(UserError, match=r"for example: --source premise --source hypothesis --target label$"):
        check(file, target="label")


def test_floats_of_few_bits_have_few_digits(tmp_path: Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    values = np.array([0.1, 2.5, np.nan], dtype=np.float32)
    tables = [
        pandas.DataFrame({"x": values, "y": ["a", "b", "c"]}),
        polars.DataFrame({"x": values, "y": ["a", "b", "c"]}),
    ]
    tables.append(pytest.importorskip("pyarrow").table({"x": values, "y": ["a", "b", "c"]}))
    for table in tables:
        found = read(table, DataConfig(source="x", target="y"))
        assert [example.sources["source"] for example in found.examples] == ["0.1", "2.5"]


# ---- columns


def test_columns_with_text_are_the_candidates_where_there_are_types() -> None:
    rows = [{"id": 7, "de": "ja", "en": "yes"}, {"id": 8, "de": "nein", "en": "no"}]
    for data in (rows, pytest.importorskip("pandas").DataFrame(rows)):
        corpus = read(data)
        assert [(example.sources["source"], example.target) for example in corpus.examples] == [
            ("ja", "yes"),
            ("nein", "no"),
        ]
        assert any(note.startswith("not used: column 1 (id)") for note in corpus.audit.notes)
    classes = [{"text": "good", "label": 1}, {"text": "bad", "label": 0}]
    assert [example.target for example in read(classes).examples] == ["1", "0"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (3, "the int: not a table; give files"),
        ({"source": ["a"]}, "the dict: not a table"),
        ([], "no file given"),
        (iter(()), "the table is empty"),
        ([1, 2], "row 1 of the list: of type int, but a row is a tuple"),
        (["a.tsv", 2], "row 1 of the list: of type str"),
        ([("a",), ("b",)], "no second column"),
        ([("a", "b", "c")], "the list: 3 columns, and which are source and target is not clear"),
        ([{"a": "x", "b": "y", "c": "z"}], 'for example: source=["a", "b"], target="c"'),
        ([(None, "x"), (None, "y")], "none of the 2 rows can be used"),
    ],
)
def test_what_is_no_table_is_refused(data: Any, says: str) -> None:
    with pytest.raises(UserError) as caught:
        read(data)
    assert says in str(caught.value)


def test_rows_that_are_unlike_the_first_are_dropped() -> None:
    rows: list[Any] = [("a", "b"), {"source": "x", "target": "y"}, "text", ("c", "d", "e"), ["c", "d"], ("x", ["y"])]
    audit = read(rows).audit
    assert (audit.rows, audit.used, audit.count("wrong_columns"), audit.count("missing_key")) == (6, 2, 3, 1)
    assert str(audit.findings["missing_key"].places[0]) == "row 6 of the list: column 2 is a list, not text"


def test_a_data_set_with_splits_is_refused_by_their_names() -> None:
    datasets = pytest.importorskip("datasets")
    both = datasets.DatasetDict(train=datasets.Dataset.from_list(as_dicts()[:3]))
    with pytest.raises(UserError, match="give one of them: 'train'"):
        read(both)


def test_a_missing_library_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pyarrow", "pyarrow.parquet", "openpyxl"):
        monkeypatch.setitem(sys.modules, module, None)
    for name, content in (("a.parquet", b"PAR1"), ("a.arrow", b"ARROW1"), ("a.xlsx", b"PK\x03\x04")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=r"pip install 'dragoman\[tables\]'"):
            read(tmp_path / name)


def test_a_workbook_that_is_too_large_unpacked_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dragoman.data.reading import column_files

    monkeypatch.setattr(column_files, "_UNPACKED", 1000)
    with pytest.raises(UserError, match="over the limit"):
        read(write_xlsx(tmp_path))


@pytest.mark.parametrize("form", ["parquet", "arrow", "arrow stream", "feather", "xlsx"])
def test_a_damaged_file_is_read_or_refused_with_a_sentence(form: str, tmp_path: Path) -> None:
    path = FORMS[form](tmp_path)
    whole = path.read_bytes()
    chance = random.Random(0)
    for trial in range(25):
        damaged = bytearray(whole[: chance.randrange(len(whole))] if trial % 5 == 0 else whole)
        for _ in range(chance.choice((1, 2, 20)) if damaged else 0):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            read(path)
        except UserError as error:
            assert str(path) in str(error)


def test_a_file_that_asks_for_all_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = write_parquet(tmp_path)

    def fail(*_: Any) -> None:
        raise MemoryError("malloc of size 3096224743817408 failed")

    monkeypatch.setattr(parquet, "ParquetFile", fail)
    with pytest.raises(UserError, match=r"pairs\.parquet: cannot be read as Parquet \(malloc"):
        read(path)


def test_rows_of_a_generator_are_read_once_and_as_they_come() -> None:
    taken = []

    def rows() -> Iterator[tuple[str, str]]:
        for number in range(2000):
            taken.append(number)
            yield f"a{number}", "b"

    from dragoman.data.audit.audit import Audit
    from dragoman.data.reading.memory import memory_table
    from dragoman.data.reading.rows import table_rows

    opened = table_rows(memory_table(rows()), DataConfig(), Audit(("x",)))
    assert len(taken) <= 1001  # the sample, and no more
    assert len(list(opened.rows)) == len(taken) == 2000


# ---- training and evaluating


def test_the_folder_of_a_table_in_memory() -> None:
    assert default_folder([("a", "b")]) == Path("runs/table")
    assert default_folder("data/pairs.csv.gz") == default_folder(["pairs.parquet"]) == Path("runs/pairs")


def test_a_run_is_measured_on_any_table_and_knows_its_columns(tmp_path: Path) -> None:
    rows = [{"id": str(number), "wort": f"a{number}", "laut": f"b{number}"} for number in range(40)]
    settings = SETTINGS | {
        "data": {"source": "wort", "target": "laut"},
        "training": SETTINGS["training"] | {"max_updates": 2},
    }
    train(rows, out=tmp_path / "run", settings=settings)
    system = System.load(tmp_path / "run")
    assert system.columns["source"] == (2, "wort") and system.columns["target"] == (3, "laut")
    corpora = [
        read_examples(system, rows),
        read_examples(system, [tuple(row.values()) for row in rows], source=[2], target=3),
        read_examples(system, pytest.importorskip("pandas").DataFrame(rows)),
    ]
    assert {len(corpus.examples) for corpus in corpora} == {40}


def test_the_cells_of_a_first_row_are_not_called_names_of_columns(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("hgf\tfgh\thh\n" + "".join(f"{row}a\t{row}b\t{row}c\n" for row in range(20)))
    with pytest.raises(UserError) as caught:
        read(path)
    said = str(caught.value)
    assert "3 columns, and which are source and target is not clear" in said
    assert "The first row is: hgf | fgh | hh. If it names the columns" in said
    assert said.endswith("if it is data, by number: --source 1 --source 2 --target 3")
