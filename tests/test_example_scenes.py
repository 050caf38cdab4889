"""The shipped scenes: whole, small, captions that follow from their pictures and are not given away by training."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

FOLDER = Path(__file__).parent.parent / "examples" / "scenes"
SIDES = {"train": 480, "dev": 60, "test": 60}


def rows(side: str) -> list[tuple[str, str]]:
    header, *lines = (FOLDER / "data" / f"{side}.tsv").read_text(encoding="utf-8").splitlines()
    assert header == "picture\tcaption"
    return [(line.split("\t")[0], line.split("\t")[1]) for line in lines]


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_scenes", FOLDER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_there_once_and_of_one_size() -> None:
    files = [file for side in SIDES for file, _ in rows(side)]
    assert len(files) == len(set(files)) == 600
    assert {Image.open(FOLDER / "data" / file).size for file in files} == {(48, 48)}
    assert sum((FOLDER / "data" / file).stat().st_size for file in files) < 800_000


def test_captions_of_two_shapes_stand_on_one_side_only() -> None:
    captions = {side: {words for _, words in rows(side) if len(words.split()) > 4} for side in SIDES}
    assert all(len(rows(side)) == count for side, count in SIDES.items())
    assert not captions["train"] & captions["test"] and not captions["train"] & captions["dev"]
    assert not captions["dev"] & captions["test"]


def test_captions_follow_from_the_picture(maker: ModuleType) -> None:
    thing = maker.Thing
    large, small = thing("red", "circle", False, 10, 10), thing("blue", "square", True, 30, 12)
    assert maker.caption([small, large]) == maker.caption([large, small]) == "a red circle left of a small blue square"
    other = thing("green", "triangle", False, 12, 34)
    assert maker.caption([other, large]) == "a red circle above a green triangle"
    assert (
        maker.caption([small, thing("green", "triangle", False, 31, 40)])
        == "a green triangle below a small blue square"
    )


def test_the_script_makes_these_files(maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maker, "FOLDER", tmp_path)
    monkeypatch.setattr(maker, "SIDES", {"test": 60, "dev": 0, "train": 0})  # the first that are drawn
    maker.main()
    assert (tmp_path / "test.tsv").read_bytes() == (FOLDER / "data" / "test.tsv").read_bytes()
    for file, _ in rows("test"):
        with Image.open(tmp_path / file) as made, Image.open(FOLDER / "data" / file) as shipped:
            assert made.convert("RGB").tobytes() == shipped.convert("RGB").tobytes()
