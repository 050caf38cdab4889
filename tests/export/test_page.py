"""Exports to a page and for Node: what is in them, what they refuse, and that they answer."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import dragoman
from dragoman.errors import UserError
from dragoman.export import node
from dragoman.export.page import pack, write_page
from dragoman.export.portable import pack_portable
from dragoman.inference.system import System
from dragoman.nn.model import Model
from dragoman.program.table import Program

if TYPE_CHECKING:
    from conftest import TinyRun

INPUTS = ["abcdefgh"[first : first + length] for length in (1, 3, 5) for first in range(3)]


@pytest.fixture(scope="module")
def system(tiny_run: TinyRun) -> System:
    return dragoman.load(tiny_run.folder, engine="torch")


@pytest.fixture(scope="module")
def in_node() -> str:
    found = node.find_node()
    if found is None:
        pytest.skip("there is no Node 20 or later")
    return found


def script_elements(html: str) -> list[str]:
    return re.findall(r"<script(?: id=\"engine\")?>(.*?)</script>", html, re.DOTALL)


def test_the_policy_names_exactly_the_scripts_and_the_style_that_are_there() -> None:
    html = write_page({"name": "</script><b>&"}, b"model", node.read_runtime()).decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    assert policy is not None
    scripts, styles = script_elements(html), re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    assert (len(scripts), len(styles)) == (2, 1)
    hashes = {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (*scripts, *styles)}
    assert set(re.findall(r"'sha256-([^']+)'", policy[1])) == hashes
    assert "</script><b>" not in html
    assert not re.search(r'\b(?:src|href)="(?!data:)', re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL))


def test_packed_bytes_are_printable_and_cannot_leave_their_element() -> None:
    generator = np.random.default_rng(5)
    for size in (0, 1, 2, 3, 4, 5, 60_000):
        content = generator.bytes(size)
        text = pack(content)
        assert re.fullmatch(r"[!-~]*", text) and not set(text) & set("</")
        assert zlib.decompress(base64.b85decode(text.replace(",", "<"))) == content


def test_the_same_run_gives_the_same_page(system: System, tmp_path: Path) -> None:
    for name in ("one", "another"):
        dragoman.export_run(system, "page", tmp_path / name, inputs=INPUTS[:2])
    assert (tmp_path / "one" / "page.html").read_bytes() == (tmp_path / "another" / "page.html").read_bytes()
    record = json.loads((tmp_path / "one" / "export.json").read_text())
    assert (record["format"], record["parity"]["different"]) == ("page", 0)


def test_without_node_the_native_library_is_asked(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "find_node", lambda: None)
    try:
        parity = dragoman.export_run(system, "page", tmp_path, inputs=INPUTS[:2])
    except UserError as error:
        assert "native library" in str(error)
        pytest.skip("the native library is not built")
    assert parity.engine == "native library"


def test_a_page_that_says_something_else_is_refused(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_node: str
) -> None:
    lower = Model.lower

    def lower_wrongly(model: Model) -> Program:
        program = lower(model)
        largest = max(program.weights, key=lambda name: program.weights[name].size)
        return replace(program, weights={**program.weights, largest: -program.weights[largest]})

    monkeypatch.setattr(Model, "lower", lower_wrongly)
    with pytest.raises(UserError, match="does not say what the run says"):
        dragoman.export_run(system, "page", tmp_path / "page", inputs=INPUTS)
    assert not (tmp_path / "page").exists()


def test_a_run_for_node_answers_from_the_command_line(system: System, tmp_path: Path, in_node: str) -> None:
    dragoman.export_run(system, "node", tmp_path, inputs=INPUTS[:2], int8=False)
    lines = "".join(f"{text}\n" for text in INPUTS)
    done = subprocess.run(
        [in_node, "ask.mjs", "model.dragoman"], cwd=tmp_path, input=lines, text=True, capture_output=True, check=True
    )
    assert done.stdout.splitlines() == [output.text for output in system.predict(INPUTS)]


def test_searches_in_node_are_those_of_the_run(system: System, in_node: str) -> None:
    """Every setting that changes an output reaches the library."""
    model, files = pack_portable(system, None), node.read_runtime()
    settings: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"beam": 4, "n_best": 3}, {"beam": 4, "nBest": 3}),
        ({"beam": 3, "normalize": "none", "stop": "certain"}, {"beam": 3, "normalize": "none", "stop": "certain"}),
        ({"beam": 2, "normalize": "gnmt", "alpha": 1.5}, {"beam": 2, "normalize": "gnmt", "alpha": 1.5}),
        ({"beam": 2, "min_length": 7}, {"beam": 2, "minLength": 7}),
        ({"beam": 2, "max_length": 2}, {"beam": 2, "maxLength": 2}),
        ({"beam": 2, "no_repeat_ngram": 1}, {"beam": 2, "noRepeatNgram": 1}),
    ]
    for own, given in settings:
        wanted = system.predict(INPUTS, **own)
        found = node.ask(model, files, [{"input": text, "options": given} for text in INPUTS])
        for prediction, answer in zip(wanted, found, strict=True):
            assert [output["text"] for output in answer["outputs"]] == [each.text for each in prediction.outputs], own
    (answer,) = node.ask(model, files, [{"input": "abc", "options": {"prefix": "hh", "forbid": ["c"]}}])
    assert answer["outputs"][0]["text"].startswith("hh") and "c" not in answer["outputs"][0]["text"]
    (answer,) = node.ask(model, files, [{"input": {"other": "abc"}, "options": {}}])
    assert "source" in answer["error"]


def test_a_damaged_file_is_refused_in_a_sentence(system: System, in_node: str) -> None:
    model = pack_portable(system, None)
    for broken in (model[:100], model[:-64], b"no model"):
        with pytest.raises(UserError, match="cannot be asked in Node"):
            node.ask(broken, node.read_runtime(), [])


def test_a_program_in_c_translates(system: System, tmp_path: Path) -> None:
    """The example compiles with the library's sources, and answers as the run does."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    root = Path(__file__).parent.parent.parent
    built = root / "native" / "build" / "libdragoman.so"
    if not built.exists():
        pytest.skip("the native library is not built: make native")
    (tmp_path / "model.dragoman").write_bytes(pack_portable(system, None))
    program = tmp_path / "translate"
    source = root / "examples" / "native" / "translate.c"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{root / 'native'}", f"-Wl,-rpath,{built.parent}"]
    subprocess.run([compiler, *flags, source, built, "-lm", "-o", program], check=True)
    lines = "".join(f"{text}\n" for text in INPUTS)
    done = subprocess.run(
        [program, tmp_path / "model.dragoman"], input=lines, text=True, capture_output=True, check=True
    )
    assert done.stdout.splitlines() == [output.text for output in system.predict(INPUTS)]
    broken = subprocess.run([program, source], input="", text=True, capture_output=True, check=False)
    assert broken.returncode == 1 and "translate:" in broken.stderr
