"""Changed model files, tables and inputs do the native library no harm; `make fuzz-native` is the long form."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.program.table import OPERATIONS

NATIVE = Path(__file__).parents[2] / "native"
CASES = 1000
# Quick to compile: not optimised, and for no instruction set but the least.
CHECKS = ["MACHINE=any", "EXTRA=-fsanitize=address,undefined -fno-sanitize-recover=all -g -O0"]


@pytest.fixture(scope="module")
def seeds() -> dict[str, Any]:
    return runpy.run_path(str(NATIVE / "fuzz" / "seeds.py"))


def test_the_seeds_have_every_operation(seeds: dict[str, Any]) -> None:
    def used() -> Iterator[str]:
        for make in seeds["PROGRAMS"].values():
            program = make(8)
            yield from (operation.kind for operation in (*program.encode, *program.step))

    assert {*used()} == {*OPERATIONS}


def test_changed_files_and_inputs_do_no_harm(seeds: dict[str, Any], tmp_path: Path) -> None:
    compiler, make = shutil.which(os.environ.get("CC", "cc")), shutil.which("make")
    if compiler is None or make is None:
        pytest.skip("there is no C compiler, or no make")
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    checked = [compiler, "-fsanitize=address,undefined", "-Wl,--wrap=malloc", probe, "-o", tmp_path / "probe"]
    if subprocess.run(checked, capture_output=True, check=False).returncode:
        pytest.skip("the C compiler has no AddressSanitizer, or the linker no --wrap")
    subprocess.run([make, "-s", "-C", NATIVE, f"BUILD={tmp_path}", *CHECKS, tmp_path / "fuzz"], check=True)
    seeds["main"](tmp_path / "seeds", widths=(8,))
    files = sorted((tmp_path / "seeds").iterdir())
    done = subprocess.run(
        [tmp_path / "fuzz", "7", "0", str(CASES), *files], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
    counts = [int(number) for number in re.findall(r"\d+", done.stdout)]
    assert counts[0] == CASES and all(counts), done.stdout
