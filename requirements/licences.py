"""Write docs/licences.md: the licence of every package that an install of Dragoman brings along or contains.

    python requirements/licences.py            # rewrite the page
    python requirements/licences.py --check    # change nothing; fail if the page differs from the locks

Names and versions come from the locks, so the page is the same on every system. Licences come from the metadata of the
packages that are installed in the locked version. Where one is not (packages for Windows, the extra `umap`), the page
keeps the licence that it has. No network is used.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib import metadata

from locks import ROOT, RUNTIME, Locked, extra, parse, read_lock, read_project, torch_version
from packaging.utils import canonicalize_name

PAGE = ROOT / "docs" / "licences.md"
ROW = re.compile(r"^\| (?!package )(?P<name>@?\w[\w./-]*) \| [^|]+ \| (?P<licence>[^|]+?) \| [^|]+ \|$", re.MULTILINE)

# What older metadata say, in the words of SPDX.
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
FIELDS = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "MPL-2.0 AND MIT"}
# Their metadata say "BSD", which may mean several licences; these were read in their files.
BY_HAND = {
    "colorama": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
    "mpmath": "BSD-3-Clause",
    "numba": "BSD-2-Clause",
    "protobuf": "BSD-3-Clause",
    "scipy": "BSD-3-Clause",
    "soundfile": "BSD-3-Clause",
    "sympy": "BSD-3-Clause",
    "umap-learn": "BSD-3-Clause",
}

INTRODUCTION = """\
# Licences

Dragoman is under the [Apache licence 2.0](../LICENSE). This page lists what it brings along: the
packages that the web page contains, and the packages that pip installs with Dragoman and its extras
for use. `make licences` writes it from the locks and the metadata of the packages. The packages for
tests and tools are not listed, because no user gets them.
"""
NOTES = """\
## Notes

- Wheels may contain libraries with licences of their own, and name them in their metadata or their
  files of licences. The wheels of soundfile contain libsndfile (LGPL-2.1-or-later) as a library of
  its own, those of numpy and scipy OpenBLAS (BSD-3-Clause).
- Builds of torch for NVIDIA cards bring packages of NVIDIA along, which are under NVIDIA's own
  licences. Builds for CPUs bring none.
- "Some systems" means that pip installs the package only on some operating systems or versions of
  Python.
"""


@dataclass(frozen=True)
class Package:
    """A package that users get, with what it is needed for."""

    name: str
    version: str
    licence: str
    needed_for: tuple[str, ...]  # "core", or names of extras; "page" for a package of the web page
    on_some_systems: bool = False


def runtime_packages() -> list[tuple[str, tuple[Locked, ...], tuple[str, ...]]]:
    """Return the names of the Python packages that users get, their entries in the locks, and what needs them.

    torch has no entry in a lock.
    """
    entries: dict[str, list[Locked]] = {}
    for lock in ("dev", "umap"):
        for entry in read_lock(lock):
            if entry not in entries.setdefault(entry.name, []):
                entries[entry.name].append(entry)
    needs: dict[str, set[str]] = {}
    for entry in (entry for several in entries.values() for entry in several):
        for user in entry.needed_by:
            needs.setdefault(user, set()).add(entry.name)

    def reach(roots: list[str]) -> set[str]:
        reached: set[str] = set()
        while roots:
            if (name := roots.pop()) not in reached:
                reached.add(name)
                roots.extend(needs.get(name, ()))
        return reached

    core = reach([canonicalize_name(found.name) for found in parse(read_project()["dependencies"])])
    users = dict.fromkeys(core, ("core",))
    for name in RUNTIME:
        for reached in sorted(reach([canonicalize_name(found.name) for found in extra(name)]) - core):
            users[reached] = (*users.get(reached, ()), name)
    missing = sorted(users.keys() - entries.keys() - {"torch"})
    if missing:
        sys.exit(f"not in the locks: {', '.join(missing)}; run `make lock`")
    return [(name, tuple(entries.get(name, ())), users[name]) for name in sorted(users)]


def page_packages() -> list[Package]:
    """Return the npm packages that the web page contains: those of its lock that are not for building only."""
    lock = json.loads((ROOT / "studio" / "package-lock.json").read_text(encoding="utf-8"))
    return [
        Package(path.removeprefix("node_modules/"), entry["version"], entry["license"], ("page",))
        for path, entry in sorted(lock["packages"].items())
        if path and not entry.get("dev") and not entry.get("optional")
    ]


def installed_licence(name: str, versions: set[str]) -> str | None:
    """Return the licence in the metadata of an installed package, or None if no locked version is installed."""
    try:
        found = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    if found["Version"].partition("+")[0] not in versions:
        return None
    if expressions := found.get_all("License-Expression"):
        return str(expressions[0])
    if name in BY_HAND:
        return BY_HAND[name]
    fields = [field.strip() for field in found.get_all("License") or () if field.strip() in FIELDS]
    if fields:
        return fields[0]
    classified = [
        line.rpartition(" :: ")[2] for line in found.get_all("Classifier") or () if line.startswith("License")
    ]
    if len(classified) == 1 and classified[0] in CLASSIFIERS:
        return CLASSIFIERS[classified[0]]
    sys.exit(f"{name}: the metadata name no licence that requirements/licences.py knows: {classified}")


def read_page() -> dict[str, str]:
    """Return the licences that the page has, by package."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    return {match["name"]: match["licence"] for match in ROW.finditer(text)}


