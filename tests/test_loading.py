"""Sources that are files: trained on the same with any number of loaders, gone on with exactly, told of when broken."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dragoman.data.corpus.columns import FileColumn
from dragoman.data.corpus.files import Cache
from dragoman.data.corpus.loader import Readers
from dragoman.drawing.attention import draw
from dragoman.errors import UserError
from dragoman.inference.system import System
from dragoman.modalities.features import Features
from dragoman.modalities.image import Image
from dragoman.runs.weights import read_tensors
from dragoman.training.corpus import encode_corpus
from dragoman.training.events import Stepped
from dragoman.training.loading import count_loaders
from dragoman.training.parallel.group import deal
from dragoman.training.plan import plan
from dragoman.training.run import train
from dragoman.types import Batch, Padded

WORDS = ("low", "high", "both")
SMALL: dict[str, Any] = {
    "encoder": {"kind": "rnn", "width": 8},
    "decoder": {"width": 16, "embedding": 8},
    "training": {"threads": 1, "batch_tokens": 128, "max_updates": 12, "average": 1, "log_every": 1, "seed": 3},
}


def write_features(folder: Path, count: int, seed: int = 0) -> Path:
    """Sequences of three features; the target says which of the first two is large."""
    chance = np.random.default_rng(seed)
    (folder / "clips").mkdir(parents=True, exist_ok=True)
    lines = []
    for row in range(count):
        kind = row % 3
        frames = chance.normal(0, 0.2, (int(chance.integers(4, 12)), 3)).astype(np.float32)
        frames[:, 0] += kind != 1
        frames[:, 1] += kind != 0
        np.save(folder / "clips" / f"{row}.npy", frames)
        lines.append(f"clips/{row}.npy\t{WORDS[kind]}\n")
    (folder / "clips.tsv").write_text("".join(lines))
    return folder / "clips.tsv"


def write_pictures(folder: Path, count: int) -> Path:
    images = pytest.importorskip("PIL.Image")
    chance = np.random.default_rng(1)
    lines = []
    for row in range(count):
        pixels = np.zeros((16 + 4 * (row % 2), 16, 3), np.uint8) + np.uint8(20 * (row % 3))
        pixels[:8, :8, row % 3] = chance.integers(150, 250)
        images.fromarray(pixels).save(folder / f"{row}.png")
        lines.append(f"{row}.png\tcorner\t{('red', 'green', 'blue')[row % 3]}\n")
    (folder / "pictures.tsv").write_text("".join(lines))
    return folder / "pictures.tsv"


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The run and its file."""
    place = tmp_path_factory.mktemp("clips")
    file = write_features(place, 60)
    learning = {"max_updates": 150, "label_smoothing": 0.0, "optim": {"learning_rate": 1e-2, "warmup": 20}}
    settings = SMALL | {"target": {"tokenizer": {"kind": "words"}}, "training": SMALL["training"] | learning}
    train(file, out=place / "run", settings=settings)
    return place / "run", file


def test_the_encoder_is_explained_only_where_it_was_chosen(clips: tuple[Path, Path]) -> None:
    def told(**settings: Any) -> bool:
        return any("short enough to read each" in reason for reason in plan(clips[1], settings=settings).reasons)

    assert told()
    assert told(encoder={"width": 16})
    assert not told(encoder={"kind": "pyramid"})
    assert not told(encoder={"layers": 3})


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return read_tensors(folder / "model.safetensors")


