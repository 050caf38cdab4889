"""Write down the path of a sentence through ``train`` and ``predict``: the public functions that one tiny run passes.

    python docs/walk.py            # trace a run and rewrite the lists in CONTRIBUTING.md
    python docs/walk.py --check    # change nothing; fail if the functions in CONTRIBUTING.md are others

The rule, so that the lists stay short and true: a function is a step when it is first called, if

- it and its class are public (no leading underscore), and it is neither a property nor part of a config class;
- it is called from another room (with ``by_folder``: from another folder), from the module of the first step, or
  from one module of the first step's folder to another;
- it is not on the ground or in another of the places ``UNLISTED``;
- with ``one_per_module``, no other function of its module is a step yet.

A step is listed if no more than ``depth`` other steps are above it on the call stack.

A first run is not traced: it pays for imports and fills caches, so that the second takes the usual way.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import random
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "dragoman"
PAGE = ROOT / "CONTRIBUTING.md"
# Folders and modules that are called from everywhere, or whose functions answer small questions on the way.
UNLISTED = (
    ".",
    "process",
    "nn/blocks",
    "nn/kernels",
    "data.examples",
    "data.modality",
    "data.reading.memory",
    "data.vocabulary",
    "nn.contracts",
    "recipe.limits",
    "recipe.memory",
    "recipe.training",
    "runs.history",
    "runs.lengths",
    "inference.engine.contract",
    "training.forecast",
    "training.freezing",
    "training.meter",
    "training/parallel",
)
# Without the native library, so that the lists are the same wherever it is missing.
SETTINGS: dict[str, Any] = {
    "source": {"embedding": 16},
    "encoder": {"width": 16},
    "decoder": {"width": 32, "embedding": 16},
    "training": {"threads": 1, "device": "cpu", "batch_tokens": 96, "max_updates": 6, "average": 2, "native": False},
}


@dataclass
class Walk:
    """Records the functions that are called while it is used as a context."""

    depth: int
    by_folder: bool = False
    one_per_module: bool = False
    steps: dict[str, int] = field(default_factory=dict)  # function → how many other steps are above it
    modules: set[str] = field(default_factory=set)

    def __enter__(self) -> Walk:
        sys.setprofile(self.record)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def record(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or not is_public(frame.f_code):
            return
        module, name = module_of(frame.f_code), name_of(frame.f_code)
        if name in self.steps or (self.one_per_module and module in self.modules) or not is_step(frame.f_code):
            return
        above = callers(frame)
        if not above or self.crosses(above[0], frame.f_code, above[-1]):
            self.steps[name] = sum(name_of(code) in self.steps for code in above)
            self.modules.add(module)

    def crosses(self, caller: CodeType, called: CodeType, first: CodeType) -> bool:
        """Return whether the call leads from one place to another, by the rule above."""
        if module_of(caller) == module_of(called):
            return False
        if module_of(caller) == module_of(first) or folder_of(caller) == folder_of(called) == folder_of(first):
            return True
        places = [folder_of(code) if self.by_folder else folder_of(code).partition("/")[0] for code in (caller, called)]
        return places[0] != places[1]

    def listed(self) -> dict[str, int]:
        return {name: depth for name, depth in self.steps.items() if depth <= self.depth}


@functools.cache
def is_own(code: CodeType) -> bool:
    """Return whether this is a function of the package."""
    is_function = bool(code.co_flags & inspect.CO_NEWLOCALS)  # a module's or a class's body has no locals of its own
    return is_function and Path(code.co_filename).is_relative_to(PACKAGE)


@functools.cache
def is_public(code: CodeType) -> bool:
    """Return whether this is a function of the package in whose name no part is private."""
    return is_own(code) and not any(part[0] in "_<" for part in code.co_qualname.split("."))


@functools.cache
def is_step(code: CodeType) -> bool:
    """Return whether the function may be listed, wherever it is called from."""
    if folder_of(code) in UNLISTED or module_of(code) in UNLISTED:
        return False
    *classes, name = code.co_qualname.split(".")
    owner: Any = importlib.import_module(f"dragoman.{module_of(code)}")
    for part in classes:
        if part.endswith("Config"):
            return False
        owner = getattr(owner, part)
    return not isinstance(inspect.getattr_static(owner, name), property | functools.cached_property)


@functools.cache
def module_of(code: CodeType) -> str:
    parts = Path(code.co_filename).relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def name_of(code: CodeType) -> str:
    return f"{module_of(code)}.{code.co_qualname}"


@functools.cache
def folder_of(code: CodeType) -> str:
    return Path(code.co_filename).relative_to(PACKAGE).parent.as_posix()


def callers(frame: FrameType) -> list[CodeType]:
    """Return the functions of the package that are above ``frame`` on the stack, the nearest first."""
    codes, above = [], frame.f_back
    while above is not None:
        if is_own(above.f_code):
            codes.append(above.f_code)
        above = above.f_back
    return codes


def write_pairs(path: Path) -> None:
    """Write 100 short strings of letters, each with its reversal."""
    generator = random.Random(0)
    sources = {"".join(generator.choices("abcdefgh", k=generator.randint(2, 6))): None for _ in range(100)}
    path.write_text("".join(f"{source}\t{source[::-1]}\n" for source in sources), encoding="utf-8")


def trace() -> dict[str, Walk]:
    import dragoman
    from dragoman.training.run import train  # what dragoman.train and the command line call

    walks = {"train": Walk(depth=2, one_per_module=True), "predict": Walk(depth=5, by_folder=True)}
    with tempfile.TemporaryDirectory() as place:
        pairs = Path(place) / "pairs.tsv"
        write_pairs(pairs)
        load: Callable[..., Any] = dragoman.load
        train(pairs, out=Path(place) / "first", settings=SETTINGS)
        load(Path(place) / "first").predict(["abc"])
        with walks["train"]:
            train(pairs, out=Path(place) / "second", settings=SETTINGS)
        system = load(Path(place) / "second")
        with walks["predict"]:
            system.predict(["abc"])
    return walks


def block(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- walk: {name} -->\n+```\n)(.*?)(```\n+<!-- /walk -->)", re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the functions that a tiny run passes into CONTRIBUTING.md.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the lists are stale")
    check = parser.parse_args().check
    sys.path.insert(0, str(PACKAGE.parent))
    text = old = PAGE.read_text(encoding="utf-8")
    stale = False
    for name, walk in trace().items():
        match = block(name).search(text)
        if match is None:
            print(f"{PAGE.name}: there is no place marked <!-- walk: {name} -->")
            return 1
        stale |= match[2].split() != list(walk.listed())
        lines = "".join(f"{'  ' * depth}{step}\n" for step, depth in walk.listed().items())
        text = text[: match.start(2)] + lines + text[match.end(2) :]
        print(f"{name}: {len(walk.listed())} functions")
    if stale and check:
        print(f"the lists in {PAGE.name} are stale: run python docs/walk.py")
        return 1
    if not check and text != old:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
