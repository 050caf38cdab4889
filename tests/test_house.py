"""The rooms of the package: imports point one way, the ground is light, and answering people loads no optimiser."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from conftest import TinyRun

PACKAGE = Path(__file__).parent.parent / "src" / "dragoman"
GROUND = ("__main__", "config", "errors", "files", "parts", "program", "runtime", "tables", "types")

# From the ground up. A room may import the rooms of the lines above its own, and nothing of its own line.
LINES: tuple[tuple[str, ...], ...] = (
    ("process",),
    ("data", "nn", "search"),
    ("modalities",),
    ("recipe",),
    ("runs",),
    ("drawing",),
    ("inference",),
    ("evaluation",),
    ("export",),
    ("training",),
    ("serving",),
    ("studio",),
    ("cli",),
)
RANKS = {room: rank for rank, line in enumerate(LINES, 1) for room in line} | dict.fromkeys(GROUND, 0)
RANKS["__main__"] = len(LINES) + 1  # starts the command line
NEVER = {("serving", "training")}  # what answers people does not load an optimiser

# Rooms and files that must not bring torch along when they are imported.
LIGHT = (*GROUND[1:], "data.reading.read", "data.audit.audit", "data.splits", "data.tokenizers", "modalities.text",
         "modalities.image", "modalities.speech", "modalities.features", "recipe.schema", "evaluation.metrics",
         "drawing.alignment", "drawing.picture", "drawing.sound", "runtime.model", "inference.load",
         "inference.system", "inference.engine.native", "cli.main")  # fmt: skip


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


def room_of(module: str) -> str:
    return module.partition(".")[0]


def violations(package: Path) -> list[str]:
    every = modules(package)
    found = [
        f"{module}: in no room; put it into one, or add the room to LINES" for module in every
        if module and room_of(module) not in RANKS
    ]  # fmt: skip
    for module, name, line, _ in imports(package):
        here, there = room_of(module), room_of(name)
        if not module or not name or here == there:  # the package itself shows public names, and tells its version
            continue
        above = RANKS.get(there, 0) >= RANKS.get(here, 99) and not RANKS.get(here, 99) == RANKS.get(there, 0) == 0
        if above or (here, there) in NEVER:
            found.append(f"{module}:{line}: imports {name}, which {here} may not")
    return found


def strays(package: Path) -> list[str]:
    """Modules whose only importer sits in another room: pieces that were cut off it.

    A room's doors, through which others come in, may have a single visitor. Its ``__init__`` names them.
    """
    importers: dict[str, set[str]] = {}
    for module, name, _, _ in imports(package):
        if name != module:
            importers.setdefault(name, set()).add(module)
    every = modules(package)
    found = []
    for module in every:
        who = importers.get(module, set())
        room, _, inside = module.partition(".")
        if room in GROUND or len(who) != 1 or room == room_of(next(iter(who))):
            continue
        front = ast.get_docstring(ast.parse(every[room].read_text(encoding="utf-8"))) if room in every else ""
        if f"``{inside}``" not in (front or ""):
            found.append(f"{module}: only {next(iter(who))} imports it")
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


def test_imports_point_one_way() -> None:
    assert violations(PACKAGE) == []


def test_no_module_needs_itself() -> None:
    assert cycles(PACKAGE) == []


def test_every_module_is_used_in_its_room_or_by_several() -> None:
    assert strays(PACKAGE) == []


def test_the_root_holds_the_ground_and_nothing_else() -> None:
    assert sorted(path.stem for path in PACKAGE.glob("*.py")) == sorted(
        {"__init__", *GROUND} - {"files", "program", "runtime"}
    )


def test_every_room_says_what_it_is_for() -> None:
    """In two sentences or more: what the room is for, and what it may import."""
    for path in PACKAGE.glob("*/__init__.py"):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert "import" in text and text.count(". ") + text.count(".\n") + text.endswith(".") >= 2, path.parent.name


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_do_not_load_torch(module: str) -> None:
    assert module in modules(PACKAGE)
    assert reaches(PACKAGE, module, "torch") == []


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("data/examples.py", "from dragoman.training import trainer", "data.examples:1: imports training.trainer"),
        ("data/examples.py", "def f():\n    import dragoman.cli.main", "data.examples:2: imports cli.main"),
        ("search/beam.py", "from dragoman.nn.layers import Dropout", "search.beam:1: imports nn.layers"),
        ("nn/layers.py", "from ..search.beam import Beam", "nn.layers:1: imports search.beam"),
        ("serving/queue.py", "from dragoman.training import trainer", "serving.queue:1: imports training"),
        ("errors.py", "from dragoman.data import examples", "errors:1: imports data"),
        ("surprise.py", "", "surprise: in no room"),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, file: str, text: str, says: str) -> None:
    package = tmp_path / "dragoman"
    for name in ("nn/layers.py", "search/beam.py", "training/trainer.py", "cli/main.py", "data/examples.py", file):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("", encoding="utf-8")
    assert [sentence for sentence in violations(package) if not sentence.startswith("surprise")] == []
    (package / file).write_text(text, encoding="utf-8")
    assert any(sentence.startswith(says) for sentence in violations(package))


def test_a_piece_cut_off_its_only_user_is_found(tmp_path: Path) -> None:
    package = tmp_path / "dragoman"
    for name, text in {
        "data/rows.py": "", "data/both.py": "", "data/use.py": "from dragoman.data import both",
        "training/run.py": "from dragoman.data import both, rows, use\nfrom dragoman.data.use import x",
    }.items():  # fmt: skip
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    assert strays(package) == [f"data.{name}: only training.run imports it" for name in ("rows", "use")]


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


BUDGETS = {  # a verb → what it must not load
    ("--help",): ("torch", "dragoman.training", "pydantic"),
    ("check", "{pairs}"): ("torch", "dragoman.training"),
    ("check", "{pairs}", "--preset", "bahdanau2015"): ("torch", "dragoman.training"),
    ("predict", "{run}", "{inputs}"): ("dragoman.training",),
    ("score", "{run}", "{pairs}"): ("dragoman.training",),
    ("evaluate", "{run}", "{pairs}"): ("dragoman.training",),
    ("compare", "{run}", "{run}", "{pairs}"): ("dragoman.training", "dragoman.studio"),
}


NATIVE_BUDGETS = {  # the same for a run that the native library computes for
    ("predict", "{run}", "{inputs}"): ("torch", "dragoman.nn.model", "dragoman.training", "pandas", "safetensors"),
    ("predict", "{run}", "{inputs}", "--json", "--n-best", "3"): ("torch",),
    ("predict", "{run}", "{inputs}", "--sample", "--verbose"): ("torch",),
    ("predict", "{run}", "{inputs}", "--alignments"): ("torch", "dragoman.training", "dragoman.evaluation"),
    ("evaluate", "{run}", "{pairs}"): ("torch", "dragoman.training"),
    ("score", "{run}", "{pairs}"): ("torch", "dragoman.training"),
}


@pytest.mark.parametrize("verb", BUDGETS, ids=lambda verb: verb[0])
def test_a_verb_loads_only_what_it_needs(
    verb: tuple[str, ...], tiny_run: TinyRun, tmp_path: Path, environment: dict[str, str]
) -> None:
    assert loaded(verb, BUDGETS[verb], tiny_run, tmp_path, environment) == "[]"


@pytest.mark.parametrize("verb", NATIVE_BUDGETS, ids=lambda verb: " ".join(verb[:1] + verb[3:]))
def test_a_native_run_answers_without_torch(
    verb: tuple[str, ...], native_run: TinyRun, tmp_path: Path, environment: dict[str, str]
) -> None:
    assert loaded(verb, NATIVE_BUDGETS[verb], native_run, tmp_path, environment) == "[]"


def loaded(
    verb: tuple[str, ...], unwanted: tuple[str, ...], run: TinyRun, tmp_path: Path, environment: dict[str, str]
) -> str:
    """Run a verb in a process of its own and return which of the unwanted modules it has loaded."""
    (tmp_path / "inputs.txt").write_text("abc\n", encoding="utf-8")
    places = {"run": run.folder, "pairs": run.pairs, "inputs": tmp_path / "inputs.txt"}
    code = (
        "import sys; sys.argv[0] = 'dragoman'\n"
        "from dragoman.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        f"print([name for name in {unwanted} if name in sys.modules], file=sys.stderr)"
    )
    arguments = [word.format(**places) for word in verb]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stderr.splitlines()[-1]
