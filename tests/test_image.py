"""The picture modality: sizes, padding, statistics, changes at random, axes, and files that it cannot read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pillow

from dragoman.errors import UserError
from dragoman.inference.build import build_frontend
from dragoman.modalities.image import Image, move
from dragoman.types import Padded

SIZES = ((30, 20), (9, 33), (64, 64), (1, 1), (100, 7))  # height, width


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("pictures")
    chance = np.random.default_rng(1)
    paths = []
    for index, (height, width) in enumerate(SIZES):
        pixels = chance.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Pillow.fromarray(pixels).save(folder / f"{index}.png")
        paths.append(str(folder / f"{index}.png"))
    return paths


def fitted(files: Sequence[str], **settings: Any) -> Image:
    return Image.fit(Image.Config(**settings), files, "photo")


def collated(image: Image, files: Sequence[str]) -> Padded:
    return Padded.from_numpy(*image.collate([image.array(path) for path in files]))


@pytest.mark.parametrize("settings", [{}, {"size": 16}, {"size": 40, "enlarge": True}, {"size": 32, "grey": True}])
def test_sizes(files: list[str], settings: dict[str, Any]) -> None:
    image = fitted(files, **settings)
    size, channels = settings.get("size", 128), 1 if settings.get("grey") else 3
    for path, (height, width) in zip(files, SIZES, strict=True):
        tensor = image.array(path)
        longest = max(height, width)
        assert tensor.dtype == np.uint8 and tensor.shape[2] == channels
        assert max(tensor.shape[:2]) == (size if longest > size or settings.get("enlarge") else longest)
        assert abs(tensor.shape[0] * width - tensor.shape[1] * height) <= longest  # its shape, but for rounding
        assert tensor.shape[:2] == image.sizes(path)  # the header says the same
        assert image.length(path) == math.ceil(tensor.shape[0] / 8) * math.ceil(tensor.shape[1] / 8)


def test_what_is_small_enough_is_left_alone(files: list[str]) -> None:
    image = fitted(files)
    for path in files:
        assert np.array_equal(image.array(path), np.asarray(Pillow.open(path)))


def test_normalised_and_padded_with_zeros(files: list[str]) -> None:
    image = fitted(files)
    padded = collated(image, files)
    assert padded.data.shape == (5, 100, 64, 3) and padded.mask.shape == (5, 100, 64)
    assert [int(mask.sum()) for mask in padded.mask] == [height * width for height, width in SIZES]
    frontend = build_frontend(image)
    seen = frontend(padded)
    assert seen.data.shape[-1] == frontend.width == 3 and (seen.data[~seen.mask] == 0).all()
    rubbish = padded.data.clone()
    rubbish[~padded.mask] = 200
    assert torch.equal(frontend(type(padded)(rubbish, padded.mask)).data, seen.data)
    each = torch.stack([seen.data[row][seen.mask[row]].mean(0) for row in range(5)]).mean(0)  # a picture counts once
    assert each.abs().max() < 1e-4
    square = torch.stack([seen.data[row][seen.mask[row]].square().mean(0) for row in range(5)]).mean(0)
    assert (square - 1).abs().max() < 1e-3


def test_a_single_colour_is_not_blown_up(tmp_path: Path) -> None:
    Pillow.new("RGB", (8, 8), (10, 200, 30)).save(tmp_path / "plain.png")
    image = fitted([str(tmp_path / "plain.png")])
    seen = build_frontend(image)(collated(image, [str(tmp_path / "plain.png")]))
    assert seen.data.abs().max() < 1e-3


@pytest.mark.parametrize("stride", [1, 4, 8])
def test_one_label_a_region(files: list[str], stride: int) -> None:
    image = fitted(files)
    for path, (height, width) in zip(files, SIZES, strict=True):
        axis = image.axis(image.array(path), stride)
        rows, columns = math.ceil(height / stride), math.ceil(width / stride)
        assert axis.kind == "image" and axis.grid == (rows, columns) and len(axis.labels) == rows * columns
        assert axis.labels[0] == "row 1, column 1" and axis.labels[-1] == f"row {rows}, column {columns}"
    assert image.axis(image.array(files[0]), 8).labels[4] == "row 2, column 2"


def test_what_is_saved_is_what_is_loaded(files: list[str], tmp_path: Path) -> None:
    image = fitted(files, size=20)
    image.save(tmp_path, "photo")
    loaded = Image.load(image.config, tmp_path, "photo")
    padded = collated(image, files)
    assert torch.equal(build_frontend(image)(padded).data, build_frontend(loaded)(padded).data)
    (tmp_path / "photo.image.json").write_text("{}")
    with pytest.raises(UserError, match="damaged"):
        Image.load(image.config, tmp_path, "photo")


def test_changes_follow_the_seed_and_keep_the_size(files: list[str]) -> None:
    image = fitted(files, flip=True)
    for path in files:
        first, second = (image.augmented(path, np.random.default_rng([1, 2])) for _ in range(2))
        assert np.array_equal(first, second) and first.shape == image.array(path).shape
    large = files[2]
    drawn = [image.augmented(large, np.random.default_rng(seed)) for seed in range(4)]
    assert all(not np.array_equal(one, image.array(large)) for one in drawn)
    assert not np.array_equal(drawn[0], drawn[1])


def test_without_options_nothing_is_changed(files: list[str]) -> None:
    still = fitted(files, shift=0, scale=0, brightness=0, contrast=0)
    assert np.array_equal(still.augmented(files[0], np.random.default_rng(0)), still.array(files[0]))


def test_mirroring_is_off_unless_asked_for(tmp_path: Path) -> None:
    """A picture that is bright on the left stays bright on the left."""
    pixels = np.zeros((16, 16, 3), dtype=np.uint8)
    pixels[:, :8] = 255
    Pillow.fromarray(pixels).save(tmp_path / "left.png")
    path = str(tmp_path / "left.png")

    def mirrored(image: Image) -> list[bool]:
        made = [image.augmented(path, np.random.default_rng(seed)) for seed in range(40)]
        return [bool(one[:, 8:].mean() > one[:, :8].mean()) for one in made]

    assert not any(mirrored(fitted([path])))
    assert 8 < sum(mirrored(fitted([path], flip=True))) < 32


def test_moving_is_moving() -> None:
    pixels = np.zeros((20, 30, 3), dtype=np.uint8)
    pixels[5:9, 10:14] = 255
    assert np.array_equal(move(pixels, 0.0, 0.0, 1.0), pixels)
    assert np.array_equal(move(pixels, 0.1, -0.1, 1.0), np.roll(pixels, (2, -3), (0, 1)))  # down, to the left
    assert move(pixels, 0.0, 0.0, 1.2).sum() > pixels.sum() > move(pixels, 0.0, 0.0, 0.8).sum()
    bright = np.full((4, 4, 3), 90, dtype=np.uint8)
    assert (move(bright, 0.4, 0.4, 0.6) == 90).all()  # edges go on


def test_a_file_that_is_no_picture_is_named(tmp_path: Path, files: list[str]) -> None:
    (tmp_path / "text.png").write_text("no picture")
    for path in (tmp_path / "text.png", tmp_path / "missing.png"):
        for ask in (fitted(files).array, fitted(files).length):
            with pytest.raises(UserError, match=path.name):
                ask(str(path))
