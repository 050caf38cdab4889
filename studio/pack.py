"""Pack the built page into the package, and tell whether the packed page is that of the sources.

    python studio/pack.py            pack studio/dist, which `npm run build` has written
    python studio/pack.py --check    fail unless the packed page is what studio/dist holds
    python studio/pack.py --sources  fail unless the packed page was built from these sources (needs no Node)

The archive is the same bytes whenever the page is, so that git sees a change only where there is one.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILT = HERE / "dist"
ARCHIVE = HERE.parent / "src" / "dragoman" / "studio" / "page.zip"
SOURCES_DIGEST = "sources.sha256"  # in the archive: the digest of the sources that the page was built from
BUILD_FILES = ("index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts")
REMEDY = "run `make studio` and commit the archive"


def digest_sources(folder: Path = HERE) -> str:
    """Return a digest of the names and contents of everything that the page is built from."""
    digest = hashlib.sha256()
    sources = [file for file in (folder / "src").rglob("*") if file.is_file()]
    for file in sorted([*sources, *(folder / name for name in BUILD_FILES)], key=lambda file: file.as_posix()):
        content = file.read_bytes().replace(b"\r\n", b"\n")  # git may convert the ends of lines
        digest.update(f"{file.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def read_built() -> dict[str, bytes]:
    """Return the files that the build has written, by name."""
    return {
        file.relative_to(BUILT).as_posix(): file.read_bytes() for file in sorted(BUILT.rglob("*")) if file.is_file()
    }


def read_packed(archive: Path = ARCHIVE) -> dict[str, bytes]:
    """Return the files of the packed page, by name, with the digest of their sources."""
    with zipfile.ZipFile(archive) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def pack() -> None:
    """Write the archive. Times and modes are fixed, so that only the contents count."""
    files = read_built() | {SOURCES_DIGEST: digest_sources().encode()}
    unfinished = ARCHIVE.with_suffix(".zip.new")  # replaced whole: another program may read the page meanwhile
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, content, compresslevel=9)
    unfinished.replace(ARCHIVE)


def main() -> None:
    """Pack or check, as the options say."""
    parser = argparse.ArgumentParser(description="Pack the built page into the package.")
    parser.add_argument("--check", action="store_true", help="Compare the packed page with studio/dist.")
    parser.add_argument("--sources", action="store_true", help="Compare the packed page with the sources.")
    options = parser.parse_args()
    if options.sources or options.check:
        packed = read_packed()
        if packed.pop(SOURCES_DIGEST).decode() != digest_sources():
            sys.exit(f"{ARCHIVE.name} was built from other sources than those in studio/: {REMEDY}")
        if options.check and packed != read_built():
            sys.exit(f"{ARCHIVE.name} is not the page that studio/ builds: {REMEDY}")
        return
    if not (BUILT / "index.html").exists():
        sys.exit(f"{BUILT}: there is no built page; run `npm run build` first")
    pack()
    print(f"{ARCHIVE.name}: {ARCHIVE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
