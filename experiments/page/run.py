"""Does an exported page say in the browser what the run says? Open it from a file and ask it everything.

    python experiments/page/run.py RUN FILE [RUN FILE …]    # runs that read one text, each with a table of inputs
    python experiments/page/run.py --table                  # only write the page, from results.json

Each run is exported twice, with float32 weights and with --int8. Chromium opens page.html from the disk and is asked
every input, greedily and with a beam of 5; the answers are compared with those of the torch engine. With float32,
other tokens count as a difference unless both outputs have the same score within 1e-4 by torch; then the exit code is
1. The time of a search with a beam of 5 is measured in the page, as is every request that the page makes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runner import Result, describe_machine, tell_mistakes
from tables import made_with, page, table

FOLDER = Path(__file__).resolve().parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
INPUTS = 1000
# Asks the page's engine, and returns each answer with the milliseconds that it took.
ASK = """async ([texts, beam]) => {
  const name = dragomanSource, all = [];
  for (const text of texts) {
    const began = performance.now();
    try {
      const [best] = await dragoman.search({ [name]: text }, { beam, nBest: 1 });
      all.push({ ...best, milliseconds: performance.now() - began });
    } catch (error) { all.push({ error: String(error.message ?? error) }); }
  }
  return all;
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("given", nargs="*", metavar="RUN FILE", help="folder of a run, and a table of inputs")
    parser.add_argument("--inputs", type=int, default=INPUTS, help="of each table")
    parser.add_argument("--table", action="store_true", help="only write the page")
    options = parser.parse_args()
    if len(options.given) % 2 or not (options.given or options.table):
        parser.error("name pairs of a run and a table of inputs, or --table")
    path = FOLDER / "results.json"
    results: Result = json.loads(path.read_text()) if path.exists() else {"pages": {}}
    for run, file in zip(options.given[::2], options.given[1::2], strict=True):
        for int8 in (False, True):
            name, figures = compare(Path(run), Path(file), options.inputs, int8)
            print(f"{name}: {json.dumps(figures)}", flush=True)
            results = {**results, **describe_machine()}
            results["pages"][name] = figures
            path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    text = write_page(results)
    print(text)
    (FOLDER / "README.md").write_text(text, encoding="utf-8")
    if any(figures["different"] for figures in results["pages"].values() if not figures["int8"]):
        sys.exit(1)


def compare(run: Path, file: Path, most: int, int8: bool) -> tuple[str, Result]:
    """Export a run to a page, ask the page in a browser, and return a name and the figures."""
    import dragoman
    from dragoman.evaluation.reading import read_examples
    from dragoman.export.parity import measure_answers
    from dragoman.types import Hypothesis

    system = dragoman.load(run, engine="torch")
    (source,) = system.modalities
    given = (str(example.sources[source]) for example in read_examples(system, file).examples)
    texts = list(dict.fromkeys(text for text in given if text.strip()))[:most]
    taken: list[float] = []
    with tempfile.TemporaryDirectory() as work, chromium() as (browser, version):
        dragoman.export_run(run, "page", work, inputs=texts[:50], int8=int8)
        opened, requests = open_page(browser, Path(work) / "page.html", source)

        def answer(beam: int, prepared: Sequence[Any]) -> list[Hypothesis | str]:
            found = opened.evaluate(ASK, [texts, beam])
            if beam > 1:
                taken.extend(each["milliseconds"] for each in found if "milliseconds" in each)
            return [as_hypothesis(each) for each in found]

        parity, _ = measure_answers(system, answer, "page", texts, quantized=int8)
        size = (Path(work) / "page.html").stat().st_size
    return f"{run.name}{', int8' if int8 else ''}", {
        **parity.to_json(),
        "int8": int8,
        "preset": system.recipe.preset,
        "parameters": system.model.parameters_count,
        "megabytes": round(size / 1e6, 2),
        "beam 5, p50 (ms)": round(statistics.median(taken), 1),
        "beam 5, p99 (ms)": round(statistics.quantiles(taken, n=100)[98], 1),
        "requests": [url for url in requests if not url.startswith("blob:")],
        "browser": version,
    }


def as_hypothesis(found: dict[str, Any]) -> Any:
    """Return an answer of the page as an output of a search, or the sentence of its error."""
    from dragoman.data.vocabulary import EOS
    from dragoman.types import Hypothesis

    if "error" in found:
        return found["error"]
    tokens = tuple(found["ids"])
    return Hypothesis(tokens, tuple(found["logProbs"]), found["score"], bool(tokens) and tokens[-1] == EOS, ())


@contextmanager
def chromium() -> Any:
    """Start a browser without a window."""
    from playwright.sync_api import sync_playwright

    program = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if program is None:
        sys.exit("there is no Chromium: install your system's package (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser, browser.version
        browser.close()


def open_page(browser: Any, path: Path, source: str) -> tuple[Any, list[str]]:
    """Open a page from the disk and return it with the list of what it asks for, its own address left out."""
    opened = browser.new_page()
    opened.set_default_timeout(0)
    requests: list[str] = []

    def note(request: Any) -> None:
        if request.url != path.as_uri():
            requests.append(request.url)

    opened.on("request", note)
    opened.goto(path.as_uri())
    opened.locator(".panel").wait_for()
    opened.evaluate(f"globalThis.dragomanSource = {json.dumps(source)}")
    return opened, requests


def write_page(results: Result) -> str:
    """Return the page of results."""
    pages: dict[str, Any] = results["pages"]
    rows = [
        [
            name,
            f"{figures['parameters']:,}",
            f"{figures['megabytes']:.2f} MB",
            f"{figures['equal']:,} of {figures['inputs'] * figures['searches']:,}",
            str(figures["ties"]),
            f"{figures['different']} ({figures['different'] / figures['inputs'] / figures['searches']:.1%})",
            f"{figures['worst']:.0e}",
            f"{figures['beam 5, p50 (ms)']} / {figures['beam 5, p99 (ms)']} ms",
            str(len(figures["requests"])),
        ]
        for name, figures in pages.items()
    ]
    header = ("run", "parameters", "page.html", "the same", "ties", "differ", "log-probabilities differ by at most",
              "beam 5, p50 / p99", "requests")  # fmt: skip
    browsers = sorted({figures["browser"] for figures in pages.values()})
    return page(
        "An exported page says in the browser what the run says",
        "Each run as one HTML file (`dragoman export RUN --to page`), opened from the disk and asked in the browser, "
        "greedily and with a beam of 5, beside the torch engine. Ties are other outputs whose score by torch lies "
        "within 1e-4. Pages with float32 weights have to give the same tokens but for ties; with `--int8`, weights "
        "are rounded, so that some outputs differ.",
        table(header, rows),
        f"Made on {results['date']} with `python experiments/page/run.py RUN FILE …`; {made_with(results)}; Chromium "
        f"{', '.join(browsers)}.",
    )


if __name__ == "__main__":
    tell_mistakes(main)
