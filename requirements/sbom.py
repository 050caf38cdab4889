"""Write the bill of materials of a release: what users get with Dragoman, as CycloneDX JSON.

    python requirements/sbom.py dist    # write dist/dragoman-VERSION.cdx.json for the files of the release in dist

It lists the files of the release, the packages that the web page contains, and the packages of the locks that Dragoman
and its extras for use need: versions, hashes, licences, and who needs whom. The same sources give the same bytes. The
text is checked against the schema of CycloneDX before it is written (extra `release`).
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from licences import Package, python_packages, runtime_packages
from locks import ROOT, RUNTIME, Locked, extra, parse, read_project
from packaging.utils import canonicalize_name

NAMESPACE = uuid.UUID("6f0c1b5e-3a5e-4d0c-9a35-0d8f6c1f2b7a")  # of the serial numbers


def read_version() -> str:
    """Return the version of Dragoman, without importing it."""
    source = (ROOT / "src" / "dragoman" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    assert found is not None
    return found[1]


def component(ref: str, name: str, version: str, licence: str, scope: str, hashes: Iterable[str]) -> dict[str, Any]:
    """Return the record of a package. ``hashes`` begin with their algorithm; a file with any of them is the package."""
    record: dict[str, Any] = {"type": "library", "bom-ref": ref, "name": name, "version": version, "scope": scope}
    contents = [text.split(":") for text in sorted(set(hashes))]
    record |= {"hashes": [{"alg": name, "content": content} for name, content in contents]} if contents else {}
    return record | {"licenses": [{"expression": licence}], "purl": ref}


def describe_python(package: Package, entries: tuple[Locked, ...]) -> list[dict[str, Any]]:
    """Return the records of a Python package, one for each version."""
    records = []
    for version in package.version.split(" or "):
        same = [entry for entry in entries if entry.version == version]
        hashes = (hash_.replace("sha256:", "SHA-256:") for entry in same for hash_ in entry.hashes)
        scope = "required" if package.needed_for == ("core",) else "optional"
        ref = f"pkg:pypi/{package.name}@{version}"
        record = component(ref, package.name, version, package.licence, scope, hashes)
        properties = [("dragoman:needed-for", user) for user in package.needed_for]
        properties += [("dragoman:marker", entry.marker) for entry in same if entry.marker]
        records.append(record | {"properties": [{"name": name, "value": value} for name, value in properties]})
    return records


def describe_page() -> tuple[list[dict[str, Any]], dict[str, set[str]]]:
    """Return the records of the npm packages that the web page contains, and who of them needs whom."""
    packages = json.loads((ROOT / "studio" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    root = packages.pop("")
    used = {path.removeprefix("node_modules/"): entry for path, entry in packages.items() if not entry.get("dev")}
    refs = {name: f"pkg:npm/{name.replace('@', '%40')}@{entry['version']}" for name, entry in used.items()}
    records = []
    for name, entry in used.items():
        algorithm, _, digest = entry["integrity"].partition("-")
        hash_ = f"{algorithm.upper().replace('SHA', 'SHA-')}:{base64.b64decode(digest).hex()}"
        record = component(refs[name], name, entry["version"], entry["license"], "required", [hash_])
        records.append(record | {"properties": [{"name": "dragoman:needed-for", "value": "page"}]})
    needs = {refs[name]: {refs[needed] for needed in entry.get("dependencies", ())} for name, entry in used.items()}
    return records, needs | {"": {refs[name] for name in root["dependencies"]}}


def describe_file(path: Path) -> dict[str, Any]:
    """Return the record of a file of the release."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "type": "file", "bom-ref": f"file:{path.name}", "name": path.name, "scope": "required",
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }  # fmt: skip


def make_bill(files: Iterable[Path] = ()) -> dict[str, Any]:
    """Return the bill of materials of the release that consists of ``files``."""
    entries = {name: found for name, found, _ in runtime_packages()}
    records, needs = describe_page()
    refs: dict[str, list[str]] = {}
    for package in python_packages():
        described = describe_python(package, entries[package.name])
        refs[package.name] = [record["bom-ref"] for record in described]
        records += described
    for name, several in entries.items():
        for user in {user for entry in several for user in entry.needed_by} & refs.keys():
            for ref in refs[user]:
                needs.setdefault(ref, set()).update(refs[name])
    direct = [*parse(read_project()["dependencies"]), *(found for name in RUNTIME for found in extra(name))]
    own = f"pkg:pypi/dragoman@{read_version()}"
    needs[own] = needs.pop("").union(*(refs[canonicalize_name(found.name)] for found in direct))
    every = [own, *(record["bom-ref"] for record in records)]
    body: dict[str, Any] = {
        "metadata": {
            "component": {
                "type": "application", "bom-ref": own, "name": "dragoman", "version": read_version(),
                "description": read_project()["description"], "licenses": [{"expression": "Apache-2.0"}], "purl": own,
            }
        },
        "components": [*sorted(records, key=lambda record: record["bom-ref"]), *map(describe_file, sorted(files))],
        "dependencies": [{"ref": ref, "dependsOn": sorted(needs.get(ref, ()))} for ref in sorted(every)],
    }  # fmt: skip
    number = uuid.uuid5(NAMESPACE, json.dumps(body, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{number}", "version": 1}
    return head | body


def find_mistakes(bill: dict[str, Any]) -> list[str]:
    """Return what the schema of CycloneDX and the grammar of licences have against a bill of materials."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    from license_expression import get_spdx_licensing

    mistake = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill))
    mistakes = [] if mistake is None else [str(mistake)]
    licensing = get_spdx_licensing()
    for record in bill["components"]:
        for licence in record.get("licenses", ()):
            mistakes += [f"{record['name']}: {error}" for error in licensing.validate(licence["expression"]).errors]
    return mistakes


def main() -> None:
    """Write the bill of materials of a release into the folder of its files."""
    parser = argparse.ArgumentParser(description="Write the bill of materials of a release as CycloneDX JSON.")
    parser.add_argument("folder", type=Path, help="The folder with the wheel and the source distribution.")
    folder = parser.parse_args().folder
    files = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
    if not files:
        sys.exit(f"{folder}: there is no wheel and no source distribution")
    bill = make_bill(files)
    if mistakes := find_mistakes(bill):
        sys.exit("the bill of materials is not valid:\n" + "\n".join(mistakes))
    out = folder / f"dragoman-{read_version()}.cdx.json"
    out.write_text(json.dumps(bill, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{out}: {len(bill['components'])} components")


if __name__ == "__main__":
    main()
