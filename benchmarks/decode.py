"""Measure decoding: the engines of Dragoman beside CTranslate2 and Hugging Face, one thread each, in turns.

    python benchmarks/decode.py RUN FILE                        # five rounds, about 10 minutes
    python benchmarks/decode.py RUN FILE --hugging-face PYTHON  # with Hugging Face's generate as well
    python benchmarks/decode.py RUN FILE --earlier CHECKOUT     # with the torch engine of an earlier commit
    python benchmarks/decode.py RUN FILE --quick                # one short round; nothing is written

RUN is the folder of a trained run that reads one text, FILE a table like the one it was trained on. The run is copied,
and each copy is exported and checked before it is measured. Figures: sentences per processor second in batches of
64, the median time of one sentence alone, and sentences per second of two processes that share the sentences. A
figure counts only if other programs used at most 0.1 processors meanwhile; where no round was quiet, it has a star.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from textwrap import wrap
from typing import Any

from decoding.contenders import Prepared, prepare
from decoding.rounds import BEAMS, Figure, run_rounds
from training.machine import processor, versions

RESULTS = Path(__file__).parent / "results"
PACKAGES = ["dragoman", "torch", "onnxruntime", "ctranslate2"]
MEASURES = {
    "batch 64": "sentences per processor second",
    "batch 1": "ms for one sentence",
    "two processes": "sentences per second, two processes",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a trained run")
    parser.add_argument("file", type=Path, help="table of inputs and references")
    parser.add_argument("--name", help="of the result file (default: the name of the run's folder)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--single", type=int, default=40, help="sentences that are decoded one by one")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="contenders whose name has this text"
    )
    parser.add_argument("--hugging-face", metavar="PYTHON", help="of an environment with transformers")
    parser.add_argument("--earlier", type=Path, metavar="CHECKOUT", help="folder of an earlier commit's checkout")
    parser.add_argument("--wait", type=float, default=20.0, help="seconds to wait for a quiet machine before each turn")
    parser.add_argument("--quick", action="store_true", help="one short round; nothing is written")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.sentences, options.single, options.wait = 1, 40, 5, 0.0
    with tempfile.TemporaryDirectory() as work:
        prepared = prepare(
            options.run,
            options.file,
            Path(work),
            options.sentences,
            options.hugging_face,
            options.earlier,
            lambda name: not options.only or any(part.lower() in name.lower() for part in options.only),
        )
        chosen = prepared.contenders
        if not chosen:
            sys.exit(f"--only: no contender has such a name: {', '.join(options.only)}")
        figures, outputs = run_rounds(
            chosen, prepared.rows, rounds=options.rounds, single=options.single, wait=options.wait
        )
        texts = {
            name: {beam: [prepared.to_text(each) for each in found] for beam, found in by_beam.items()}
            for name, by_beam in outputs.items()
        }
        result = summarise(figures, texts, prepared)
    result |= {
        "date": date.today().isoformat(), "run": options.name or options.run.resolve().name,
        "processor": processor(), "cores": os.cpu_count(), "versions": versions(sys.executable, PACKAGES),
        "sentences": prepared.rows, "rounds": options.rounds,
    }  # fmt: skip
    if options.earlier:
        asked = ["git", "-C", str(options.earlier), "rev-parse", "--short", "HEAD"]
        result["earlier"] = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    if options.hugging_face:
        result["versions"] |= versions(options.hugging_face, ["transformers"])
    page = write_page(result)
    print(page)
    if not options.quick:
        path = RESULTS / f"decoding-{result['run']}"
        path.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        path.with_suffix(".md").write_text(page, encoding="utf-8")


def summarise(
    figures: Mapping[str, Mapping[str, Sequence[Figure]]],
    texts: Mapping[str, Mapping[int, list[str]]],
    prepared: Prepared,
) -> dict[str, Any]:
    """Return medians, all rounds, and how good the outputs are."""
    from sacrebleu.metrics.chrf import CHRF

    first = next(iter(texts))
    rows = {}
    for name, measures in figures.items():
        rows[name] = {
            "measures": {measure: _median(each) for measure, each in measures.items()},
            "chrf": {
                str(beam): round(CHRF().corpus_score(texts[name][beam], [prepared.references]).score, 2)
                for beam in BEAMS
            },
            "same": {
                str(beam): sum(a == b for a, b in zip(texts[name][beam], texts[first][beam], strict=True))
                for beam in BEAMS
            },
        }
    return {"first": first, "contenders": rows}


def _median(figures: Sequence[Figure]) -> dict[str, Any]:
    """Return the median of the quiet rounds, or of all where none was quiet."""
    quiet = [figure.value for figure in figures if not figure.is_noisy]
    values = quiet or [figure.value for figure in figures]
    return {
        "median": round(statistics.median(values), 2),
        "least": round(min(values), 2),
        "most": round(max(values), 2),
        "noisy": not quiet,
        "rounds": [round(figure.value, 2) for figure in figures],
        "others": [figure.others for figure in figures],
    }


def write_page(result: Mapping[str, Any]) -> str:
    """Return a table for each measure, greedy and beam 5 side by side."""
    lines = [f"# Decoding: {result['run']}", ""]
    for measure, unit in MEASURES.items():
        lines += [f"## {unit[0].upper()}{unit[1:]}", "", "| contender | greedy | beam 5 |", "|---|---:|---:|"]
        for name, row in result["contenders"].items():
            cells = [_cell(row["measures"][f"beam {beam}, {measure}"]) for beam in BEAMS]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    if "earlier" in result:
        lines += [*_compare_with_earlier(result), ""]
    lines += ["## Outputs", "", f"| contender | chrF, greedy | beam 5 | same as {result['first']}, greedy | beam 5 |",
              "|---|---:|---:|---:|---:|"]  # fmt: skip
    for name, row in result["contenders"].items():
        chrf = [f"{row['chrf'][str(beam)]:.2f}" for beam in BEAMS]
        same = [f"{row['same'][str(beam)]:,} of {result['sentences']:,}" for beam in BEAMS]
        lines.append(f"| {name} | {' | '.join([*chrf, *same])} |")
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    about = (
        f"Medians of the quiet ones of {result['rounds']} rounds, in brackets the least and the most; a star: no round "
        f"was quiet. {result['sentences']:,} sentences, one thread each. Measured on {result['date']} on "
        f"{result['cores']} cores of {result['processor']}; {versions}."
    )
    return "\n".join([*lines, "", *wrap(about, 100)]) + "\n"


def _compare_with_earlier(result: Mapping[str, Any]) -> list[str]:
    """Return a table with the speed of each contender, divided by that of the first, the earlier commit."""
    ways = [f"beam {beam}, {measure}" for measure in MEASURES for beam in BEAMS]
    heads = [f"{measure}, {'greedy' if beam == 1 else f'beam {beam}'}" for measure in MEASURES for beam in BEAMS]
    lines = [f"## Times the speed of commit {result['earlier']}", ""]
    lines += [f"| contender | {' | '.join(heads)} |", f"|---|{'---:|' * len(ways)}"]
    first = result["contenders"][result["first"]]["measures"]
    for name, row in result["contenders"].items():
        ratios = [row["measures"][way]["median"] / first[way]["median"] for way in ways]
        speeds = [1 / ratio if way.endswith("batch 1") else ratio for way, ratio in zip(ways, ratios, strict=True)]
        lines.append(f"| {name} | {' | '.join(f'{speed:.2f}' for speed in speeds)} |")
    return lines


def _cell(figure: Mapping[str, Any]) -> str:
    digits = 1 if figure["median"] < 100 else 0
    median, least, most = (f"{figure[name]:,.{digits}f}" for name in ("median", "least", "most"))
    return f"{median}{'*' * figure['noisy']} ({least} to {most})"


if __name__ == "__main__":
    main()
