"""Speech to text: CMU AN4 from its own cepstra, kept as slices of one array.

    python experiments/an4/run.py --data FOLDER

FOLDER holds {train,test}_mfcc.npy, 13 cepstra a frame of all utterances one behind the other, and {train,test}.tsv with
each one's place and words. Writes results/*.json and README.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import program, run, run_together
from datasets import an4, write
from pages import arguments, options, write_page

HERE = Path(__file__).resolve().parent
SHARE = 0.2  # of CTC


def main() -> None:
    asked = arguments(__doc__, HERE).parse_args()
    rows = an4(asked.data)
    files = {side: write(rows[side], asked.runs / f"{side}.tsv") for side in ("train", "dev", "test")}
    characters = run(
        "characters", files["train"], files["dev"], files["test"], asked.runs, asked.results,
        options(HERE / "characters.toml", asked.set), asked.threads,
    )  # fmt: skip
    found = {"characters": characters}
    if "with-ctc" in (asked.only or ["with-ctc"]):
        chosen = ["--ctc", str(SHARE)]
        found["with-ctc"] = run_together("with-ctc", [characters], files["test"], asked.runs, asked.results, chosen)
    about = [
        "Spelled names, numbers and short commands: 848 utterances to train on, 100 for dev, 130 for test. The features are 13 cepstra a frame",
        "of one large array, read by slices, in training at three speeds. Settings: [characters](characters.toml). *with-ctc* is the same run, its",
        f"outputs ranked by CTC too (`--ctc {SHARE}`, chosen on dev: 18.3 % there in place of 19.6 %; from 0.1 to 0.5, all with a beam of 5).",
    ]
    published = dict.fromkeys(found, "7.4 WER, 3.6 CER (ESPnet: 12 + 6 layers, CTC, language model, from audio)")
    write_page(asked, HERE, "AN4", about, found, ("wer", "cer"), beside=published)


if __name__ == "__main__":
    program(main)
