"""The package as others see it: its version, its public names, its types."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import dragoman

ROOT = Path(__file__).resolve().parents[1]


def test_the_documented_names_are_the_public_names() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| *`dragoman\.(\w+)` *\|", page, re.MULTILINE)  # the first column of a table
    assert sorted(documented) == sorted(dragoman.__all__)
    assert all(hasattr(dragoman, name) for name in dragoman.__all__)


def test_the_version_has_one_source() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    source = (ROOT / project["tool"]["hatch"]["version"]["path"]).read_text(encoding="utf-8")
    assert re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE) == [dragoman.__version__]


def test_the_package_says_that_it_is_typed() -> None:
    assert Path(dragoman.__file__).with_name("py.typed").is_file()


@pytest.fixture(scope="module")
def packing() -> Any:
    """The script that packs the page; a source distribution has it too."""
    specification = importlib.util.spec_from_file_location("pack", ROOT / "studio" / "pack.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_packed_page_was_built_from_these_sources(packing: Any) -> None:
    packed = packing.read_packed()
    assert {"index.html", "studio.js", "studio.css"} <= set(packed)
    stored = packed[packing.SOURCES_DIGEST].decode()
    assert stored == packing.digest_sources(), "the page is stale: run `make studio` (needs Node) and commit page.zip"


def test_any_change_of_the_sources_changes_their_digest(packing: Any, tmp_path: Path) -> None:
    for name in packing.BUILD_FILES:
        shutil.copy(ROOT / "studio" / name, tmp_path / name)
    shutil.copytree(ROOT / "studio" / "src", tmp_path / "src")
    first = packing.digest_sources(tmp_path)
    assert first == packing.digest_sources()
    (tmp_path / "src" / "app.tsx").write_bytes((tmp_path / "src" / "app.tsx").read_bytes() + b" ")
    second = packing.digest_sources(tmp_path)
    (tmp_path / "src" / "theme.ts").rename(tmp_path / "src" / "colours.ts")
    assert len({first, second, packing.digest_sources(tmp_path)}) == 3


def test_the_page_is_built_from_packages_with_hashes_and_no_address() -> None:
    """`npm ci` installs nothing else. Who is asked for the packages is the business of the machine that builds."""
    packages = json.loads((ROOT / "studio" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    packages.pop("")
    assert [path for path, entry in packages.items() if not entry["integrity"].startswith("sha512-")] == []
    assert [path for path, entry in packages.items() if "resolved" in entry] == []
    # npm writes only the binaries of its own system if others are not published, or already installed
    listed = {name for entry in packages.values() for name in entry.get("optionalDependencies", ())}
    assert sorted(listed - {path.removeprefix("node_modules/") for path in packages}) == []


def test_the_page_contains_the_licences_of_its_packages(packing: Any) -> None:
    packages = json.loads((ROOT / "studio" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    exported = ROOT / "src" / "dragoman" / "export" / "runtime.zip"  # of pages that run a model
    scripts = [packing.read_packed()["studio.js"], packing.read_packed(exported)["page.js"]]
    head = "".join(script.decode().partition("*/")[0] for script in scripts)
    shipped = {path.removeprefix("node_modules/"): entry for path, entry in packages.items() if path}
    for name, entry in shipped.items():
        if not entry.get("dev"):
            assert f"{name} {entry['version']}" in head
    assert "Permission is hereby granted" in head and "Copyright (c) Meta Platforms" in head


def test_the_demo_ends_with_the_report_and_the_studio(tmp_path: Path) -> None:
    """The program is replaced by one that only says what it was asked."""
    if shutil.which("sh") is None:
        pytest.skip("there is no shell")
    (tmp_path / "run").mkdir()
    program = tmp_path / "dragoman"
    program.write_text('#!/bin/sh\necho "asked: $*"\n', encoding="utf-8")
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", str(ROOT / "examples" / "demo.sh"), str(program), "dates", str(tmp_path / "run")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert f"asked: report {tmp_path / 'run'}" in done.stdout
    end = done.stdout.rpartition("Open in a browser:")[2]
    assert f"{tmp_path / 'run'}/report.html" in end and f"{program} studio {tmp_path / 'run'}" in end
