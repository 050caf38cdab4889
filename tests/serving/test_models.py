"""Several models in one server: found by name or languages, with files as uploads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dragoman.errors import UserError
from dragoman.serving.limits import RequestRefused
from dragoman.serving.models import Model, Models, load_models

Serve = Callable[..., Any]


def test_runs_have_names_and_languages(tiny_run: Any) -> None:
    models = load_models([f"a={tiny_run.folder}", f"multi30k-de-en={tiny_run.folder}"], ["nl:en"], "cpu", "torch")
    assert {name: model.languages for name, model in models.by_id.items()} == {
        "a": ("nl", "en"),
        "multi30k-de-en": ("de", "en"),
    }
    assert models.translator("nl", "en").id == "a" and models.translator("de", "en").id == "multi30k-de-en"
    for source, target in (("auto", "en"), ("en", "nl"), ("auto", "xx")):
        with pytest.raises(RequestRefused):
            models.translator(source, target)
    with pytest.raises(RequestRefused, match="name one: a, multi30k-de-en"):
        models.find(None)
    for runs, languages in ((["a=x", "a=x"], []), (["x"], ["de:en", "de:en"]), (["x"], ["deutsch:en"]), (["=x"], [])):
        with pytest.raises(UserError):
            load_models([run.replace("=x", f"={tiny_run.folder}") for run in runs], languages, "cpu", "torch")


def test_a_pair_of_codes_is_guessed_from_the_name_alone(tiny_run: Any) -> None:
    given = ["fr-de", "news.fr_de", "ab-cd", "run", "de"]
    models = load_models([f"{name}={tiny_run.folder}" for name in given], (), "cpu", "torch")
    assert [model.languages for model in models.by_id.values()] == [("fr", "de"), ("fr", "de"), None, None, None]


@pytest.fixture(scope="session")
def features_run(tmp_path_factory: pytest.TempPathFactory, tiny_settings: dict[str, Any]) -> Path:
    """A run that reads a file of features and a text, hardly trained."""
    from dragoman.training.run import train

    folder = tmp_path_factory.mktemp("features")
    generator = np.random.default_rng(1)
    lines = ["shape\tword\ttarget"]
    for number in range(24):
        np.save(folder / f"{number}.npy", generator.normal(size=(4 + number % 3, 3)).astype(np.float32))
        lines.append(f"{number}.npy\t{'ab'[number % 2] * 3}\t{'ab'[number % 2]}")
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = {
        "training": tiny_settings["training"] | {"max_updates": 2},
        "decoder": tiny_settings["decoder"],
        "data": {"source": ["shape", "word"], "target": "target"},
    }
    train(folder / "pairs.tsv", out=folder / "run", settings=settings)
    return folder / "run"


def test_files_are_uploaded(serve_here: Serve, features_run: Path, tiny_run: Any) -> None:
    served = serve_here({"shapes": features_run, "run": tiny_run.folder})
    files = [features_run.parent / f"{number}.npy" for number in range(3)]
    expected = served.system.predict([{"shape": str(file), "word": "aaa"} for file in files], n_best=2)
    parts: list[tuple[str, Any]] = [("options", (None, json.dumps({"model": "shapes", "n_best": 2})))]
    parts += [("shape", ("../../etc/x.npy", file.read_bytes())) for file in files] + [("word", (None, "aaa"))] * 3
    answer = served.http.post("/v1/predict", files=parts)
    assert answer.status_code == 200, answer.text
    texts = [[output["text"] for output in each["outputs"]] for each in answer.json()["predictions"]]
    assert texts == [[output.text for output in each.outputs] for each in expected]

    def ask(*parts: tuple[str, Any]) -> Any:
        return served.http.post("/v1/predict", files=[("options", (None, '{"model": "shapes"}')), *parts])

    good, word = ("shape", ("x.npy", files[0].read_bytes())), ("word", (None, "a"))
    for given, status, words in (
        ((good,), 400, "word: missing"),
        ((good, good, word), 400, "different numbers"),
        ((("shape", ("x.exe", b"MZ")), word), 400, ".npy"),
        ((("shape", (None, "/etc/passwd")), word), 400, "a file is expected"),
        ((("shape", ("x.npy", b"")), word), 400, "empty"),
        ((good, word, ("other", (None, "a"))), 400, "reads shape, word"),
        ((good, ("word", ("a.txt", b"a"))), 400, "a text is expected"),
        ((good, word, ("options", (None, "{}"))), 400, "given 2 times"),
    ):
        answer = ask(*given)
        assert answer.status_code == status and words in answer.json()["error"], answer.text
    damaged = ask(("shape", ("mine.npy", b"no array")), word).json()["predictions"][0]
    assert damaged["error"].startswith("mine.npy") and damaged["outputs"][0]["text"] == ""
    named = served.http.post("/v1/predict", json={"model": "shapes", "inputs": {"shape": str(files[0]), "word": "a"}})
    assert named.status_code == 422 and "upload" in named.json()["error"]  # paths of clients are never opened


def test_the_client_uploads_path_objects(serve_here: Serve, features_run: Path) -> None:
    import dragoman

    served = serve_here({"shapes": features_run})
    file = features_run.parent / "0.npy"
    with dragoman.Client(str(served.http.base_url)) as client:
        prediction = client.predict({"shape": file, "word": "aaa"})
        assert prediction.text == served.system.predict({"shape": file, "word": "aaa"}).text
        with pytest.raises(dragoman.UserError, match="cannot be read"):
            client.predict({"shape": file.with_name("none.npy"), "word": "aaa"})


def test_two_models_of_one_name_are_refused(tiny_run: Any) -> None:
    from dragoman.inference.system import System

    model = Model("a", System.load(tiny_run.folder, "cpu"))
    with pytest.raises(UserError, match="same name"):
        Models([model, model])
