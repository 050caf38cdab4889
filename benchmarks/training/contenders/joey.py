"""Joey NMT, run by its command line in an environment of its own.

Its recurrent decoder attends after the cell. Input feeding puts the context into the next cell, which is the closest it
has to Bahdanau timing. Its output layer is as wide as the decoder, so it cannot be tied to narrower token vectors. Its
Transformer is pre-norm and tied as asked for, but its dropout is applied to the attention weights too.
"""

from __future__ import annotations

import json
import re
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
    FEED_FORWARD,
    HEADS,
    LAYERS,
    LEARNING_RATE,
    REPORT_EVERY,
    SENTENCES,
    SMOOTHING,
    WIDTH,
    Contender,
    Job,
    Shape,
    read_lines,
)

RATE = re.compile(r"Tokens per Sec:\s*([\d.]+)")
NEVER = 10**9
SPECIALS = ("<unk>", "<pad>", "<s>", "</s>")


def read(line: str) -> float | None:
    match = RATE.search(line)
    return float(match[1]) if match else None


def batches(shape: Shape, source_lengths: list[int], target_lengths: list[int]) -> list[np.ndarray]:
    """Follow its rule: sentences, or padded tokens, of a shuffled corpus; nothing is sorted by length."""
    order = np.random.default_rng(1).permutation(len(target_lengths))
    if shape != "transformer":
        return [order[begin : begin + SENTENCES] for begin in range(0, len(order), SENTENCES)]
    groups: list[np.ndarray] = []
    begin, longest = 0, 0
    for end, row in enumerate(order.tolist(), start=1):
        longest = max(longest, source_lengths[row], target_lengths[row])
        if longest * (end - begin) >= BUDGET:
            groups.append(order[begin:end])
            begin, longest = end, 0
    return [*groups, order[begin:]] if begin < len(order) else groups


def config(job: Job, vocabulary: Path) -> dict[str, Any]:
    corpus, small = Path(job.corpus), job.shape == "transformer"
    side = {"level": "word", "max_length": 256, "voc_file": str(vocabulary)}
    return {
        "name": "benchmark",
        "joeynmt_version": "2.3.0",
        "model_dir": str(Path(job.work) / "model"),
        "use_cuda": False,
        "fp16": False,
        "random_seed": job.seed,
        "data": {
            "train": str(corpus / "train"),
            "dev": str(corpus / "dev"),
            "dataset_type": "plain",
            "src": {"lang": "source", **side},
            "trg": {"lang": "target", **side},
            "special_symbols": {
                **{
                    f"{name}_token": symbol for name, symbol in zip(("unk", "pad", "bos", "eos"), SPECIALS, strict=True)
                },
                **{f"{name}_id": index for index, name in enumerate(("unk", "pad", "bos", "eos"))},
            },
        },
        "testing": {"beam_size": 1, "batch_size": 64, "batch_type": "sentence", "eval_metrics": ["bleu"]},
        "training": {
            "optimizer": "adam",
            "learning_rate": LEARNING_RATE,
            "clip_grad_norm": CLIP,
            "label_smoothing": SMOOTHING if small else 0.0,
            "scheduling": "warmupinversesquareroot",
            "learning_rate_warmup": 100,
            "loss": "crossentropy",
            "batch_size": BUDGET if small else SENTENCES,
            "batch_type": "token" if small else "sentence",
            "normalization": "tokens",
            "epochs": 1000,
            "updates": NEVER,
            "validation_freq": NEVER,
            "logging_freq": REPORT_EVERY,
            "early_stopping_metric": "loss",
            "shuffle": True,
            "overwrite": True,
            "print_valid_sents": [0],
            "keep_best_ckpts": 1,
        },
        "model": transformer() if small else recurrent(job.shape == "before"),
    }


def recurrent(before: bool) -> dict[str, Any]:
    layer = {"type": "recurrent", "rnn_type": "lstm", "num_layers": 1, "dropout": DROPOUT}
    vectors = {"embeddings": {"embedding_dim": EMBEDDING, "scale": False, "dropout": DROPOUT}}
    return {
        "initializer": "xavier_uniform",
        "embed_initializer": "normal",
        "embed_init_weight": 0.1,
        "tied_embeddings": False,
        "tied_softmax": False,
        "encoder": {**layer, **vectors, "hidden_size": ENCODER, "bidirectional": True},
        "decoder": {
            **layer,
            **vectors,
            "hidden_size": DECODER,
            "hidden_dropout": DROPOUT,
            "input_feeding": before,
            "init_hidden": "last",
            "attention": "bahdanau" if before else "luong",
        },
    }


def transformer() -> dict[str, Any]:
    side = {
        "type": "transformer",
        "num_layers": LAYERS,
        "num_heads": HEADS,
        "embeddings": {"embedding_dim": WIDTH, "scale": True, "dropout": 0.0},
        "hidden_size": WIDTH,
        "ff_size": FEED_FORWARD,
        "dropout": DROPOUT,
        "layer_norm": "pre",
    }
    return {
        "initializer": "xavier_uniform",
        "embed_initializer": "xavier_uniform",
        "tied_embeddings": True,
        "tied_softmax": True,
        "encoder": side,
        "decoder": dict(side),
    }


def command(job: Job, python: str) -> list[str]:
    work = Path(job.work)
    vocabulary, file = work / "vocabulary.txt", work / "config.yaml"
    pieces = read_lines(Path(job.corpus) / "vocabulary.txt")
    vocabulary.write_text("\n".join([*SPECIALS, *pieces]) + "\n", encoding="utf-8")
    file.write_text(json.dumps(config(job, vocabulary)), encoding="utf-8")  # JSON is YAML too
    return [python, "-m", "joeynmt", "train", str(file), "--skip-test"]


def contender(python: str, shapes: tuple[Shape, ...]) -> Contender:
    about = "untied 512-wide output layer; batches not sorted by length; before = input feeding"
    if "transformer" in shapes:
        about = "batches not sorted by length; dropout on the attention weights too"
    start = partial(command, python=python)
    return Contender(
        "Joey NMT", about, start, read, batches, python=python, package="joeynmt", is_peer=True, shapes=shapes
    )
