"""Hugging Face transformers, in an environment of its own: a new Marian model of the same shape in a plain loop.

The program at the bottom runs by path in that environment, so it imports nothing of this package. It reads ids and
batches from a file, so it trains on the same batches as Dragoman.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from ..job import Contender, Job, Shape

EPOCHS = 3  # whose batches are written; a round ends long before


def batches(shape: Shape, source_lengths: list[int], target_lengths: list[int]) -> list[np.ndarray]:
    from ..job import token_batches

    return token_batches(source_lengths, target_lengths)


def command(job: Job, python: str) -> list[str]:
    """Write ids in Marian's numbering: the end symbol is 0, padding is the last id and also starts the decoder."""
    from ..job import (
        CLIP,
        DROPOUT,
        FEED_FORWARD,
        HEADS,
        LAYERS,
        LEARNING_RATE,
        REPORT_EVERY,
        SMOOTHING,
        WIDTH,
        read_ids,
        token_batches,
    )

    sources, targets, pieces = read_ids(Path(job.corpus), first=2, unknown=1, end=0)
    source_lengths, target_lengths = ([len(row) for row in side] for side in (sources, targets))
    row_groups = [
        rows
        for epoch in range(EPOCHS)
        for rows in token_batches(source_lengths, target_lengths, seed=job.seed, epoch=epoch)
    ]
    plain = {
        "source": sources,
        "target": targets,
        "batches": [rows.tolist() for rows in row_groups],
        "threads": job.threads,
        "seed": job.seed,
        "report_every": REPORT_EVERY,
        "learning_rate": LEARNING_RATE,
        "clip": CLIP,
        "smoothing": SMOOTHING,
        "config": {
            "vocab_size": pieces + 2,  # as many ids as the other contenders have
            "d_model": WIDTH,
            "encoder_layers": LAYERS,
            "decoder_layers": LAYERS,
            "encoder_ffn_dim": FEED_FORWARD,
            "decoder_ffn_dim": FEED_FORWARD,
            "encoder_attention_heads": HEADS,
            "decoder_attention_heads": HEADS,
            "dropout": DROPOUT,
            "attention_dropout": 0.0,
            "activation_dropout": 0.0,
            "activation_function": "relu",
            "scale_embedding": True,
            "share_encoder_decoder_embeddings": True,
            "max_position_embeddings": 256,
            "pad_token_id": pieces + 1,
            "eos_token_id": 0,
            "bos_token_id": 0,
            "forced_eos_token_id": 0,
            "decoder_start_token_id": pieces + 1,
        },
    }
    file = Path(job.work) / "job.json"
    file.write_text(json.dumps(plain), encoding="utf-8")
    return [python, __file__, str(file)]


def contender(python: str) -> Contender:
    from ..job import Contender
    from ..meter import read_meter

    about = "Marian, post-norm, no dropout inside the feed-forward; the same batches"
    start = partial(command, python=python)
    return Contender(
        "Hugging Face", about, start, read_meter, batches,
        python=python, package="transformers", is_peer=True, shapes=("transformer",),
    )  # fmt: skip


def main(job: dict[str, Any]) -> None:
    import torch
    from transformers import MarianConfig, MarianMTModel  # type: ignore[import-not-found]

    torch.set_num_threads(job["threads"])
    torch.manual_seed(job["seed"])
    model = MarianMTModel(MarianConfig(**job["config"]))
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=job["learning_rate"], fused=True)
    pad = job["config"]["pad_token_id"]

    def padded(rows: list[list[int]], filler: int) -> torch.Tensor:
        longest = max(map(len, rows))
        return torch.tensor([row + [filler] * (longest - len(row)) for row in rows])

    tokens, updates, began = 0, 0, time.perf_counter()
    while True:
        for rows in job["batches"]:
            source = padded([job["source"][row] for row in rows], pad)
            labels = padded([job["target"][row] for row in rows], -100)
            # without labels, because the loss that the model computes from them has no label smoothing
            logits = model(
                input_ids=source,
                attention_mask=(source != pad).long(),
                decoder_input_ids=model.prepare_decoder_input_ids_from_labels(labels),
                use_cache=False,
            ).logits
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=-100, label_smoothing=job["smoothing"]
            )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), job["clip"])
            optimizer.step()
            tokens, updates = tokens + int((labels != -100).sum()), updates + 1
            if updates % job["report_every"] == 0:
                now = time.perf_counter()
                print(json.dumps({"tokens_per_second": tokens / (now - began)}), flush=True)
                tokens, began = 0, now


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
