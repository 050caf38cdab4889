"""Pages in one file: the same views, opened from a disk, and nothing asked for."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

LAYERS, HEADS, SIDE = 6, 8, 512

# Keeps every text that the page shows, also what is there for a moment only.
RECORD = """window.seen = []; new MutationObserver(() => window.seen.push(document.body?.innerText ?? ""))
    .observe(document, {childList: true, subtree: true, characterData: true});"""


def seen(page: Any) -> str:
    text: str = page.evaluate("window.seen.join()")
    return text


@pytest.fixture
def alone(page: Any) -> Any:
    """A page at whose end it is seen that it asked for nothing but itself."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    yield page
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == asked[:1]


def test_an_inspected_input_has_all_its_views(alone: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    from dragoman import load
    from dragoman.studio.page import inspect_page

    system = load(runs["transformer"])
    text = "<script>window.broken=1</script>"
    place = tmp_path / "page.html"
    place.write_text(inspect_page(system, runs["transformer"], ["abcde", text]), encoding="utf-8")
    assert place.stat().st_size < 2_000_000
    alone.goto(place.as_uri())
    best = system.predict(["abcde"], n_best=5)[0]
    assert alone.get_by_test_id("best-text").inner_text() == best.text
    alone.locator("#tab-attention").click()
    alone.get_by_role("radio", name="layer 2, head 1", exact=True).click()
    alone.get_by_test_id("matrix").hover(position={"x": 5, "y": 5})
    assert best.attention is not None
    shown = float(alone.get_by_test_id("weight").inner_text())
    assert shown == pytest.approx(best.attention[0, 4, 0], abs=5e-3)  # a page keeps weights in a byte each
    alone.locator("#tab-tree").click()
    alone.locator(".tree .node").nth(10).wait_for()
    alone.locator(".inspected-choice select").select_option("1")
    alone.locator("#tab-predict").click()
    assert alone.locator("h1").inner_text() == text
    assert alone.evaluate("window.broken") is None


def test_a_report_says_why_it_has_no_errors(alone: Any, label_run: Any, tmp_path: Path) -> None:
    from dragoman import load
    from dragoman.studio.page import report_page

    place = tmp_path / "report.html"
    place.write_text(report_page(label_run.folder, load(label_run.folder, engine="torch")), encoding="utf-8")
    alone.add_init_script(RECORD)
    alone.goto(place.as_uri())
    alone.locator(".toolbar").first.wait_for()
    assert "Opening" not in seen(alone)
    alone.get_by_text("This report has no tab of errors: the run was trained on a table in memory").wait_for()
    assert alone.locator("#tab-errors").count() == 0


def test_a_report_has_curves_errors_and_alignments(alone: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    from dragoman import load
    from dragoman.studio.page import report_page

    place = tmp_path / "report.html"
    place.write_text(report_page(runs["run"], load(runs["run"])), encoding="utf-8")
    assert place.stat().st_size < 2_000_000
    alone.goto(place.as_uri())
    alone.get_by_test_id("chart-Loss").locator("polyline").first.wait_for()
    alone.get_by_text("rows to train on").wait_for()
    alone.locator("#tab-errors").click()
    alone.locator("table.errors tbody tr").first.wait_for()
    alone.locator("#tab-attention").click()
    alone.get_by_test_id("matrix").wait_for()


def test_the_report_that_training_names_opens_on_a_machine_without_node(
    alone: Any,
    tmp_path: Path,
    pairs_file: Any,
    environment: dict[str, str],
    tiny_settings: dict[str, Any],
    as_flags: Any,
) -> None:
    settings = tiny_settings | {"training": tiny_settings["training"] | {"max_updates": 6, "log_every": 2}}
    command = [sys.executable, "-m", "dragoman", "train", str(pairs_file(tmp_path / "pairs.tsv", rows=60))]
    (tmp_path / "bin").mkdir()
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "run"), *as_flags(settings)],
        env=environment | {"PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
        check=False,
    )
    named = re.search(r"^report: (.+)$", done.stdout, re.MULTILINE)
    assert named is not None, done.stdout + done.stderr
    alone.goto(Path(named[1]).as_uri())
    alone.get_by_test_id("chart-Loss").locator("svg").wait_for()
    alone.locator("#tab-errors").click()
    alone.locator("table.errors tbody tr").first.wait_for()


