"""One-file pages are one file under 2 MB, load nothing, and contain any text safely."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.evaluation.compare import Comparison
from dragoman.inference.system import System
from dragoman.studio import bundle, page, records

SHELL = """<!doctype html>
<html lang="en"><head><meta charset="utf-8" /><title>Dragoman studio</title>
<script type="module" crossorigin src="./studio.js"></script><link rel="stylesheet" crossorigin href="./studio.css">
</head><body><div id="root"></div></body></html>
"""
NASTY = "</script><script>alert(1)</script><!-- \u2028 & שלום 👩‍👩‍👧 \\u003c"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page bundle as the build makes one, but small."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    with zipfile.ZipFile(folder / "page.zip", "w") as archive:
        archive.writestr("index.html", SHELL)
        archive.writestr("studio.js", r'const close = "</script>", group = /(\d)\1/; // \g<0>')
        archive.writestr("studio.css", 'a::after { content: "</style>" }')
    monkeypatch.setattr(bundle.resources, "files", lambda _: folder)
    return folder


def data_of(html: str) -> records.Page:
    matches = re.findall(r"<script>window\.__DATA__=(.*?)</script>", html, re.DOTALL)
    assert len(matches) == 1
    return records.Page(**json.loads(matches[0]))


def check_alone(html: str) -> None:
    assert len(html.encode()) < 2_000_000
    assert "default-src 'none'" in html and "connect-src" not in html
    assert not re.search(r'\b(src|href)="(?!data:)', html)
    assert html.count("<script") == html.count("</script>") == 2
    assert html.count("<style>") == html.count("</style>") == 1


def test_an_inspected_input_is_one_file(built: Path, tiny_run: Any, recurrent: System) -> None:
    html = page.inspect_page(recurrent, tiny_run.folder, ["abcd", NASTY])
    check_alone(html)
    data = data_of(html)
    assert data.kind == "inspect" and [inspected.prediction.input["source"] for inspected in data.inspected] == [
        "abcd",
        NASTY,
    ]
    first = data.inspected[0]
    assert first.prediction.outputs[0].text == recurrent("abcd") and first.tree is not None
    assert [attention.which for attention in first.attention] == ["cross"]
    assert r"/(\d)\1/; // \g<0>" in html and "alert(1)" not in html.split("<script>window")[0].replace("&lt;", "<x")


def test_a_title_is_escaped(built: Path, tiny_run: Any, recurrent: System) -> None:
    html = page.inspect_page(recurrent, tiny_run.folder, ["<b>ab</b>"])
    assert "<title>run: &lt;b&gt;ab&lt;/b&gt;</title>" in html


def test_what_does_not_fit_goes(built: Path, heads_folder: Path, heads: System) -> None:
    whole = page.inspect_page(heads, heads_folder, ["abcd"])
    data = data_of(whole)
    assert [attention.which for attention in data.inspected[0].attention] == ["cross", "encoder", "decoder"]
    assert all(attention.maps is not None for attention in data.inspected[0].attention)
    less = bundle.write_html(data, max_size=len(whole.encode()) - 10)
    assert all(attention.maps is None and attention.average.data for attention in data_of(less).inspected[0].attention)
    assert data_of(less).inspected[0].tree is not None
    least = data_of(bundle.write_html(data, max_size=1))
    assert least.inspected[0].tree is None and least.inspected[0].prediction.outputs


def test_a_report_describes_the_run(built: Path, tiny_run: Any, recurrent: System) -> None:
    html = page.report_page(tiny_run.folder, recurrent)
    check_alone(html)
    data = data_of(html)
    assert data.training is not None and data.training.stepped and data.audit is not None
    assert data.errors is not None and data.errors.rows and len(data.inspected) == page.REPORT_INPUTS
    assert data.run.evaluation is not None and data.inspected[0].prediction.reference is not None
    assert data_of(page.report_page(tiny_run.folder, recurrent, rows=2)).errors.file.startswith("the first 2 of")  # type: ignore[union-attr]


def test_long_curves_are_thinned_to_their_end() -> None:
    step = records.Stepped(
        update=0, epoch=0, loss=1.0, learning_rate=1.0, gradient_norm=1.0, tokens_per_second=1.0, seconds=1.0,
        gold_share=1.0,
    )  # fmt: skip
    steps = [step.model_copy(update={"update": number}) for number in range(1, 2002)]
    whole = records.Training(run="", offset=0, restarted=False, started=[], stepped=steps, validated=[], stopped=None)
    thin = page._thin_out(whole).stepped
    assert len(thin) <= page.CURVE_POINTS and thin[-1].update == 2001


def test_the_verbs_write_pages(
    built: Path, tiny_run: Any, call: Any, tmp_path: Path, heads_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = call("inspect", tiny_run.folder, "abcd", "hgf", "-o", tmp_path / "page.html")
    assert result.code == 0 and "page:" in result.err
    assert len(data_of((tmp_path / "page.html").read_text(encoding="utf-8")).inspected) == 2
    result = call("report", tiny_run.folder, "-o", tmp_path / "report.html")
    assert result.code == 0
    check_alone((tmp_path / "report.html").read_text(encoding="utf-8"))
    for name in ("page.html", "report.html"):  # for others: nothing of where things lie here
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert not [path for path in (tiny_run.folder, tiny_run.pairs, tmp_path) if str(path.parent) in text]
    result = call("inspect", tiny_run.folder, "abcd", "-o", tmp_path / "still.svg")
    assert result.code == 0 and (tmp_path / "still.svg").read_text(encoding="utf-8").startswith("<svg")
    result = call("inspect", tiny_run.folder, "abcd", "efg", "-o", tmp_path / "still.svg")
    assert result.code == 2 and "one input" in result.err


def test_compare_in_the_terminal(tiny_run: Any, heads_folder: Path, call: Any) -> None:
    result = call("compare", tiny_run.folder, heads_folder, tiny_run.pairs)
    text = result.out.decode()
    assert result.code == 0 and "200 rows" in text and "where they differ most" in text and "B - A" in text
    assert all(metric in text for metric in ("exact match", "character error rate", "perplexity per token"))
    pair = dragoman.compare([tiny_run.folder, heads_folder], tiny_run.pairs)
    assert isinstance(pair, Comparison) and pair.to_text() == text
    narrow = pair.to_text(60).partition("where they differ most")[0]
    assert narrow.count("    B - A  ") == 3 and max(map(len, narrow.splitlines()[4:])) <= 80
    result = call("compare", tiny_run.folder, heads_folder, tiny_run.pairs, "--json")
    comparison = json.loads(result.out)
    assert (comparison["a"], comparison["b"], comparison["count"]) == ("run", "heads", 200)


def test_training_writes_a_report(
    built: Path, tmp_path: Path, pairs_file: Any, call: Any, tiny_settings: dict[str, Any], as_flags: Any
) -> None:
    settings = tiny_settings | {"training": tiny_settings["training"] | {"max_updates": 5}}
    result = call("train", pairs_file(tmp_path / "pairs.tsv"), "--out", tmp_path / "run", *as_flags(settings))
    assert result.code == 0 and b"report: " in result.out
    assert data_of((tmp_path / "run" / "report.html").read_text(encoding="utf-8")).errors is not None


def test_without_the_page_report_says_what_is_missing(
    tiny_run: Any, call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle.resources, "files", lambda _: tmp_path)
    for result in (call("report", tiny_run.folder), call("inspect", tiny_run.folder, "ab", "-o", tmp_path / "x.html")):
        assert result.code == 2 and "make studio" in result.err
