"""Each recurrent system learns a small task: to write a word backwards. Seconds each, with the trainer users run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dragoman.data.reading import read
from dragoman.workflow import evaluate, train

SYSTEMS = {
    "last state": {"decoder": {"context": "initial"}, "encoder": {"direction": "both"}},
    "last state, reversed source": {
        "decoder": {"context": "initial"},
        "encoder": {"direction": "backward", "width": 128},
    },
    "context at every step": {"decoder": {"context": "every-step", "cell": "gru"}, "encoder": {"cell": "gru"}},
    "attention before": {"decoder": {"timing": "before", "cell": "gru"}, "encoder": {"cell": "gru"}},
    "attention after": {"decoder": {"timing": "after", "attention": {"kind": "bilinear"}}},
    "input feeding": {"decoder": {"input_feeding": True, "attention": {"kind": "additive"}}},
    "plain tanh": {"decoder": {"cell": "tanh", "timing": "before"}, "encoder": {"cell": "tanh"}},
    "scheduled sampling": {
        "decoder": {"timing": "after", "attention": {"kind": "bilinear"}},
        "training": {"sampling": {"schedule": "linear", "slope": 1e-3, "floor": 0.25}},
    },
}


def write_words(path: Path, count: int, seed: int) -> None:
    chance = random.Random(seed)
    words = ("".join(chance.choices("abcdef", k=chance.randint(2, 5))) for _ in range(count))
    path.write_text("".join(f"{word}\t{word[::-1]}\n" for word in words))


@pytest.mark.parametrize("name", SYSTEMS)
def test_learns_to_reverse(name: str, tmp_path: Path) -> None:
    write_words(tmp_path / "train.tsv", 3000, seed=1)
    write_words(tmp_path / "test.tsv", 200, seed=2)
    small = {
        "source": {"embedding": 32, "dropout": 0.0, "tokenizer": {"kind": "characters"}},
        "target": {"tokenizer": {"kind": "characters"}},
        "encoder": {"width": 64},
        "decoder": {"width": 128 if "last" in name or "every" in name else 64, "embedding": 32, "dropout": 0.0},
        "training": {
            "batch_tokens": 256, "max_epochs": 10, "validate_every": 200, "average": 1, "label_smoothing": 0.0,
            "threads": 1, "optim": {"learning_rate": 4e-3, "schedule": "cosine", "warmup": 50, "clip": 1.0},
        },
    }  # fmt: skip
    settings = {key: {**value, **SYSTEMS[name].get(key, {})} for key, value in small.items()}
    system = train(tmp_path / "train.tsv", out=tmp_path / "run", settings=settings)
    report = evaluate(system, read(tmp_path / "test.tsv").examples, beam=1)
    assert report.scores["exact"].value >= 98.0
