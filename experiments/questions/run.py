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

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import run
from datasets import Picture, emoji, write
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
    about = [
        "Questions made from the names and groups of emoji, the answers too. Test pictures are known figures in a skin tone that they were not seen",
        "in. The models that see one source alone say how much of an answer can be guessed.",
    ]
    write_page(asked, HERE, "Questions about pictures", about, found, ("exact",))


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
    main()
