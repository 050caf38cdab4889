"""Spoken digits: single ones, new speakers, and strings of three to seven.

    python experiments/digits/run.py --data FOLDER [--only official strings without-george …]

FOLDER has wav/ and index.tsv of the Free Spoken Digit Dataset.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from datasets import Recording, digit_strings, digits
from runner import Experiment, start
from tables import INTERVALS, origin, page, runs_table

SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
DEV = range(5, 10)  # takes of a digit that are held out as dev; 0 to 4 are the official test
TRAIN_STRINGS, TEST_STRINGS = 3000, 400

Rows = dict[str, list[tuple[str, str]]]


def main(experiment: Experiment) -> None:
    def run(name: str, recordings: list[Recording]) -> object:
        if name == "strings":
            rows, config = join_digits(recordings, experiment.runs / "strings-data"), "strings"
        else:
            rows, config = split_digits(recordings, name.removeprefix("without-")), "single"
        return experiment.train(name, experiment.write_splits(rows, name), experiment.config(config))

    names = ("official", "strings", *(f"without-{speaker}" for speaker in SPEAKERS))
    results = experiment.collect(names, lambda: digits(experiment.data), run)
    about = (
        "3,000 recordings of ten digits by six speakers, 8 kHz. *official*: takes 0 to 4 of each speaker and digit are "
        "test (300), 5 to 9 dev. *without-NAME*: that speaker is test and not in training. *strings*: three to seven "
        "recordings of one speaker joined, test strings from test takes; a word error is a digit error there. "
        "Settings: [single](single.toml), [strings](strings.toml)."
    )
    table = runs_table(results, ("exact", "wer"), {"official": "97 to 99 (usual)"})
    text = page("Spoken digits", about, table, INTERVALS, origin(results[names[0]], "digits"))
    experiment.publish(text, is_complete=len(results) == len(names))


def split_digits(recordings: list[Recording], left_out: str) -> Rows:
    """Split single digits by take, or by one speaker who is left out for test."""
    rows: Rows = {"train": [], "dev": [], "test": []}
    for recording in recordings:
        is_test = recording.take < 5 if left_out == "official" else recording.speaker == left_out
        split = "test" if is_test else "dev" if recording.take in DEV else "train"
        rows[split].append((recording.path, recording.text))
    return rows


def join_digits(recordings: list[Recording], folder: Path) -> Rows:
    """Join digits into strings, each split from takes of its own."""
    takes = {
        "train": ([each for each in recordings if each.take >= 10], TRAIN_STRINGS),
        "dev": ([each for each in recordings if each.take in DEV], TEST_STRINGS),
        "test": ([each for each in recordings if each.take < 5], TEST_STRINGS),
    }
    return {split: digit_strings(chosen, count, folder / split) for split, (chosen, count) in takes.items()}


if __name__ == "__main__":
    start(main, __file__, __doc__)
