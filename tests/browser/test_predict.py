"""The Predict view: what is found, what else was thought of, and what a change of the search does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Predicted = Callable[..., Any]


def words(page: Any) -> str:
    text: str = page.get_by_test_id("best-text").inner_text()
    return text


def test_outputs_and_scores_are_those_of_the_server(predicted: Predicted, studio: Any) -> None:
    page = predicted(text="abcde")
    told = studio.ask("runs/run/predict", {"input": {"source": "abcde"}, "beam": 5, "n_best": 5})
    assert words(page) == told["outputs"][0]["text"]
    others = page.get_by_test_id("output-text").all_inner_texts()
    assert others == [one["text"] or "(empty)" for one in told["outputs"][1:]]
    shown = page.locator(".scores").first.inner_text().replace("−", "-")
    assert f"{told['outputs'][0]['score']:.3f}" in shown
    assert page.locator(".steps tbody tr").count() == len(told["outputs"][0]["tokens"])
    assert page.locator(".token").all_inner_texts() == [one["text"] for one in told["outputs"][0]["tokens"]]


def test_an_alternative_can_be_forced_and_let_go(predicted: Predicted) -> None:
    page = predicted(text="abcde")
    free = words(page)
    third = page.locator(".steps tbody tr").nth(2)
    alternative = next(
        one for one in third.locator("button.alternative").all() if len(one.locator(".piece").inner_text()) == 1
    )
    letter = alternative.locator(".piece").inner_text()
    alternative.click()
    page.locator(".token.forced").nth(2).wait_for()
    assert page.locator(".token.forced").all_inner_texts() == [*free[:2], letter]
    assert words(page).startswith(free[:2] + letter)
    page.get_by_test_id("forced").get_by_role("button").click()
    page.locator(".token.forced").first.wait_for(state="detached")
    assert words(page) == free


def test_a_banned_word_is_never_written(predicted: Predicted) -> None:
    page = predicted(text="abcde")
    letter = words(page)[0]
    page.get_by_label("Never write").fill(letter)
    page.get_by_role("button", name="Ban").click()
    page.get_by_role("button", name=f"Allow {letter} again").wait_for()
    page.wait_for_function(
        "letter => ![...document.querySelectorAll('.token')].some(one => one.textContent === letter)", arg=letter
    )
    assert letter not in words(page) + "".join(page.get_by_test_id("output-text").all_inner_texts())


def test_beam_width_and_normalisation_change_what_is_shown(predicted: Predicted) -> None:
    page = predicted(text="abcde")
    assert page.locator(".outputs li").count() == 5
    page.get_by_label("Beam width").fill("2")
    page.wait_for_function("() => document.querySelectorAll('.outputs li').length === 2")
    assert "score" in page.locator(".scores").first.inner_text()
    page.get_by_label("Length normalisation").select_option("none")
    page.get_by_text("no length normalisation").wait_for()
    assert "score" not in page.locator(".scores").first.inner_text(), (
        "it is the log-probability, which is there already"
    )
    assert "log p" in page.locator(".scores").first.inner_text()


def test_a_beam_of_no_width_is_refused(predicted: Predicted) -> None:
    page = predicted(text="abcde")
    page.get_by_label("Beam width").fill("0")
    assert "from 1 to 100; 5 is used" in page.get_by_role("alert").inner_text()
    assert page.get_by_label("Beam width").input_value() == "0"
    assert page.locator(".outputs li").count() == 5
    page.get_by_label("Beam width").fill("2")
    page.wait_for_function("() => document.querySelectorAll('.outputs li').length === 2")
    assert page.get_by_role("alert").count() == 0


def test_bars_say_what_they_measure(predicted: Predicted) -> None:
    page = predicted(text="abcde")
    most = max(float(cell.inner_text()) for cell in page.locator(".steps td.entropy").all())
    shown = page.locator(".steps thead").inner_text()
    assert f"a full bar is {max(1, most):.2f}" in shown


@pytest.mark.parametrize(
    "text",
    ['<img src=x onerror="window.broken=1"><b>a</b>&amp;', "שלום abc עולם", "👩‍👩‍👧 a 🏳️‍🌈", "abcdefgh " * 555],
    ids=["html", "right to left", "emoji", "5000 characters"],
)
def test_any_text_is_shown_as_it_is(predicted: Predicted, text: str) -> None:
    page = predicted(text=text)
    assert page.locator("#source-source").input_value() == text
    assert page.evaluate("window.broken") is None
    assert page.locator("main img, main b:has(*)").count() == 0
    page.locator("#tab-attention").click()
    page.get_by_test_id("matrix").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    strip = page.locator(".strip .tokens").first.inner_text().replace("\n", "")
    assert strip.removesuffix("</s>").replace("▁", " ").replace("␣", " ").strip()


def test_a_mistake_is_told_in_a_sentence(predicted: Predicted) -> None:
    page = predicted(text="abcde")
    page.route(
        re.compile(r"/predict$"), lambda route: route.fulfill(status=400, json={"error": "beam: too <b>wide</b>"})
    )
    page.get_by_role("button", name="Predict").click()
    page.get_by_role("alert").wait_for()
    assert "beam: too <b>wide</b>" in page.get_by_role("alert").inner_text()


def test_a_picture_can_be_dropped(page: Any, studio: Any, runs: dict[str, Path]) -> None:
    page.goto(f"{studio.address}#predict/pictures")
    picture = next(iter(sorted(runs["pictures"].parent.glob("*.png"))))
    data = page.evaluate_handle(
        """bytes => { const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(bytes)], 'box.png', {type: 'image/png'})); return data; }""",
        list(picture.read_bytes()),
    )
    page.get_by_test_id("drop-source").dispatch_event("drop", {"dataTransfer": data})
    page.locator("[data-testid=results][data-input^=upload-]").wait_for()
    assert page.locator(".preview img").evaluate("one => one.naturalWidth") == 24
    page.locator("#tab-attention").click()
    tokens = page.locator(".film button")
    tokens.first.wait_for()
    tokens.first.hover()
    page.get_by_text(re.compile("on a region")).wait_for()
    assert page.locator(".picture figure canvas").is_visible()


def test_what_the_microphone_hears_is_predicted(page: Any, studio: Any) -> None:
    page.goto(f"{studio.address}#predict/sounds")
    page.get_by_role("button", name="Record").click()
    page.get_by_role("button", name="Stop").wait_for()
    page.wait_for_timeout(1500)
    page.get_by_role("button", name="Stop").click()
    page.locator("[data-testid=results][data-input^=upload-]").wait_for()
    page.get_by_role("button", name="Record").wait_for()
    assert "recording.wav" in page.locator(".preview").inner_text()
    page.wait_for_function("() => document.querySelector('.preview audio').duration > 0.5")
    page.locator("#tab-attention").click()
    page.locator(".sound canvas").first.wait_for()
    page.get_by_test_id("matrix").wait_for()


def test_a_microphone_that_is_refused_is_told(page: Any, studio: Any) -> None:
    page.add_init_script("navigator.mediaDevices.getUserMedia = () => Promise.reject(new Error('refused'))")
    go_on = hold_back(page, "**/examples")
    page.goto(f"{studio.address}#predict/sounds")
    page.get_by_role("button", name="Record").click()
    page.get_by_role("alert").wait_for()
    go_on()
    page.get_by_test_id("took").wait_for()  # the first view decodes a row by itself
    assert "microphone cannot be used" in page.get_by_role("alert").inner_text()


def test_a_refused_file_is_told_until_the_person_acts(page: Any, studio: Any, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("no sound", encoding="utf-8")
    go_on = hold_back(page, "**/examples")
    page.route("**/upload?*", lambda route: route.fulfill(status=413, json={"error": "note.txt is too large"}))
    page.goto(f"{studio.address}#predict/sounds")
    page.locator(".drop input[type=file]").set_input_files(tmp_path / "note.txt")
    page.locator(".problem").wait_for()
    go_on()
    page.get_by_test_id("took").wait_for()  # the first view decodes a row by itself
    assert "note.txt" in page.locator(".problem").inner_text()
    page.get_by_role("button", name="Predict").click()
    page.locator(".problem").wait_for(state="detached")


def hold_back(page: Any, pattern: str) -> Callable[[], None]:
    """Hold back the requests of a page until the function that is returned is called."""
    held: list[Any] = []
    page.route(pattern, lambda route: held.append(route))

    def go_on() -> None:
        for route in held:
            route.continue_()
        page.unroute(pattern)

    return go_on


def test_the_page_adds_little_to_the_decoding(predicted: Predicted) -> None:
    page = predicted(text="abcde")  # the first time the model is loaded
    beyond = []
    for text in ("abcd", "bcdef", "cdefgh"):
        page.get_by_label("Input", exact=True).fill(text)
        before = page.get_by_test_id("took").get_attribute("data-took")
        page.get_by_role("button", name="Predict").click()
        page.wait_for_function(
            "before => document.querySelector('[data-testid=took]').dataset.took !== before", arg=before
        )
        took, seconds = page.get_by_test_id("took").evaluate("one => [+one.dataset.took, +one.dataset.seconds]")
        beyond.append(took - 1000 * seconds)
    print("beyond the decoding, ms:", [round(one) for one in beyond])
    assert min(beyond) < 300


def test_the_first_view_is_there_soon(page: Any, studio: Any) -> None:
    page.goto(studio.address)
    page.get_by_label("Input", exact=True).wait_for()
    page.reload()
    page.get_by_label("Input", exact=True).wait_for()
    took = page.evaluate(
        "performance.getEntriesByType('paint').find(one => one.name === 'first-contentful-paint').startTime"
    )
    print("first view, ms:", round(took))
    assert took < 2000
