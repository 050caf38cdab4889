"""The generated recordings: the script gives the same sounds every time, and no number is in two files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import soundfile

if TYPE_CHECKING:
    from conftest import ExampleData

SIZES = {"train": 240, "dev": 30, "test": 30}
# Of the tables and of the samples of every recording.
DIGEST = "d1c5980cc1fa9a9fd5b27aea661fe014c8e803e449eddc5cc5a80e72e428f662"


@pytest.fixture(scope="module")
def tones(example_data: Callable[[str], ExampleData]) -> ExampleData:
    return example_data("tones")


def rows(tones: ExampleData, split: str) -> list[tuple[str, str]]:
    header, *lines = (tones.folder / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
    assert header == "sound\tdigits"
    return [(line.split("\t")[0], line.split("\t")[1]) for line in lines]


def test_the_script_always_makes_the_same_recordings(tones: ExampleData) -> None:
    digest = hashlib.sha256()
    for split in SIZES:
        digest.update((tones.folder / f"{split}.tsv").read_bytes())
        for file, _ in rows(tones, split):
            samples, rate = soundfile.read(tones.folder / file, dtype="int16")
            assert rate == 8000
            digest.update(samples.astype("<i2").tobytes())  # the bytes of a FLAC file depend on the encoder's version
    assert digest.hexdigest() == DIGEST


def test_no_number_is_in_two_files(tones: ExampleData) -> None:
    numbers = [digits for split in SIZES for _, digits in rows(tones, split)]
    assert len(numbers) == len(set(numbers)) == sum(SIZES.values())
    assert all(len(rows(tones, split)) == size for split, size in SIZES.items())
