"""Spelling to phones, one model a language, the defaults alone: 13 languages of SIGMORPHON 2020 task 1, or three of 2021.

    python experiments/g2p/run.py --data FOLDER [--parallel 2] [--languages gre bul …]
    python experiments/g2p/run.py --set 2021 --data FOLDER [--parallel 2]

FOLDER holds LANG_train.tsv, LANG_dev.tsv and LANG_test.tsv (of 2021: the medium level). Writes results/*.json and the
table in README.md; of 2021 results/2021/*.json and the table in 2021.md.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import made_with, program, run_all

HERE = Path(__file__).resolve().parent
# Test WER of the shared task's LSTM baseline, tuned per language on dev (Gorman et al. 2020).
BASELINE = {
    "ady": 28.00, "arm": 14.67, "bul": 31.11, "dut": 16.44, "fre": 6.22, "geo": 26.44, "gre": 18.89,
    "hun": 5.33, "ice": 10.00, "jpn": 7.56, "kor": 46.89, "rum": 10.67, "vie": 4.67,
}  # fmt: skip
# Test WER at the medium level of 2021: one character Transformer a language (Etxaniz, "Comparing Writing Systems"), and
# the shared task's baseline, ten neural edit transducers together (Ashby et al. 2021).
SINGLE_2021 = {"bul": 20.1, "dut": 16.9, "fre": 10.2}
TOGETHER_2021 = {"bul": 18.3, "dut": 14.7, "fre": 8.5}
SECONDS_2021 = 840  # of training, so that the whole command is done in 15 minutes


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--set", choices=["2020", "2021"], default="2020", help="which year's data")
    arguments.add_argument("--runs", type=Path, help="default: runs/g2p, runs/g2p-2021")
    arguments.add_argument("--parallel", type=int, default=2)
    arguments.add_argument("--languages", nargs="*", help="default: all of the year's")
    asked = arguments.parse_args()
    threads = max(1, (os.cpu_count() or 1) // asked.parallel)
    new = asked.set == "2021"
    runs = asked.runs or Path("runs/g2p-2021" if new else "runs/g2p")
    jobs: list[dict[str, Any]] = [
        {
            "name": language,
            "train": asked.data / f"{language}_train.tsv",
            "dev": asked.data / f"{language}_dev.tsv",
            "test": asked.data / f"{language}_test.tsv",
            "runs": runs,
            "results": HERE / "results" / "2021" if new else HERE / "results",
            "options": ["--max-time", str(SECONDS_2021)] if new else [],
            "threads": threads,
        }
        for language in asked.languages or (SINGLE_2021 if new else BASELINE)
    ]
    found = {result["name"]: result for result in run_all(jobs, asked.parallel)}
    (write_table_2021 if new else write_table)(found, asked.parallel, threads)


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
        f"Made on {any_result['date']} with `python experiments/g2p/run.py --data FOLDER --parallel {parallel}`; {made_with(any_result)}.",
        "",
    ]
    if (HERE / "2021.md").exists():
        lines += ["Three languages of the year after, with more training words: [2021](2021.md).", ""]
    if len(found) == len(BASELINE):  # a page of some languages would have another mean
        (HERE / "README.md").write_text("\n".join(lines))
    print("\n".join(lines))


def write_table_2021(found: dict[str, dict[str, Any]], parallel: int, threads: int) -> None:
    rows = [
        f"| {name} | {result['scores']['ser']:.2f} | {SINGLE_2021[name]:.1f} | {TOGETHER_2021[name]:.1f} | {result['scores']['wer']:.2f} "
        f"| {result['updates']:,} | {result['whole_seconds'] / 60:.1f} |"
        for name, result in found.items()
    ]
    mean, single, together = (
        sum(values) / len(found)
        for values in (
            [result["scores"]["ser"] for result in found.values()],
            [SINGLE_2021[name] for name in found],
            [TOGETHER_2021[name] for name in found],
        )
    )
    any_result = next(iter(found.values()))
    lines = [
        "# Spelling to phones, 8,000 training words",
        "",
        "Three languages of the medium level of SIGMORPHON 2021 task 1, one model a language, `dragoman train` with the defaults alone and",
        f"at most {SECONDS_2021 // 60} minutes of training. WER is the share of words whose phones are not all right, PER the phone error rate.",
        "The single model is a character Transformer of 7.4 M parameters (Etxaniz, *Comparing Writing Systems*); the ten together are the",
        "shared task's baseline, an ensemble of neural edit transducers (Ashby et al. 2021).",
        "",
        "| language | test WER | single model | ten together | test PER | updates | minutes |",
        "|---|---|---|---|---|---|---|",
        *rows,
        f"| **mean** | **{mean:.2f}** | **{single:.2f}** | **{together:.2f}** | | | |",
        "",
        f"Minutes are for the whole command (reading, training, measuring), {parallel} runs side by side with {threads} thread(s) each.",
        "",
        f"Made on {any_result['date']} with `python experiments/g2p/run.py --set 2021 --data FOLDER --parallel {parallel}`; {made_with(any_result)}.",
        "",
    ]
    if len(found) == len(SINGLE_2021):
        (HERE / "2021.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    program(main)
