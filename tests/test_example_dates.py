"""The shipped dates: every line means one date, and no line is in two files."""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from datetime import date
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parent.parent / "examples" / "dates"


def read(path: Path) -> list[tuple[str, str]]:
    lines = path.read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    rows = [line.split("\t") for line in lines]
    assert {len(row) for row in rows} == {2}
    return [(row[0], row[1]) for row in rows]


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    pytest.importorskip("babel")
    spec = importlib.util.spec_from_file_location("make_dates", FOLDER / "make_dates.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_source_stands_once_in_all_files() -> None:
    sources = [source for name in ("train", "dev", "test") for source, _ in read(FOLDER / f"{name}.tsv")]
    assert len(sources) == len(set(sources))


@pytest.mark.parametrize(("name", "least"), [("train", 8000), ("dev", 500), ("test", 500)])
def test_targets_are_dates(name: str, least: int) -> None:
    rows = read(FOLDER / f"{name}.tsv")
    assert len(rows) >= least
    for _, target in rows:
        assert date.fromisoformat(target).isoformat() == target


def test_numbers_follow_the_stated_rules() -> None:
    """Day first; year first where it has four digits in front; two digits are 1969 to 2068."""
    for source, target in read(FOLDER / "train.tsv"):
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


def test_the_lines_typed_by_hand_in_the_demo_are_new() -> None:
    script = (FOLDER.parent / "demo.sh").read_text(encoding="utf-8")
    typed = script.split("inputs='")[1].split("'")[0].split("\n")
    assert len(typed) >= 5
    known = {source for name in ("train", "dev") for source, _ in read(FOLDER / f"{name}.tsv")}
    assert known.isdisjoint(typed)


def test_the_files_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()) < 1_000_000


def test_the_script_makes_these_files(maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import babel

    if babel.__version__ not in (FOLDER / "README.md").read_text(encoding="utf-8"):
        pytest.skip("another version of Babel has other names and patterns")
    monkeypatch.setattr(sys, "argv", ["make_dates.py", "--out", str(tmp_path)])
    maker.main()
    for name in ("train", "dev", "test"):
        assert (tmp_path / f"{name}.tsv").read_bytes() == (FOLDER / f"{name}.tsv").read_bytes()


def test_another_seed_makes_no_contradiction(maker: ModuleType) -> None:
    rows = maker.rows(3000, seed=5)
    assert len({source for source, _ in rows}) == 3000
    assert rows != maker.rows(3000, seed=6)


def test_a_slip_never_makes_another_month(maker: ModuleType) -> None:
    generator = random.Random(0)
    for name, month in maker.MONTHS.items():
        for _ in range(5 if len(name) >= 6 else 0):
            assert maker.MONTHS.get(maker.fold(maker.misspell(name, generator)), month) == month
