"""Pictures of formulas to LaTeX: can the model fit them, and how much does it generalize?

    python experiments/formulas/run.py --data FOLDER

FOLDER has png/ and index.tsv of the sample of im2latex. Also draws overlays.jpg.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from datasets import formulas
from runner import Experiment, Files, start
from tables import INTERVALS, Block, origin, page, runs_table

LENGTH = 12  # tokens of the formulas that are drawn


def main(experiment: Experiment) -> None:
    def prepare() -> Files:
        return experiment.write_splits(formulas(experiment.data))

    def run(name: str, files: Files) -> object:
        if name == "fitted":
            return experiment.evaluate_again(name, "settled", files.train)
        first = str(experiment.runs / "tokens")
        init = ["--init-encoder", first, "--init-decoder", first] if name == "settled" else []
        return experiment.train(name, files, [*experiment.config(name), *init])

    names = ("tokens", "settled", "fitted")
    results = experiment.collect(names, prepare, run)
    experiment.draw_overlays("settled", lambda: choose_pictures(experiment), "overlays.jpg")
    about = (
        "998 formulas to train on, 100 for dev, 100 for test, of about 264 × 42 pixels and 50 tokens each. A thousand "
        "pictures are too few to learn to read new formulas; the question is whether the encoder sees enough to fit "
        "them. *tokens* and *settled* are evaluated on test, *fitted* is *settled* on its training pictures. Settings: "
        "[tokens](tokens.toml), and from its weights, with the encoder frozen, [settled](settled.toml). A word error "
        "is the error of a token; outputs can be longer than references, so the share can exceed 100 %."
    )
    attention = (
        "Attention (the mean over layers and heads) over a training picture and over a test picture. It begins at the "
        "first symbol and moves to the right, but loosely: much of the output is memorized, and a new formula is not "
        "read."
    )
    picture = Block("![attention, token by token](overlays.jpg)")
    table = runs_table(results, ("wer", "exact"))
    text = page("Formulas", about, table, INTERVALS, attention, picture, origin(results[names[0]], "formulas"))
    experiment.publish(text, is_complete=len(results) == len(names))


def choose_pictures(experiment: Experiment) -> list[str]:
    """Return the training and the test picture whose formula is closest to ``LENGTH`` tokens."""
    rows = formulas(experiment.data)
    return [min(rows[split], key=lambda row: abs(len(row[1].split()) - LENGTH))[0] for split in ("train", "test")]


if __name__ == "__main__":
    start(main, __file__, __doc__)
