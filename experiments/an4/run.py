"""Speech to text: CMU AN4 from its own cepstra, kept as slices of one array.

    python experiments/an4/run.py --data FOLDER [--only characters …]

FOLDER holds {train,test}_mfcc.npy, 13 cepstra a frame of all utterances one behind the other, and {train,test}.tsv with
each one's place and words. Every .toml beside this file is a run. Writes results/*.json and README.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import run
from datasets import an4, write
from pages import arguments, options, write_page

HERE = Path(__file__).resolve().parent


def main() -> None:
    asked = arguments(__doc__, HERE).parse_args()
    rows = an4(asked.data)
    files = {side: write(rows[side], asked.runs / f"{side}.tsv") for side in ("train", "dev", "test")}
    found = {
        name: run(
            name, files["train"], files["dev"], files["test"], asked.runs, asked.results,
            options(HERE / f"{name}.toml", asked.set), asked.threads,
        )
        for name in asked.only or sorted(path.stem for path in HERE.glob("*.toml"))
    }  # fmt: skip
    about = [
        "Spelled names, numbers and short commands: 848 utterances to train on, 100 for dev, 130 for test. The features are 13 cepstra a frame",
        "of one large array, read by slices, in training at three speeds. Outputs are ranked by the decoder and by CTC",
        "([characters](characters.toml); the share of CTC was chosen on dev).",
    ]
    published = dict.fromkeys(found, "7.4 WER, 3.6 CER (ESPnet: 12 + 6 layers, CTC, language model, from audio)")
    write_page(asked, HERE, "AN4", about, found, ("wer", "cer"), beside=published)


if __name__ == "__main__":
    main()
