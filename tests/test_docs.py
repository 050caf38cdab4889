"""The pages say what is true: every command, option, setting, preset, config and Python call in them exists."""

from __future__ import annotations

import ast
import gzip
import importlib.util
import inspect
import json
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import typer
from torch.distributed.run import get_args_parser

import dragoman
from dragoman import runtime
from dragoman.cli.main import app
from dragoman.inference.constraints import OPTIONS as CONSTRAINTS
from dragoman.recipe.layers import gather_settings, preset_names
from dragoman.recipe.schema import make_recipe
from dragoman.runtime.library import why_unavailable
from dragoman.search.options import SearchConfig
from dragoman.training.sweep.grid import expand_grid, read_grid

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "dragoman"
GUIDE = sorted(DOCS.glob("*.md"))
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")), *GUIDE]
PAGES += sorted((DOCS / "decisions").glob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
GROUP: Any = typer.main.get_command(app)


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(*languages: str) -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            if match[1] in languages:
                yield Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2])


class Command(NamedTuple):
    where: str
    program: str
    words: tuple[str, ...]
    stdin: str = ""  # what echo prints into the pipe before it


def commands() -> Iterator[Command]:
    """Yield the commands of all shell blocks. Pipes are taken apart, redirections dropped."""
    for block in blocks("sh"):
        for offset, line in enumerate(block.text.splitlines(), 1):
            where, printed = f"{block.page.relative_to(ROOT)}:{block.line + offset}", ""
            for part in _split(shlex.split(line, comments=True), "|"):
                program, *words = _split(part, ">")[0]
                yield Command(where, program, tuple(words), printed)
                printed = " ".join(words) + "\n" if program == "echo" else ""


def _split(words: list[str], at: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == at:
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


CALLS = [command for command in commands() if command.program == "dragoman"]


def prose(page: Path) -> str:
    """Return a page with its code blocks blanked."""
    return FENCE.sub(lambda match: "\n" * match[0].count("\n"), page.read_text(encoding="utf-8"))


def values_of(words: tuple[str, ...], option: str) -> list[str]:
    return [words[index + 1] for index, word in enumerate(words) if word == option]


# ---- the command line


@pytest.mark.parametrize("command", CALLS, ids=lambda command: command.where)
def test_every_command_parses(command: Command) -> None:
    """The verb, its options and the number of its arguments are right, and its settings make a valid recipe."""
    verb, *words = command.words
    assert verb in GROUP.commands
    GROUP.commands[verb].make_context(verb, list(words))
    preset = next(iter(values_of(command.words, "--preset")), None)
    settings = values_of(command.words, "--set")
    make_recipe(gather_settings(preset, overrides=settings), command.where)


def test_every_verb_is_shown() -> None:
    assert {command.words[0] for command in CALLS} == set(GROUP.commands)


def test_every_option_in_the_prose_exists() -> None:
    known = {
        name for verb in GROUP.commands.values() for one in verb.params for name in (*one.opts, *one.secondary_opts)
    }
    known |= {"--help", "--version", "--check"}
    known |= set(get_args_parser()._option_string_actions)  # those of torchrun
    for page in PAGES:
        for code in re.findall(r"`([^`\n]+)`", prose(page)):
            for option in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", code):
                assert option in known, f"{page.name}: {option}"


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {(command.where, command.words[0]) for command in commands() if command.program == "make"}
    named |= {(page.name, name) for page in PAGES for name in re.findall(r"`make ([a-z-]+)`", prose(page))}
    assert [place for place in sorted(named) if place[1] not in targets] == []


# ---- settings


@pytest.mark.parametrize("block", list(blocks("toml")), ids=lambda block: block.where)
def test_every_config_is_valid(block: Block, tmp_path: Path) -> None:
    if "train" in tomllib.loads(block.text):  # the file of a sweep
        (tmp_path / "grid.toml").write_text(block.text, encoding="utf-8")
        assert expand_grid(read_grid(tmp_path / "grid.toml"))
        return
    make_recipe(gather_settings(overrides=tomllib.loads(block.text)), block.where)


def settings_that_exist(catalog: dict[str, Any]) -> set[str]:
    """Return every setting as a person writes it, from what ``dragoman parts --json`` lists."""
    places = {"encoder": ["encoder", "joint"], "decoder": ["decoder"], "attention": ["decoder.attention"]}
    places |= {"modality": ["source"], "tokenizer": ["source.tokenizer", "target.tokenizer"]}
    names = set()
    for family, kinds in catalog.items():
        for kind, entry in kinds.items():
            for place in [kind] if family == "settings" else places.get(family, ()):
                names |= {place, *(f"{place}.{option}" for option in entry["options"])}
    return names | {f"{place}.kind" for family in places.values() for place in family}


def test_every_setting_in_the_prose_exists(call: Any) -> None:
    known = settings_that_exist(json.loads(call("parts", "--json").out))
    assert "decoder.attention.kind" in known and "training.optim.warmup" in known
    pattern = re.compile(
        r"`((?:data|training|search|decoder|encoder|source|target|init|joint)\.[a-z_.]+)(?:[ =][^`]*)?`"
    )
    unknown = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in PAGES
        for name in pattern.findall(prose(page))
        if name not in known and not name.endswith((".json", ".safetensors"))
    ]
    assert unknown == []


