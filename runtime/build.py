"""Put the runtime and the native library into the wheel of ``dragoman-runtime``."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAMES = ("libdragoman.so", "libdragoman.dylib", "dragoman.dll")


class RuntimeBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Names the files of the wheel, and the machine that its library is for."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the package and the library; hatchling calls this before it writes a wheel."""
        root = Path(self.root).parent
        library = next((path for name in NAMES if (path := root / "native" / "build" / name).is_file()), None)
        if library is None:
            raise FileNotFoundError("the native library is not built; run `make native` first")
        package = root / "src" / "dragoman" / "runtime"
        files = {str(path): f"dragoman_runtime/{path.name}" for path in sorted(package.glob("*.py"))}
        files[str(root / "src" / "dragoman" / "py.typed")] = "dragoman_runtime/py.typed"
        build_data["force_include"] |= {**files, str(library): f"dragoman_runtime/{library.name}"}
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
