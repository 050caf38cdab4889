"""Dragoman itself, with what ``dragoman train`` uses: recipe, model, token-budget batches, ``Trainer.run``.

Run as a program, it trains until it is stopped and prints target tokens per second.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..job import (
    BUDGET,
    CLIP,
    DECODER,
    DROPOUT,
    EMBEDDING,
    ENCODER,
    LEARNING_RATE,
    REPORT_EVERY,
    SENTENCES,
    SMOOTHING,
    Contender,
    Job,
    Shape,
    read_lines,
)
from ..meter import Meter, read_meter

NEVER = 10**9
TINY = {
    "share_vocabulary": True,
    "share_embeddings": True,
    "source": {"tokenizer": {"kind": "symbols"}},
    "target": {"tokenizer": {"kind": "symbols"}},
}  # changes to the preset


def budget(shape: Shape, source_lengths: list[int], target_lengths: list[int]) -> int:
    """Return the token budget; of recurrent shapes, the one that gives as many batches as 80 sentences in each do."""
    from dragoman.data.corpus.batching import make_batches

    if shape == "transformer":
        return BUDGET
    wanted, low, high = -(-len(target_lengths) // SENTENCES), 1, 1_000_000
    while low < high:
        middle = (low + high) // 2
        if len(make_batches(source_lengths, target_lengths, middle, seed=1, epoch=0)) > wanted:
            low = middle + 1
        else:
            high = middle
    return low


def batches(shape: Shape, source_lengths: list[int], target_lengths: list[int]) -> list[np.ndarray]:
    from dragoman.data.corpus.batching import make_batches

    tokens = budget(shape, source_lengths, target_lengths)
    return make_batches(source_lengths, target_lengths, tokens, seed=1, epoch=0)


def settings(job: Job, tied: bool, batch_tokens: int) -> dict[str, Any]:
    from dragoman.config import merge
    from dragoman.recipe.layers import gather_settings

    model = gather_settings("transformer-tiny", overrides=TINY) if job.shape == "transformer" else recurrent(job, tied)
    training = {
        "batch_tokens": batch_tokens,
        "label_smoothing": SMOOTHING if job.shape == "transformer" else 0.0,  # as every contender
        "optim": {"learning_rate": LEARNING_RATE, "clip": CLIP},
        "threads": job.threads,
        "seed": job.seed,
        "device": "cpu",
        "log_every": REPORT_EVERY,
        "validate_every": NEVER,
        "save_every": NEVER,
        "max_epochs": NEVER,
    }
    return merge(model, {"training": training})


def recurrent(job: Job, tied: bool) -> dict[str, Any]:
    return {
        "share_vocabulary": True,
        "source": {"tokenizer": {"kind": "symbols"}, "embedding": EMBEDDING, "dropout": DROPOUT},
        "target": {"tokenizer": {"kind": "symbols"}},
        "encoder": {"kind": "rnn", "cell": "lstm", "width": ENCODER, "layers": 1, "direction": "both"},
        "decoder": {
            "kind": "rnn",
            "cell": "lstm",
            "width": DECODER,
            "layers": 1,
            "embedding": EMBEDDING,
            "context": "attention",
            "timing": job.shape,
            "attention": {"kind": "additive" if job.shape == "before" else "bilinear"},
            "tie_embeddings": tied,
            "dropout": DROPOUT,
        },
    }


def command(job: Job, tied: bool = True) -> list[str]:
    return [sys.executable, "-m", __name__, job.to_json(), json.dumps(tied)]


def contender(tied: bool = True) -> Contender:
    if tied:
        about = "token-budget batches of the same mean size"
        return Contender("Dragoman", about, command, read_meter, batches, shapes=("before", "after", "transformer"))
    about = "the peers' output layer: 512 wide and not tied"
    return Contender("Dragoman, wide output", about, partial(command, tied=False), read_meter, batches)


def main(job: Job, tied: bool) -> None:
    from dragoman.process import prepare

    prepare()  # as the command line does
    import torch

    from dragoman.data.examples import SOURCE, Example
    from dragoman.data.tokenizers.symbols import Symbols
    from dragoman.data.vocabulary import Vocabulary, word_dropout_rates
    from dragoman.inference.build import build_model
    from dragoman.inference.system import System
    from dragoman.modalities.text import Text
    from dragoman.recipe.schema import make_recipe
    from dragoman.runs.lengths import LengthLimits
    from dragoman.training.corpus import encode_corpus
    from dragoman.training.events import Scores, Stepped
    from dragoman.training.trainer import Trainer

    folder = Path(job.corpus)
    texts = [read_lines(folder / f"train.{side}") for side in ("source", "target")]
    lengths = [[line.count(" ") + 2 for line in side] for side in texts]
    recipe = make_recipe(settings(job, tied, budget(job.shape, *lengths)))
    counts: dict[str, int] = dict.fromkeys(read_lines(folder / "vocabulary.txt"), 0)
    for line in [*texts[0], *texts[1]]:
        for piece in line.split(" "):
            counts[piece] = counts.get(piece, 0) + 1
    vocabulary = Symbols(Vocabulary(list(counts), [0, 0, 0, 0, *counts.values()]))
    modality = Text(recipe.sources[SOURCE].modality, vocabulary)  # type: ignore[arg-type]
    model = build_model(recipe, {SOURCE: modality}, vocabulary)
    system = System(recipe, {SOURCE: modality}, vocabulary, model, LengthLimits())
    rows = [
        Example({SOURCE: source}, target, line=number, file="train")
        for number, (source, target) in enumerate(zip(*texts, strict=True), start=1)
    ]

    def validate(_: object) -> Scores:
        raise RuntimeError("a benchmark ends before the first validation")

    data = encode_corpus(system, rows)
    trainer = Trainer(model, data, recipe.training, validate, torch.from_numpy(word_dropout_rates(vocabulary.counts)))
    meter, seen = Meter(every=1), 0
    for event in trainer.run():
        if isinstance(event, Stepped):
            meter.update(trainer.progress.tokens - seen)
            seen = trainer.progress.tokens


if __name__ == "__main__":
    main(Job.from_json(sys.argv[1]), json.loads(sys.argv[2]))