def same(first: Path, second: Path) -> bool:
    one, other = weights(first), weights(second)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_any_number_of_loaders_trains_the_same_and_goes_on_exactly(tmp_path: Path) -> None:
    """Pictures are moved and relit at random, beside a question in text: what is drawn depends on the row alone."""
    file = write_pictures(tmp_path, 40)
    settings: dict[str, Any] = {
        "sources": {
            "image": {"encoder": {"kind": "grid", "width": 8, "channels": [4, 4, 4]}},
            "question": {"modality": {"embedding": 8}, "encoder": {"kind": "rnn", "width": 8}},
        },
        "data": {"source": {"image": 1, "question": 2}, "target": 3, "dev_share": 0.2, "test_share": 0.0},
        "decoder": SMALL["decoder"],
        "training": SMALL["training"] | {"max_updates": 7, "batch_tokens": 64},
    }

    def run(name: str, loaders: int, **more: Any) -> Path:
        changed = settings | {"training": settings["training"] | {"loaders": loaders}}
        train(file, out=tmp_path / name, settings=changed, **more)
        return tmp_path / name

    alone = run("none", 0)
    seen: list[int] = []
    run("stopped", 2, on_event=lambda e: seen.append(e.update) if isinstance(e, Stepped) else None,
        should_stop=lambda: bool(seen) and seen[-1] >= 4)  # fmt: skip
    assert 4 <= max(seen) < 7
    assert same(alone, run("stopped", 0)), "another number of loaders may go on with it"
    system = System.load(alone)
    (prediction,) = system.predict([{"image": str(tmp_path / "1.png"), "question": "corner"}])
    picture = prediction.to_json()["sources"][0]
    assert picture["kind"] == "image" and picture["grid"][0] * picture["grid"][1] == picture["end"]


def test_readers_give_what_the_column_gives_in_order_and_say_what_is_broken(clips: tuple[Path, Path]) -> None:
    system = System.load(clips[0])
    paths = [str(clips[1].parent / "clips" / f"{row}.npy") for row in range(9)]
    column = FileColumn(system.modalities["source"], [*paths, str(clips[1].parent / "gone.npy")])
    readers = Readers({"source": column}, 2)
    try:
        requests = [([row, (row + 3) % 9], (1, 0)) for row in range(9)]
        for (rows, draw), loaded in zip(requests, readers.run(requests), strict=True):
            expected = column.padded(rows, draw)
            assert all(map(np.array_equal, loaded["source"], expected))
        with pytest.raises(UserError, match=r"gone\.npy: no such file"):
            list(readers.run([([9], (1, 0))]))
        readers.processes[0].kill()
        readers.processes[0].wait()
        with pytest.raises(UserError, match="loaders=0"):
            list(readers.run(requests[:4]))
    finally:
        readers.close()
    assert all(process.returncode is not None for process in readers.processes)


def test_readers_start_without_torch(tmp_path: Path, environment: dict[str, str]) -> None:
    """A process that reads files needs numpy alone, so it is there in no time."""
    pytest.importorskip("PIL")
    code = """
import pickle, sys
column, = pickle.load(open(sys.argv[1], "rb"))
import dragoman.data.corpus.loader
print([part.shape for part in column.padded([0], (1, 0))], "torch" in sys.modules)
"""
    write_pictures(tmp_path, 2)
    write_features(tmp_path, 2)
    for kind, settings, path in ((Image, {"size": 8}, "0.png"), (Features, {}, "clips/0.npy")):
        raw = str(tmp_path / path)
        column = FileColumn(kind.fit(kind.Config(**settings), [raw], "source"), [raw])
        (tmp_path / "column").write_bytes(pickle.dumps([column]))
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "column")],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.split()[-1] == "False"


