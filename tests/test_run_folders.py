"""What the folder of a run says of itself: who wrote it, whether it is finished, which file could not be written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.config import merge
from dragoman.errors import UnfinishedRun, UserError
from dragoman.files import TensorHeader, write_atomically, write_json
from dragoman.recipe.schema import make_recipe, spell_out
from dragoman.runs.bounds import check_numbers
from dragoman.training.run import train


@pytest.fixture
def folder(tiny_run: Any, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run.folder, tmp_path / "run"))


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("9.9.0", f"was written by Dragoman 9.9.0, and this is {dragoman.__version__}"),
        (None, "was written by another version of Dragoman, which did not leave its number"),
        (dragoman.__version__, "so it was changed since"),
    ],
)
def test_an_unknown_setting_of_a_run_is_told_with_the_version_that_wrote_it(
    call: Any, tiny_run: Any, folder: Path, version: str | None, said: str
) -> None:
    for name in ("config.json", "run.json"):
        plain = json.loads((folder / name).read_text(encoding="utf-8"))
        assert plain["version"] == dragoman.__version__
        plain["recipe"]["training"]["sharpness"] = 3
        plain["version"] = version
        write_json(folder / name, plain)
    with pytest.raises(UserError, match=r"unknown key 'training\.sharpness'") as caught:
        dragoman.load(folder)
    assert said in str(caught.value)
    with pytest.raises(UserError, match=r"unknown key 'training\.sharpness'") as caught:
        train(tiny_run.pairs, out=folder, settings=tiny_run.settings)
    assert said in str(caught.value) and "--fresh" in str(caught.value)


@pytest.mark.parametrize("files", [{"../config.json": ""}, [[None, ""]], [[1, ""]], [[True, ""]]])
def test_a_config_that_names_strange_files_is_called_damaged(folder: Path, files: Any) -> None:
    plain = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", {**plain, "files": files})
    with pytest.raises(UserError, match=r"config\.json.*outside the folder"):
        dragoman.load(folder)


@pytest.mark.parametrize(("setting", "is_possible"), [({"rate": 48_000}, True), ({"mels": 5_000}, False)])
def test_a_sampling_rate_may_be_larger_than_a_small_model(setting: dict[str, int], is_possible: bool) -> None:
    recipe = make_recipe({"sources": {"source": {"modality": {"kind": "speech", **setting}}}}, "test")
    header = TensorHeader({"weight": (10, 10)}, {})
    with nullcontext() if is_possible else pytest.raises(UserError, match="mels = 5,000 is more than the weights"):
        check_numbers(recipe, header, Path("model.safetensors"))


def test_a_run_that_was_stopped_early_says_so_once(
    call: Any, tiny_run: Any, tmp_path: Path, pairs_file: Callable[..., Path]
) -> None:
    pairs = pairs_file(tmp_path / "pairs.tsv", 60)
    settings = merge(spell_out(tiny_run.settings), {"training": {"max_updates": 30}})
    updates = iter(range(1, 100))
    train(pairs, out=tmp_path / "run", settings=settings, should_stop=lambda: next(updates) == 7)
    said = "training has not reached its end (update 7 of at most 30)"
    answer = call("predict", tmp_path / "run", stdin=b"abc\nabd\n")
    assert answer.code == 0 and answer.err.count(said) == 1 and answer.err.startswith("dragoman: ")
    assert said in call("evaluate", tmp_path / "run", pairs).err
    assert said not in call("predict", tmp_path / "run", "--quiet", stdin=b"abc\n").err
    with pytest.warns(UnfinishedRun, match="update 7 of at most 30"):
        dragoman.load(tmp_path / "run")
    train(pairs, out=tmp_path / "run", settings=settings)
    assert said not in call("predict", tmp_path / "run", stdin=b"abc\n").err
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dragoman.load(tmp_path / "run")
        (tmp_path / "run" / "metrics.jsonl").unlink()  # prediction does not need it
        dragoman.load(tmp_path / "run")


def test_a_full_disk_is_told_with_the_name_of_the_file(
    call: Any, tiny_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"a\.txt: the disk is full \(4 bytes are needed, .* are free"):
        write_atomically(tmp_path / "a.txt", "text")
    assert list(tmp_path.iterdir()) == []
    answer = call("inspect", tiny_run.folder, "abc", "-o", tmp_path / "a.svg")
    assert answer.code == 2 and f"dragoman: {tmp_path / 'a.svg'}: the disk is full" in answer.err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")
def test_full_output_is_named(environment: dict[str, str], tiny_run: Any) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dragoman", "predict", str(tiny_run.folder)],
            input=b"abc\n", stdout=full, stderr=subprocess.PIPE, env=environment, check=False,
        )  # fmt: skip
    assert done.returncode == 2 and b"dragoman: standard output: No space left on device" in done.stderr


def test_another_run_is_described_in_a_few_words(tiny_run: Any) -> None:
    with pytest.raises(UserError, match="holds another run") as caught:
        train(tiny_run.pairs, out=tiny_run.folder, preset="transformer-tiny")
    sentence = str(caught.value)
    assert (
        len(sentence.removeprefix(str(tiny_run.folder))) < 500 and "{" not in sentence and " more); choose" in sentence
    )
