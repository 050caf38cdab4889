"""Build the library for every system and for WebAssembly with zig's C compiler, which the package ziglang has.

    python native/build_all.py                    build all targets into native/dist/TARGET/
    python native/build_all.py wasm32-wasi        build some

The same sources and the same version of ziglang always give the same bytes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
DIST = HERE / "dist"
WASM = "wasm32-wasi"
PLAIN = ("-std=gnu11", "-fvisibility=hidden", "-ffp-contract=fast", "-Wall", "-Wextra", "-Werror", "-Wno-psabi")
AVX512 = ("-mavx512f", "-mavx512vl", "-mavx512dq", "-mavx512bw", "-mfma", "-mprefer-vector-width=512")
X86_TABLES = {"avx2": ("-mavx2", "-mfma"), "avx512": AVX512, "avx512vnni": (*AVX512, "-mavx512vnni")}


@dataclass(frozen=True)
class Target:
    """A system that the library is built for."""

    triple: str  # as zig names it; the version of glibc or macOS is the oldest that will do
    library: str  # the name of the file
    is_x86: bool = False
    compile: tuple[str, ...] = ("-fPIC",)
    link: tuple[str, ...] = ("-shared",)


TARGETS = {
    "x86_64-linux": Target("x86_64-linux-gnu.2.17", "libdragoman.so", is_x86=True),
    "aarch64-linux": Target("aarch64-linux-gnu.2.17", "libdragoman.so"),
    "x86_64-macos": Target("x86_64-macos.11.0", "libdragoman.dylib", is_x86=True),
    "aarch64-macos": Target("aarch64-macos.11.0", "libdragoman.dylib"),
    "x86_64-windows": Target("x86_64-windows-gnu", "dragoman.dll", is_x86=True, compile=()),
    # Nothing is imported: memory is the module's own, and a guard of the stack would need random numbers.
    WASM: Target(
        "wasm32-wasi", "dragoman.wasm", compile=("-msimd128", "-fno-stack-protector"),
        link=(
            "-mexec-model=reactor", "-Wl,--export-dynamic", "-Wl,--export=malloc", "-Wl,--export=free",
            "-Wl,-z,stack-size=1048576",
        ),
    ),
}  # fmt: skip


def sources() -> list[Path]:
    """Return the C files, in a fixed order."""
    return sorted(HERE.glob("*.c"))


def build(name: str) -> Path:
    """Build one target and return the path of the library."""
    target = TARGETS[name]
    folder, objects = DIST / name, HERE / "build" / name
    for each in (folder, objects):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir(parents=True)
    defines = ("-DDRAGOMAN_X86",) if target.is_x86 else ()
    # In WebAssembly all but the kernels is compiled to be small.
    size = "-Os" if name == WASM else "-O3"
    jobs: list[tuple[str, Path, tuple[str, ...]]] = [
        (file.stem, file, ("-O3",) if file.stem == "kernels" else (size,)) for file in sources()
    ]
    for table, flags in X86_TABLES.items() if target.is_x86 else ():
        named = (f"-DTABLE=kernels_{table}", f'-DTABLE_NAME="{table}"')
        jobs.append((f"kernels-{table}", HERE / "kernels.c", ("-O3", *flags, *named)))
    made = []
    for stem, file, flags in jobs:
        made.append(f"build/{name}/{stem}.o")
        run("cc", "-target", target.triple, *PLAIN, *target.compile, *defines, *flags, "-c", file.name, "-o", made[-1])
    library = folder / target.library
    run("cc", "-target", target.triple, *target.link, size, "-s", *made, "-o", f"dist/{name}/{target.library}")
    for other in folder.iterdir():  # such as the import library that Windows's linker writes
        if other != library:
            other.unlink()
    return library


def run(*command: str) -> None:
    """Run zig in this folder, with its cache in the folder of what is built."""
    cache = {"ZIG_LOCAL_CACHE_DIR": str(HERE / "build" / "cache")}
    subprocess.run([sys.executable, "-m", "ziglang", *command], cwd=HERE, check=True, env={**os.environ, **cache})


def main() -> None:
    """Build the targets that the command line names."""
    parser = argparse.ArgumentParser(description="Build the native library for every system.")
    parser.add_argument("targets", nargs="*", help=f"From: {', '.join(TARGETS)}. Default: all.")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"there is no target {', '.join(sorted(unknown))}; choose from {', '.join(TARGETS)}")
    for name in options.targets or TARGETS:
        library = build(name)
        print(f"{library.relative_to(HERE.parent)}: {library.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
