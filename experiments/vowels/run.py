"""A sequence of numbers to a label: who of nine speakers said the Japanese vowels?

    python experiments/vowels/run.py --data FOLDER

FOLDER holds train.tsv and test.tsv: a label and frames of 12 cepstra. Writes results/*.json and README.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import program, run
from datasets import vowels, write
from pages import arguments, options, write_page

HERE = Path(__file__).resolve().parent


def main() -> None:
    asked = arguments(__doc__, HERE).parse_args()
    rows = vowels(asked.data, asked.runs / "arrays")
    files = {side: write(rows[side], asked.runs / f"{side}.tsv") for side in ("train", "dev", "test")}
    chosen = options(HERE / "speakers.toml", asked.set)
    found = {
        "speakers": run(
            "speakers", files["train"], files["dev"], files["test"], asked.runs, asked.results, chosen, asked.threads
        )
    }
    about = [
        "240 recordings to train on, 30 for dev, 370 for test; 7 to 29 frames of 12 cepstra each, one of nine labels. A label is a target of one",
        "token. Settings: [speakers](speakers.toml).",
    ]
    published = {"speakers": "94.1 (Kudo et al. 1999), 98 to 99 recent networks"}
    write_page(asked, HERE, "Japanese vowels", about, found, ("exact",), beside=published)


if __name__ == "__main__":
    program(main)