def python_packages(look: bool = False, keep: Collection[str] = ()) -> Iterator[Package]:
    """Yield the Python packages that users get, with the licences of the page.

    ``look`` prefers the licence of an installed package to that of the page, but for the names in ``keep``.
    """
    written = read_page()
    for name, entries, users in runtime_packages():
        versions = list(dict.fromkeys(entry.version for entry in entries)) or [torch_version()]
        licence = written.get(name)
        if look and (licence is None or name not in keep):
            licence = installed_licence(name, set(versions)) or licence
        if licence is None:
            sys.exit(
                f"{name}: the licence is not known yet: run `make licences` where {' or '.join(versions)} is installed"
            )
        on_some = len(versions) == 1 and bool(entries) and all(entry.marker for entry in entries)
        yield Package(name, " or ".join(versions), licence, users, on_some)


def render(keep: Collection[str] = ()) -> str:
    """Return the page. Of the names in ``keep``, the licence is not looked up again."""

    def table(packages: list[Package]) -> str:
        lines = ["| package | version | licence | needed for |", "| --- | --- | --- | --- |"]
        for package in packages:
            needed = ", ".join(package.needed_for) + (" (some systems)" if package.on_some_systems else "")
            lines.append(f"| {package.name} | {package.version} | {package.licence} | {needed} |")
        return "\n".join(lines) + "\n"

    python = list(python_packages(look=True, keep=keep))
    core = [package for package in python if package.needed_for == ("core",)]
    extras = [package for package in python if package.needed_for != ("core",)]
    return "\n".join(
        [
            INTRODUCTION, "## In the web page\n", table(page_packages()),
            "## Installed with Dragoman\n", table(core), "## Installed with extras\n", table(extras), NOTES,
        ]
    )  # fmt: skip


def main() -> None:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description="Write the licences of the packages that users get.")
    parser.add_argument("--check", action="store_true", help="Change nothing; fail if the page is stale.")
    check = parser.parse_args().check
    text = render(keep=("torch",) if check else ())  # the licences of torch depend on its build
    count = len(ROW.findall(text))
    if not check:
        PAGE.write_text(text, encoding="utf-8")
        print(f"{PAGE.relative_to(ROOT)}: {count} packages")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        sys.exit(f"{PAGE.relative_to(ROOT)} differs from the locks and the installed packages: run `make licences`")
    else:
        print(f"{count} packages are in {PAGE.relative_to(ROOT)} with their licences")


if __name__ == "__main__":
    main()
