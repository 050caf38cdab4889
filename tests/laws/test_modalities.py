"""The laws of modalities, for every file of the folder: what ``data/modality.py`` states, each with its test."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dragoman import parts
from dragoman.data.media import content_kind, file_kinds, suffix_kind
from dragoman.data.modality import Modality
from dragoman.inference.build import build_frontend
from dragoman.types import Padded

pytest.importorskip("PIL")
soundfile = pytest.importorskip("soundfile")

TEXTS = ("Mary left. John went home!", "", "a", "<N> no mark <PL> at all", "Einzelne Wörter. " * 7, "\U0001f600 ?")


def write_texts(folder: Path) -> list[str]:
    return list(TEXTS)


def write_pictures(folder: Path) -> list[str]:
    from PIL import Image

    generator = np.random.default_rng(1)
    paths = []
    for index, (height, width) in enumerate([(30, 20), (9, 33), (1, 1), (100, 7)]):
        path = folder / f"{index}.png"
        Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(path)
        paths.append(str(path))
    return paths


def write_sounds(folder: Path) -> list[str]:
    generator = np.random.default_rng(2)
    paths = []
    for index, samples in enumerate([2400, 3001, 1, 80]):
        paths.append(str(folder / f"a_ann_{index}.wav"))
        soundfile.write(paths[-1], 0.1 * generator.standard_normal(samples), 8000)
    return paths


def write_arrays(folder: Path) -> list[str]:
    generator = np.random.default_rng(3)
    paths = []
    for index, frames in enumerate([11, 4, 1]):
        paths.append(str(folder / f"{index}.npy"))
        np.save(paths[-1], generator.normal(5.0, 3.0, (frames, 3)).astype(np.float32))
    np.save(folder / "store.npy", generator.normal(5.0, 3.0, (9, 3)).astype(np.float32))
    return [*paths, f"{folder / 'store.npy'}#2:8"]


# What is written for each kind; every other setting of it that matters here; a file of more than a megabyte.
INPUTS: dict[str, Callable[[Path], list[str]]] = {
    "text": write_texts, "image": write_pictures, "speech": write_sounds, "features": write_arrays,
}  # fmt: skip
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "text": [
        {"tokenizer": {"kind": "words"}},
        {"tokenizer": {"kind": "bytes"}, "states": "sentences"},
        {"tokenizer": {"kind": "subwords", "size": 310, "drop": 0.4}},
        {"tokenizer": {"kind": "symbols"}, "tags": True},
    ],
    "image": [{}, {"size": 16, "grey": True, "flip": True}, {"shift": 0, "scale": 0, "brightness": 0, "contrast": 0}],
    "speech": [
        {},
        {"rate": 11025, "speeds": [0.9, 1.1]},
        {"normalise": "global", "time_masks": 1},
        {"normalise": "speaker", "speaker": r"_(\w+)_"},
    ],
    "features": [{}, {"deltas": 1, "stack": 3, "stride": 2}, {"normalise": "none", "speeds": [0.5, 2.0]}],
}
LARGE: dict[str, Callable[[Path], Any]] = {
    "image": lambda path: (
        pytest.importorskip("PIL.Image")
        .fromarray(np.random.default_rng(0).integers(0, 256, (700, 700, 3), dtype=np.uint8))
        .save(path)
    ),
    "speech": lambda path: soundfile.write(path, np.zeros(1_000_000), 8000),
    "features": lambda path: np.save(path, np.zeros((100_000, 3), np.float32)),
}


@dataclass
class Case:
    modality: Modality
    raws: list[str]

    @property
    def arrays(self) -> list[np.ndarray]:
        return [self.modality.array(raw) for raw in self.raws]


def cases() -> Iterator[Any]:
    for kind in parts.kinds("modality"):
        for settings in SETTINGS.get(kind, [{}]):
            yield pytest.param((kind, settings), id=f"{kind}-{'-'.join(settings)}")


@pytest.fixture(params=cases())
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    kind, settings = request.param
    raws = INPUTS[kind](tmp_path)
    modality = parts.part("modality", kind)
    return Case(modality.fit(modality.Config(**settings), [raw for raw in raws if raw], "side"), raws)


def frontend(modality: Modality) -> Any:
    torch.manual_seed(1)
    return build_frontend(modality).eval()


def test_every_kind_is_tested_here() -> None:
    assert set(INPUTS) == set(SETTINGS) == set(parts.kinds("modality"))
    assert set(LARGE) == set(file_kinds())
    assert {parts.part("modality", kind).frontend_kind for kind in INPUTS} == set(parts.kinds("frontend"))


def test_an_array_is_numpy_and_never_empty_and_always_the_same(case: Case) -> None:
    for raw in case.raws:
        array = case.modality.array(raw)
        assert isinstance(array, np.ndarray) and array.size and len(array)
        assert np.array_equal(array, case.modality.array(raw))
        assert np.isfinite(array).all()
        assert array.ndim == (3 if case.modality.gives == "picture" else array.ndim) <= 3


def test_length_is_that_of_the_array(case: Case) -> None:
    for raw, array in zip(case.raws, case.arrays, strict=True):
        if case.modality.gives == "sequence":
            assert case.modality.length(raw) == len(array)
        else:
            assert case.modality.length(raw) == math.ceil(array.shape[0] / 8) * math.ceil(array.shape[1] / 8)


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux counts the bytes that a process reads")
@pytest.mark.parametrize("kind", list(LARGE))
def test_the_length_of_a_file_is_told_by_its_header(kind: str, tmp_path: Path) -> None:
    def bytes_read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    raws = INPUTS[kind](tmp_path)
    modality = parts.part("modality", kind)
    path = tmp_path / f"large{modality.suffixes[0]}"
    LARGE[kind](path)
    fitted = modality.fit(modality.Config(), [raws[0]], "side")
    fitted.length(raws[0])  # imports what it needs
    before = bytes_read()
    fitted.length(str(path))
    assert bytes_read() - before < 100_000 < path.stat().st_size


@pytest.mark.parametrize("stride", [1, 4])
def test_one_label_for_each_state_of_an_encoder(case: Case, stride: int) -> None:
    modality = case.modality
    vectors = frontend(modality)(Padded.from_numpy(*modality.collate(case.arrays)))
    for array, mask in zip(case.arrays, vectors.mask, strict=True):
        axis = modality.axis(array, stride)
        if modality.gives == "picture":
            grid = math.ceil(array.shape[0] / stride), math.ceil(array.shape[1] / stride)
            assert axis.grid == grid and len(axis.labels) == grid[0] * grid[1]
        else:
            assert len(axis.labels) == math.ceil(int(mask.sum()) / stride)
        assert all(axis.labels)
        spelled = modality.spans(array, stride)
        assert (spelled is not None) == modality.has_tokenizer
        if spelled is not None:
            text, spans = spelled
            assert len(spans) == len(axis.labels)
            covered = {place for begin, end in spans for place in range(begin, end)}
            if modality.tokenizer.kind == "symbols":  # whose spaces are nobody's
                covered |= {place for place, letter in enumerate(text) if letter == " "}
            assert covered == set(range(len(text)))


def test_padding_is_invisible(case: Case) -> None:
    modality, arrays = case.modality, case.arrays
    data, mask = modality.collate(arrays)
    assert data.dtype == arrays[0].dtype and mask.dtype == bool and mask.shape == data.shape[: mask.ndim]
    for row, array in enumerate(arrays):
        assert np.array_equal(data[row][mask[row]].ravel(), array.ravel())
    rubbish = np.where(mask.reshape(*mask.shape, *[1] * (data.ndim - mask.ndim)), data, data.flat[0])
    network = frontend(modality)
    clean, dirty = (network(Padded.from_numpy(values, mask)) for values in (data, rubbish))
    assert torch.equal(clean.mask, dirty.mask) and torch.equal(clean.data[clean.mask], dirty.data[clean.mask])
    for row, array in enumerate(arrays):
        alone = network(Padded.from_numpy(*modality.collate([array])))
        torch.testing.assert_close(alone.data[0][alone.mask[0]], clean.data[row][clean.mask[row]])


def test_the_frontend_gives_vectors_of_its_width(case: Case) -> None:
    network = frontend(case.modality)
    vectors = network(Padded.from_numpy(*case.modality.collate(case.arrays)))
    assert vectors.data.is_floating_point() and vectors.data.shape == (*vectors.mask.shape, network.width)
    assert all(mask.any() for mask in vectors.mask)


def test_augmentation_keeps_the_form_and_follows_the_generator(case: Case) -> None:
    modality = case.modality
    changed = False
    for raw, array in zip(case.raws, case.arrays, strict=True):
        first, again = (modality.augmented(raw, np.random.default_rng(5)) for _ in range(2))
        assert np.array_equal(first, again)
        assert first.dtype == array.dtype and first.ndim == array.ndim and len(first)
        assert first.shape[1:] == array.shape[1:] or modality.gives == "picture"
        drawn = [modality.augmented(raw, np.random.default_rng(seed)) for seed in range(8)]
        changed |= any(not np.array_equal(other, array) for other in drawn)
    assert changed == modality.varies
    many = modality.augmenting(case.raws)
    for first, again in zip(many(np.random.default_rng(7)), many(np.random.default_rng(7)), strict=True):
        assert np.array_equal(first, again)
    assert len(many(np.random.default_rng(7))) == len(case.raws)


def test_what_is_loaded_behaves_as_what_was_saved(case: Case, tmp_path: Path) -> None:
    modality = case.modality
    (tmp_path / "run").mkdir()
    modality.save(tmp_path / "run", "side")
    same(case, type(modality).load(modality.config, tmp_path / "run", "side"))


def test_another_process_reads_the_same(case: Case) -> None:
    same(case, pickle.loads(pickle.dumps(case.modality)))


def same(case: Case, other: Modality) -> None:
    modality = case.modality
    for raw in case.raws:
        assert np.array_equal(modality.array(raw), other.array(raw))
        assert modality.length(raw) == other.length(raw)
        assert modality.axis(modality.array(raw), 2) == other.axis(other.array(raw), 2)
        pair = (each.augmented(raw, np.random.default_rng(1)) for each in (modality, other))
        assert np.array_equal(*pair)
    assert (modality.tokenizer is None) == (other.tokenizer is None) == (not modality.has_tokenizer)
    collated = Padded.from_numpy(*modality.collate(case.arrays))
    assert torch.equal(frontend(modality)(collated).data, frontend(other)(collated).data)


def test_files_are_recognised_by_one_kind(tmp_path: Path) -> None:
    for kind, modality in file_kinds().items():
        for raw in INPUTS[kind](tmp_path):
            assert suffix_kind(raw) == content_kind(modality.file_of(raw)) == kind
            probe = modality.examine(raw)
            assert probe == modality.probe(raw) and all(value > 0 for value in modality.measures(probe).values())
            assert set(modality.counts(probe)) == set(modality.count_titles)
    suffixes = [suffix for modality in file_kinds().values() for suffix in modality.suffixes]
    assert len(suffixes) == len(set(suffixes)) and all(suffix == suffix.lower() for suffix in suffixes)


def test_a_modality_needs_no_torch(case: Case, tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "case").write_bytes(pickle.dumps((case.modality, case.raws)))
    code = """
import pickle, sys
import numpy as np
modality, raws = pickle.load(open(sys.argv[1], "rb"))
modality.collate([modality.augmented(raw, np.random.default_rng(1)) for raw in raws])
print(modality.axis(modality.array(raws[0]), 4), modality.frontend_options(), "torch" in sys.modules)
"""
    arguments = [sys.executable, "-c", code, str(tmp_path / "case")]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "False"
