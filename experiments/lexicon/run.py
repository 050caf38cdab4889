"""Measure what a lexicon is worth: exact match with free outputs, and with outputs that are entries of a lexicon.

    python experiments/lexicon/run.py RUN TEST OTHERS...

RUN is the folder of a trained run that reads one text. TEST is a table of sources and targets that it has not seen;
OTHERS are tables of the same kind. The lexicon has all targets of TEST and the first 50,000 other ones of OTHERS.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import dragoman

RESULTS = Path(__file__).parent / "results.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("others", type=Path, nargs="+")
    parser.add_argument("--name", default="katakana", help="of the result")
    parser.add_argument("--inputs", type=int, default=2_000, help="inputs that are answered")
    parser.add_argument("--entries", type=int, default=50_000, help="entries beside the targets of TEST")
    options = parser.parse_args()
    rows = read_rows([options.test])
    answers: dict[str, list[str]] = {}
    for source, target in rows:  # a source may have several right answers
        answers.setdefault(source, []).append(target)
    sources = list(answers)[: options.inputs]
    entries = dict.fromkeys(target for _, target in rows)
    others = dict.fromkeys(target for _, target in read_rows(options.others) if target not in entries)
    entries |= dict.fromkeys(list(others)[: options.entries])
    system = dragoman.load(options.run)
    free = exact_match(system.session(beam=5), sources, answers)
    held = exact_match(system.session(beam=5, lexicon=list(entries)), sources, answers)
    result = {
        "inputs": len(sources), "entries": len(entries), "free": round(100 * free, 2), "lexicon": round(100 * held, 2),
        "beam": 5, "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "versions": {"dragoman": dragoman.__version__, "python": platform.python_version()},
    }  # fmt: skip
    print(json.dumps(result, indent=2))
    every = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    every[options.name] = result
    RESULTS.write_text(json.dumps(every, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def read_rows(files: Iterable[Path]) -> list[tuple[str, str]]:
    """Return the first two columns of some tables."""
    cells = [line.split("\t") for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [(row[0], row[1]) for row in cells]


def exact_match(session: Any, sources: Sequence[str], answers: dict[str, list[str]]) -> float:
    """Return the share of inputs whose output is one of their right answers."""
    outputs = session.predict(sources, attention=False, trace=False)
    return sum(output.text in answers[source] for source, output in zip(sources, outputs, strict=True)) / len(sources)


if __name__ == "__main__":
    main()