def test_the_table_of_presets_is_complete() -> None:
    table = (DOCS / "models.md").read_text(encoding="utf-8").partition("## Presets")[2].partition("## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`([\w-]+)`", "".join(rows))) == preset_names()


# ---- Python


def test_python_page_lists_the_public_names() -> None:
    table = (DOCS / "python.md").read_text(encoding="utf-8").partition("\n## ")[0]
    assert sorted(re.findall(r"`dragoman\.(\w+)`", table)) == sorted(dragoman.__all__)


PYTHON_VERBS = (
    "align", "augment", "boost", "calibrate", "check", "compare", "evaluate", "export_run", "load", "score",
)  # fmt: skip


@pytest.mark.parametrize("block", list(blocks("python")), ids=lambda block: block.where)
def test_every_python_call_exists(block: Block) -> None:
    functions = {
        "dragoman.train": dragoman.train,
        **{f"dragoman.{name}": getattr(dragoman, name) for name in PYTHON_VERBS},
        "dragoman.Client": dragoman.Client,
        "system": dragoman.System.__call__,
        **{f"system.{name}": getattr(dragoman.System, name) for name in ("predict", "stream", "score", "session")},
    }
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Call) and (name := ast.unparse(node.func)).startswith(("dragoman.", "system")):
            arguments = {keyword.arg: None for keyword in node.keywords if keyword.arg}
            own = [None] * (len(node.args) + name.startswith("system"))
            bound = inspect.signature(functions[name]).bind(*own, **arguments)
            if name != "dragoman.train":
                assert set(bound.arguments.get("settings", ())) <= {
                    *SearchConfig.model_fields,
                    "maps",
                    "alignments",
                    "forbid",
                    "prefix",
                    *CONSTRAINTS,
                    "abstain",
                }


# ---- running them on a tiny run


