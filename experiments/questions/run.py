"""Questions about pictures: a picture and a question to an answer, against models that see the question alone.

    python experiments/questions/run.py --data FOLDER

FOLDER holds the sheet of emoji and its index (see experiments/emoji). Questions are made from the index: the group of a
picture, the skin tone of a figure, whether it is a man or a woman, what the figure is.
Writes results/*.json and README.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from campaign import dragoman, program, run, write_result
from datasets import Picture, emoji, lines, write
from pages import arguments, options, write_page

HERE = Path(__file__).resolve().parent
HEADER = ("picture", "question", "answer")
SOURCES = {
    "picture-and-question": ["picture", "question"],
    "question-alone": ["question"],
    "picture-alone": ["picture"],
}


def main() -> None:
    asked = arguments(__doc__, HERE).parse_args()
    pictures = emoji(asked.data, asked.runs / "pictures")
    files = {
        side: write(
            [HEADER, *(row for one in pictures if one.split == side for row in questions(one))],
            asked.runs / f"{side}.tsv",
        )
        for side in ("train", "dev", "test")
    }
    found = {}
    for name in asked.only or SOURCES:
        chosen = [*options(HERE / f"{name}.toml", asked.set), "--target", "answer"]
        chosen += [word for source in SOURCES[name] for word in ("--source", source)]
        found[name] = run(
            name, files["train"], files["dev"], files["test"], asked.runs, asked.results, chosen, asked.threads
        )
        if len(SOURCES[name]) == 1:
            found[name] = row_by_row(name, files["test"], found[name], asked)
    about = [
        "Questions made from the names and groups of emoji, the answers too. Test pictures are known figures in a skin tone that they were not seen",
        "in. The models that see one source alone say how much of an answer can be guessed. For them a question, or a picture, has many right",
        "answers: each row is held against its own here, not against all of them as `dragoman evaluate` does.",
    ]
    write_page(asked, HERE, "Questions about pictures", about, found, ("exact",))


def row_by_row(name: str, test: Path, result: dict[str, Any], asked: Any) -> dict[str, Any]:
    """The result with the share of rows whose own answer was given."""
    if "row by row" in result:
        return result
    rows = [dict(zip(HEADER, line.split("\t"), strict=True)) for line in lines(test)][1:]
    given, said = asked.runs / f"{name}.inputs.txt", asked.runs / f"{name}.outputs.txt"
    given.write_text("".join(f"{row[SOURCES[name][0]]}\n" for row in rows))
    dragoman(["predict", str(asked.runs / name), str(given)], asked.runs / "predict.log", 1, said)
    right = np.array([answer == row["answer"] for answer, row in zip(lines(said), rows, strict=True)])
    drawn = np.random.default_rng(1).choice(right, (1000, len(right))).mean(1)
    result["scores"]["exact"] = 100 * float(right.mean())
    result["intervals"]["exact"] = [100 * float(bound) for bound in np.quantile(drawn, (0.025, 0.975))]
    result["row by row"] = ["exact"]
    write_result(asked.results / f"{name}.json", result)
    return result


def questions(picture: Picture) -> Iterator[tuple[str, str, str]]:
    """What can be asked of a picture, with the answers."""
    figure, _, manner = picture.caption.partition(": ")
    yield picture.path, "what group is it?", picture.group
    tones = [part.removesuffix(" skin tone") for part in manner.split(", ") if part.endswith(" skin tone")]
    if len(tones) == 1:
        yield picture.path, "which skin tone?", tones[0]
        yield picture.path, "what is it?", figure
    words = figure.split()
    if words[0] in ("man", "woman", "person"):
        yield picture.path, "is it a man, a woman or a person?", words[0]


if __name__ == "__main__":
    program(main)