@pytest.mark.parametrize("kind", ["none", "auto", "memory", "disk"])
def test_a_cache_changes_nothing_but_the_reading(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_features(tmp_path, 4)
    paths = [str(tmp_path / "clips" / f"{row}.npy") for row in range(4)]
    modality = Features.fit(Features.Config(), paths, "source")
    column = FileColumn(modality, paths, Cache.of(kind, tmp_path / "cache"))
    expected = [modality.array(path) for path in paths]
    reads: list[str] = []
    read = Features.array
    monkeypatch.setattr(Features, "array", lambda self, raw: reads.append(raw) or read(self, raw))
    for _ in range(2):
        for row, array in enumerate(expected):
            assert np.array_equal(column.padded([row])[0][0], array)
    assert len(reads) == (8 if kind == "none" else 4)
    if kind == "disk":
        for path in (tmp_path / "cache").iterdir():
            path.write_bytes(b"damaged")
        assert np.array_equal(column.padded([0])[0][0], expected[0]), "made anew"
        np.save(paths[0], np.ones((5, 3), np.float32))
        assert np.array_equal(column.padded([0])[0][0], modality.array(paths[0])), "another file under the name"


def test_loaders_are_for_files_that_do_not_stay_in_memory(
    clips: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dragoman.data.examples import Example

    system = System.load(clips[0])
    example = Example({"source": str(clips[1].parent / "clips" / "0.npy")}, "low", 1, "x")
    data = encode_corpus(system, [example] * 3)
    monkeypatch.setattr("dragoman.training.loading.available_cores", lambda: 2)
    assert count_loaders(data, None) == 0 and count_loaders(data, 2) == 2, "these few are kept in memory"
    monkeypatch.setattr("dragoman.data.corpus.files.MEMORY", 10)
    assert count_loaders(encode_corpus(system, [example] * 3), None) == 1


def test_files_are_inputs_and_broken_ones_have_empty_lines(
    clips: tuple[Path, Path], call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, file = clips
    monkeypatch.chdir(file.parent)
    assert json.loads((run / "evaluation.json").read_text())["confusion"]["accuracy"] > 80
    names = [f"clips/{row}.npy" for row in range(6)]
    expected = [one.text for one in System.load(run).predict(names)]
    assert call("predict", run, *names).lines == expected
    assert call("predict", run, stdin="".join(f"{name}\n" for name in names).encode()).lines == expected
    (file.parent / "list.txt").write_text("".join(f"{name}\n" for name in names))
    assert call("predict", run, "list.txt", names[0]).lines == [*expected, expected[0]]
    (file.parent / "bad.npy").write_bytes(b"\x93NUMPY, but not really")
    np.save(file.parent / "wide.npy", np.zeros((4, 7), np.float32))
    given = [names[0], "bad.npy", names[1], "gone.npy", "", "wide.npy", names[2]]
    answer = call("predict", run, stdin="\n".join(given).encode())
    assert answer.code == 1
    assert answer.lines == [expected[0], "", expected[1], "", "", "", expected[2]]
    for name in ("bad.npy", "gone.npy", "wide.npy"):
        assert sum(f": {name}: " in line for line in answer.err.splitlines()) == 1, answer.err
    told = [json.loads(line) for line in call("predict", run, "gone.npy", names[0], "--json").lines]
    assert "no such file" in told[0]["error"] and "error" not in told[1]
    with pytest.raises(UserError, match=r"gone\.npy"):
        System.load(run)("gone.npy")


def test_pictures_are_dealt_out_among_cores_without_their_padding() -> None:
    sizes = [(3, 5), (2, 2), (4, 1), (2, 3)]
    mask = torch.zeros(4, 6, 6, dtype=torch.bool)
    for row, (height, width) in enumerate(sizes):
        mask[row, :height, :width] = True
    data = torch.arange(4 * 36 * 3).view(4, 6, 6, 3)
    tokens = torch.ones(4, 2, dtype=torch.long)
    batch = Batch({"image": Padded(data, mask)}, tokens, tokens, tokens.bool())
    first, second = (deal(batch, index, 2).sources["image"] for index in range(2))
    assert first.data.shape == (2, 4, 5, 3) and second.data.shape == (2, 2, 3, 3)
    assert torch.equal(first.data, data[[0, 2], :4, :5]) and torch.equal(second.mask, mask[[1, 3], :2, :3])


def test_features_are_drawn_as_tokens_are_and_called_what_they_are(clips: tuple[Path, Path]) -> None:
    system = System.load(clips[0])
    predictions = system.predict([str(clips[1].parent / "clips" / f"{row}.npy") for row in range(2)])
    views = [system.view_attention(prediction) for prediction in predictions]
    place, drawn = draw(views[:1])
    assert place.suffix == ".svg" and isinstance(drawn, str) and drawn.startswith("<svg")
    with pytest.raises(UserError, match=r"kind 'features' is a \.svg file"):
        draw(views[:1], Path("drawn.png"))
    with pytest.raises(UserError, match="shows one input"):
        draw(views)
