"""The generated scenes: the script gives the same pictures every time, and a caption follows from its picture."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from dragoman.data import media

if TYPE_CHECKING:
    from conftest import ExampleData

SIZES = {"train": 480, "dev": 60, "test": 60}
# Of the tables and of the pixels of every picture.
DIGEST = "983df764401748a3d612a7e97180dbc1c358279749c477f1ebdaefcb36a22f50"


@pytest.fixture(scope="module")
def scenes(example_data: Callable[[str], ExampleData]) -> ExampleData:
    return example_data("scenes")


def rows(scenes: ExampleData, split: str) -> list[tuple[str, str]]:
    header, *lines = (scenes.folder / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
    assert header == "picture\tcaption"
    return [(line.split("\t")[0], line.split("\t")[1]) for line in lines]


def test_the_script_always_draws_the_same_pictures(scenes: ExampleData) -> None:
    digest = hashlib.sha256()
    for split in SIZES:
        digest.update((scenes.folder / f"{split}.tsv").read_bytes())
        for file, _ in rows(scenes, split):
            with Image.open(scenes.folder / file) as picture:
                digest.update(picture.convert("RGB").tobytes())  # the bytes of a PNG depend on the version of zlib
    assert digest.hexdigest() == DIGEST


def test_every_picture_is_there_once_and_of_one_size(scenes: ExampleData) -> None:
    files = [file for split in SIZES for file, _ in rows(scenes, split)]
    assert len(files) == len(set(files)) == 600
    sizes = {media.probe(str(scenes.folder / file), "image") for file in files}
    assert {(size.height, size.width) for size in sizes} == {(48, 48)}


def test_captions_of_two_shapes_are_in_one_file_only(scenes: ExampleData) -> None:
    captions = {split: {words for _, words in rows(scenes, split) if len(words.split()) > 4} for split in SIZES}
    assert all(len(rows(scenes, split)) == size for split, size in SIZES.items())
    assert not captions["train"] & captions["test"] and not captions["train"] & captions["dev"]
    assert not captions["dev"] & captions["test"]


def test_captions_follow_from_the_picture(scenes: ExampleData) -> None:
    thing, caption = scenes.script.Thing, scenes.script.caption
    large, small = thing("red", "circle", False, 10, 10), thing("blue", "square", True, 30, 12)
    assert caption([small, large]) == caption([large, small]) == "a red circle left of a small blue square"
    other = thing("green", "triangle", False, 12, 34)
    assert caption([other, large]) == "a red circle above a green triangle"
    below = thing("green", "triangle", False, 31, 40)
    assert caption([small, below]) == "a green triangle below a small blue square"
