"""The generated dates: the script always gives the same files, every line means one date, none is in two files."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import babel
import pytest

if TYPE_CHECKING:
    from conftest import ExampleData

EXAMPLES = Path(__file__).parent.parent / "examples"
SIZES = {"train": 10_000, "dev": 500, "test": 1_000}
# Of the three files, with the version of Babel in examples/dates/README.md.
DIGEST = "c542fd2d60dc124b889aa5aa96d247dcae6fd094a089f99931904884f139a7f1"


@pytest.fixture(scope="module")
def dates(example_data: Callable[[str], ExampleData]) -> ExampleData:
    return example_data("dates")


def read(path: Path) -> list[tuple[str, str]]:
    lines = path.read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    rows = [line.split("\t") for line in lines]
    assert {len(row) for row in rows} == {2}
    return [(row[0], row[1]) for row in rows]


def test_the_script_always_writes_the_same_files(dates: ExampleData) -> None:
    if babel.__version__ not in (EXAMPLES / "dates" / "README.md").read_text(encoding="utf-8"):
        pytest.skip("another version of Babel has other names and patterns")
    assert {path.stem for path in dates.folder.iterdir()} == set(SIZES)
    content = b"".join((dates.folder / f"{split}.tsv").read_bytes() for split in SIZES)
    assert hashlib.sha256(content).hexdigest() == DIGEST


def test_every_source_is_in_one_file_once(dates: ExampleData) -> None:
    sources = [source for split in SIZES for source, _ in read(dates.folder / f"{split}.tsv")]
    assert len(sources) == len(set(sources))


@pytest.mark.parametrize("split", SIZES)
def test_targets_are_dates(dates: ExampleData, split: str) -> None:
    rows = read(dates.folder / f"{split}.tsv")
    assert len(rows) == SIZES[split]
    for _, target in rows:
        assert date.fromisoformat(target).isoformat() == target


def test_numbers_follow_the_stated_rules(dates: ExampleData) -> None:
    """Day first; year first where it has four digits in front; two digits are 1969 to 2068."""
    for source, target in read(dates.folder / "train.tsv"):
        day_first = re.fullmatch(r"(\d{1,2})([./-]) *(\d{1,2})\2 *(\d{4}|\d{2})", source)
        year_first = re.fullmatch(r"(\d{4})([./-]) *(\d{1,2})\2 *(\d{1,2})\.?", source)
        if day_first:
            day, _, month, year = day_first.groups()
            full = int(year) if len(year) == 4 else int(year) + (2000 if int(year) < 69 else 1900)
        elif year_first:
            year, _, month, day = year_first.groups()
            full = int(year)
        else:
            continue
        assert date(full, int(month), int(day)).isoformat() == target, source


def test_the_lines_typed_by_hand_in_the_demo_are_new(dates: ExampleData) -> None:
    script = (EXAMPLES / "demo.sh").read_text(encoding="utf-8")
    typed = script.split("inputs='")[1].split("'")[0].split("\n")
    assert len(typed) >= 5
    known = {source for split in ("train", "dev") for source, _ in read(dates.folder / f"{split}.tsv")}
    assert known.isdisjoint(typed)


def test_another_seed_makes_no_contradiction(dates: ExampleData) -> None:
    rows = dates.script.make_rows(3000, seed=5)
    assert len({source for source, _ in rows}) == 3000
    assert rows != dates.script.make_rows(3000, seed=6)


def test_a_slip_never_makes_another_month(dates: ExampleData) -> None:
    generator, script = random.Random(0), dates.script
    for name, month in script.MONTHS.items():
        for _ in range(5 if len(name) >= 6 else 0):
            assert script.MONTHS.get(script.fold(script.misspell(name, generator)), month) == month
