"""Fill the figures of the Markdown pages from the result files of the experiments and benchmarks.

    python docs/figures.py            # rewrite the pages
    python docs/figures.py --check    # change nothing; fail if a page differs from the result files

A figure in a page is written between two comments, which Markdown does not show:

    <!-- figure: g2p-2020 -->15.50<!-- /figure -->

``FIGURES`` below says what each name means. Only the standard library is used.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(r"(<!-- figure: ([\w-]+) -->)(.*?)(<!-- /figure -->)", re.DOTALL)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


class MissingResult(Exception):
    """A figure whose result file is not there or does not hold the value."""


def read(pattern: str) -> list[dict[str, Any]]:
    """Return the result files that match ``pattern``, in the order of their names."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(ROOT.glob(pattern))]
    if not results:
        raise MissingResult(f"no result file matches {pattern}")
    return results


def mean_score(pattern: str, metric: str) -> float:
    """Return the mean of ``metric`` over the runs of an experiment."""
    return statistics.fmean(result["scores"][metric] for result in read(pattern))


def score(path: str, metric: str) -> float:
    return read(path)[0]["scores"][metric]


def minutes(path: str, key: str = "whole_seconds") -> float:
    return read(path)[0][key] / 60


def bleu(run: str, test: str = "test_2016_flickr") -> float:
    return read(f"experiments/multi30k/results/{run}.json")[0]["tests"][test]["bleu"]


def parameters_in_millions(run: str) -> float:
    return read(f"experiments/multi30k/results/{run}.json")[0]["parameters"] / 1e6


def tasks_above_published() -> str:
    """Return how many bAbI tasks are above the published figures, as the experiment's own page counts them."""
    page = (ROOT / "experiments/babi/README.md").read_text(encoding="utf-8")
    match = re.search(r"\*\*(\d+ of \d+)\*\*", page)
    if match is None:
        raise MissingResult(
            "experiments/babi/README.md does not say in how many tasks it is above the published figures"
        )
    return match[1]


def speed_ratio(shape: str) -> float:
    """Return how many times as fast as the fastest other toolkit training was, by the medians of the latest benchmark.

    Of several benchmarks of one day, the least favourable counts.
    """
    by_date: dict[str, list[float]] = {}
    for result in read("benchmarks/results/*.json"):
        lines = [line for line in result.get("shapes", {}).get(shape, ()) if line["median"]]
        own = [line["median"] for line in lines if line["name"] == "Dragoman"]
        peers = [line["median"] for line in lines if line["is_peer"]]
        if own and peers:
            by_date.setdefault(result["date"], []).append(own[0] / max(peers))
    if not by_date:
        raise MissingResult(f"no benchmark has measured the shape {shape!r} beside another toolkit")
    return min(by_date[max(by_date)])


def faults(campaign: str, key: str) -> str:
    """Return a figure of the last long form of a campaign in tests/faults."""
    try:
        return f"{read('tests/faults/results.json')[0][campaign][key]:,}"
    except KeyError:
        raise MissingResult(f"tests/faults/results.json has no {key!r} of {campaign!r}") from None


def fuzzed() -> str:
    """Return how many random inputs were tried, over all readers."""
    results = read("tests/faults/results.json")[0]
    return f"{sum(result['cases'] for name, result in results.items() if name.startswith('fuzz:')):,}"


def lexicon(key: str) -> float:
    """Return a figure of the experiment with a lexicon."""
    return float(read("experiments/lexicon/results.json")[0]["katakana"][key])


G2P_2020 = "experiments/g2p/results/*.json"
G2P_2021 = "experiments/g2p/results/2021/*.json"
SCAN = "experiments/scan/results/simple.json"
TRANSFORMER = "experiments/multi30k/results/transformer-de-en.json"

FIGURES: dict[str, Callable[[], str]] = {
    "g2p-2020": lambda: f"{100 - mean_score(G2P_2020, 'exact'):.2f}",  # a word is wrong if one of its phones is
    "g2p-2021": lambda: f"{100 - mean_score(G2P_2021, 'exact'):.2f}",
    "scan": lambda: f"{score(SCAN, 'exact'):.1f}",
    "scan-minutes": lambda: f"{minutes(SCAN):.0f}",
    "multi30k-de-en": lambda: f"{bleu('transformer-de-en'):.2f}",
    "multi30k-de-en-millions": lambda: f"{parameters_in_millions('transformer-de-en'):.1f}",
    "multi30k-de-en-minutes": lambda: f"{minutes(TRANSFORMER, 'training_seconds'):.0f}",
    "babi-tasks": tasks_above_published,
    "digits": lambda: f"{score('experiments/digits/results/official.json', 'exact'):.1f}",
    "emoji-soft": lambda: f"{score('experiments/emoji/results/soft.json', 'exact'):.0f}",
    "speed-bahdanau": lambda: f"{speed_ratio('before'):.1f}",
    "speed-luong": lambda: f"{speed_ratio('after'):.1f}",
    "speed-transformer": lambda: f"{speed_ratio('transformer'):.1f}",
    "faults-damaged": lambda: faults("damaged folders", "cases"),
    "faults-noticed": lambda: faults("damaged folders", "noticed"),
    "faults-calls": lambda: faults("failing system calls (crash)", "calls"),
    "faults-kills": lambda: faults("kills", "kills"),
    "faults-kills-in-saves": lambda: faults("kills", "inside a save"),
    "faults-same-weights": lambda: faults("kills", "same weights"),
    "faults-hostile": lambda: faults("hostile artefacts", "cases"),
    "faults-hostile-seconds": lambda: faults("hostile artefacts", "longest (s)"),
    "faults-hostile-memory": lambda: faults("hostile artefacts", "most memory (MB)"),
    "faults-constrained": lambda: faults("constraints", "hypotheses"),
    "faults-formats": lambda: faults("hostile formats", "cases"),
    "faults-formats-seconds": lambda: faults("hostile formats", "longest (s)"),
    "faults-formats-memory": lambda: faults("hostile formats", "most memory (MB)"),
    "faults-fuzz": fuzzed,
    "lexicon-free": lambda: f"{lexicon('free'):.2f}",
    "lexicon-held": lambda: f"{lexicon('lexicon'):.2f}",
}


def pages() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "docs").rglob("*.md"))


def fill(text: str) -> str:
    """Return ``text`` with every figure as the result files have it. Code blocks are left alone."""
    blocks = [match.span() for match in FENCE.finditer(text)]

    def value(match: re.Match[str]) -> str:
        if any(start <= match.start() < end for start, end in blocks):
            return match[0]
        if match[2] not in FIGURES:
            raise MissingResult(f"there is no figure {match[2]!r}; docs/figures.py knows: {', '.join(FIGURES)}")
        return f"{match[1]}{FIGURES[match[2]]()}{match[4]}"

    return MARK.sub(value, text)


def main() -> int:
    parser = argparse.ArgumentParser(description="Fill the figures of the pages from the result files.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a page is stale")
    check = parser.parse_args().check
    stale, count = [], 0
    for page in pages():
        text = page.read_text(encoding="utf-8")
        try:
            filled = fill(text)
        except MissingResult as error:
            print(f"{page.relative_to(ROOT)}: {error}")
            return 1
        count += len(MARK.findall(text))
        if filled == text:
            continue
        stale.append(str(page.relative_to(ROOT)))
        if not check:
            page.write_text(filled, encoding="utf-8")
    if stale and check:
        print(f"stale figures in {', '.join(stale)}: run python docs/figures.py")
        return 1
    print(f"{count} figures are those of the result files" + (f"; rewritten: {', '.join(stale)}" if stale else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
