"""A real browser at a real studio with real, small runs.

Where a browser or playwright is missing these tests are skipped; `make test-browser` insists on them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import wave
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

import numpy as np
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

TRANSFORMER: dict[str, Any] = {
    "source": {"embedding": 16},
    "encoder": {"kind": "transformer", "width": 16, "layers": 2, "heads": 4},
    "decoder": {"kind": "transformer", "width": 16, "layers": 2, "heads": 4},
    "training": {"threads": 1, "batch_tokens": 96, "max_updates": 30, "average": 1, "log_every": 5},
}
PICTURES: dict[str, Any] = {
    "source": {"kind": "image", "size": 24},
    "encoder": {"width": 16, "stride": 8, "channels": [4, 8, 16]},
    "decoder": {"width": 16, "embedding": 8},
    "training": {"threads": 1, "max_updates": 20, "average": 1, "log_every": 5},
}
SOUNDS: dict[str, Any] = {
    "source": {"kind": "speech"},
    "encoder": {"width": 16, "layers": 1},
    "decoder": {"width": 16, "embedding": 8},
    "training": {"threads": 1, "max_updates": 10, "average": 1, "log_every": 5},
}
MICROPHONE = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]  # it beeps, and is allowed


def missing(what: str) -> None:
    if os.environ.get("BROWSER_TESTS") == "required":
        pytest.fail(what)
    pytest.skip(what)


@dataclass(frozen=True)
class Studio:
    """A studio that runs, and how to ask it without the page."""

    address: str

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.address}api/{path}", data, {"Content-Type": "application/json"})
        with urlopen(request, timeout=60) as answer:
            return json.load(answer)


@contextmanager
def running(environment: dict[str, str], *runs: Path) -> Iterator[Studio]:
    command = [sys.executable, "-m", "dragoman", "studio", *map(str, runs), "--no-browser", "--port", "0"]
    environment = {**environment, "NUMBA_DISABLE_JIT": "1"}  # of UMAP: compiling takes longer than a few points
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        said = ""
        for line in process.stdout:
            said += line
            if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
                yield Studio(found[0])
                return
        pytest.fail(f"the studio did not start: {said}")
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


@pytest.fixture(scope="session")
def serves(environment: dict[str, str]) -> Callable[..., Any]:
    """Start a studio of its own, as a context manager."""
    return lambda *runs: running(environment, *runs)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed")
        raise
    place = os.environ.get("CHROMIUM") or next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if place is None:
        missing("no Chromium was found; set CHROMIUM to where it is")
    with sync_playwright() as playwright:
        options = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        opened = playwright.chromium.launch(executable_path=place, args=[*options, *MICROPHONE])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that must not ask for anything beyond this machine, nor throw."""
    context = browser.new_context(viewport={"width": 1280, "height": 860}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(30_000)
    asked: list[str] = []
    thrown: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: thrown.append(str(error)))
    yield page
    page.unroute_all(behavior="ignoreErrors")  # a request may still be under way in a test's own handler
    context.close()
    hosts = {urlsplit(url).hostname for url in asked if urlsplit(url).scheme not in ("data", "blob", "file")}
    assert hosts <= {"127.0.0.1"}, f"a request left this machine: {hosts}"
    assert not thrown


@pytest.fixture(scope="session")
def runs(browser: Browser, tmp_path_factory: pytest.TempPathFactory, tiny_run: Any) -> dict[str, Path]:
    """By name: recurrent (tiny_run), a Transformer, one that reads pictures, one that hears."""
    from PIL import Image, ImageDraw

    from dragoman.training.run import train

    place = tmp_path_factory.mktemp("browser")
    train(tiny_run.pairs, out=place / "transformer", settings=TRANSFORMER)
    colours = {"red": (220, 40, 40), "blue": (40, 60, 220), "green": (30, 160, 60)}
    lines = ["picture\tcaption"]
    for index in range(24):
        name, colour = list(colours.items())[index % 3]
        picture = Image.new("RGB", (24, 24), (240, 240, 240))
        left, top = 2 + index % 4 * 4, 2 + index % 5 * 3
        ImageDraw.Draw(picture).rectangle((left, top, left + 6, top + 6), fill=colour)
        picture.save(place / f"{index}.png")
        lines.append(f"{index}.png\ta {name} box")
    (place / "pictures.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    train(place / "pictures.tsv", out=place / "pictures", settings=PICTURES)
    lines = ["sound\tname"]
    for index in range(24):
        tone = np.sin(np.arange(4000) * (0.1 + 0.02 * index)) * 9000
        with wave.open(str(place / f"{index}.wav"), "wb") as file:
            file.setparams((1, 2, 16000, 0, "NONE", ""))
            file.writeframes(tone.astype("<i2").tobytes())
        lines.append(f"{index}.wav\t{'low' if index < 12 else 'high'}")
    (place / "sounds.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    train(place / "sounds.tsv", out=place / "sounds", settings=SOUNDS)
    return {"run": tiny_run.folder, **{name: place / name for name in ("transformer", "pictures", "sounds")}}


@pytest.fixture(scope="session")
def studio(runs: dict[str, Path], serves: Callable[..., Any]) -> Iterator[Studio]:
    with serves(*runs.values()) as started:
        yield started


@pytest.fixture
def predicted(page: Page, studio: Studio) -> Callable[..., Page]:
    """Opens a view of a run with a prediction, by its address."""

    def go(view: str = "predict", text: str = "abcde", run: str = "run", reference: str = "") -> Page:
        page.goto(f"{studio.address}#predict/{run}?{urlencode({'input': text, 'reference': reference})}")
        page.get_by_test_id("results").wait_for()
        page.locator(f"#tab-{view}").click()
        return page

    return go
