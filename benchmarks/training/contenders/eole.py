"""eole, run by its command line in an environment of its own.

Its recurrent decoder attends after the cell. Input feeding puts the attended vector into the next cell, which is the
closest it has to Bahdanau timing; without input feeding it runs over whole sequences. Its output layer is as wide as
the decoder, so it cannot be tied to narrower token vectors. Its Transformer has the shape asked for: pre-norm, one
table of vectors.
"""

from __future__ import annotations

import json
import re
from collections import Counter
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

RATE = re.compile(r"Step .*;\s*[\d.]+/\s*([\d.]+) tok/s")
NEVER = 10**9


def read(line: str) -> float | None:
    match = RATE.search(line)
    return float(match[1]) if match else None


def batches(shape: Shape, source_lengths: list[int], target_lengths: list[int]) -> list[np.ndarray]:
    """Follow its rule: sort the bucket, here the whole corpus, by source and then target length, and split it."""
    order = np.lexsort((target_lengths, source_lengths))
    if shape != "transformer":
        return [order[begin : begin + SENTENCES] for begin in range(0, len(order), SENTENCES)]
    groups: list[np.ndarray] = []
    begin, longest = 0, 0
    for end, row in enumerate(order.tolist()):
        length = max(source_lengths[row], target_lengths[row])
        longest = max(longest, length)
        if longest * (end - begin + 1) > BUDGET:
            groups.append(order[begin:end])
            begin, longest = end, length
    return [*groups, order[begin:]]


def config(job: Job, vocabulary: Path, rows: int, size: int) -> dict[str, Any]:
    corpus, work = Path(job.corpus), Path(job.work)
    small = job.shape == "transformer"

    def files(name: str) -> dict[str, str]:
        return {"path_src": str(corpus / f"{name}.source"), "path_tgt": str(corpus / f"{name}.target")}

    return {
        "save_data": str(work / "data"),
        "overwrite": True,
        "seed": job.seed,
        "report_every": REPORT_EVERY,
        "src_vocab": str(vocabulary),
        "tgt_vocab": str(vocabulary),
        "src_vocab_size": size,
        "tgt_vocab_size": size,
        "share_vocab": True,
        "n_sample": 0,
        "data": {"corpus": files("train"), "valid": files("dev")},
        "training": {
            "model_path": str(work / "model"),
            "save_checkpoint_steps": NEVER,
            "train_steps": NEVER,
            "valid_steps": NEVER,
            "bucket_size": rows,
            "num_workers": 0,
            "world_size": 1,
            "gpu_ranks": [],
            "batch_type": "tokens" if small else "sents",
            "batch_size": BUDGET if small else SENTENCES,
            "batch_size_multiple": 1,
            "dropout_steps": [0],
            "dropout": [DROPOUT],
            "attention_dropout": [0.0],
            "compute_dtype": "fp32",
            "optim": "adam",
            "learning_rate": LEARNING_RATE,
            "max_grad_norm": CLIP,
            "label_smoothing": SMOOTHING if small else 0.0,
            "normalization": "tokens",
        },
        "model": transformer() if small else recurrent(job.shape == "before"),
    }


def recurrent(before: bool) -> dict[str, Any]:
    return {
        "architecture": "rnn",
        "hidden_size": DECODER,  # the encoder's two directions share it
        "input_feed": int(before),
        "embeddings": {"word_vec_size": EMBEDDING},
        "encoder": {"encoder_type": "brnn", "rnn_type": "LSTM", "layers": 1},
        "decoder": {
            "decoder_type": "rnn",
            "rnn_type": "LSTM",
            "layers": 1,
            "global_attention": "mlp" if before else "general",
        },
    }


def transformer() -> dict[str, Any]:
    return {
        "architecture": "transformer",
        "hidden_size": WIDTH,
        "share_embeddings": True,
        "share_decoder_embeddings": True,
        "layers": LAYERS,
        "heads": HEADS,
        "transformer_ff": FEED_FORWARD,
        "embeddings": {"word_vec_size": WIDTH, "position_encoding_type": "SinusoidalInterleaved"},
    }


def command(job: Job, program: str) -> list[str]:
    corpus, work = Path(job.corpus), Path(job.work)
    pieces = read_lines(corpus / "vocabulary.txt")
    sides = [read_lines(corpus / f"train.{side}") for side in ("source", "target")]
    counts = Counter(piece for side in sides for line in side for piece in line.split(" "))
    vocabulary, file = work / "vocabulary.txt", work / "config.yaml"
    vocabulary.write_text("".join(f"{piece}\t{max(1, counts[piece])}\n" for piece in pieces), encoding="utf-8")
    settings = config(job, vocabulary, len(sides[0]), len(pieces))
    file.write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML too
    return [program, "train", "--config", str(file)]


def contender(program: str, shapes: tuple[Shape, ...]) -> Contender:
    about = "untied 512-wide output layer; before = input feeding"
    if "transformer" in shapes:
        about = "batches by its own rule"
    python = str(Path(program).with_name("python"))
    start = partial(command, program=program)
    return Contender("eole", about, start, read, batches, python=python, package="eole", is_peer=True, shapes=shapes)
