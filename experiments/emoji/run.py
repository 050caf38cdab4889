"""Pictures to captions: Noto emoji and their English names, with soft and hard attention.

    python experiments/emoji/run.py --data FOLDER [--only soft hard]

FOLDER has noto_32px.png, a sheet of 32 × 32 pictures, and index.tsv with the place and the name of each. Test pictures
are known figures in a new skin tone. "hard" starts from the weights of "soft". Also draws overlays-*.jpg: ten test
pictures, each with the attention of every word.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from datasets import emoji
from runner import SPLITS, Experiment, Files, start
from tables import INTERVALS, Block, origin, page, runs_table

SHOWN = 10  # pictures of an overlay


def main(experiment: Experiment) -> None:
    def prepare() -> Files:
        pictures = emoji(experiment.data, experiment.runs / "pictures")
        return experiment.write_splits(
            {split: [(each.path, each.caption) for each in pictures if each.split == split] for split in SPLITS}
        )

    def run(name: str, files: Files) -> object:
        soft = str(experiment.runs / "soft")
        # a network that sees already learns sooner which regions to draw
        init = ["--init-encoder", soft, "--init-decoder", soft] if name == "hard" else []
        return experiment.train(name, files, [*experiment.config(name), *init])

    names = ("soft", "hard")
    results = experiment.collect(names, prepare, run)
    for name in results:
        experiment.draw_overlays(name, lambda: choose_pictures(experiment), f"overlays-{name}.jpg")
    about = (
        "3,228 pictures of 32 × 32 pixels and their names, trained from scratch. Test pictures (362) are known figures "
        "in a new skin tone: “man student: medium skin tone”. Settings: [soft](soft.toml); [hard](hard.toml), which "
        "starts from the weights of *soft*. The pictures are Noto Emoji (Apache 2.0). With half as many epochs, *soft* "
        "had 77.35 on the same machine and 80.66 on another: it had not finished learning."
    )
    sheets = Block("\n".join(f"![attention of the run {name}, word by word](overlays-{name}.jpg)" for name in results))
    table = runs_table(results, ("exact", "wer", "bleu"))
    text = page("Captions of emoji", about, table, INTERVALS, sheets, origin(results[names[0]], "emoji"))
    experiment.publish(text, is_complete=len(results) == len(names))


def choose_pictures(experiment: Experiment) -> list[str]:
    """Return some test pictures, spread evenly."""
    pictures = emoji(experiment.data, experiment.runs / "pictures")
    test = [each.path for each in pictures if each.split == "test"]
    return test[:: len(test) // SHOWN][:SHOWN]


if __name__ == "__main__":
    start(main, __file__, __doc__)
