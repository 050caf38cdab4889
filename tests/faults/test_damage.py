"""Damaged run folders: every damage is told by name before an answer or an update, with a way out where there is one.

The short form damages each file a few times; ``make faults`` damages a thousand folders.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import dragoman
from dragoman.config import merge
from dragoman.errors import UserError
from dragoman.files import read_tensor_file, write_tensors
from dragoman.runs.folder import CHECKPOINT, PREVIOUS_CHECKPOINT, recorded_run_name
from dragoman.training.run import train
from dragoman.training.writer import find_checkpoint

ANSWERING = ("config.json", "model.safetensors", "source.tokenizer.json", "target.tokenizer.json", "target.spm")
SETTINGS: dict[str, Any] = {
    "target": {"tokenizer": {"kind": "subwords", "size": 300}},
    "training": {"max_updates": 24, "validate_every": 4, "average": 2, "save_every": 1e-9, "log_every": 5},
}


@pytest.fixture(scope="module")
def runs(
    tmp_path_factory: pytest.TempPathFactory, pairs_file: Callable[..., Path], tiny_settings: dict[str, Any]
) -> tuple[Path, Path, Path]:
    """A pairs file, a run on it with two checkpoints, and its twin with another seed."""
    place = tmp_path_factory.mktemp("damage")
    pairs = pairs_file(place / "pairs.tsv", 60)
    for name, seed in (("run", 1), ("twin", 2)):
        train(pairs, out=place / name, settings=merge(tiny_settings, merge(SETTINGS, {"training": {"seed": seed}})))
    return pairs, place / "run", place / "twin"


def flip(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data) * 8)
    return data[: place // 8] + bytes([data[place // 8] ^ 1 << place % 8]) + data[place // 8 + 1 :]


def overwrite(data: bytes, chance: random.Random) -> bytes:
    start, size = chance.randrange(len(data)), chance.randrange(1, 600)
    return data[:start] + chance.randbytes(len(data[start : start + size])) + data[start + size :]


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def extend(data: bytes, chance: random.Random) -> bytes:
    return data + chance.randbytes(chance.randrange(1, 100))


def blank(data: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(data) // 512 + 1) * 512
    return data[:start] + bytes(len(data[start : start + 512])) + data[start + 512 :]


BYTES = (flip, flip, flip, overwrite, cut, extend, blank)


def reshape(path: Path, chance: random.Random) -> None:
    """Write the file again, whole and with its checksum, but with a tensor of another shape."""
    header, tensors = read_tensor_file(path)
    matrices = [name for name, tensor in tensors.items() if tensor.dim() == 2 and len(set(tensor.shape)) > 1]
    name = chance.choice([name for name in matrices if not name.startswith("optimizer")])
    tensors[name] = tensors[name].T.contiguous() if chance.random() < 0.5 else torch.zeros(3, 3)
    write_tensors(path, tensors, header.metadata)


def is_other(other: Path, path: Path) -> bool:
    """Either checkpoint may stand in the place of the other: training goes on from it to the same weights."""
    both = {CHECKPOINT, PREVIOUS_CHECKPOINT}
    return other.read_bytes() != path.read_bytes() and not {other.name, path.name} <= both


def damage(folder: Path, twin: Path, chance: random.Random) -> tuple[str, str]:
    """Damage one file, and return its name and the kind of damage."""
    snapshots = sorted(path.relative_to(folder).as_posix() for path in folder.glob("snapshots/*"))
    name = chance.choice([*ANSWERING, "model.safetensors", CHECKPOINT, CHECKPOINT, PREVIOUS_CHECKPOINT, *snapshots])
    path, data = folder / name, (folder / name).read_bytes()
    kinds = [*(change.__name__ for change in BYTES), "of another run", "another file of the run", "missing"]
    if path.suffix == ".safetensors":
        kinds.append("another shape")
    kind = chance.choice(kinds)
    if kind == "missing":
        path.unlink()
    elif kind == "another shape":
        reshape(path, chance)
    elif kind == "of another run" and (twin / name).exists() and (twin / name).read_bytes() != data:
        shutil.copyfile(twin / name, path)
    elif kind == "another file of the run" and (
        others := [other for other in sorted(folder.glob(f"**/*{path.suffix}")) if is_other(other, path)]
    ):
        shutil.copyfile(chance.choice(others), path)
    else:
        kind, changed = "bytes", data
        while changed == data:
            changed = chance.choice(BYTES)(data, chance)
        path.write_bytes(changed)
    return name, kind


def test_damage_is_told_by_name_before_an_answer_or_an_update(
    runs: tuple[Path, Path, Path], tmp_path: Path, amount: Callable[[int, int], int],
    record: Callable[[str, dict[str, Any]], None],
) -> None:  # fmt: skip
    _, run, twin = runs
    name_of_run, model = recorded_run_name(run) or "", dragoman.load(run).model
    newest, previous = (find_at(run / name) for name in (CHECKPOINT, PREVIOUS_CHECKPOINT))
    assert previous == newest - 1
    kinds: Counter[str] = Counter()
    ways: Counter[str] = Counter()
    total = amount(40, 1000)
    for number in range(total):
        chance = random.Random(number)
        folder = tmp_path / "copy"
        shutil.copytree(run, folder)
        name, kind = damage(folder, twin, chance)
        kinds[f"{'snapshots' if name.startswith('snapshots') else name}: {kind}"] += 1
        where = f"case {number}: {name}, {kind}"
        if name in ANSWERING:
            with pytest.raises(UserError) as told:
                dragoman.load(folder)
            # a file of another run is told by the file that does not fit it, which may be its neighbour
            assert any(part in str(told.value) for part in ANSWERING), where
            if kind in ("bytes", "missing", "another shape"):
                assert name in str(told.value), where
            ways["refused"] += 1
        else:
            found = find_checkpoint(folder, name_of_run, model)
            assert found is not None, where
            if kind == "missing" and not name.startswith("snapshots"):
                assert found.progress.update == (previous if name == CHECKPOINT else newest), where
                ways["the other checkpoint"] += 1
            else:
                assert any(name in note for note in found.notes), where
                expected = {CHECKPOINT: previous, PREVIOUS_CHECKPOINT: newest}.get(name)
                assert expected in (None, found.progress.update), where
                ways["the other checkpoint" if found.progress.update == previous else "the newest checkpoint"] += 1
        shutil.rmtree(folder)
    record("damaged folders", {"cases": total, "noticed": total, "ways out": dict(ways), "kinds": len(kinds)})


def find_at(path: Path) -> int:
    header = read_tensor_file(path)[0]
    return int(json.loads(header.metadata["progress"])["update"])


@pytest.mark.parametrize("name", [CHECKPOINT, "snapshots"])
def test_a_damaged_run_goes_on_from_the_checkpoint_before_to_the_same_weights(
    runs: tuple[Path, Path, Path], tmp_path: Path, tiny_settings: dict[str, Any], name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    pairs, run, _ = runs
    folder = tmp_path / "copy"
    shutil.copytree(run, folder)
    path = folder / name if name == CHECKPOINT else max(folder.glob("snapshots/*"))
    path.write_bytes(flip(path.read_bytes(), random.Random(1)))
    told: list[str] = []

    def listen(event: Any) -> None:
        told.extend([event.message] if hasattr(event, "message") else [])

    train(pairs, out=folder, settings=merge(tiny_settings, SETTINGS), on_event=listen)
    assert path.name in told[0] and "damaged" in told[0]
    assert PREVIOUS_CHECKPOINT in told[-1] or name == "snapshots"
    assert (folder / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


def test_two_damaged_checkpoints_are_refused_by_name(
    runs: tuple[Path, Path, Path], tmp_path: Path, tiny_settings: dict[str, Any]
) -> None:
    pairs, run, _ = runs
    folder = tmp_path / "copy"
    shutil.copytree(run, folder)
    for name in (CHECKPOINT, PREVIOUS_CHECKPOINT):
        (folder / name).write_bytes(flip((folder / name).read_bytes(), random.Random(1)))
    with pytest.raises(UserError) as told:
        train(pairs, out=folder, settings=merge(tiny_settings, SETTINGS))
    assert CHECKPOINT in str(told.value) and PREVIOUS_CHECKPOINT in str(told.value)
