"""Pack what runs a model without Python: the WebAssembly, the module for Node and browsers, the script of pages.

    python studio/pack_runtime.py            pack studio/dist-runtime and native/dist/wasm32-wasi
    python studio/pack_runtime.py --check    fail unless the packed scripts are what studio/dist-runtime holds
    python studio/pack_runtime.py --sources  fail unless all was built from these sources (needs neither Node nor zig)

The WebAssembly is built with zig (`make native-all`), the scripts with Node (`npm run build:runtime`). Where there is
no zig, a packed WebAssembly that was built from the present sources stays. The archive is the same bytes whenever its
files are.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BUILT = HERE / "dist-runtime"
NATIVE = ROOT / "native"
WASM = NATIVE / "dist" / "wasm32-wasi" / "dragoman.wasm"
ARCHIVE = ROOT / "src" / "dragoman" / "export" / "runtime.zip"
SCRIPTS = ("ask.mjs", "dragoman.js", "engine.js", "page.css", "page.js")
# In the archive: the digests of the sources that scripts and library were built from.
SCRIPTS_DIGEST, LIBRARY_DIGEST = "scripts.sha256", "library.sha256"
BUILD_FILES = ("build_runtime.mjs", "package.json", "package-lock.json", "tsconfig.json")
REMEDY = "run `make runtime` and commit the archive"


def digest(folder: Path, files: list[Path]) -> str:
    """Return a digest of the names and contents of files."""
    total = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.as_posix()):
        content = file.read_bytes().replace(b"\r\n", b"\n")  # git may convert the ends of lines
        total.update(f"{file.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return total.hexdigest()


def digest_scripts() -> str:
    """Return a digest of everything that the scripts are built from."""
    sources = [file for name in ("runtime", "local", "src") for file in (HERE / name).rglob("*") if file.is_file()]
    return digest(HERE, [*sources, *(HERE / name for name in BUILD_FILES)])


def digest_library() -> str:
    """Return a digest of everything that the WebAssembly is built from."""
    return digest(NATIVE, [*NATIVE.glob("*.c"), *NATIVE.glob("*.h"), NATIVE / "build_all.py"])


def read_packed() -> dict[str, bytes]:
    """Return the files of the archive by name."""
    with zipfile.ZipFile(ARCHIVE) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def library() -> bytes:
    """Return the WebAssembly: what zig has built last, or the packed one if it is that of the present sources."""
    if WASM.exists():
        newest = max(file.stat().st_mtime for file in [*NATIVE.glob("*.[ch]"), NATIVE / "build_all.py"])
        if WASM.stat().st_mtime >= newest:
            return WASM.read_bytes()
    if ARCHIVE.exists():
        packed = read_packed()
        if packed[LIBRARY_DIGEST].decode() == digest_library():
            return packed["dragoman.wasm"]
    sys.exit(f"{WASM.relative_to(ROOT)} is older than its sources: build it with `make native-all`")


def pack() -> None:
    """Write the archive. Times and modes are fixed, so that only the contents count."""
    files = {name: (BUILT / name).read_bytes() for name in SCRIPTS} | {"dragoman.wasm": library()}
    files |= {SCRIPTS_DIGEST: digest_scripts().encode(), LIBRARY_DIGEST: digest_library().encode()}
    unfinished = ARCHIVE.with_suffix(".zip.new")  # replaced whole: another program may read it meanwhile
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, content, compresslevel=9)
    unfinished.replace(ARCHIVE)


def main() -> None:
    """Pack or check, as the options say."""
    parser = argparse.ArgumentParser(description="Pack the runtime of exported models into the package.")
    parser.add_argument("--check", action="store_true", help="Compare the packed scripts with studio/dist-runtime.")
    parser.add_argument("--sources", action="store_true", help="Compare the digests with the sources.")
    options = parser.parse_args()
    if options.sources or options.check:
        packed = read_packed()
        if packed[SCRIPTS_DIGEST].decode() != digest_scripts():
            sys.exit(f"{ARCHIVE.name} has scripts of other sources than those in studio/: {REMEDY}")
        if packed[LIBRARY_DIGEST].decode() != digest_library():
            sys.exit(f"{ARCHIVE.name} has a library of other sources than those in native/: {REMEDY}")
        if options.check and any(packed[name] != (BUILT / name).read_bytes() for name in SCRIPTS):
            sys.exit(f"{ARCHIVE.name} does not have the scripts that studio/ builds: {REMEDY}")
        return
    pack()
    print(f"{ARCHIVE.name}: {ARCHIVE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
