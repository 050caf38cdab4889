"""The package as others see it: its version, its public names, its types."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

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