@pytest.fixture
def place(tmp_path: Path, tiny_run: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the runs and files that the pages name are tiny ones."""
    rows = tiny_run.pairs.read_text(encoding="utf-8").splitlines()[:6]
    pairs = [row.split("\t") for row in rows]
    for name in ("pairs", "train", "dev", "test"):
        (tmp_path / f"{name}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "inputs.txt").write_text("".join(f"{source}\n" for source, _ in pairs), encoding="utf-8")
    (tmp_path / "train.de").write_text("".join(f"{source}\n" for source, _ in pairs), encoding="utf-8")
    (tmp_path / "train.en").write_text("".join(f"{target}\n" for _, target in pairs), encoding="utf-8")
    (tmp_path / "words.txt").write_text("".join(f"{target}\n" for _, target in pairs), encoding="utf-8")
    (tmp_path / "terms.tsv").write_text(f"{pairs[0][0]}\t{pairs[0][1]}|abc\n", encoding="utf-8")
    (tmp_path / "format.lark").write_text('start: "a" start | letter\nletter: /[b-h]/\n', encoding="utf-8")
    objects = "".join(json.dumps({"word": source, "ipa": target}) + "\n" for source, target in pairs)
    (tmp_path / "words.jsonl.gz").write_bytes(gzip.compress(objects.encode()))
    (tmp_path / "runs").mkdir()
    run = tmp_path / "run"  # a copy: some commands, such as export, write into the run's folder
    shutil.copytree(tiny_run.folder, run)
    for name in ("RUN", "RUN2", "RUN3", "runs/pairs", "runs/other", "runs/a", "runs/b"):
        (tmp_path / name).symlink_to(run, target_is_directory=True)
    for group in ("runs/seeds", "runs/other-seeds"):
        (tmp_path / group).mkdir()
        for seed in (1, 2):
            (tmp_path / group / f"seed-{seed}").symlink_to(run, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


FILE = re.compile(r"(LM_)?RUN\d?|runs/.+|\S+\.(tsv|txt|gz|de|en|png|jpg|wav)")


def can_run(command: Command, place: Path) -> bool:
    """Return whether a command neither trains nor needs the built web page, and all it reads is in ``place``."""
    writes = [*values_of(command.words, "-o"), *values_of(command.words, "--abstain-file")]
    reads = [word for word in command.words if FILE.fullmatch(word) and word not in writes]
    needs_page = command.words[0] in ("studio", "report") or any(name.endswith(".html") for name in writes)
    needs_library = "native" in command.words or "portable" in command.words
    return (
        command.words[0] not in ("train", "sweep", "boost", "serve")  # servers are tested in tests/serving/test_page.py
        and not needs_page
        and not (needs_library and why_unavailable() is not None)
        and all((place / name).exists() for name in reads)
    )


def test_the_commands_run(place: Path, call: Any) -> None:
    runnable = {(command.words, command.stdin): command.where for command in CALLS if can_run(command, place)}
    for (words, stdin), where in runnable.items():
        answer = call(*words, stdin=(stdin or "abc\n").encode())
        assert answer.code == 0, f"{where}: {answer.err}"
    assert len(runnable) >= 20
    assert (place / "alignment.svg").exists()


def test_the_python_runs(place: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    is_native = why_unavailable() is None
    if is_native:
        shutil.copy(request.getfixturevalue("native_run").folder / "model.dragoman", place)
        monkeypatch.setitem(sys.modules, "dragoman_runtime", runtime)  # the same folder under its other name
    ran = 0
    for block in blocks("python"):
        if "dragoman_runtime" in block.text and not is_native:
            continue
        if not any(word in block.text for word in ("train(", "boost(", "runs/lm", "dragoman.Client")):
            exec(compile(block.text, block.where, "exec"), {})
            ran += 1
    assert ran >= 2


# ---- the pages themselves


def script(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


def test_every_link_leads_somewhere() -> None:
    check_links = script("check_links")
    assert [sentence for page in PAGES for sentence in check_links.broken(page, ROOT)] == []


def test_figures_are_those_of_the_result_files() -> None:
    figures = script("figures")
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert figures.fill(text) == text, f"{page.name}: run python docs/figures.py"


def test_a_stale_figure_is_found_and_an_unknown_one_refused() -> None:
    figures = script("figures")
    stale = "<!-- figure: scan -->12<!-- /figure -->"
    assert figures.fill(stale) == stale.replace("12", figures.FIGURES["scan"]())
    code = f"```\n{stale}\n```\n"
    assert figures.fill(code) == code
    with pytest.raises(figures.MissingResult, match="no figure 'scam'"):
        figures.fill(stale.replace("scan", "scam"))


def test_the_index_names_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in GUIDE if page.name != "README.md" and f"]({page.name})" not in index] == []
    decisions = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    names = [page.name for page in (DOCS / "decisions").glob("0*.md")]
    assert [name for name in names if f"]({name})" not in decisions] == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_the_map_names_every_room(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"files", "program"}  # ground
    listed = set(re.findall(r"^\|(?: \d+ \|)? `(\w+)` \|", text, re.MULTILINE))
    assert rooms == listed


def test_the_places_to_add_something_exist() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Where to add")[2].partition("\n**")[0]
    places = re.findall(r"`([\w/.-]+/[\w.-]*)`", table)
    assert len(places) >= 20
    assert [place for place in places if not ((PACKAGE / place).exists() or (ROOT / place).exists())] == []


def test_prose_is_wrapped_at_100_columns() -> None:
    long = [
        f"{page.relative_to(ROOT)}:{number}"
        for page in PAGES
        for number, line in enumerate(prose(page).splitlines(), 1)
        if len(line) > 100 and not line.startswith("|")
    ]
    assert long == []
