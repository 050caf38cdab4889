"""Exported pages in a browser, opened from a file: they say what the run says, and ask nobody for anything."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.export.parity import Parity

ROOT = Path(__file__).parent.parent.parent
AXE = ROOT / "studio" / "node_modules" / "axe-core" / "axe.min.js"
TEXTS = ["abcde", "a", "hgfedcba", "bad cab", "xyz", "fade"]

Opens = Callable[..., Any]


@pytest.fixture(scope="session")
def exported(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of each run, by its name; "small" is the recurrent one with 8 bits per weight."""
    place = tmp_path_factory.mktemp("pages")
    folder = runs["pictures"].parent
    inputs = {
        "run": TEXTS,
        "transformer": TEXTS,
        "pictures": [str(folder / f"{index}.png") for index in range(3)],
        "sounds": [str(folder / f"{index}.wav") for index in range(3)],
    }
    pages = {}
    for name, given in inputs.items():
        parity: Parity = dragoman.export_run(runs[name], "page", place / name, inputs=given)
        assert parity.different == 0
        pages[name] = place / name / "page.html"
    dragoman.export_run(runs["run"], "page", place / "small", inputs=TEXTS, int8=True)
    return {**pages, "small": place / "small" / "page.html"}


@pytest.fixture
def opens(page: Any, exported: dict[str, Path]) -> Opens:
    """Opens a page and waits for its model."""

    def go(name: str) -> Any:
        page.goto(exported[name].as_uri())
        page.locator(".panel").wait_for()
        return page

    return go


def predict(page: Any, text: str) -> None:
    page.get_by_label("Input", exact=True).fill(text)
    page.get_by_role("button", name="Predict").click()
    page.get_by_test_id("results").wait_for()


@pytest.mark.parametrize("name", ["run", "transformer"])
def test_the_page_answers_as_the_run_does(opens: Opens, runs: dict[str, Path], name: str) -> None:
    page = opens(name)
    run = dragoman.load(runs[name])
    for beam in (1, 5):
        found = page.evaluate(
            "async ([texts, beam]) => { const all = [];"
            "for (const text of texts) all.push(await dragoman.search({ source: text }, { beam, nBest: beam }));"
            "return all }",
            [TEXTS, beam],
        )
        for text, outputs in zip(TEXTS, found, strict=True):
            wanted = run.predict(text, beam=beam, n_best=beam).outputs
            assert [output["text"] for output in outputs] == [output.text for output in wanted]
            assert [output["score"] for output in outputs] == pytest.approx([each.score for each in wanted], abs=1e-4)


def test_a_classifier_has_the_probabilities_of_its_classes(page: Any, label_run: Any, tmp_path: Path) -> None:
    inputs = [{"left": "aabab", "right": "babaa"}, {"left": "bbba", "right": "abbb"}]
    dragoman.export_run(label_run.folder, "page", tmp_path, inputs=inputs)
    page.goto((tmp_path / "page.html").as_uri())
    page.get_by_label("left", exact=True).fill("aabab")
    page.get_by_label("right", exact=True).fill("babaa")
    page.get_by_role("button", name="Predict").click()
    wanted = dragoman.load(label_run.folder).predict(inputs[0]).raw_probabilities
    assert wanted is not None
    bars = page.get_by_label("Probabilities of the classes").locator("li")
    bars.first.wait_for()
    assert [bar.locator("bdi").inner_text() for bar in bars.all()] == list(wanted)
    shares = [float(bar.locator(".figure").inner_text().rstrip(" %")) for bar in bars.all()]
    assert shares == pytest.approx([100 * share for share in wanted.values()], abs=0.1)
    assert page.get_by_label("Length normalisation").count() == 0


def test_the_page_does_not_speak_of_a_studio(opens: Opens) -> None:
    page = opens("run")
    page.get_by_text("Nothing is decoded yet").wait_for()
    assert not re.search("studio|files|folder", page.locator("body").inner_text())


def test_nothing_is_asked_for_and_the_policy_forbids_it(page: Any, exported: dict[str, Path]) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(exported["run"].as_uri())
    page.locator(".panel").wait_for()
    predict(page, "abcde")
    page.locator("#tab-tree").click()
    page.locator(".node-detail").wait_for()
    assert [url for url in asked if not url.startswith("blob:")] == [exported["run"].as_uri()]
    refused = page.evaluate("fetch('https://example.org/').then(() => 'sent', () => 'refused')")
    assert refused == "refused"
    added = "() => { const one = document.createElement('script'); one.textContent = 'window.ran = true';"
    assert page.evaluate(f"{added} document.head.append(one); return window.ran ?? false }}") is False
    policy = page.locator("meta[http-equiv]").get_attribute("content")
    assert "default-src 'none'" in policy and "connect-src 'none'" in policy
    assert "'unsafe-inline'" not in re.sub(r"style-src-attr [^;]+", "", policy)


