"""What the page shows is in its address: nothing is lost by going back, changing the run or reloading."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import expect

Predicted = Callable[..., Any]


def values(page: Any) -> dict[str, str]:
    return {name: found[0] for name, found in parse_qs(urlsplit(page.url).fragment.partition("?")[2]).items()}


def test_the_first_view_shows_a_decoded_dev_row(page: Any, studio: Any) -> None:
    offered = studio.ask("runs/run/examples")
    page.goto(studio.address)
    page.get_by_test_id("results").wait_for()
    expect(page.get_by_label("Input", exact=True)).to_have_value(offered[0]["source"]["source"])
    expect(page.get_by_role("textbox", name="Reference")).to_have_value(offered[0]["target"])
    expect(page.locator(".verdict")).to_be_visible()
    page.get_by_label("Example from the dev rows").select_option("1")
    expect(page.get_by_label("Input", exact=True)).to_have_value(offered[1]["source"]["source"])
    expect(page.get_by_test_id("results")).to_have_attribute("data-input", offered[1]["source"]["source"])


def test_a_first_view_without_rows_to_try_says_why(page: Any, serves: Any, tiny_run: Any, tmp_path: Any) -> None:
    """The files of the data may be gone, or named relative to another folder."""
    from dragoman.training.run import train

    settings = tiny_run.settings | {"training": tiny_run.settings["training"] | {"max_updates": 2}}
    pairs = Path(shutil.copy(tiny_run.pairs, tmp_path / "pairs.tsv"))
    train(pairs, out=tmp_path / "run", settings=settings)
    pairs.unlink()
    with serves(tmp_path / "run") as studio:
        page.goto(studio.address)
        expect(page.get_by_text("Nothing is decoded yet")).to_be_visible()
        expect(page.get_by_text("the files of this run's data were not found")).to_be_visible()


def test_a_run_from_memory_says_that_no_rows_are_kept(page: Any, serves: Any, label_run: Any) -> None:
    with serves(label_run.folder) as studio:
        page.goto(studio.address)
        expect(
            page.get_by_text("There are no dev rows to choose from, because this run was trained on a table in memory")
        ).to_be_visible()
        expect(page.get_by_text("not found")).to_have_count(0)
        page.locator("#tab-errors").click()
        expect(page.get_by_text("This run was trained on a table in memory")).to_be_visible()
        page.locator("#tab-map").click()
        expect(page.get_by_text("This run was trained on a table in memory")).to_be_visible()


def test_a_typed_input_is_decoded(page: Any, studio: Any) -> None:
    page.goto(f"{studio.address}#predict/run")
    page.get_by_test_id("best-text").wait_for()  # of the example that is shown first
    page.get_by_label("Input", exact=True).fill("hgfed")
    page.get_by_role("button", name="Predict").click()
    expect(page.get_by_test_id("results")).to_have_attribute("data-input", "hgfed")


def test_input_and_settings_survive_another_run_and_a_reload(predicted: Predicted) -> None:
    page = predicted(text="abcde", reference="edcba")
    page.get_by_label("Beam width").fill("3")
    expect(page.locator(".outputs li")).to_have_count(3)
    page.locator(".run-choice select").select_option("transformer")
    expect(page.get_by_test_id("results")).to_be_visible()
    page.locator(".run-choice select").select_option("run")
    for again in (False, True):
        if again:
            page.reload()
        expect(page.get_by_label("Input", exact=True)).to_have_value("abcde")
        expect(page.get_by_role("textbox", name="Reference")).to_have_value("edcba")
        expect(page.get_by_label("Beam width")).to_have_value("3")
        expect(page.locator(".outputs li")).to_have_count(3)


def test_looking_inside_a_row_and_back_keeps_the_table(page: Any, studio: Any) -> None:
    page.goto(f"{studio.address}#errors/run")
    page.get_by_role("button", name="Measure").click()
    page.get_by_label("wrong only").check()
    page.get_by_role("button", name="Length").click()
    rows = page.get_by_test_id("rows-shown")
    shown = rows.inner_text()
    page.get_by_role("button", name=re.compile("Look inside")).nth(1).click()
    expect(page.get_by_test_id("results")).to_be_visible()
    inside = page.get_by_label("Input", exact=True).input_value()
    expect(page.locator("#tab-predict")).to_be_focused()
    measured: list[str] = []
    page.on("request", lambda request: request.url.endswith("/errors") and measured.append(request.url))
    page.go_back()
    expect(rows).to_have_text(shown)
    expect(page.get_by_label("wrong only")).to_be_checked()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Length")
    expect(page.locator("table.errors tr.on .text").first).to_have_text(inside)
    assert not measured  # the table is still there
    page.locator("#tab-predict").click()
    expect(page.get_by_label("Input", exact=True)).to_have_value(inside)
    page.go_back()
    page.reload()
    expect(rows).to_have_text(shown)


def test_a_ban_does_not_follow_into_the_row_of_a_table(page: Any, studio: Any) -> None:
    """A row that is looked into is shown as it was measured."""
    page.goto(f"{studio.address}#errors/run?rows=own")
    page.get_by_role("button", name=re.compile("Look inside")).nth(0).click()
    expect(page.get_by_test_id("results")).to_be_visible()
    page.locator("#ban").fill("a")
    page.get_by_role("button", name="Ban", exact=True).click()
    expect(page.get_by_role("button", name="Allow a again")).to_have_count(1)
    page.get_by_role("button", name="Back to Errors").click()
    page.get_by_role("button", name=re.compile("Look inside")).nth(1).click()
    expect(page.get_by_test_id("results")).to_be_visible()
    expect(page.get_by_role("button", name="Allow a again")).to_have_count(0)


def test_a_row_that_is_looked_into_is_named_and_in_sight(page: Any, studio: Any) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(f"{studio.address}#errors/run?rows=own")
    button = page.get_by_role("button", name=re.compile("Look inside")).nth(2)
    line = re.sub(r"\D", "", button.get_attribute("aria-label") or "")
    button.click()
    expect(page.get_by_test_id("results")).to_be_visible()
    expect(page.locator(".from")).to_contain_text(f"This is line {line}.")
    expect(page.locator(".from")).to_be_in_viewport()
    expect(page.locator(".outputs")).to_be_in_viewport()
    page.get_by_role("button", name="Back to Errors").click()
    expect(page.locator("table.errors tr.on")).to_be_visible()
    page.locator("#tab-predict").click()
    page.get_by_label("Input", exact=True).fill("hgfed")
    expect(page.locator(".from")).to_have_count(0)


def test_rows_are_named_by_what_they_are(page: Any, studio: Any) -> None:
    def rename(route: Any) -> None:
        overview = route.fetch().json()
        overview["runs"][0]["held_out"] = "dev"
        route.fulfill(json=overview)

    page.route(re.compile(r"/api/runs$"), rename)
    page.goto(f"{studio.address}#errors/run")
    expect(page.get_by_label("Rows", exact=True)).to_contain_text("the run's own dev rows (it has no test rows)")
    page.goto(f"{studio.address}#errors/transformer")
    expect(page.get_by_label("Rows", exact=True)).to_contain_text("the run's own test rows")


def test_a_mistyped_path_can_be_corrected(page: Any, studio: Any, tiny_run: Any) -> None:
    page.goto(f"{studio.address}#errors/run")
    page.get_by_label("Rows", exact=True).select_option(label="a path…")
    path = page.get_by_label("Path of the file")
    path.fill(str(tiny_run.pairs.with_name("pears.tsv")))
    page.get_by_role("button", name="Measure").click()
    for again in (False, True):
        if again:
            page.reload()
        expect(page.get_by_role("alert")).to_contain_text("pears.tsv")
        expect(page.get_by_label("Rows", exact=True)).to_contain_text("a path…")
        expect(path).to_have_value(re.compile("pears.tsv$"))
    path.fill(str(tiny_run.pairs))
    path.press("Enter")
    expect(page.get_by_test_id("rows-shown")).to_be_visible()


def test_a_run_that_is_not_there_is_not_replaced_by_another(page: Any, studio: Any) -> None:
    page.goto(f"{studio.address}#errors/nosuchrun?rows=dt.tsv")
    expect(page.get_by_text("There is no run “nosuchrun” here")).to_be_visible()
    expect(page.get_by_role("tab")).to_have_count(0)
    page.get_by_role("button", name="transformer").click()
    expect(page.locator("#tab-errors")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".run-choice select")).to_have_value("transformer")


def test_an_uploaded_picture_survives_a_reload(page: Any, studio: Any, runs: dict[str, Any]) -> None:
    page.goto(f"{studio.address}#predict/pictures")
    expect(page.locator(".preview img")).to_be_visible()  # of a dev row
    page.get_by_label("File for source").set_input_files(runs["pictures"].parent / "3.png")
    expect(page.locator(".preview")).to_contain_text("3.png")
    expect(page.get_by_test_id("results")).to_have_attribute("data-input", re.compile("^upload-"))
    page.reload()
    expect(page.locator(".preview")).to_contain_text("3.png")
    assert values(page)["input"].startswith("upload-")


def test_a_new_run_in_a_watched_folder_appears(page: Any, serves: Any, tiny_run: Any, tmp_path: Any) -> None:
    shutil.copytree(tiny_run.folder, tmp_path / "runs" / "first")
    page.clock.install()
    with serves(tmp_path / "runs") as studio:
        page.goto(f"{studio.address}#training")
        page.locator(".run-states").wait_for()
        shutil.copytree(tiny_run.folder, tmp_path / "runs" / "second")
        page.clock.run_for(6000)
        expect(page.locator(".run-choice select option")).to_have_text(["first", "second"])
