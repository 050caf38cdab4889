"""``predict`` of large files: in parts, into a file, and after an interruption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    path = tmp_path / "inputs.txt"
    path.write_text("".join(f"{'abcdefgh'[n % 8]}{'xyz' * (n % 3)}\n" for n in range(23)))
    return path


@pytest.mark.parametrize("options", [[], ["--n-best", "2"], ["--json"], ["--sample", "--seed", "3", "--n-best", "2"]])
def test_a_file_that_is_not_complete_is_completed(
    call: Any, tiny_run: Any, tmp_path: Path, inputs: Path, options: list[str]
) -> None:
    out = tmp_path / "out.txt"
    whole = call("predict", tiny_run.folder, inputs, *options)
    assert call("predict", tiny_run.folder, inputs, *options, "--out", out).out == b""
    assert out.read_bytes() == whole.out
    lines = whole.out.splitlines(keepends=True)
    out.write_bytes(b"".join(lines[:9]) + lines[9][:-1])  # the last line has no end
    resumed = call("predict", tiny_run.folder, inputs, *options, "--out", out, "--resume")
    assert "9 lines are in" in resumed.err
    assert out.read_bytes() == whole.out
    call("predict", tiny_run.folder, inputs, *options, "--out", out, "--resume")  # nothing is left to do
    assert out.read_bytes() == whole.out


def test_parts_are_the_whole_in_turn(call: Any, tiny_run: Any, inputs: Path) -> None:
    search = ["--sample", "--seed", "5", "--batch", "2"]
    whole = call("predict", tiny_run.folder, inputs, *search).out.splitlines()
    for number in (1, 2, 3):
        part = call("predict", tiny_run.folder, inputs, *search, "--shard", f"{number}/3").out.splitlines()
        assert part == whole[number - 1 :: 3]


def test_a_part_goes_on_too(call: Any, tiny_run: Any, tmp_path: Path, inputs: Path) -> None:
    out = tmp_path / "out.jsonl"
    command = ["predict", tiny_run.folder, inputs, "--json", "--shard", "2/4", "--out", out, "--resume"]
    call(*command)  # there is no file yet: it starts
    complete = out.read_bytes()
    out.write_bytes(b"".join(complete.splitlines(keepends=True)[:2]))
    call(*command)
    assert out.read_bytes() == complete
    assert [json.loads(line)["source"] for line in complete.splitlines()] == inputs.read_text().split()[1::4]


def test_wrong_parts_and_files_are_refused(call: Any, tiny_run: Any, tmp_path: Path, inputs: Path) -> None:
    def refused(*options: object) -> str:
        done = call("predict", tiny_run.folder, inputs, *options)
        assert done.code == 2
        return str(done.err)

    assert "--shard 0/3: give the part" in refused("--shard", "0/3")
    assert "--shard half: give the part" in refused("--shard", "half")
    assert "name it with --out" in refused("--resume")
    assert "its folder does not exist" in refused("--out", tmp_path / "none" / "out.txt")
    assert "not an ordinary file" in refused("--out", tmp_path)
    other = tmp_path / "other.txt"
    other.write_text("line\n" * 30)
    assert "--resume goes on with it" in refused("--out", other)
    assert "has 30 lines, but there are 23 inputs" in refused("--out", other, "--resume")
    assert other.read_text() == "line\n" * 30
