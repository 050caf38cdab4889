"""Measure what a lexicon is worth: exact match with free outputs, and with outputs that are entries of a lexicon.

    python experiments/lexicon/run.py RUN TEST OTHERS...
    python experiments/lexicon/run.py --table        # only write the page, from results.json

RUN is the folder of a trained run that reads one text. TEST is a table of sources and targets that it has not seen;
OTHERS are tables of the same kind. The lexicon has all targets of TEST and the first 50,000 other ones of OTHERS.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runner import Result, describe_machine, tell_mistakes
from tables import page, table

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results.json"
INPUTS, ENTRIES = 2_000, 50_000
NAME = "katakana"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE", help="TEST and OTHERS")
    parser.add_argument("--table", action="store_true", help="only write the page")
    options = parser.parse_args()
    if not options.table:
        if len(options.files) < 2:
            parser.error("a run and two files are needed, unless only the page is to be written (--table)")
        result = {NAME: compare(options.run, options.files[0], options.files[1:])}
        RESULTS.write_text(json.dumps(result, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    text = write_page(json.loads(RESULTS.read_text(encoding="utf-8"))[NAME])
    print(text)
    (FOLDER / "README.md").write_text(text, encoding="utf-8")


def compare(run: Path, test: Path, others: Sequence[Path]) -> Result:
    """Answer the same inputs freely and from a lexicon."""
    import dragoman

    rows = read_rows([test])
    answers: dict[str, list[str]] = {}
    for source, target in rows:  # a source may have several right answers
        answers.setdefault(source, []).append(target)
    sources = list(answers)[:INPUTS]
    entries = dict.fromkeys(target for _, target in rows)
    further = dict.fromkeys(target for _, target in read_rows(others) if target not in entries)
    entries |= dict.fromkeys(list(further)[:ENTRIES])
    system = dragoman.load(run)
    free = exact_match(system.session(beam=5), sources, answers)
    held = exact_match(system.session(beam=5, lexicon=list(entries)), sources, answers)
    result = {"inputs": len(sources), "entries": len(entries), "free": round(100 * free, 2)}
    return result | {"lexicon": round(100 * held, 2), "beam": 5, **describe_machine()}


def read_rows(files: Iterable[Path]) -> list[tuple[str, str]]:
    """Return the first two columns of some tables."""
    cells = [line.split("\t") for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [(row[0], row[1]) for row in cells]


def exact_match(session: Any, sources: Sequence[str], answers: dict[str, list[str]]) -> float:
    """Return the share of inputs whose output is one of their right answers."""
    outputs = session.predict(sources, attention=False, trace=False)
    return sum(output.text in answers[source] for source, output in zip(sources, outputs, strict=True)) / len(sources)


def write_page(result: Result) -> str:
    """Return the page."""
    return page(
        "Outputs from a lexicon",
        "How much does it help to know which outputs there are? The data is English names in katakana (Merhav and Ash "
        "2018), 30,000 of the 63,246 training pairs. The run is what `auto` makes of them in seven minutes on one "
        f"core. The first {result['inputs']:,} sources of the test set are answered twice with a beam of "
        f"{result['beam']}: freely, and with a lexicon of all targets of the test set and 50,000 other targets of the "
        "training and dev sets.",
        table(
            ["outputs", "exact match, %"],
            [
                ["free", f"{result['free']:.2f}"],
                [f"from a lexicon of {result['entries']:,} entries", f"{result['lexicon']:.2f}"],
            ],
        ),
        "The data has each target as characters with spaces between them. Commands:",
        "```\ndragoman train train.tsv --dev dev.tsv --out runs/katakana --max-time 420\n"
        "python experiments/lexicon/run.py runs/katakana test.tsv train.tsv dev.tsv\n```",
        "Date, machine and versions are in [results.json](results.json).",
    )


if __name__ == "__main__":
    tell_mistakes(main)
