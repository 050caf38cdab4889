"""Speech to text: CMU AN4 from its own cepstra, stored as slices of one array.

    python experiments/an4/run.py --data FOLDER

FOLDER has {train,test}_mfcc.npy, 13 cepstra for each frame of all utterances one after the other, and
{train,test}.tsv with the place and the words of each utterance.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from datasets import an4
from runner import Experiment, Files, start
from tables import INTERVALS, origin, page, runs_table

SHARE = 0.2  # of CTC
PUBLISHED = "7.4 WER, 3.6 CER (ESPnet: 12 + 6 layers, CTC, language model, from audio)"


def main(experiment: Experiment) -> None:
    def run(name: str, files: Files) -> object:
        if name == "with-ctc":
            return experiment.evaluate_again(name, "characters", files.test, ["--ctc", str(SHARE)])
        return experiment.train(name, files, experiment.config(name))

    names = ("characters", "with-ctc")
    results = experiment.collect(names, lambda: experiment.write_splits(an4(experiment.data)), run)
    about = (
        "Spelled names, numbers and short commands: 848 utterances to train on, 100 for dev, 130 for test. The "
        "features are 13 cepstra for each frame, read as slices of one large array, in training at three speeds. "
        "Settings: [characters](characters.toml). *with-ctc* is the same run with its outputs ranked by CTC too "
        f"(`--ctc {SHARE}`, chosen on dev, where it has 18.3 % instead of 19.6 %; tried were 0.1 to 0.5, all with a "
        "beam of 5)."
    )
    table = runs_table(results, ("wer", "cer"), dict.fromkeys(results, PUBLISHED))
    text = page("AN4", about, table, INTERVALS, origin(results[names[0]], "an4"))
    experiment.publish(text, is_complete=len(results) == len(names))


if __name__ == "__main__":
    start(main, __file__, __doc__)
