"""`make test` installs pinned versions, so that a release of another project breaks no test overnight."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAME = re.compile(r"[A-Za-z0-9_-]+")


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    tested = [*project["dependencies"], *extras["images"], *extras["audio"], *extras["studio"], *extras["tables"]]
    tested += [*extras["notebook"], *extras["dev"]]
    named = {match.group().lower() for match in map(NAME.match, tested) if match} - {project["name"]}
    pinned = {
        line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    assert named == pinned
