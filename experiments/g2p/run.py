"""Spelling to phones with the defaults alone, one model for each language of SIGMORPHON 2020 task 1 or 2021 task 1.

    python experiments/g2p/run.py --data FOLDER [--parallel 2] [--only gre bul …]
    python experiments/g2p/run.py --year 2021 --data FOLDER [--parallel 2]

FOLDER has LANG_train.tsv, LANG_dev.tsv and LANG_test.tsv (of 2021: the medium level). The results of 2021 are in
results/2021, and its page is 2021.md.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runner import Experiment, Files, Result, start
from tables import bold, effort, mean, origin, page, table

# Test WER of the shared task's LSTM baseline, tuned for each language on dev (Gorman et al. 2020).
BASELINE_2020 = {
    "ady": 28.00, "arm": 14.67, "bul": 31.11, "dut": 16.44, "fre": 6.22, "geo": 26.44, "gre": 18.89,
    "hun": 5.33, "ice": 10.00, "jpn": 7.56, "kor": 46.89, "rum": 10.67, "vie": 4.67,
}  # fmt: skip
# Test WER at the medium level of 2021: one character Transformer for each language (Etxaniz, "Comparing Writing
# Systems"), and the shared task's baseline, an ensemble of ten neural edit transducers (Ashby et al. 2021).
SINGLE_2021 = {"bul": 20.1, "dut": 16.9, "fre": 10.2}
ENSEMBLE_2021 = {"bul": 18.3, "dut": 14.7, "fre": 8.5}
SECONDS_2021 = 840  # of training, so that the whole command takes less than 15 minutes

RATES = "WER is the share of words with a wrong phone, PER the phone error rate."


def main(experiment: Experiment) -> None:
    is_2021 = experiment.options.year == "2021"
    if is_2021:
        runs = experiment.runs.with_name(f"{experiment.runs.name}-2021")
        experiment = replace(experiment, runs=runs, results=experiment.results / "2021")

    def run(name: str, data: Path) -> object:
        files = Files(*(data / f"{name}_{split}.tsv" for split in ("train", "dev", "test")))
        return experiment.train(name, files, ["--max-time", str(SECONDS_2021)] if is_2021 else [])

    names = tuple(SINGLE_2021 if is_2021 else BASELINE_2020)
    results = experiment.collect(names, lambda: experiment.data, run)
    make = page_2021 if is_2021 else page_2020
    first = results[next(iter(results))]
    minutes = (
        f"Minutes are for the whole command (reading, training, evaluating), {experiment.parallel} runs at the same "
        f"time with {first['threads']} thread(s) each."
    )
    command = f"--parallel {experiment.parallel}"
    text = make(results, minutes, origin(first, "g2p", f"--year 2021 {command}" if is_2021 else command))
    name = "2021.md" if is_2021 else "README.md"
    experiment.publish(text, name=name, is_complete=len(results) == len(names))


def page_2020(results: Mapping[str, Result], minutes: str, origin: str) -> str:
    about = (
        "The data of SIGMORPHON 2020 task 1 (3,600 training words for each language), one model for each language, "
        f"`dragoman train` with the defaults alone. {RATES} The baseline is the shared task's LSTM encoder-decoder, "
        "whose size and dropout were chosen for each language on dev (Gorman et al. 2020); its figures are quoted from "
        "memory of that paper's table."
    )
    more = "Three languages of the next year, with more training words: [2021](2021.md)."
    baselines = {"baseline WER": {name: f"{value:.2f}" for name, value in BASELINE_2020.items()}}
    means = [bold(mean(BASELINE_2020[name] for name in results))]
    rows = list_rows(results, baselines, means)
    return page("Spelling to phones in 13 languages", about, rows, minutes, origin, more)


def page_2021(results: Mapping[str, Result], minutes: str, origin: str) -> str:
    about = (
        "Three languages of the medium level of SIGMORPHON 2021 task 1, one model for each language, `dragoman train` "
        f"with the defaults alone and at most {SECONDS_2021 // 60} minutes of training. {RATES} The single model is a "
        "character Transformer of 7.4 M parameters (Etxaniz, *Comparing Writing Systems*); the ensemble of ten neural "
        "edit transducers is the shared task's baseline (Ashby et al. 2021)."
    )
    figures = {"single model": SINGLE_2021, "ensemble of ten": ENSEMBLE_2021}
    published = {label: {name: f"{value:.1f}" for name, value in of.items()} for label, of in figures.items()}
    means = [bold(mean(of[name] for name in results)) for of in figures.values()]
    rows = list_rows(results, published, means)
    return page("Spelling to phones, 8,000 training words", about, rows, minutes, origin)


def list_rows(results: Mapping[str, Result], published: Mapping[str, Mapping[str, str]], means: list[str]) -> str:
    """Return the table: a row for each language with the published figures, and the means."""
    rows = [
        [
            name,
            f"{100 - result['scores']['exact']:.2f}",
            *(figures[name] for figures in published.values()),
            f"{result['scores']['wer']:.2f}",
            *effort(result),
        ]
        for name, result in results.items()
    ]
    wer = bold(mean(100 - result["scores"]["exact"] for result in results.values()))
    rows.append(["**mean**", wer, *means, "", "", ""])
    return table(["language", "test WER", *published, "test PER", "updates", "minutes"], rows)


if __name__ == "__main__":
    year = {"choices": ["2020", "2021"], "default": "2020", "help": "of the data set"}
    start(main, __file__, __doc__, parallel=2, extra={"--year": year})
