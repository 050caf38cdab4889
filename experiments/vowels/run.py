"""A sequence of numbers to a label: which of nine speakers said the Japanese vowels?

    python experiments/vowels/run.py --data FOLDER

FOLDER has train.tsv and test.tsv: a label and frames of 12 cepstra.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from datasets import vowels
from runner import Experiment, Files, start
from tables import INTERVALS, origin, page, runs_table


def main(experiment: Experiment) -> None:
    def prepare() -> Files:
        return experiment.write_splits(vowels(experiment.data, experiment.runs / "arrays"))

    def run(name: str, files: Files) -> object:
        return experiment.train(name, files, experiment.config(name))

    results = experiment.collect(("speakers",), prepare, run)
    about = (
        "240 recordings to train on, 30 for dev, 370 for test; each has 7 to 29 frames of 12 cepstra and one of nine "
        "labels. A label is a target of one token. Settings: [speakers](speakers.toml)."
    )
    table = runs_table(results, ("exact",), {"speakers": "94.1 (Kudo et al. 1999), 98 to 99 recent networks"})
    experiment.publish(page("Japanese vowels", about, table, INTERVALS, origin(results["speakers"], "vowels")))


if __name__ == "__main__":
    start(main, __file__, __doc__)
