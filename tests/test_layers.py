"""Imports point down only, `search` and `nn` never meet, and what the command line needs for --help is light."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "dragoman"

# From the ground up; a module may import from its own layer and those below. The longest matching name counts.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "config", "types", "contracts", "parts", "files", "memory", "threads"),
    ("modalities", "nn", "data"),
    ("nn.model", "search", "data.batching"),
    ("training", "metrics", "pictures", "overlays", "overlays_sound"),
    (
        "system",
        "recipe",
        "answering",
        "asking",
        "auto",
        "building",
        "card",
        "catalog",
        "combining",
        "drawing",
        "encoding",
        "planning",
        "predictions",
        "published",
        "replies",
        "run_folder",
        "run_setup",
        "scoring",
        "sides",
        "transfer",
        "workflow",
    ),
    ("cli", "cli_inputs", "cli_looking", "cli_options", "cli_predict", "cli_support", "display", "studio", "__main__"),
)
RANKS = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
STRANGERS = ({"search", "nn"},)  # pairs that never import each other, in whatever direction
# Read before any training, or by `dragoman --help`: these must not bring torch along.
LIGHT = (
    "errors",
    "config",
    "metrics",
    "pictures",
    "overlays",
    "overlays_sound",
    "cli",
    "data.reading",
    "data.audit",
    "data.split",
    "data.tokenizers",
)


class Import(NamedTuple):
    module: str  # without the leading "dragoman."
    name: str  # what it imports; "" stands for the package itself
    line: int
    late: bool  # inside a function or for type checkers: not run when the module is imported


def modules(package: Path) -> dict[str, Path]:
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def walk(node: ast.AST, late: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
    """Every import statement, and whether it runs late."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, late
        checking = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from walk(child, late or inside or checking)


def imports(package: Path, own_only: bool = True) -> list[Import]:
    """All imports of the modules, relative ones resolved; ``from a import b`` is ``a.b`` if that is a module."""
    every = modules(package)
    root = package.name
    found = []
    for module, path in every.items():
        for statement, late in walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(statement, ast.Import):
                names = [alias.name for alias in statement.names]
            else:
                assert isinstance(statement, ast.ImportFrom)
                base = statement.module or ""
                if statement.level:
                    here = [root, *module.split(".")] if module else [root]
                    up = statement.level - (path.name == "__init__.py")
                    base = ".".join([*here[: len(here) - up], *([base] if base else [])])
                names = []
                for alias in statement.names:
                    longer = f"{base}.{alias.name}"
                    names.append(longer if longer.removeprefix(f"{root}.") in every else base)
            for name in names:
                if name == root or name.startswith(f"{root}."):
                    found.append(Import(module, name.removeprefix(root).lstrip("."), statement.lineno, late))
                elif not own_only:
                    found.append(Import(module, f"!{name.partition('.')[0]}", statement.lineno, late))
    return found


def rank(module: str) -> int | None:
    steps = module.split(".")
    for length in range(len(steps), 0, -1):
        if (name := ".".join(steps[:length])) in RANKS:
            return RANKS[name]
    return None


def violations(package: Path) -> list[str]:
    found = [
        f"{module}: in no layer; put it into LAYERS of {Path(__file__).name}"
        for module in modules(package)
        if module and rank(module) is None
    ]
    for module, name, line, _ in imports(package):
        if not module or not name:  # the package itself shows public names of every layer, and tells its version
            continue
        here, there = rank(module), rank(name)
        if here is not None and there is not None and there > here:
            found.append(f"{module}:{line}: imports {name}, which stands above it")
        if {module.partition(".")[0], name.partition(".")[0]} in STRANGERS:
            found.append(f"{module}:{line}: imports {name}; these two never meet")
    return found


def reaches(package: Path, start: str, library: str) -> list[str]:
    """The chain of imports by which loading ``start`` loads ``library``, or nothing."""
    graph: dict[str, set[str]] = {}
    for module, name, _, late in imports(package, own_only=False):
        if not late:
            graph.setdefault(module, set()).add(name)
    chains, seen = [[start]], {start}
    while chains:
        chain = chains.pop()
        module = chain[-1]
        # loading a.b.c loads the packages a and a.b first
        parents = {module.rpartition(".")[0]} if not module.startswith("!") else set()
        for name in sorted(graph.get(module, set()) | parents):
            if name == f"!{library}":
                return [*chain, library]
            if name not in seen:
                seen.add(name)
                chains.append([*chain, name])
    return []


def cycles(package: Path) -> list[str]:
    """Modules that need each other to be loaded."""
    graph: dict[str, set[str]] = {}
    for module, name, _, late in imports(package):
        if not late and module and name and not module.startswith(f"{name}.") and not name.startswith(f"{module}."):
            graph.setdefault(module, set()).add(name)
    done: set[str] = set()
    found: list[str] = []

    def visit(module: str, path: tuple[str, ...]) -> None:
        if module in path:
            found.append(" → ".join([*path[path.index(module) :], module]))
        elif module not in done:
            for name in sorted(graph.get(module, ())):
                visit(name, (*path, module))
            done.add(module)

    for module in sorted(graph):
        visit(module, ())
    return found


def test_imports_point_down() -> None:
    assert violations(PACKAGE) == []


def test_no_module_needs_itself() -> None:
    assert cycles(PACKAGE) == []


@pytest.mark.parametrize("module", [name for name in LIGHT if name in modules(PACKAGE)])
def test_light_modules_do_not_load_torch(module: str) -> None:
    assert reaches(PACKAGE, module, "torch") == []


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("data/examples.py", "from dragoman.training import trainer", "data.examples:1: imports training"),
        ("data/examples.py", "def f():\n    import dragoman.system", "data.examples:2: imports system"),
        ("search/beam.py", "from dragoman.nn.layers import Dropout", "search.beam:1: imports nn.layers; these two"),
        ("nn/layers.py", "from ..search.beam import Beam", "nn.layers:1: imports search.beam"),
        ("nn/decoders/rnn.py", "from dragoman.nn import model", "nn.decoders.rnn:1: imports nn.model"),
        ("surprise.py", "", "surprise: in no layer"),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, file: str, text: str, says: str) -> None:
    package = tmp_path / "dragoman"
    for name in ("nn/model.py", "nn/layers.py", "search/beam.py", "training/trainer.py", "system.py", file):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("", encoding="utf-8")
    assert [sentence for sentence in violations(package) if not sentence.startswith("surprise")] == []
    (package / file).write_text(text, encoding="utf-8")
    assert any(sentence.startswith(says) for sentence in violations(package))


def test_torch_is_found_behind_two_modules_and_not_in_a_function(tmp_path: Path) -> None:
    package = tmp_path / "dragoman"
    package.mkdir()
    (package / "cli.py").write_text("from dragoman import system", encoding="utf-8")
    (package / "system.py").write_text("import torch.nn", encoding="utf-8")
    assert reaches(package, "cli", "torch") == ["cli", "system", "torch"]
    (package / "system.py").write_text("def f():\n    import torch", encoding="utf-8")
    assert reaches(package, "cli", "torch") == []


def test_a_cycle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "dragoman"
    package.mkdir()
    (package / "config.py").write_text("import dragoman.types", encoding="utf-8")
    (package / "types.py").write_text("from dragoman import config", encoding="utf-8")
    assert cycles(package) == ["config → types → config"]
