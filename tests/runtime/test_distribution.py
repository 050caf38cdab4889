"""The distribution dragoman-runtime: a wheel that needs numpy alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dragoman import runtime
from dragoman.runtime.library import find_library

if TYPE_CHECKING:
    from conftest import TinyRun

ROOT = Path(__file__).parents[2]


def test_the_second_distribution_needs_numpy_alone(native_run: TinyRun, tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    library = find_library()
    assert library is not None
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT / "runtime", check=True,
        capture_output=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    assert not wheel.name.endswith("any.whl")  # it has a library for this machine
    site = tmp_path / "site"
    shutil.unpack_archive(wheel, site, "zip")
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        root = name.partition('.')[0]\n"
        "        if root not in ('numpy', 'dragoman_runtime', *sys.stdlib_module_names):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import dragoman_runtime\n"
        "model = dragoman_runtime.load(sys.argv[1])\n"
        "assert model._opened._library._name.startswith(sys.argv[2]), model._opened._library._name\n"
        "print(model.predict('hgfed', beam=3).text)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, native_run.folder / "model.dragoman", site],
        env={"PYTHONPATH": str(site), "PATH": "", "PYTHONUTF8": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == runtime.load(native_run.folder / "model.dragoman").predict("hgfed", beam=3).text
