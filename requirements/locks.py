"""Make and read the locks: the Python packages that Dragoman is developed, tested and released with, by their hashes.

    python requirements/locks.py              # remake the locks; a version that is still allowed stays
    python requirements/locks.py --upgrade    # remake them with the newest versions

``requirements/NAME.txt`` is the lock of the extra NAME of pyproject.toml. The lock of ``dev`` also has everything that
the package itself needs; the others add to it and agree with it. A lock holds for every system and for Python 3.11 and
later. torch is in none of them: ``requirements/torch.txt`` has its version, and ``dev.txt`` what all its builds need.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LOCKS = ("dev", "notebook", "umap", "zig", "release")
# The extras for using Dragoman; the others are for changing it.
RUNTIME = ("images", "audio", "studio", "tables", "onnx", "ctranslate2", "constraints", "serve", "client", "umap")
PINNED = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?:\s*;\s*(?P<marker>[^\\]+?))?\s*(?:\\|$)")
HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


@dataclass(frozen=True)
class Locked:
    """One entry of a lock. A package has several if its version depends on the system or on Python."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]
    needed_by: frozenset[str]  # names of packages; "" for pyproject.toml


def read_project() -> dict[str, Any]:
    """Return the table ``project`` of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def parse(lines: Iterable[str]) -> list[Requirement]:
    """Return the requirements that ``lines`` of pyproject.toml name, without those that name its own extras."""
    return [found for found in map(Requirement, lines) if found.name != "dragoman"]


def extra(name: str) -> list[Requirement]:
    """Return the requirements of an extra."""
    return parse(read_project()["optional-dependencies"][name])


def read_lock(name: str) -> list[Locked]:
    """Return the entries of the lock of an extra."""
    return parse_lock((HERE / f"{name}.txt").read_text(encoding="utf-8"))


def parse_lock(text: str) -> list[Locked]:
    """Return the entries of a lock as uv writes it: a pinned version, hashes, and comments that say who needs it."""
    entries = []
    blocks = re.split(r"\n(?=\S)", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    for block in filter(str.strip, blocks):
        first, *rest = block.strip().splitlines()
        pinned = PINNED.match(first)
        if pinned is None:
            raise ValueError(f"not an entry of a lock: {first}")
        comments = [line.strip().removeprefix("#").strip() for line in rest if line.strip().startswith("#")]
        users = (comment.removeprefix("via").strip() for comment in comments)
        entries.append(
            Locked(
                name=canonicalize_name(pinned["name"]),
                version=pinned["version"],
                marker=pinned["marker"] or "",
                hashes=tuple(HASH.findall(block)),
                needed_by=frozenset(
                    "" if user.startswith(("-r ", "dragoman")) else canonicalize_name(user)
                    for user in users
                    if user and not user.startswith("-c ")
                ),
            )
        )
    return entries


def torch_version() -> str:
    """Return the version of torch that requirements/torch.txt pins."""
    pinned = re.search(r"^torch==(\S+)$", (HERE / "torch.txt").read_text(encoding="utf-8"), re.MULTILINE)
    if pinned is None:
        raise ValueError("requirements/torch.txt pins no version of torch")
    return pinned[1]


def is_for_graphics_cards(name: str) -> bool:
    """Return whether a package that torch asks for comes with its builds for graphics cards only."""
    return canonicalize_name(name).startswith(("nvidia-", "cuda-", "triton", "pytorch-triton"))


def torch_requirements() -> list[str]:
    """Return what every build of the pinned torch needs, from the metadata of the one that is installed."""
    installed = metadata.version("torch").partition("+")[0]
    if installed != torch_version():
        sys.exit(f"torch {torch_version()} is pinned, but {installed} is installed: run `make .venv/.ready` first")
    lines = [line for line in metadata.requires("torch") or () if "extra ==" not in line]
    return [line for line in lines if not is_for_graphics_cards(Requirement(line).name)]


def compile_lock(name: str, upgrade: bool, config: Path) -> None:
    """Write the lock of an extra with uv."""
    command = [
        sys.executable, "-m", "uv", "--config-file", str(config), "pip", "compile", "--universal", "--python-version",
        "3.11", "--generate-hashes", "--no-emit-package", "torch", "--quiet", "--custom-compile-command", "make lock",
        "--output-file", f"requirements/{name}.txt",
    ]  # fmt: skip
    command += ["--upgrade"] if upgrade else []
    if name == "dev":
        command += ["pyproject.toml", "--extra", "dev", "--constraint", "requirements/torch.txt"]
        subprocess.run(command, cwd=ROOT, check=True)
    else:
        command += ["-", "--constraint", "requirements/dev.txt"]
        subprocess.run(command, cwd=ROOT, check=True, input="\n".join(map(str, extra(name))), text=True)


def main() -> None:
    """Remake all locks."""
    parser = argparse.ArgumentParser(description="Remake the locks of the Python packages.")
    parser.add_argument("--upgrade", action="store_true", help="Take the newest versions.")
    options = parser.parse_args()
    needs = ", ".join(f'"{line}"'.replace("'", '\\"') for line in torch_requirements())
    with tempfile.TemporaryDirectory() as folder:
        # The metadata of torch's builds differ. uv takes these instead of asking the index.
        config = Path(folder, "uv.toml")
        config.write_text(
            f'[[dependency-metadata]]\nname = "torch"\nversion = "{torch_version()}"\nrequires-dist = [{needs}]\n',
            encoding="utf-8",
        )
        for name in LOCKS:
            compile_lock(name, options.upgrade, config)
            print(f"requirements{os.sep}{name}.txt: {len(read_lock(name))} packages")


if __name__ == "__main__":
    main()
