"""Can the confidence of outputs be believed? Fit it on dev, and compare it with what is right on test.

    python experiments/confidence/run.py --index runs.tsv    # fit and measure the runs without a result, and the page
    python experiments/confidence/run.py --index runs.tsv --only dates
    python experiments/confidence/run.py --table             # only write the page, from results.json

The index is a table with the columns name, run, dev and test: the folder of a run, and two files with references. Runs
whose names have the same beginning before a hyphen are also measured together.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runner import Result, describe_machine, tell_mistakes
from tables import made_with, page, table

FOLDER = Path(__file__).resolve().parent
COVERAGE = 0.8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, help="table of runs: name, run, dev, test")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="measure this run again")
    parser.add_argument("--table", action="store_true", help="only write the page")
    options = parser.parse_args()
    path = FOLDER / "results.json"
    results: Result = json.loads(path.read_text()) if path.exists() else {"runs": {}}
    if not options.table:
        if options.index is None:
            parser.error("--index FILE is needed, unless only the page is to be written (--table)")
        with options.index.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        for row in rows:
            if row["name"] not in options.only and (options.only or row["name"] in results["runs"]):
                continue
            results["runs"][row["name"]] = measure_run(row["run"], row["dev"], row["test"])
            results |= describe_machine()
            text = json.dumps(results, indent=None, separators=(",", ":")).replace('},"', '},\n"')
            path.write_text(text + "\n", encoding="utf-8")
            print(row["name"], json.dumps(figures(results["runs"][row["name"]])), flush=True)
    (FOLDER / "README.md").write_text(write_page(results), encoding="utf-8")


def measure_run(run: str, dev: str, test: str) -> Result:
    """Fit the confidence of a run on dev, and return that of each test output and whether it is right."""
    import dragoman
    from dragoman.evaluation.evaluate import decode
    from dragoman.evaluation.metrics.calibration import judge
    from dragoman.evaluation.reading import read_examples
    from dragoman.inference.predictions import texts_of

    fit = dragoman.calibrate(run, dev, workers=1)
    system = dragoman.load(run)
    decoded = decode(system, read_examples(system, test).examples, workers=1)
    confidence = fit.confidence
    right = judge(confidence.metric, confidence.threshold, texts_of(decoded.predictions), decoded.references)
    rows = [(prediction.confidence, hit) for prediction, hit in zip(decoded.predictions, right, strict=True)]
    rated = [(sure, hit) for sure, hit in rows if sure is not None]  # an empty input has none
    return {
        "right": confidence.describe(),
        "dev": fit.report.rows,
        "chosen": confidence.fitted["chosen"],
        "smoothing": confidence.smoothing,
        "confidences": [round(sure, 5) for sure, _ in rated],
        "hits": [int(hit) for _, hit in rated],
    }


def figures(run: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of the table: errors in points, risks in percent, and the share of the gap that is closed."""
    from dragoman.evaluation.metrics.calibration import calibration_error, error_by_chance, ideal_risk, risk_at

    sure, hits = np.array(run["confidences"]), np.array(run["hits"], float)
    accuracy = float(hits.mean())
    risk, ideal, random = risk_at(sure, hits, COVERAGE).risk, ideal_risk(accuracy, COVERAGE), 1 - accuracy
    return {
        "rows": len(hits),
        "accuracy": 100 * accuracy,
        "error": 100 * calibration_error(sure, hits),
        "chance": 100 * error_by_chance(sure),
        "risk": 100 * risk,
        "random": 100 * random,
        "ideal": 100 * ideal,
        "closed": 100 * (random - risk) / (random - ideal) if random > ideal else 100.0,
    }


def write_page(results: Result) -> str:
    runs: dict[str, Any] = dict(results["runs"])
    together: dict[str, list[Any]] = {}
    for name, run in runs.items():
        if "-" in name:
            together.setdefault(name.partition("-")[0], []).append(run)
    for name, members in together.items():
        joined = {key: [each for run in members for each in run[key]] for key in ("confidences", "hits")}
        runs[f"{name}, together"] = {**joined, "chosen": "", "right": members[0]["right"]}
    rows = []
    for name, run in sorted(runs.items()):
        each = figures(run)
        cells = [f"{each[key]:.1f}" for key in ("error", "chance", "risk", "random", "ideal")]
        head = [name, f"{each['rows']:,}", run["right"], f"{each['accuracy']:.1f}"]
        rows.append([*head, *cells, f"{each['closed']:.0f}", run["chosen"]])
    header = ["run", "test rows", "right: the output", "right, %", "calibration error", "of a perfect one"]
    header += ["risk at 80 %", "random order", "ideal order", "gap closed, %", "fitted by"]
    return page(
        "Can the confidence of outputs be believed?",
        "Runs of different kinds with the default settings. The confidence is fitted on dev with `dragoman calibrate`, "
        "and compared with what is right on test, on which nothing was chosen.",
        "Calibration error is the expected calibration error with ten bins, in points. Even a perfect confidence has "
        "one on so few rows: beside it is the mean of 500 simulations, in which each output is right with the "
        "probability of its confidence. Risk at 80 % is the share of wrong outputs, in percent, if the surest 80 % are "
        "kept. In random order it is the share of all; in ideal order, all wrong ones are left out first. The gap is "
        "the distance between both.",
        table(header, rows),
        f"Made on {results['date']} with `python experiments/confidence/run.py --index runs.tsv`; "
        f"{made_with(results)}.",
    )


if __name__ == "__main__":
    tell_mistakes(main)
