"""Where packages come from: locks with hashes, the page of licences, the bill of materials, a reproducible wheel."""

from __future__ import annotations

import base64
import hashlib
import importlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
REMEDY = "run `make lock`"


@pytest.fixture(scope="module")
def scripts() -> Iterator[Path]:
    """The folder of the scripts, from which they are imported as they import each other."""
    folder = str(ROOT / "requirements")
    sys.path.insert(0, folder)
    yield Path(folder)
    sys.path.remove(folder)


@pytest.fixture(scope="module")
def locks(scripts: Path) -> Any:
    return importlib.import_module("locks")


@pytest.fixture(scope="module")
def licences(scripts: Path) -> Any:
    return importlib.import_module("licences")


@pytest.fixture(scope="module")
def sbom(scripts: Path) -> Any:
    return importlib.import_module("sbom")


# ---- the locks


def test_every_dependency_is_locked_in_its_range(locks: Any) -> None:
    project = locks.read_project()
    extras = project["optional-dependencies"]
    for lock in locks.LOCKS:
        versions: dict[str, list[str]] = {"torch": [locks.torch_version()]}
        for entry in locks.read_lock(lock):
            versions.setdefault(entry.name, []).append(entry.version)
        lines = list(extras[lock])
        if lock == "dev":
            lines += project["dependencies"]
            lines += [line for name in re.findall(r"\w+", lines[0].partition("[")[2]) for line in extras[name]]
        for requirement in locks.parse(lines):
            locked = versions.get(canonicalize_name(requirement.name), ())
            assert locked, f"{requirement.name} is not in requirements/{lock}.txt: {REMEDY}"
            assert all(map(requirement.specifier.contains, locked)), f"{requirement}: {locked} is locked: {REMEDY}"


def test_every_extra_has_a_lock(locks: Any) -> None:
    extras = locks.read_project()["optional-dependencies"]
    in_dev = set(re.findall(r"\w+", extras["dev"][0].partition("[")[2]))
    assert extras.keys() == in_dev | set(locks.LOCKS)
    assert set(locks.RUNTIME) == extras.keys() - {"dev", "notebook", "zig", "release"}


@pytest.mark.parametrize("lock", ["dev", "notebook", "umap", "zig", "release"])
def test_a_lock_has_hashes_for_everything_and_no_build_for_graphics_cards(locks: Any, lock: str) -> None:
    entries = locks.read_lock(lock)
    assert [entry.name for entry in entries if not entry.hashes] == []
    assert [entry.name for entry in entries if entry.name == "torch" or locks.is_for_graphics_cards(entry.name)] == []
    text = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
    assert len(re.findall(r"^[\w.-]+==", text, re.MULTILINE)) == len(entries)
    # Only versions, markers, hashes and comments: who is asked for the packages is the business of the machine.
    assert (
        re.findall(r"^(?!#|[\w.-]+==[^/@]*$|    --hash=sha256:[0-9a-f]{64}(?: \\)?$|    #|$).*", text, re.MULTILINE)
        == []
    )


def test_locks_agree_with_that_of_dev(locks: Any) -> None:
    """Otherwise installing one would change what another has installed."""
    dev = {entry.name: entry.version for entry in locks.read_lock("dev")}
    for lock in locks.LOCKS[1:]:
        assert {
            entry.name for entry in locks.read_lock(lock) if dev.get(entry.name, entry.version) != entry.version
        } == set()


def test_what_torch_needs_is_in_the_lock(locks: Any) -> None:
    if metadata.version("torch").partition("+")[0] != locks.torch_version():
        pytest.skip("another version of torch is installed")
    locked = {entry.name: entry.version for entry in locks.read_lock("dev")}
    for requirement in map(Requirement, locks.torch_requirements()):
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)])


def test_an_entry_is_read_with_its_marker_its_hashes_and_its_users(locks: Any) -> None:
    ends = ("a" * 64, "b" * 64)
    text = (
        f"# made by uv\nOne.Two==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:{ends[0]} \\\n"
        f"    --hash=sha256:{ends[1]}\n    # via\n    #   -c requirements/dev.txt\n    #   dragoman (pyproject.toml)\n"
        f"    #   Three\nthree==2 \\\n    --hash=sha256:{ends[0]}\n    # via -r -\n\n# The following …:\n# torch\n"
    )
    first, second = locks.parse_lock(text)
    hashes = tuple(f"sha256:{end}" for end in ends)
    assert first == locks.Locked("one-two", "1.0", "sys_platform == 'win32'", hashes, frozenset({"", "three"}))
    assert second == locks.Locked("three", "2", "", hashes[:1], frozenset({""}))
    with pytest.raises(ValueError, match="not an entry of a lock: four>=1"):
        locks.parse_lock("four>=1\n")


