"""Put the native library of one system into a wheel: DRAGOMAN_TARGET=aarch64-linux python -m hatchling build -t wheel.

``native/build_all.py`` builds the libraries. Without DRAGOMAN_TARGET the wheel has none and is for every system: there
Dragoman computes with torch, or with a library that ``make native`` builds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What pip calls the systems; build_all.py links for the same versions of glibc and macOS.
TAGS = {
    "x86_64-linux": "manylinux_2_17_x86_64",
    "aarch64-linux": "manylinux_2_17_aarch64",
    "x86_64-macos": "macosx_11_0_x86_64",
    "aarch64-macos": "macosx_11_0_arm64",
    "x86_64-windows": "win_amd64",
}


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds the library to the files of the wheel, and names the system that it is for."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library; hatchling calls this before it writes a wheel."""
        target = os.environ.get("DRAGOMAN_TARGET", "")
        if not target or version == "editable":
            return
        if target not in TAGS:
            raise ValueError(f"DRAGOMAN_TARGET={target}: there is no such system; choose from {', '.join(TAGS)}")
        folder = Path(self.root) / "native" / "dist" / target
        library = next(iter(sorted(folder.glob("*dragoman.*"))), None)
        if library is None:
            raise FileNotFoundError(f"{folder}: the library is not built; run `make native-all` first")
        build_data["force_include"][str(library)] = f"dragoman/runtime/{library.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{TAGS[target]}"
