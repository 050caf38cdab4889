"""Attention and the beam tree: what the page shows is what the model did."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Predicted = Callable[..., Any]


def decoded(matrix: dict[str, Any]) -> np.ndarray:
    kind, most = {"uint16": ("<u2", 65535), "uint8": ("u1", 255)}[matrix["encoding"]]
    flat = np.frombuffer(base64.b64decode(matrix["data"]), kind) / most
    return flat.reshape(matrix["maps"], matrix["rows"], matrix["columns"])


def hover(page: Any, row: int, column: int) -> str:
    canvas = page.get_by_test_id("matrix")
    across, down = (int(one) for one in canvas.get_attribute("data-cell").split("x"))
    canvas.hover(position={"x": across * (column + 0.5), "y": down * (row + 0.5)})
    text: str = page.get_by_test_id("weight").inner_text()
    return text


def test_a_hovered_cell_has_the_weight_of_the_returned_output(predicted: Predicted, studio: Any) -> None:
    page = predicted("attention", text="abcde")
    page.get_by_test_id("matrix").wait_for()
    told = studio.ask("runs/run/predict", {"input": {"source": "abcde"}, "beam": 5, "n_best": 5})
    tokens = [one["id"] for one in told["outputs"][0]["tokens"]]
    maps = studio.ask("runs/run/attention", {"input": {"source": "abcde"}, "tokens": tokens})
    weights = decoded(maps["average"])[0]
    for row, column in [(0, 0), (2, 1), (len(tokens) - 1, 4)]:
        assert float(hover(page, row, column)) == pytest.approx(weights[row, column], abs=6e-5)
    assert np.allclose(decoded(told["outputs"][0]["attention"])[0], weights, atol=1e-3)


def test_heads_and_their_means(predicted: Predicted, studio: Any) -> None:
    page = predicted("attention", text="abcde", run="transformer")
    page.get_by_test_id("matrix").wait_for()
    told = studio.ask("runs/transformer/predict", {"input": {"source": "abcde"}, "beam": 5, "n_best": 5})
    tokens = [one["id"] for one in told["outputs"][0]["tokens"]]
    maps = decoded(studio.ask("runs/transformer/attention", {"input": {"source": "abcde"}, "tokens": tokens})["maps"])
    assert len(maps) == 8
    page.get_by_role("radio", name="layer 2, head 3", exact=True).click()
    assert float(hover(page, 0, 1)) == pytest.approx(maps[4 + 2][0, 1], abs=6e-5)
    page.get_by_role("radio", name="layer 1, mean of the heads").click()
    assert float(hover(page, 0, 1)) == pytest.approx(maps[:4, 0, 1].mean(), abs=1e-4)
    page.get_by_role("radio", name="layer 1, mean of the heads").press("ArrowLeft")
    assert page.get_by_role("radio", name="layer 1, head 4").get_attribute("aria-checked") == "true"
    page.get_by_text("source → source").click()
    page.wait_for_function("() => document.querySelectorAll('.strip').length === 2")
    page.locator(".strip > .hint", has_text="attended").wait_for()
    own = studio.ask("runs/transformer/attention", {"input": {"source": "abcde"}, "tokens": tokens, "which": "encoder"})
    page.get_by_test_id("matrix").wait_for()
    assert float(hover(page, 1, 2)) == pytest.approx(decoded(own["average"])[0, 1, 2], abs=6e-5)


def test_any_other_output_has_its_own_attention(predicted: Predicted, studio: Any) -> None:
    page = predicted("attention", text="abcde")
    page.get_by_test_id("matrix").wait_for()
    told = studio.ask("runs/run/predict", {"input": {"source": "abcde"}, "beam": 5, "n_best": 5})["outputs"][3]
    with page.expect_response(lambda answer: answer.url.endswith("/attention")) as answered:
        page.locator(".toolbar select").select_option("3")
    maps = answered.value.json()
    assert maps["rows"] == [one["text"] for one in told["tokens"]]
    page.wait_for_function(
        "text => document.querySelectorAll('.strip')[1].innerText.includes(text)", arg=told["tokens"][0]["text"]
    )
    assert float(hover(page, 0, 0)) == pytest.approx(decoded(maps["average"])[0, 0, 0], abs=6e-5)


def test_a_pruned_node_has_the_score_of_the_trace(predicted: Predicted, runs: dict[str, Path]) -> None:
    from dragoman import load

    page = predicted("tree", text="abcde")
    pruned = page.locator('.tree .node[data-fate="pruned"][data-step="2"]').first
    pruned.wait_for()
    pruned.click()
    shown = page.get_by_test_id("node").locator("dl")
    total, margin, token = (float(shown.get_attribute(f"data-{name}")) for name in ("total", "margin", "token"))
    trace = load(runs["run"]).predict(["abcde"], beam=5, n_best=5)[0].trace
    assert trace is not None
    frontier = trace.steps[2]
    gone = np.flatnonzero(frontier.fate == 0)
    assert total == pytest.approx(frontier.total[gone[0]], abs=1e-5)
    assert token == frontier.token[gone[0]]
    assert margin == pytest.approx(frontier.total[frontier.fate != 0].min() - frontier.total[gone[0]], abs=1e-5)
    assert f"{total:.4f}" in page.get_by_test_id("node").inner_text().replace("−", "-")


def test_the_reference_is_marked_and_judged(predicted: Predicted) -> None:
    page = predicted("tree", text="abcde", reference="hgfhgf")
    page.locator(".tree .node").first.wait_for()
    assert page.locator(".verdict").inner_text() in ("search error", "model error")
    page.locator("#tab-predict").click()
    found = page.get_by_test_id("best-text").inner_text()
    page.get_by_role("textbox", name="Reference").fill(found)
    page.get_by_role("button", name="Predict").click()
    page.locator(".verdict.good").wait_for()
    page.locator("#tab-tree").click()
    page.locator(".tree .node.reference").first.wait_for()
    assert page.locator(".tree .node.reference").count() == len(found) + 1


def test_the_tree_can_be_walked_with_arrow_keys(predicted: Predicted) -> None:
    page = predicted("tree", text="abcde")
    page.locator('.tree .node[data-step="0"]').nth(1).click()
    page.keyboard.press("ArrowUp")
    first = page.locator('.tree .node[data-step="0"]').first
    page.wait_for_function("one => one.getAttribute('aria-pressed') === 'true'", arg=first.element_handle())
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('.tree .node[aria-pressed=true]').dataset.step === '1'")
