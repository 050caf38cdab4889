"""What is compared: every preset, at a size that trains in seconds, and other combinations of parts.

The data are made up: words and their reversals, drawn scenes, dialled tones, walks of a point, pairs of words. The
sizes are small, because an export differs by what a part computes, not by how wide it is.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LETTERS = "abcdefgh"
ROWS = {"train": 400, "dev": 40, "test": 200}


@dataclass(frozen=True)
class Made:
    """Data of one kind: the training table, the dev table, and inputs to compare on."""

    train: Path
    dev: Path
    inputs: list[Any]


@dataclass(frozen=True)
class Case:
    """One run to train and export."""

    data: Callable[[Path], Made]
    preset: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)  # settings beside the beam
    updates: int = 150


# ---- data


def words(folder: Path) -> Made:
    """Words of random letters, and their reversals."""
    return _write_table(folder, lambda word, _: [word, word[::-1]], ["source", "target"], ["source"])


def lines(folder: Path) -> Made:
    """Lines of text: a word, and the same again. Inputs are the beginnings of words."""
    made = _write_table(folder, lambda word, _: [f"{word} {word}"], None, ["0"])
    return Made(made.train, made.dev, [each[: 1 + index % 3] for index, each in enumerate(made.inputs)])


def tagged(folder: Path) -> Made:
    """Letters between spaces after tags in angle brackets that say whether to reverse or to repeat them."""

    def row(word: str, other: str) -> list[str]:
        tag = ("<R>", "<D>")[len(other) % 2]
        return [" ".join([tag, "<X>", *word]), word[::-1] if tag == "<R>" else word + word]

    return _write_table(folder, row, ["source", "target"], ["source"])


def two_words(folder: Path) -> Made:
    """Two words, and their letters in turns."""
    return _write_table(
        folder,
        lambda word, other: [word, other, "".join(a + b for a, b in zip(word, other, strict=False))],
        ["first", "second", "target"],
        ["first", "second"],
    )


def labels(folder: Path) -> Made:
    """Words, and a label that their first letter and their length decide."""
    return _write_table(
        folder,
        lambda word, _: [word, f"{'vowel' if word[0] in 'ae' else 'consonant'} {'long' if len(word) > 5 else 'short'}"],
        ["source", "label"],
        ["source"],
    )


def sentences(folder: Path) -> Made:
    """A few sentences of one word each; the target is the second."""
    return _write_table(
        folder, lambda word, other: [f"{other} . {word} . {word[::-1]} .", word], ["source", "target"], ["source"]
    )


def scenes(folder: Path) -> Made:
    """Drawn scenes and their captions (``examples/scenes``)."""
    script = _load_example("scenes")
    script.write(folder, {"test": ROWS["test"], "dev": 20, "train": 200})
    return _with_files(folder, "test.tsv")


def tones(folder: Path) -> Made:
    """Dialled tones and their digits (``examples/tones``). Inputs are those of training: there are few others."""
    script = _load_example("tones")
    script.write(folder)
    return _with_files(folder, "train.tsv")


def walks(folder: Path) -> Made:
    """Arrays of a point that walks up, down, left and right; the target names the steps."""
    generator = np.random.default_rng(5)
    steps = {"u": (0, 1), "d": (0, -1), "l": (-1, 0), "r": (1, 0)}
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in ROWS.items():
        rows = ["walk\tsteps"]
        for index in range(count):
            taken = generator.choice(list(steps), generator.integers(2, 6))
            frames = np.repeat([steps[step] for step in taken], generator.integers(3, 6), axis=0)
            frames = frames + 0.3 * generator.standard_normal(frames.shape)
            np.save(folder / f"{split}-{index}.npy", frames.astype(np.float32))
            rows.append(f"{split}-{index}.npy\t{''.join(taken)}")
        (folder / f"{split}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return _with_files(folder, "test.tsv")


def _with_files(folder: Path, inputs: str) -> Made:
    names = [line.split("\t")[0] for line in (folder / inputs).read_text(encoding="utf-8").splitlines()[1:]]
    return Made(folder / "train.tsv", folder / "dev.tsv", [str(folder / name) for name in names[: ROWS["test"]]])


def _write_table(
    folder: Path, row: Callable[[str, str], list[str]], header: list[str] | None, sources: list[str]
) -> Made:
    """Write train.tsv and dev.tsv of rows of random words; ``sources`` are the columns that are inputs."""
    generator = random.Random(3)
    folder.mkdir(parents=True, exist_ok=True)
    inputs: list[Any] = []
    for split, count in ROWS.items():
        rows = [row(_word(generator), _word(generator)) for _ in range(count)]
        head = ["\t".join(header)] if header else []
        text = "\n".join([*head, *("\t".join(cells) for cells in rows)]) + "\n"
        (folder / f"{split}.tsv").write_text(text, encoding="utf-8")
        columns = [sources.index(name) for name in sources] if header is None else [header.index(n) for n in sources]
        inputs = [
            cells[columns[0]]
            if len(columns) == 1
            else {name: cells[at] for name, at in zip(sources, columns, strict=True)}
            for cells in rows
        ]
    return Made(folder / "train.tsv", folder / "dev.tsv", inputs)


def _word(generator: random.Random) -> str:
    return "".join(generator.choices(LETTERS, k=generator.randint(2, 8)))


def _load_example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / name / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


# ---- sizes


def _recurrent(width: int = 48, **decoder: Any) -> dict[str, Any]:
    return {
        "source": {"embedding": 24},
        "encoder": {"width": width},
        "decoder": {"width": width, "embedding": 24, **decoder},
    }


BLOCKS = {"width": 48, "heads": 4, "feed_forward": 96, "dropout": 0.1}
SOUND: dict[str, Any] = {
    "source": {"normalise": "global", "hop": 0.015, "window": 0.03, "time_masks": 0, "feature_masks": 0},
    "encoder": {"width": 32, "layers": 2, "dropout": 0.0},
    "decoder": {"width": 64, "embedding": 24, "layers": 1, "dropout": 0.0},
}
WALK: dict[str, Any] = {
    "source": {"kind": "features", "time_masks": 0, "feature_masks": 0},
    "encoder": {"width": 32, "layers": 1},
    "decoder": {"width": 48, "embedding": 24, "layers": 1},
}

CASES = {
    "bahdanau2015": Case(words, "bahdanau2015", _recurrent()),
    "cho2014": Case(words, "cho2014", _recurrent()),
    "sutskever2014": Case(words, "sutskever2014", _recurrent()),
    "luong2015": Case(words, "luong2015", _recurrent()),
    "gehring2017": Case(
        words, "gehring2017", {"source": {"embedding": 48}, "encoder": {"width": 48}, "decoder": {"width": 48}}
    ),
    "transformer-tiny": Case(
        words, "transformer-tiny", {"source": {"embedding": 48}, "encoder": BLOCKS, "decoder": BLOCKS}
    ),
    "vaswani2017": Case(
        words,
        "vaswani2017",
        {
            "source": {"embedding": 48},
            "encoder": BLOCKS | {"layers": 2},
            "decoder": BLOCKS | {"layers": 2},
            "training": {"optim": {"learning_rate": 3e-3, "warmup": 50}},
        },
    ),
    "transformer-tiny, rotary positions": Case(
        words,
        "transformer-tiny",
        {
            "source": {"embedding": 48},
            "encoder": BLOCKS | {"positions": "rotary"},
            "decoder": BLOCKS | {"positions": "rotary"},
        },
    ),
    "transformer-tiny, tags": Case(
        tagged,
        "transformer-tiny",
        {
            "source": {"embedding": 48, "tags": True, "tokenizer": {"kind": "symbols"}},
            "encoder": BLOCKS,
            "decoder": BLOCKS,
        },
    ),
    "wu2019": Case(words, "wu2019", _recurrent()),
    "bahdanau2015, copying": Case(words, "bahdanau2015", {**_recurrent(), "copying": True}),
    "concat-rnn": Case(
        words, "concat-rnn", {"source": {"embedding": 24}, "decoder": {"network": {"width": 64, "embedding": 24}}}
    ),
    "concat-rnn with a Transformer": Case(
        words,
        "concat-rnn",
        {
            "source": {"embedding": 48},
            "decoder": {"network": {"kind": "transformer", "width": 48, "embedding": 48, "layers": 2}},
        },
    ),
    "lm-rnn": Case(lines, "lm-rnn", {"decoder": {"width": 64, "embedding": 24}}),
    "lm-transformer": Case(lines, "lm-transformer", {"decoder": BLOCKS | {"layers": 2}}),
    "xu2015": Case(
        scenes,
        "xu2015",
        {"source": {"size": 48}, "encoder": {"width": 48}, "decoder": {"width": 64, "embedding": 24}},
        updates=200,
    ),
    "chan2016": Case(tones, "chan2016", SOUND, updates=80),
    "chan2016, CTC in the search": Case(
        tones,
        "chan2016",
        SOUND
        | {
            "decoder": {**SOUND["decoder"], "attention": {"kind": "location", "kernel": 5, "filters": 4}},
            "training": {"ctc": 0.3},
        },
        {"ctc": 0.3},
        updates=80,
    ),
    "features": Case(walks, "chan2016", WALK),
    "features, subsampled": Case(
        walks,
        "chan2016",
        WALK | {"encoder": {"kind": "subsampled", "width": 32, "layers": 1, "inner": {"kind": "conv", "width": 32}}},
    ),
    "several sources": Case(
        two_words,
        "bahdanau2015",
        _recurrent() | {"data": {"source": ["first", "second"], "target": "target"}},
    ),
    "several sources, joint Transformer": Case(
        two_words,
        "transformer-tiny",
        {
            "source": {"embedding": 48},
            "encoder": BLOCKS | {"layers": 1},
            "decoder": BLOCKS | {"layers": 2},
            "joint": {"kind": "transformer", **BLOCKS, "layers": 1},
            "data": {"source": ["first", "second"], "target": "target"},
        },
    ),
    "classes": Case(labels, "bahdanau2015", _recurrent()),
    "sentences as states": Case(
        sentences,
        "bahdanau2015",
        {**_recurrent(), "source": {"embedding": 24, "states": "sentences", "tokenizer": {"kind": "characters"}}},
    ),
}
