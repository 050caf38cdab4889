"""SCAN, simple split (Lake & Baroni 2018): commands to actions with the defaults alone.

    python experiments/scan/run.py --data FOLDER

FOLDER holds simple_train.tsv and simple_test.tsv; a tenth of train is held out as dev. Writes results/ and README.md.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import program, run

HERE = Path(__file__).resolve().parent


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--runs", type=Path, default=Path("runs/scan"))
    asked = arguments.parse_args()
    threads = os.cpu_count() or 1
    train, test = asked.data / "simple_train.tsv", asked.data / "simple_test.tsv"
    result = run("simple", train, None, test, asked.runs, HERE / "results", [], threads)
    low, high = result["intervals"]["exact"]
    lines = [
        "# SCAN, simple split",
        "",
        "Commands to actions (Lake & Baroni 2018), 16,728 training and 4,182 test commands, `dragoman train` with the defaults alone; a tenth",
        "of the training commands is held out as dev.",
        "",
        "| exact match on test | 95 % interval | updates | minutes, the whole command |",
        "|---|---|---|---|",
        f"| {result['scores']['exact']:.2f} % | {low:.2f} to {high:.2f} | {result['updates']:,} "
        f"| {result['whole_seconds'] / 60:.1f} |",
        "",
        f"Made on {result['date']} with `python experiments/scan/run.py --data FOLDER`; Dragoman {result['dragoman']}, torch "
        f"{result['torch']}, Python {result['python']}, {result['threads']} threads of {result['cpu']}.",
        "",
    ]
    (HERE / "README.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    program(main)
