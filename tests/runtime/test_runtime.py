"""The runtime: a model file answers as the run does, from many threads, and a damaged file is refused."""

from __future__ import annotations

import ast
import struct
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import dragoman
from dragoman import runtime
from dragoman.errors import UserError
from dragoman.inference.system import System
from dragoman.runtime.container import ENTRY, HEADER, SECTIONS, Container, digest_of
from dragoman.runtime.settings import SearchOptions

if TYPE_CHECKING:
    from conftest import TinyRun

ROOT = Path(__file__).parents[2]
TEXTS = ["abc", "hgfed", "", "  cab\n", "gggg", "xyz", "hagbec"]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"beam": 1},
    {"beam": 4, "n_best": 3, "normalize": "gnmt", "stop": "certain"},
    {"sample": True, "n_best": 3, "seed": 5, "temperature": 0.8, "top_p": 0.9},
    {"forbid": ["a", "cb"], "max_length": 5},
    {"prefix": "ha", "beam": 2},
    {"no_repeat_ngram": 1, "min_length": 3},
]


@pytest.fixture(scope="module")
def model(native_run: TinyRun) -> runtime.Model:
    return runtime.load(native_run.folder / "model.dragoman")


@pytest.fixture(scope="module")
def run(native_run: TinyRun) -> System:
    return System.load(native_run.folder, "cpu")


def outputs(predictions: Any) -> list[list[tuple[str, tuple[str, ...]]]]:
    return [[(output.text, output.tokens) for output in prediction.outputs] for prediction in predictions]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: " ".join(settings) or "none")
def test_the_runtime_answers_as_the_run_does(run: System, model: runtime.Model, settings: dict[str, Any]) -> None:
    wanted = run.predict(TEXTS, **settings)
    found = model.predict(TEXTS, attention=True, **settings)
    assert outputs(found) == outputs(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)
        if other.attention is not None:
            np.testing.assert_allclose(one.attention, other.attention, atol=1e-4)
            assert one.labels["source"] == other.labels


def test_one_input_has_one_prediction_and_threads_do_not_disturb_each_other(model: runtime.Model) -> None:
    wanted = model.predict("abcdefgh", beam=3)
    assert wanted.to_json()["outputs"][0]["text"] == wanted.text
    found: list[Any] = []

    def ask() -> None:
        found.extend(model.predict(["abcdefgh", "hg"], beam=3) for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    assert {each[0].log_probs for each in found} == {wanted.log_probs}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda model: model.predict({"a": "x"}), "this model reads source"),
        (lambda model: model.predict(np.zeros((3, 2))), "source: give a text"),
        (lambda model: model.predict("a", prefix=["b", "c"]), "a prefix is needed for each input"),
        (lambda model: model.predict("a", beem=3), "beem: there is no such setting"),
        (lambda model: model.predict("a", beam=2, n_best=3), "needs a beam at least as wide"),
        (lambda model: model.predict("a", beam="wide"), "give a number"),
        (lambda model: model.predict("a", normalize="no"), "choose from: none, average, gnmt"),
        (lambda model: model.predict("a", max_length=0), "leaves no room"),
    ],
)
def test_wrong_questions_are_refused_with_a_sentence(model: runtime.Model, call: Any, says: str) -> None:
    with pytest.raises(runtime.UserError, match=says):
        call(model)


def test_an_input_that_is_too_long_has_the_reason_and_others_are_answered(model: runtime.Model) -> None:
    long = "a" * (model.limits.characters + 1)
    first, second = model.predict(["abc", long])
    assert first.error is None and "characters" in second.error
    assert first.text == model.predict("abc").text


def damage(data: bytes, kind: str, change: Any) -> bytes:
    """Change a section of a file, and make its digest right again."""
    changed = bytearray(data)
    count = HEADER.unpack_from(data)[2]
    entries = [ENTRY.unpack_from(data, HEADER.size + index * ENTRY.size) for index in range(count)]
    places = {SECTIONS[entry[0] - 1]: entry[2:] for entry in entries}
    offset, size = places[kind]
    changed[offset : offset + size] = change(bytes(changed[offset : offset + size]))
    place = places["digest"][0]
    changed[place : place + 32] = digest_of(np.frombuffer(bytes(changed), np.uint8), place)
    return bytes(changed)


def test_a_damaged_file_is_refused_with_a_sentence(native_run: TinyRun, tmp_path: Path) -> None:
    good = (native_run.folder / "model.dragoman").read_bytes()
    path = tmp_path / "model.dragoman"
    middle = len(good) // 2
    cases = {
        b"": "no model file of Dragoman",
        good[:30]: "written with",
        good[:-64]: "written with",
        b"X" + good[1:]: "no model file of Dragoman",
        good[:8] + b"\x63" + good[9:]: "has format 99",
        good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]: "SHA-256 is not the one",
        damage(good, "about", lambda old: b"[" + old[1:]): "not JSON",
        damage(good, "settings", lambda old: struct.pack("<d", float("nan")) + old[8:]): "another size",
        damage(good, "forbidden", lambda old: b"\x7f" + old[1:]): "is cut off",
        damage(good, "tokenizer", lambda old: b"XXXX" + old[4:]): "the tokeniser of",
        damage(good, "program", lambda old: b"\x63" + old[1:]): "the native library cannot run this model",
    }
    for data, says in cases.items():
        path.write_bytes(data)
        with pytest.raises(runtime.UserError, match=says):
            runtime.load(path)
    with pytest.raises(runtime.UserError, match="no such file"):
        runtime.load(tmp_path / "nothing")
    with pytest.raises(runtime.UserError, match=r"not a regular file|cannot be read"):
        runtime.load(tmp_path)


def test_settings_have_the_defaults_of_the_search() -> None:
    from dragoman.search.options import SearchConfig

    plain = SearchConfig().model_dump()
    options = SearchOptions()
    assert {name: getattr(options, name) for name in SearchOptions.__slots__} == {
        name: value for name, value in plain.items() if name != "ctc"
    }


def test_errors_are_those_of_the_package() -> None:
    assert UserError is runtime.UserError
    assert dragoman.UserError is runtime.UserError


def test_the_folder_imports_only_itself_and_numpy() -> None:
    for path in (ROOT / "src" / "dragoman" / "runtime").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node.level == 1, path.name
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                roots = {name.partition(".")[0] for name in names}
                assert roots <= {"numpy", *sys.stdlib_module_names}, path.name


def test_a_container_without_sections_of_its_own_says_what_is_missing() -> None:
    from dragoman.program.file import _join

    container = Container(np.frombuffer(_join([]), np.uint8), "x.dragoman")
    with pytest.raises(runtime.UserError, match="it has no section 'about'"):
        container.about()
    assert container.runs("only") == []
