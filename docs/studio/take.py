"""Take the screenshots of docs/inside.md.

    python docs/studio/take.py FOLDER --dates RUN --other RUN …

FOLDER contains the runs, which are named by their id. The script starts a studio on it. Needs playwright, Chromium and
Pillow.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent


def save_screenshot(page: Any, name: str) -> None:
    """Save what the page shows as a small PNG.

    A palette is enough for flat colours, but not for pictures. Rounds of k-means keep colours that are rare.
    """
    page.wait_for_timeout(400)
    screenshot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    is_flat = not name.startswith("picture")
    small = screenshot.quantize(256, kmeans=4, dither=Image.Dither.NONE) if is_flat else screenshot
    small.save(FOLDER / f"{name}.png", optimize=True)


@contextmanager
def start_studio(folder: str) -> Iterator[str]:
    """Start a studio on a folder of runs and return its address."""
    command = [sys.executable, "-m", "dragoman", "studio", folder, "--no-browser", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        yield next(found[0] for line in process.stderr if (found := re.search(r"http://\S+/", line)))
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def open_view(page: Any, base: str, view: str, run: str, **values: str) -> None:
    """Open a view of a run with an input and settings."""
    page.goto("about:blank")
    page.goto(f"{base}#{view}/{run}?{urlencode(values)}")


def open_file(page: Any, base: str, run: str, path: str) -> None:
    """Let the run predict a file and open the view Attention."""
    open_view(page, base, "predict", run)
    page.locator(".preview").wait_for()
    page.locator(".drop input[type=file]").set_input_files(path)
    page.locator("[data-testid=results][data-input^=upload-]").wait_for()
    page.locator("#tab-attention").click()
    page.get_by_test_id("matrix").wait_for()


def take_views(page: Any, base: str, options: argparse.Namespace, take: Callable[[str], None]) -> None:
    """Visit every view for which a run was named, and call ``take`` with the name of its screenshot."""
    if options.dates:
        open_view(page, base, "predict", options.dates, input=options.text, reference=options.reference)
        page.get_by_test_id("results").wait_for()
        take("predict")
        page.locator("#tab-tree").click()
        page.locator(".tree .node").first.wait_for()
        page.locator('.tree .node[data-fate="pruned"][data-step="6"]').first.hover()
        take("tree")
        open_view(page, base, "training", options.dates)
        page.locator(".audit").wait_for()
        for other in (options.transformer, options.pictures, options.speech):  # hide runs of other tasks
            if other and other != options.other:
                page.get_by_label(f"Show {other}").uncheck()
        page.get_by_test_id("chart-Loss").locator("svg").hover(position={"x": 180, "y": 80})
        take("training")
        open_view(page, base, "map", options.dates, input=options.text)
        page.get_by_test_id("scatter").wait_for(timeout=120_000)
        page.get_by_role("button", name="Find").click()
        page.get_by_test_id("neighbours").wait_for(timeout=120_000)
        page.locator(".dots circle").nth(7).hover(force=True)
        take("map")
        open_view(page, base, "errors", options.dates, rows="own")
        page.locator("table.errors").wait_for(timeout=300_000)
        take("errors")
        if options.other:
            open_view(page, base, "errors", options.dates, two="1", against=options.other, compared="own")
            page.get_by_test_id("comparison").wait_for(timeout=600_000)
            take("compare")
    if options.transformer:
        open_view(page, base, "attention", options.transformer, input=options.sentence)
        page.get_by_test_id("matrix").wait_for()
        page.get_by_role("radio", name="layer 2, mean of the heads").click()
        page.get_by_test_id("matrix").hover(position={"x": 336, "y": 304})  # "3" in the output and in the source
        take("attention")
    if options.pictures:
        open_file(page, base, options.pictures, options.picture)
        page.locator(".film button").nth(2).hover()
        take("picture")
    if options.speech:
        open_file(page, base, options.speech, options.sound)
        page.locator(".sound .token").first.hover()
        take("sound")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    for name in ("dates", "other", "transformer", "pictures", "picture", "speech", "sound"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--text", default="3. Oktober 1990")
    parser.add_argument("--reference", default="1990-10-03")
    parser.add_argument("--sentence", default="Mittwoch, 3. Oktober 1990")
    options = parser.parse_args()
    with start_studio(options.folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for theme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme=theme)
            page.set_default_timeout(60_000)
            take_views(
                page, address, options, lambda name, page=page, theme=theme: save_screenshot(page, f"{name}-{theme}")
            )
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
