"""Spoken digits: single ones, speakers never heard, and strings of three to seven.

    python experiments/digits/run.py --data FOLDER [--only official strings without-george …]

FOLDER holds wav/ and index.tsv of the Free Spoken Digit Dataset. Writes results/*.json and README.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import program, run
from datasets import Recording, digit_strings, digits, write
from pages import arguments, options, write_page

HERE = Path(__file__).resolve().parent
DEV = range(5, 10)  # takes of a digit that are held out as dev; 0 to 4 are the official test
TRAIN_STRINGS, TEST_STRINGS = 3000, 400


def main() -> None:
    asked = arguments(__doc__, HERE).parse_args()
    recordings = digits(asked.data)
    speakers = sorted({one.speaker for one in recordings})
    names = asked.only or ["official", "strings", *(f"without-{speaker}" for speaker in speakers)]
    found = {}
    for name in names:
        if name == "strings":
            config, sides = HERE / "strings.toml", _strings(recordings, asked.runs / "strings-data")
        else:
            config, sides = HERE / "single.toml", _single(recordings, name.removeprefix("without-"))
        files = {side: write(rows, asked.runs / "data" / f"{name}.{side}.tsv") for side, rows in sides.items()}
        chosen = options(config, asked.set)
        found[name] = run(
            name, files["train"], files["dev"], files["test"], asked.runs, asked.results, chosen, asked.threads
        )
    about = [
        "3,000 recordings of ten digits by six speakers, 8 kHz. *official*: takes 0 to 4 of each speaker and digit are test (300), 5 to 9 dev.",
        "*without-NAME*: that speaker is test and was never heard. *strings*: three to seven recordings of one speaker joined, test strings from",
        "test takes; a word error is a digit error there. Settings: [single](single.toml), [strings](strings.toml).",
    ]
    write_page(asked, HERE, "Spoken digits", about, found, ("exact", "wer"), beside={"official": "97 to 99 (usual)"})


def _single(recordings: list[Recording], left_out: str) -> dict[str, list[tuple[str, str]]]:
    sides: dict[str, list[tuple[str, str]]] = {"train": [], "dev": [], "test": []}
    for one in recordings:
        if left_out == "official":
            side = "test" if one.take < 5 else "dev" if one.take in DEV else "train"
        else:
            side = "test" if one.speaker == left_out else "dev" if one.take in DEV else "train"
        sides[side].append((one.path, one.text))
    return sides


def _strings(recordings: list[Recording], folder: Path) -> dict[str, list[tuple[str, str]]]:
    chosen = {
        "train": ([one for one in recordings if one.take >= 10], TRAIN_STRINGS),
        "dev": ([one for one in recordings if one.take in DEV], TEST_STRINGS),
        "test": ([one for one in recordings if one.take < 5], TEST_STRINGS),
    }
    return {side: digit_strings(ones, count, folder / side) for side, (ones, count) in chosen.items()}


if __name__ == "__main__":
    program(main)
