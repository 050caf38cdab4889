"""SCAN, simple split (Lake & Baroni 2018): commands to actions with the defaults alone.

    python experiments/scan/run.py --data FOLDER

FOLDER has simple_train.tsv and simple_test.tsv; a tenth of train is held out as dev.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runner import Experiment, Files, start
from tables import effort, interval, origin, page, table


def main(experiment: Experiment) -> None:
    def prepare() -> Files:
        return Files(experiment.data / "simple_train.tsv", None, experiment.data / "simple_test.tsv")

    result = experiment.collect(("simple",), prepare, experiment.train)["simple"]
    about = (
        "Commands to actions (Lake & Baroni 2018), 16,728 training and 4,182 test commands, `dragoman train` with the "
        "defaults alone; a tenth of the training commands is held out as dev."
    )
    header = ("exact match on test", "95 % interval", "updates", "minutes, the whole command", "threads")
    row = [f"{result['scores']['exact']:.2f} %", interval(result, "exact"), *effort(result), str(result["threads"])]
    experiment.publish(page("SCAN, simple split", about, table(header, [row]), origin(result, "scan")))


if __name__ == "__main__":
    start(main, __file__, __doc__)
