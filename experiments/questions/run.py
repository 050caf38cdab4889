"""Questions about pictures: a picture and a question to an answer, beside models that see only one of the two.

    python experiments/questions/run.py --data FOLDER

FOLDER has the sheet of emoji and its index (see experiments/emoji). Questions are made from the index: the group of a
picture, the skin tone of a figure, whether it is a man or a woman, what the figure is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from datasets import Picture, emoji, lines
from runner import SPLITS, Experiment, Files, Result, start
from tables import INTERVALS, origin, page, runs_table

HEADER = ("picture", "question", "answer")
SOURCES = {
    "picture-and-question": ["picture", "question"],
    "question-alone": ["question"],
    "picture-alone": ["picture"],
}


def main(experiment: Experiment) -> None:
    def prepare() -> Files:
        pictures = emoji(experiment.data, experiment.runs / "pictures")
        return experiment.write_splits(
            {
                split: [HEADER, *(row for each in pictures if each.split == split for row in ask(each))]
                for split in SPLITS
            }
        )

    def run(name: str, files: Files) -> object:
        sources = [word for source in SOURCES[name] for word in ("--source", source)]
        result = experiment.train(name, files, [*experiment.config(name), "--target", "answer", *sources])
        return result if len(SOURCES[name]) == 2 else evaluate_rows(experiment, name, files.test, result)

    names = tuple(SOURCES)
    results = experiment.collect(names, prepare, run)
    about = (
        "Questions and answers made from the names and groups of emoji. Test pictures are known figures in a new skin "
        "tone. The models that see one source alone show how much of an answer can be guessed. For them a question, or "
        "a picture, has many right answers: here each row is compared with its own answer, not with all of them as in "
        "`dragoman evaluate`."
    )
    table = runs_table(results, ("exact",))
    text = page("Questions about pictures", about, table, INTERVALS, origin(results[names[0]], "questions"))
    experiment.publish(text, is_complete=len(results) == len(names))


def evaluate_rows(experiment: Experiment, name: str, test: Path, result: Result) -> Result:
    """Replace exact match by the share of rows whose own answer was given."""
    rows = [dict(zip(HEADER, line.split("\t"), strict=True)) for line in lines(test)][1:]
    inputs, outputs = (experiment.runs / f"{name}.{side}.txt" for side in ("inputs", "outputs"))
    inputs.write_text("".join(f"{row[SOURCES[name][0]]}\n" for row in rows))
    experiment.command(["predict", str(experiment.runs / name), str(inputs)], "predict", output=outputs)
    right = np.array([answer == row["answer"] for answer, row in zip(lines(outputs), rows, strict=True)])
    shares = np.random.default_rng(1).choice(right, (1000, len(right))).mean(1)
    result["scores"]["exact"] = 100 * float(right.mean())
    result["intervals"]["exact"] = [100 * float(bound) for bound in np.quantile(shares, (0.025, 0.975))]
    result["row by row"] = ["exact"]
    return experiment.save(name, result)


def ask(picture: Picture) -> Iterator[tuple[str, str, str]]:
    """Yield every question that can be asked about a picture, with its answer."""
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
    start(main, __file__, __doc__)