def test_an_alternative_can_be_forced(opens: Opens, runs: dict[str, Path]) -> None:
    page = opens("run")
    predict(page, "abcde")
    assert page.get_by_test_id("best-text").inner_text() == dragoman.load(runs["run"]).predict("abcde").text
    first = page.locator(".steps tbody tr").first
    alternative = next(
        one for one in first.locator("button.alternative").all() if len(one.locator(".piece").inner_text()) == 1
    )
    letter = alternative.locator(".piece").inner_text()
    alternative.click()
    page.locator(".token.forced").first.wait_for()
    assert page.get_by_test_id("best-text").inner_text().startswith(letter)


def test_attention_and_tree_are_shown(opens: Opens, runs: dict[str, Path]) -> None:
    page = opens("transformer")
    predict(page, "abcde")
    page.locator("#tab-attention").click()
    page.get_by_test_id("matrix").wait_for()
    page.locator(".heatmap").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    wanted = dragoman.load(runs["transformer"]).predict("abcde")
    assert wanted.attention is not None
    weight = wanted.attention.mean(1)[0, 1]
    assert float(page.get_by_test_id("weight").inner_text()) == pytest.approx(weight, abs=2e-4)
    page.locator("#tab-tree").click()
    page.locator(".node-detail").wait_for()
    assert page.locator(".tree-body .node.best").count() == len(wanted.tokens)


def test_pictures_and_recordings_are_read_as_the_run_reads_them(opens: Opens, runs: dict[str, Path]) -> None:
    for name, file in (("pictures", "1.png"), ("sounds", "20.wav")):
        path = runs[name].parent / file
        page = opens(name)
        page.locator("input[type=file]").set_input_files(path)
        page.get_by_test_id("results").wait_for()
        wanted = dragoman.load(runs[name]).predict(str(path))
        assert page.get_by_test_id("best-text").inner_text() == wanted.text
        shown = float(
            re.search(r"(?:score|log p)\s+(\S+)", page.locator(".scores").first.inner_text().replace("−", "-"))[1]
        )  # type: ignore[index]
        assert shown == pytest.approx(wanted.score, abs=2e-3)
        page.locator("#tab-attention").click()
        page.locator(".picture, .spectrogram").first.wait_for()


def test_the_page_works_where_no_worker_is_allowed(page: Any, exported: dict[str, Path], tmp_path: Path) -> None:
    without = tmp_path / "page.html"
    without.write_bytes(exported["small"].read_bytes().replace(b"worker-src blob:", b"worker-src 'none'"))
    page.goto(without.as_uri())
    page.locator(".panel").wait_for()
    predict(page, "abc")
    assert page.get_by_test_id("best-text").inner_text()


def test_an_empty_input_and_a_wrong_file_are_told_in_a_sentence(opens: Opens, tmp_path: Path) -> None:
    page = opens("run")
    page.get_by_role("button", name="Predict").click()
    assert "empty" in page.locator(".problem").inner_text()
    (tmp_path / "note.txt").write_text("no picture", encoding="utf-8")
    page = opens("pictures")
    page.locator("input[type=file]").set_input_files(tmp_path / "note.txt")
    assert "note.txt" in page.locator(".problem").inner_text()


def test_everybody_can_use_it(opens: Opens) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm install in studio/")
    page = opens("run")
    predict(page, "abcde")
    page.evaluate(f"() => {{ {AXE.read_text(encoding='utf-8')} }}")
    grave = []
    for width, theme in ((1280, "light"), (400, "dark")):
        page.set_viewport_size({"width": width, "height": 860})
        page.emulate_media(color_scheme=theme)
        for view in ("predict", "attention", "tree"):
            page.locator(f"#tab-{view}").click()
            page.locator({"predict": ".steps", "attention": ".heatmap", "tree": ".node-detail"}[view]).first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, view)
            found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            grave += [
                f"{width} {view} {one['id']}: {node['html'][:160]}"
                for one in found["violations"]
                for node in one["nodes"][:3]
                if one["impact"] in ("serious", "critical")
            ]
    assert not grave, "\n".join(grave)


def test_a_page_is_small(exported: dict[str, Path]) -> None:
    with zipfile.ZipFile(ROOT / "src" / "dragoman" / "export" / "runtime.zip") as archive:
        around = sum(len(archive.read(name)) for name in ("page.js", "engine.js", "page.css"))
    assert around < 150_000
    assert exported["small"].stat().st_size < exported["run"].stat().st_size < 500_000