def test_no_number_of_a_curve_is_cut_off(alone: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    """The last stands below the end of the curve, which is near the edge."""
    from dragoman import load
    from dragoman.studio.page import report_page

    run = tmp_path / "run"
    shutil.copytree(runs["run"], run)
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    end = max(event["update"] for event in events)
    longer = [event | {"update": event["update"] * 4000 // end} for event in events]
    (run / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in longer), encoding="utf-8")
    place = tmp_path / "report.html"
    place.write_text(report_page(run, load(run)), encoding="utf-8")
    alone.goto(place.as_uri())
    alone.get_by_test_id("chart-Loss").get_by_text("4000", exact=True).wait_for()
    out = alone.evaluate(
        "() => [...document.querySelectorAll('.chart text')].filter((text) => {"
        "  const [own, all] = [text, text.closest('svg')].map((one) => one.getBoundingClientRect());"
        "  return own.left < all.left - 0.5 || own.right > all.right + 0.5; }).map((text) => text.textContent)"
    )
    assert out == []


def test_48_heads_of_512_by_512_are_switched_at_once(alone: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    from dragoman import load
    from dragoman.studio import bundle, page, records
    from dragoman.studio.views.runs import describe_run

    system = load(runs["transformer"])
    made = page.describe_input(system, "abcde", records.PredictRequest(input="abcde"), "transformer")
    chance = np.random.default_rng(0)
    maps = chance.dirichlet(np.full(SIDE, 0.05), (LAYERS * HEADS, SIDE))
    maps /= maps.max()

    def matrix(data: np.ndarray) -> records.Matrix:
        packed = base64.b64encode((data * 255).astype(np.uint8).tobytes()).decode()
        return records.Matrix(maps=len(data), rows=SIDE, columns=SIDE, encoding="uint8", data=packed)

    labels = [f"t{index}" for index in range(SIDE)]
    large = records.Attention(
        which="cross",
        rows=labels,
        columns=labels,
        layers=LAYERS,
        heads=HEADS,
        average=matrix(maps[:1]),
        maps=matrix(maps),
    )
    whole = records.Page(
        kind="inspect", title="large", version="0", run=describe_run(runs["transformer"], "transformer"),
        inspected=[made.model_copy(update={"attention": [large]})],
        training=None, audit=None, settings=None, errors=None, map=None,
    )  # fmt: skip
    place = tmp_path / "large.html"
    place.write_text(bundle.write_html(whole, max_size=10**9), encoding="utf-8")
    alone.goto(place.as_uri())
    alone.locator("#tab-attention").click()
    alone.get_by_test_id("matrix").wait_for()
    took = alone.evaluate(
        """async () => {
            const painted = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
            const took = [];
            for (const head of document.querySelectorAll('.heads [role=radio]')) {
                await painted();
                const began = performance.now();
                head.click();
                await painted();
                took.push(performance.now() - began);
            }
            return took;
        }"""
    )
    print(f"switching of {len(took)} maps: median {np.median(took):.0f} ms, slowest {max(took):.0f} ms")
    assert len(took) == (LAYERS + 1) * (HEADS + 1)
    assert np.median(took) < 100
    matrix_box = alone.get_by_test_id("matrix")
    moved = alone.evaluate(
        """async () => {
            const painted = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
            const canvas = document.querySelector('[data-testid=matrix]');
            const box = canvas.getBoundingClientRect();
            const took = [];
            for (let step = 0; step < 30; step++) {
                await painted();
                const began = performance.now();
                const place = {bubbles: true, clientX: box.left + 10 * step + 5, clientY: box.top + 10 * step + 5};
                canvas.dispatchEvent(new PointerEvent('pointermove', place));
                await painted();
                took.push(performance.now() - began);
            }
            return took;
        }"""
    )
    print(f"hovering: median {np.median(moved):.0f} ms")
    assert matrix_box.is_visible() and np.median(moved) < 50