def test_make_installs_by_hashes() -> None:
    """Only torch, whose builds differ, and the checkout itself are installed without."""
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    targets = [".venv/.ready", ".venv/.tools", "docs-test", "licences"]
    told = subprocess.run(["make", "-nB", *targets], cwd=ROOT, capture_output=True, text=True, check=True)
    installs = [
        line.partition("pip install")[2].split() for line in told.stdout.splitlines() if " pip install " in line
    ]
    without = [words for words in installs if "--require-hashes" not in words]
    assert len(installs) > len(without) == 2
    assert without[0][-2:] == ["-r", "requirements/torch.txt"]
    assert without[1][-4:] == ["--no-deps", "--no-build-isolation", "-e", "."]
    for words in installs:
        assert words in without or words[-4:-1] == ["--only-binary", ":all:", "-r"]


# ---- licences and the bill of materials


def test_the_page_of_licences_is_that_of_the_locks(licences: Any) -> None:
    assert licences.PAGE.read_text(encoding="utf-8") == licences.render(keep=("torch",)), "run `make licences`"


def test_a_licence_is_that_of_an_installed_version_of_the_lock_or_that_of_the_page(
    licences: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert licences.installed_licence("rich", {metadata.version("rich")}) == "MIT"
    assert licences.installed_licence("rich", {"0.1"}) is None
    assert licences.installed_licence("no-such-package", {"0.1"}) is None
    monkeypatch.setattr(licences, "installed_licence", lambda *_: None)  # as on a system where nothing is installed
    assert licences.render() == licences.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(licences, "read_page", dict)
    with pytest.raises(SystemExit, match=r"the licence is not known yet: run `make licences` where .* is installed"):
        licences.render()


def test_the_bill_of_materials_names_what_users_get(sbom: Any, locks: Any, tmp_path: Path) -> None:
    wheel = tmp_path / "dragoman.whl"
    wheel.write_bytes(b"a wheel")
    bill = sbom.make_bill([wheel])
    assert bill == sbom.make_bill([wheel])
    components = {record["bom-ref"]: record for record in bill["components"]}
    assert len(components) == len(bill["components"])
    [digest] = components.pop("file:dragoman.whl")["hashes"]
    assert digest == {"alg": "SHA-256", "content": hashlib.sha256(b"a wheel").hexdigest()}
    names = {record["name"] for record in components.values()}
    assert {
        "torch",
        "numpy",
        "starlette",
        "pyarrow",
        "soundfile",
        "pillow",
        "umap-learn",
        "react",
        "scheduler",
    } <= names
    assert not {"pytest", "ruff", "uv", "hatchling", "vite"} & names
    for ref, record in components.items():
        assert (
            record["purl"] == ref and record["licenses"] and (record["hashes"] if record["name"] != "torch" else True)
        )
    needs = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    own = bill["metadata"]["component"]["bom-ref"]
    assert (
        needs.keys() == components.keys() | {own}
        and {ref for several in needs.values() for ref in several} <= needs.keys()
    )
    reached, waiting = set(), [own]
    while waiting:
        if (ref := waiting.pop()) not in reached:
            reached.add(ref)
            waiting += needs[ref]
    assert reached == needs.keys()  # nothing is listed that nobody needs
    torch = f"pkg:pypi/torch@{locks.torch_version()}"
    assert any(ref.startswith("pkg:pypi/sympy@") for ref in needs[torch]) and components[torch]["scope"] == "required"


def test_the_hash_of_an_npm_package_is_that_of_its_lock(sbom: Any) -> None:
    records, needs = sbom.describe_page()
    record = next(record for record in records if record["name"] == "react")
    assert record["hashes"][0]["alg"] == "SHA-512" and re.fullmatch(r"[0-9a-f]{128}", record["hashes"][0]["content"])
    integrity = base64.b64encode(bytes.fromhex(record["hashes"][0]["content"])).decode()
    assert integrity in (ROOT / "studio" / "package-lock.json").read_text(encoding="utf-8")
    assert any(ref.startswith("pkg:npm/scheduler@") for several in needs.values() for ref in several)


def test_the_bill_of_materials_is_valid(sbom: Any) -> None:
    pytest.importorskip("cyclonedx", reason="the tools of the extra `release` are not installed")
    bill = sbom.make_bill()
    assert sbom.find_mistakes(bill) == []
    bill["components"][0] |= {"type": "nonsense", "licenses": [{"expression": "MIT OR Nonsense-1.0"}]}
    assert len(sbom.find_mistakes(bill)) == 2


# ---- the wheel


def test_a_wheel_is_the_same_bytes_wherever_it_is_built_and_has_the_page(tmp_path: Path) -> None:
    wheels = []
    for name in ("one", "another"):
        folder = tmp_path / name
        shutil.copytree(
            ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copyfile
        )
        for file in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):  # what git ignores is left out
            shutil.copyfile(ROOT / file, folder / file)  # with times of now
        (folder / "native").mkdir()
        shutil.copyfile(ROOT / "native" / "wheel.py", folder / "native" / "wheel.py")
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
        subprocess.run(build, cwd=folder, check=True, capture_output=True)
        wheels.append(next((folder / "dist").iterdir()))
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with zipfile.ZipFile(wheels[0]) as wheel:
        page = wheel.read("dragoman/studio/page.zip")
        assert page == (ROOT / "src" / "dragoman" / "studio" / "page.zip").read_bytes()
        assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
