"""Spelling to phones, 13 languages of SIGMORPHON 2020 task 1, one model a language, the defaults alone.

    python experiments/g2p/run.py --data FOLDER [--parallel 2] [--languages gre bul …]

FOLDER holds LANG_train.tsv, LANG_dev.tsv and LANG_test.tsv. Writes results/*.json and the table in README.md.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import run_all

HERE = Path(__file__).resolve().parent
# Test WER of the shared task's LSTM baseline, tuned per language on dev (Gorman et al. 2020).
BASELINE = {
    "ady": 28.00, "arm": 14.67, "bul": 31.11, "dut": 16.44, "fre": 6.22, "geo": 26.44, "gre": 18.89,
    "hun": 5.33, "ice": 10.00, "jpn": 7.56, "kor": 46.89, "rum": 10.67, "vie": 4.67,
}  # fmt: skip


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--runs", type=Path, default=Path("runs/g2p"))
    arguments.add_argument("--parallel", type=int, default=2)
    arguments.add_argument("--languages", nargs="*", default=list(BASELINE))
    asked = arguments.parse_args()
    threads = max(1, (os.cpu_count() or 1) // asked.parallel)
    jobs: list[dict[str, Any]] = [
        {
            "name": language,
            "train": asked.data / f"{language}_train.tsv",
            "dev": asked.data / f"{language}_dev.tsv",
            "test": asked.data / f"{language}_test.tsv",
            "runs": asked.runs,
            "results": HERE / "results",
            "options": [],
            "threads": threads,
        }
        for language in asked.languages
    ]
    found = {result["name"]: result for result in run_all(jobs, asked.parallel)}
    write_table(found, asked.parallel, threads)


def write_table(found: dict[str, dict[str, Any]], parallel: int, threads: int) -> None:
    rows = [
        f"| {name} | {result['scores']['ser']:.2f} | {BASELINE[name]:.2f} | {result['scores']['wer']:.2f} "
        f"| {result['updates']:,} | {result['whole_seconds'] / 60:.1f} |"
        for name, result in found.items()
    ]
    mean = sum(result["scores"]["ser"] for result in found.values()) / len(found)
    theirs = sum(BASELINE[name] for name in found) / len(found)
    any_result = next(iter(found.values()))
    lines = [
        "# Spelling to phones in 13 languages",
        "",
        "The data of SIGMORPHON 2020 task 1 (3,600 training words a language), one model a language, `dragoman train` with the defaults",
        "alone. WER is the share of words whose phones are not all right; PER the phone error rate. The baseline is the shared task's LSTM",
        "encoder-decoder, whose size and dropout were chosen per language on dev (Gorman et al. 2020); its figures are quoted from memory of that paper's table.",
        "",
        "| language | test WER | baseline WER | test PER | updates | minutes |",
        "|---|---|---|---|---|---|",
        *rows,
        f"| **mean** | **{mean:.2f}** | **{theirs:.2f}** | | | |",
        "",
        f"Minutes are for the whole command (reading, training, measuring), {parallel} runs side by side with {threads} thread(s) each.",
        "",
        f"Made on {any_result['date']} with `python experiments/g2p/run.py --data FOLDER --parallel {parallel}`; Dragoman "
        f"{any_result['dragoman']}, torch {any_result['torch']}, Python {any_result['python']}, {any_result['cores']} cores of "
        f"{any_result['cpu']}.",
        "",
    ]
    (HERE / "README.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
