"""Training, Errors and Map: runs as they train, what they get wrong, what lies close."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import expect

Predicted = Callable[..., Any]


def test_curves_of_several_runs_lie_over_each_other(page: Any, studio: Any) -> None:
    page.goto(f"{studio.address}#training/run")
    page.get_by_test_id("chart-Loss").wait_for()
    told = sum(
        len(studio.ask(f"runs/{run}/training")[kind])
        for run in ("run", "transformer", "pictures", "sounds")
        for kind in ("stepped", "validated")
    )
    page.wait_for_function(
        "told => +document.querySelector('[data-testid=chart-Loss]').dataset.points === told", arg=told
    )
    for title in ("Dev score", "Learning rate", "Throughput", "Gradient norm"):  # a metric each has a chart of its own
        expect(page.locator(f"[data-testid^='chart-{title}'] polyline")).to_have_count(4)
    page.get_by_label("Show transformer").uncheck()
    page.wait_for_function(
        "() => document.querySelectorAll('[data-testid=\"chart-Throughput\"] polyline').length === 3"
    )
    page.get_by_test_id("chart-Throughput").locator("svg").hover(position={"x": 200, "y": 80})
    assert "at update" in page.get_by_test_id("chart-Throughput").inner_text()


def test_audit_and_settings_are_shown(page: Any, studio: Any) -> None:
    page.goto(f"{studio.address}#training/run")
    page.get_by_text("rows to train on").wait_for()
    page.get_by_text("Settings", exact=True).click()
    page.get_by_label("Find").fill("decoder.width")
    row = page.locator("table tr", has_text="decoder.width")
    assert row.locator("td").inner_text() == "32"


def test_a_curve_grows_while_a_run_trains(
    page: Any,
    tmp_path: Path,
    pairs_file: Callable[..., Path],
    environment: dict[str, str],
    tiny_settings: dict[str, Any],
    as_flags: Any,
    serves: Any,
) -> None:
    pairs = pairs_file(tmp_path / "pairs.tsv", rows=400)
    settings = {**tiny_settings, "training": {**tiny_settings["training"], "max_updates": 100_000, "log_every": 2}}
    command = [
        sys.executable,
        "-m",
        "dragoman",
        "train",
        str(pairs),
        "--out",
        str(tmp_path / "live"),
        *as_flags(settings),
    ]
    with open(tmp_path / "said", "wb") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
        try:
            metrics = tmp_path / "live" / "metrics.jsonl"
            until = time.monotonic() + 90
            while not metrics.exists() and time.monotonic() < until and process.poll() is None:
                time.sleep(0.2)
            assert metrics.exists(), (tmp_path / "said").read_text()
            with serves(tmp_path / "live") as studio:
                page.goto(f"{studio.address}#training")
                chart = page.get_by_test_id("chart-Loss")
                chart.wait_for()
                before = int(chart.get_attribute("data-points"))
                page.wait_for_function(
                    "before => +document.querySelector('[data-testid=chart-Loss]').dataset.points > before + 3",
                    arg=before,
                )
        finally:
            process.terminate()
            process.wait(60)


def test_errors_are_sorted_and_filtered(page: Any, studio: Any, tiny_run: Any) -> None:
    page.goto(f"{studio.address}#errors/run")
    page.get_by_role("button", name="Measure").click()
    page.locator("table.errors").wait_for()
    told = studio.ask("runs/run/errors", {})
    count = len(told["rows"])
    assert page.get_by_test_id("rows-shown").inner_text() == f"{count} of {count} rows"
    page.get_by_role("button", name="Length").click()
    lengths = [row["source_length"] for row in told["rows"]]
    column = page.locator("table.errors tbody tr td:nth-last-child(3)")
    assert [int(one) for one in column.all_inner_texts()] == sorted(lengths)[:100]
    page.get_by_role("button", name="Length").click()
    assert [int(one) for one in column.all_inner_texts()] == sorted(lengths, reverse=True)[:100]
    page.get_by_label("wrong only").check()
    wrong = sum(not row["correct"] for row in told["rows"])
    assert page.get_by_test_id("rows-shown").inner_text() == f"{wrong} of {count} rows"
    page.get_by_label("Source length: at most").fill("3")
    short = sum(not row["correct"] and row["source_length"] <= 3 for row in told["rows"])
    assert page.get_by_test_id("rows-shown").inner_text() == f"{short} of {count} rows"
    page.get_by_label("Source length: at most").fill("")
    assert page.locator("table.errors del, table.errors ins").count() > 0
    source = page.locator("table.errors .text").first.inner_text()
    page.get_by_role("button", name=re.compile("Look inside")).first.click()
    page.get_by_test_id("results").wait_for()
    assert page.get_by_label("Input", exact=True).input_value() == source
    assert page.locator(".verdict").count() == 1


def test_a_classifier_is_shown_as_one(page: Any, serves: Any, label_run: Any) -> None:
    with serves(label_run.folder) as studio:
        page.goto(f"{studio.address}#predict/labels?input.left=aabab&input.right=babaa")
        told = studio.ask("runs/labels/predict", {"input": {"left": "aabab", "right": "babaa"}})["classes"]
        bars = page.get_by_label("Probabilities of the classes").locator("li")
        expect(bars).to_have_count(2)
        assert [bar.locator("bdi").inner_text() for bar in bars.all()] == [one["label"] for one in told]
        shares = [float(bar.locator(".figure").inner_text().rstrip(" %")) for bar in bars.all()]
        assert shares == pytest.approx([100 * one["probability"] for one in told], abs=0.06)
        expect(page.get_by_label("Length normalisation")).to_have_count(0)
        page.goto(f"{studio.address}#errors/labels?rows={label_run.pairs}")
        expect(page.get_by_label("Scores of the classes").locator("tbody tr")).to_have_count(2)
        expect(page.get_by_text("Macro F1")).to_be_visible()
        expect(page.get_by_label("accuracy: at least")).to_have_count(0)
        expect(page.locator("table.errors thead")).not_to_contain_text("accuracy")
        cell = page.get_by_label("Confusion matrix").get_by_role("button").first
        count = cell.inner_text()
        cell.click()
        expect(page.get_by_test_id("rows-shown")).to_have_text(re.compile(f"^{count} of"))
        page.get_by_role("button", name="Show the rows of all classes").click()
        expect(page.get_by_test_id("rows-shown")).not_to_have_text(re.compile(f"^{count} of"))


def test_two_runs_are_compared(page: Any, studio: Any) -> None:
    page.goto(f"{studio.address}#errors/run")
    page.get_by_text("two runs side by side").click()
    expect(page.locator(".compare-with option")).to_have_text(["transformer"])  # not those that read files
    page.get_by_role("button", name="Compare").click()
    page.get_by_test_id("comparison").wait_for(timeout=60_000)
    told = studio.ask("compare", {"a": "run", "b": "transformer"})
    first = told["scores"][0]
    row = page.locator("table.compared tbody tr").first.inner_text().replace("−", "-")
    assert first["metric"]["label"] in row and first["verdict"] in row
    assert f"{first['difference']:.2f}" in row
    assert f"{told['wins']} of {told['count']}" in page.locator(".outcome").inner_text()


def test_the_map_is_read_by_hovering_and_neighbours_are_found(page: Any, studio: Any) -> None:
    page.goto(f"{studio.address}#map/run")
    scatter = page.get_by_test_id("scatter")
    scatter.wait_for(timeout=60_000)
    told = studio.ask("runs/run/map", {"n": 500})
    dots = page.locator(".dots circle")
    assert dots.count() == len(told["points"])
    box, dot = scatter.bounding_box(), dots.nth(7).bounding_box()
    scatter.hover(position={"x": dot["x"] - box["x"] + dot["width"] / 2, "y": dot["y"] - box["y"] + dot["height"] / 2})
    read = page.get_by_test_id("point").inner_text()
    assert any(point["source"]["source"] in read and point["target"] in read for point in told["points"])
    known = told["points"][3]["source"]["source"]
    page.get_by_label("Input", exact=True).fill(known)
    page.get_by_role("button", name="Find").click()
    nearest = page.get_by_test_id("neighbours").locator("li")
    nearest.first.wait_for()
    assert known in nearest.first.inner_text() and nearest.count() == 10


def test_the_map_has_another_layout(page: Any, studio: Any) -> None:
    if importlib.util.find_spec("umap") is None:
        pytest.skip("umap-learn is not installed")
    page.goto(f"{studio.address}#map/run")
    page.get_by_label("Points").fill("20")
    dots = page.locator(".dots circle")
    page.wait_for_function("() => document.querySelectorAll('.dots circle').length === 20")
    page.get_by_text("of the variance").wait_for()
    before = dots.first.get_attribute("cx"), dots.first.get_attribute("cy")
    with page.expect_response(re.compile(r"/map$"), timeout=300_000) as answered:
        page.get_by_text("UMAP", exact=True).click()
    told = answered.value.json()
    assert told["layout"] == "umap" and told["explained"] is None
    page.get_by_text("neighbours stay close").wait_for()
    assert dots.count() == 20 and (dots.first.get_attribute("cx"), dots.first.get_attribute("cy")) != before
    page.get_by_label("Input", exact=True).fill(told["points"][3]["source"]["source"])
    page.get_by_role("button", name="Find").click()
    page.get_by_test_id("neighbours").locator("li").first.wait_for(timeout=120_000)
    assert page.locator(".scatter .own:not(.halo)").count() == 1
