"""What is shown can be read: nothing jumps, no word is broken, in every direction of writing, and on paper."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import expect

Predicted = Callable[..., Any]
SHORT: dict[str, Any] = {"training": {"threads": 1, "max_updates": 3, "average": 1}, "decoder": {"width": 16}}


@pytest.fixture(scope="module")
def written(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, serves: Any) -> Any:
    """A studio with a run from right to left and one with two sources of words."""
    from dragoman.training.run import train

    place = tmp_path_factory.mktemp("written")
    letters = "אבגדהוזחטיכלמנסעפצקרשת"
    lines = [f"{a}{b}{a}\t{b}{a}\n" for a in letters[:8] for b in letters[8:14]]
    (place / "letters.tsv").write_text("".join(lines), encoding="utf-8")
    train(place / "letters.tsv", out=place / "letters", settings=SHORT)
    names, places = ("ann", "bob", "eve", "tom"), ("kitchen", "extraordinarily-long-garden", "office")
    rows = [f"{a} {v} to the {b}\twhere is {a}\t{b}\n" for a in names for v in ("went", "ran", "came") for b in places]
    (place / "stories.tsv").write_text("story\tquestion\tanswer\n" + "".join(rows), encoding="utf-8")
    sources = {"data": {"source": ["story", "question"], "target": "answer"}}
    train(place / "stories.tsv", out=place / "stories", settings=SHORT | sources)
    with serves(place / "letters", place / "stories") as studio:
        yield studio


def test_the_matrix_does_not_move_under_the_pointer(predicted: Predicted) -> None:
    page = predicted("attention", text="abcdeabcdeabcde")
    for width in (1280, 1000, 400):
        page.set_viewport_size({"width": width, "height": 900})
        page.mouse.move(0, 0)
        matrix = page.get_by_test_id("matrix")
        expect(page.get_by_test_id("weight")).to_have_count(0)
        before, scrolled = matrix.bounding_box(), page.evaluate("scrollY")
        across, down = (int(one) for one in matrix.get_attribute("data-cell").split("x"))
        last = before["height"] - down / 2
        matrix.hover(position={"x": across / 2, "y": last})
        expect(page.get_by_test_id("readout")).to_contain_text("</s>")
        after = matrix.bounding_box()
        assert (after["x"], after["height"]) == (before["x"], before["height"])
        assert after["y"] + page.evaluate("scrollY") == pytest.approx(before["y"] + scrolled, abs=0.5)


def test_right_to_left_runs_one_way(page: Any, written: Any) -> None:
    page.goto(f"{written.address}#attention/letters?input=אטא")
    matrix = page.get_by_test_id("matrix")
    matrix.wait_for()
    strip = page.locator(".strip .tokens").first
    tokens = strip.locator(".token")
    expect(tokens.first).to_have_text("א")
    places = [one.bounding_box()["x"] for one in tokens.all()]
    assert places == sorted(places, reverse=True)
    labels = page.locator(".column-label")
    assert [one.bounding_box()["x"] for one in labels.all()] == sorted(
        (one.bounding_box()["x"] for one in labels.all()), reverse=True
    )
    expect(tokens.last).to_have_text("</s>")
    assert tokens.last.locator("bdi").evaluate("one => getComputedStyle(one).direction") == "ltr"  # not "<s/>"
    across, down = (int(one) for one in matrix.get_attribute("data-cell").split("x"))
    box = matrix.bounding_box()
    matrix.hover(position={"x": box["width"] - across / 2, "y": down / 2})
    expect(page.get_by_test_id("readout")).to_contain_text("attends to א")
    matrix.hover(position={"x": across / 2, "y": down / 2})
    expect(page.get_by_test_id("readout")).to_contain_text("attends to </s>")
    page.locator("#tab-predict").click()
    end = page.locator(".steps .piece", has_text="</s>").first
    assert end.evaluate("one => one.localName + getComputedStyle(one).direction") == "bdiltr"
    tokens = page.locator(".outputs .token")
    expect(tokens.locator("> bdi")).to_have_count(tokens.count())
    page.locator("#tab-tree").click()
    path = page.locator(".node-detail .path")
    path.wait_for()
    assert path.locator("bdi.piece").count() == path.locator(".piece").count() > 0  # not "<s/>"
    assert path.evaluate("one => getComputedStyle(one).direction") == "rtl"
    page.locator("#tab-attention").click()
    chosen = page.locator(".toolbar select option").first
    expect(chosen).to_have_text(re.compile(r"^1\. \u2068.+\u2069 \(−[\d.]+\)$"))  # the score is no part of the text


def test_each_of_several_sources_has_its_strip(page: Any, written: Any) -> None:
    page.goto(f"{written.address}#attention/stories")
    page.get_by_test_id("matrix").wait_for()
    expect(page.locator(".strip > .hint")).to_have_text(["story", "question", "output"])
    expect(page.locator(".strip").nth(1).locator(".token").first).to_have_text(re.compile("where|w"))
    expect(page.locator(".divide")).to_have_count(1)


def test_no_word_is_broken_in_the_token_column(page: Any, studio: Any) -> None:
    def lengthen(route: Any) -> None:
        prediction = route.fetch().json()
        for token in prediction["outputs"][0]["tokens"]:
            token["text"] = "uncharacteristically"
        route.fulfill(json=prediction)

    page.route(re.compile(r"/predict$"), lengthen)
    for width in (1280, 760):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(f"{studio.address}#predict/run?input=abc&beam={width // 400}")
        expect(page.locator(".steps tbody th .piece").first).to_have_text("uncharacteristically")
        lines = page.locator(".steps tbody th .piece").evaluate_all(
            "all => all.map(one => one.getClientRects().length)"
        )
        assert set(lines) == {1}


def test_a_forced_output_is_in_sight_and_has_the_focus(predicted: Predicted) -> None:
    page = predicted(text="abcdeabcde")
    page.set_viewport_size({"width": 1000, "height": 420})
    page.locator(".steps tbody tr").nth(2).locator("button.alternative").first.click()
    forced = page.locator(".token.forced").nth(2)
    expect(forced).to_be_focused()
    expect(forced).to_be_in_viewport()


def test_banning_keeps_the_forced_beginning(predicted: Predicted, studio: Any) -> None:
    page = predicted(text="abcde")
    row = page.locator(".steps tbody tr").nth(1)
    offered = row.locator("button.alternative .piece").all_inner_texts()
    assert not {"<pad>", "<s>", "<unk>"} & set(page.locator(".alternative .piece").all_inner_texts())
    letter = next(text for text in offered if len(text) == 1)
    row.locator("button.alternative", has_text=re.compile(rf"^{re.escape(letter)} ")).first.click()
    expect(page.locator(".token.forced")).to_have_count(2)
    forced = page.locator(".token.forced").all_inner_texts()
    banned = next(one for one in "abcdefgh" if one not in forced)
    page.get_by_label("Never write").fill(banned)
    page.get_by_role("button", name="Ban").click()
    page.get_by_role("button", name=f"Allow {banned} again").wait_for()
    expect(page.locator(".alternative .piece", has_text=re.compile(f"^{banned}$"))).to_have_count(0)
    expect(page.locator(".token.forced")).to_have_text(forced)
    page.get_by_label("Never write").fill(forced[0])  # it cannot be both
    page.get_by_role("button", name="Ban").click()
    expect(page.locator(".token.forced")).to_have_count(0)


def test_runs_of_different_metrics_do_not_share_an_axis(page: Any, studio: Any) -> None:
    def rename(route: Any) -> None:
        training = route.fetch().json()
        for event in training["validated"]:
            event["metric"] = "BLEU"
        route.fulfill(json=training)

    page.route(re.compile(r"/runs/transformer/training"), rename)
    page.goto(f"{studio.address}#training/run")
    expect(page.get_by_test_id("chart-Dev score: BLEU").locator("polyline")).to_have_count(1)
    expect(page.locator("[data-testid^='chart-Dev score'] polyline")).to_have_count(4)  # the others are in other charts


@pytest.fixture
def many_runs(page: Any, studio: Any) -> int:
    """The first run under thirteen names. Every score on dev is 0."""
    count = 13
    overview, curves = studio.ask("runs"), studio.ask("runs/run/training")
    for event in curves["validated"]:
        event["score"] = 0.0
    overview["runs"] = [overview["runs"][0] | {"id": f"run-{index}", "name": f"run-{index}"} for index in range(count)]
    page.route(re.compile(r"/api/runs$"), lambda route: route.fulfill(json=overview))
    page.route(re.compile(r"/api/runs/[^/]+/audit"), lambda route: route.fulfill(json=studio.ask("runs/run/audit")))
    page.route(
        re.compile(r"/api/runs/[^/]+/training"),
        lambda route: route.fulfill(json=curves | {"run": route.request.url.split("/")[-2]}),
    )
    return count


def test_many_runs_are_told_apart(page: Any, studio: Any, many_runs: int) -> None:
    page.goto(f"{studio.address}#training/run-0")
    lines = page.get_by_test_id("chart-Throughput").locator("polyline")
    expect(lines).to_have_count(many_runs)
    looks = lines.evaluate_all(
        "all => all.map(one => getComputedStyle(one).stroke + getComputedStyle(one).strokeDasharray)"
    )
    assert len({*looks}) == many_runs
    page.locator(".run-states li").nth(7).hover()
    expect(page.get_by_test_id("chart-Throughput").locator(".lit")).to_have_count(1)
    expect(page.get_by_test_id("chart-Throughput").locator(".faint")).to_have_count(many_runs - 1)
    page.locator(".toolbar").hover()
    expect(page.locator(".faint")).to_have_count(0)


def test_a_score_has_no_axis_below_zero(page: Any, studio: Any, many_runs: int) -> None:
    page.goto(f"{studio.address}#training/run-0")
    ticks = page.locator("[data-testid^='chart-Dev score'] text.left")
    expect(ticks.first).to_be_visible()
    assert not [tick for tick in ticks.all_text_contents() if tick.startswith("−")]


def test_finished_runs_are_not_asked_about_again(page: Any, studio: Any) -> None:
    asked: list[str] = []
    page.on("request", lambda request: "/training" in request.url and asked.append(request.url))
    page.clock.install()
    page.goto(f"{studio.address}#training/run")
    expect(page.locator(".run-states li", has_text="finished")).to_have_count(4)
    page.clock.run_for(20_000)
    expect(page.locator(".run-states li", has_text="finished")).to_have_count(4)
    assert len(asked) == 4


def test_the_smallest_p_value_is_shown_as_a_bound(page: Any, studio: Any) -> None:
    def change(route: Any) -> None:
        compared = route.fetch().json()
        compared["scores"][0] |= {"p_value": 0.001, "smallest": True}
        compared["scores"][1] |= {"p_value": 0.02, "smallest": False}
        route.fulfill(json=compared)

    page.route(re.compile(r"/api/compare$"), change)
    page.goto(f"{studio.address}#errors/run?two=1&compared=own&against=transformer")
    rows = page.locator("table.compared tbody tr")
    expect(rows.first.locator("td").nth(4)).to_have_text("≤ 0.001")
    expect(rows.nth(1).locator("td").nth(4)).to_have_text("0.020")


def test_rows_and_points_of_pictures_show_them(page: Any, studio: Any, runs: dict[str, Path]) -> None:
    page.goto(f"{studio.address}#errors/pictures?rows=own")
    picture = page.locator("table.errors .row-picture").first
    expect(picture).to_be_visible()
    assert picture.evaluate("one => one.decode().then(() => one.naturalWidth)") == 24
    expect(page.locator("table.errors .text.named").first).to_have_text(re.compile(r"^\d+\.png$"))
    page.get_by_role("button", name=re.compile("Look inside")).first.click()
    expect(page.locator(".preview img")).to_be_visible()
    page.locator("#tab-map").click()
    scatter = page.get_by_role("group", name=re.compile("^Map of"))
    scatter.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_test_id("point").locator("img")).to_be_visible()
    expect(page.get_by_text("Colour: length of the target")).to_be_visible()
    assert str(runs["pictures"].parent) not in page.content()


def test_a_layout_that_fails_leaves_the_map(page: Any, studio: Any) -> None:
    def offer(route: Any) -> None:
        overview = route.fetch().json()
        route.fulfill(json=overview | {"layouts": ["pca", "umap"]})

    page.route(re.compile(r"/api/runs$"), offer)
    page.goto(f"{studio.address}#map/run?points=20")
    expect(page.locator(".dots circle")).to_have_count(20)
    page.route(re.compile(r"/map$"), lambda route: route.fulfill(status=400, json={"error": "it cannot be drawn"}))
    page.get_by_text("UMAP", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("it cannot be drawn")
    expect(page.locator(".dots circle")).to_have_count(20)


def test_a_layout_that_is_not_installed_is_not_offered(page: Any, studio: Any) -> None:
    def offer(route: Any) -> None:
        overview = route.fetch().json()
        route.fulfill(json=overview | {"layouts": ["pca"]})

    page.route(re.compile(r"/api/runs$"), offer)
    page.goto(f"{studio.address}#map/run?layout=umap")
    expect(page.locator(".dots circle").first).to_be_visible()
    expect(page.get_by_role("radio", name="UMAP")).to_have_count(0)
    expect(page.get_by_text("pip install 'dragoman[umap]'")).to_be_visible()


def test_paper_has_the_whole_table_and_no_controls(page: Any, studio: Any) -> None:
    page.emulate_media(media="print", color_scheme="dark")
    page.goto(f"{studio.address}#errors/run?rows=own")
    table = page.locator("table.errors")
    expect(table).to_be_visible()
    for hidden in (".tabs", ".file-choice", ".filters", ".theme"):
        expect(page.locator(hidden)).to_be_hidden()
    assert page.locator(".scroll.wide").evaluate("one => one.scrollHeight <= one.clientHeight + 1")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
