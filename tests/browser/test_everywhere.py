"""What holds for every view: it can be reached and read by everybody, light and dark, wide and narrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
VIEWS = ("predict", "attention", "tree", "training", "errors", "map")
AXE = ROOT / "studio" / "node_modules" / "axe-core" / "axe.min.js"


def open_filled(page: Any, studio: Any, view: str, run: str = "run") -> None:
    """Open a view with something in it."""
    tab = "errors" if view == "compare" else view
    more = "&two=1&compared=own&against=transformer" if view == "compare" else ""
    page.goto(f"{studio.address}#{tab}/{run}?input=abcde&reference=hgf&rows=own{more}")
    if view == "map":
        page.get_by_test_id("scatter").wait_for()
        page.get_by_role("button", name="Find").click()
    ready = {
        "predict": ".steps", "attention": "[data-testid=matrix]", "tree": ".node-detail", "training": ".audit",
        "errors": "table.errors", "compare": "[data-testid=comparison]", "map": "[data-testid=neighbours]",
    }  # fmt: skip
    page.locator(ready[view]).first.wait_for()


@pytest.fixture(scope="module")
def axe() -> str:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm install in studio/")
    return AXE.read_text(encoding="utf-8")


@pytest.mark.parametrize("view", [*VIEWS, "compare"])
def test_nothing_is_out_of_reach(page: Any, studio: Any, view: str, axe: str) -> None:
    """Wide and narrow, light and dark; a narrow window is also not to be scrolled sideways."""
    open_filled(page, studio, view, "transformer" if view == "attention" else "run")
    page.evaluate(axe)
    grave = []
    for width in (1280, 400):
        page.set_viewport_size({"width": width, "height": 860})
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            grave += [
                f"{width} {theme} {one['id']} ({one['impact']}): {node['html'][:160]} {node.get('failureSummary', '')}"
                for one in found["violations"]
                for node in one["nodes"][:3]
                if one["impact"] in ("serious", "critical")
            ]
    assert not grave, "\n".join(grave)


@pytest.mark.parametrize("view", [*VIEWS, "compare"])
def test_a_narrow_window_needs_no_scrolling_sideways(page: Any, studio: Any, view: str) -> None:
    open_filled(page, studio, view)
    for width in (1000, 400):
        page.set_viewport_size({"width": width, "height": 700})
        page.wait_for_function("() => document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_a_comparison_can_be_read_on_a_phone(page: Any, studio: Any) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(f"{studio.address}#errors/run?two=1&compared=own")
    cell = page.locator(".compared td[data-label=Result]").first
    cell.wait_for()
    box = cell.bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 400
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_views_are_reached_by_keyboard(page: Any, studio: Any) -> None:
    page.goto(studio.address)
    page.locator("#tab-predict").focus()
    for view in (*VIEWS[1:], VIEWS[0]):
        page.keyboard.press("ArrowRight")
        page.wait_for_function(
            "name => document.activeElement.id === name && document.activeElement.ariaSelected === 'true'",
            arg=f"tab-{view}",
        )


def test_colours_can_be_switched_and_are_kept(page: Any, studio: Any) -> None:
    page.goto(studio.address)
    colour = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(colour)
    page.get_by_label("Colours").select_option("dark")
    dark = page.evaluate(colour)
    assert dark != light
    page.reload()
    page.get_by_label("Colours").wait_for()
    assert page.evaluate(colour) == dark


def test_a_view_without_a_prediction_says_what_to_do(page: Any, studio: Any) -> None:
    page.route("**/examples", lambda route: route.fulfill(json=[]))
    page.goto(f"{studio.address}#tree/run")
    page.get_by_role("button", name="Predict", exact=True).click()
    page.get_by_label("Input", exact=True).wait_for()


def test_a_studio_that_has_gone_is_told(page: Any, studio: Any) -> None:
    page.goto(f"{studio.address}#predict/run")
    page.get_by_test_id("best-text").wait_for()  # of the example that is shown first
    page.get_by_label("Input", exact=True).fill("abc")
    page.route("**/api/**", lambda route: route.abort())
    page.get_by_role("button", name="Predict").click()
    page.get_by_role("alert").wait_for()
    assert "does not answer" in page.get_by_role("alert").inner_text()
