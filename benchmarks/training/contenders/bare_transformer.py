"""The plain PyTorch loop of the Transformer, around ``torch.nn.Transformer``.

Run as a program, it trains until it is stopped and prints target tokens per second.
"""

from __future__ import annotations

import json
import math
import sys
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

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
    Contender,
    Job,
    Shape,
    token_batches,
)
from ..meter import Meter, read_meter
from .bare import BOS, PAD, begin, pad

if TYPE_CHECKING:
    import torch


def batches(shape: Shape, source_lengths: list[int], target_lengths: list[int]) -> list[np.ndarray]:
    return token_batches(source_lengths, target_lengths)


def command(job: Job, keep_pages: bool = False) -> list[str]:
    return [sys.executable, "-m", __name__, job.to_json(), json.dumps(keep_pages)]


def contender(keep_pages: bool = False) -> Contender:
    name = "bare loop, keeping pages" if keep_pages else "bare loop"
    about = "nn.Transformer, whose dropout falls on the attention weights too; the same batches"
    about = "the same, with glibc told to keep its pages" if keep_pages else about
    start = partial(command, keep_pages=keep_pages)
    return Contender(name, about, start, read_meter, batches, shapes=("transformer",))


def positions(longest: int) -> torch.Tensor:
    """Return sines and cosines for every position (Vaswani et al. 2017, section 3.5)."""
    import torch

    angles = torch.arange(longest)[:, None] * torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10_000) / WIDTH))
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)  # (longest, WIDTH)


def main(job: Job, keep_pages: bool) -> None:
    sources, targets, vocabulary = begin(job, keep_pages)
    lengths = [[len(row) for row in side] for side in (sources, targets)]
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy, linear

    embedding = nn.Embedding(vocabulary, WIDTH, padding_idx=PAD)
    nn.init.normal_(embedding.weight, std=WIDTH**-0.5)
    network = nn.Transformer(WIDTH, HEADS, LAYERS, LAYERS, FEED_FORWARD, DROPOUT, batch_first=True, norm_first=True)
    dropout = nn.Dropout(DROPOUT)
    places = positions(max(map(max, lengths)))
    parameters = [*embedding.parameters(), *network.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=True)

    def embed(tokens: torch.Tensor) -> torch.Tensor:
        embedded: torch.Tensor = dropout(embedding(tokens) * math.sqrt(WIDTH) + places[: tokens.shape[1]])
        return embedded

    meter = Meter(REPORT_EVERY)
    for epoch in range(10**9):
        for rows in token_batches(lengths[0], lengths[1], seed=job.seed, epoch=epoch):
            source, target = pad([sources[row] for row in rows]), pad([targets[row] for row in rows])
            inputs = torch.cat([torch.full((len(rows), 1), BOS), target[:, :-1]], 1)
            real, hidden = target != PAD, source == PAD
            features = network(
                embed(source),
                embed(inputs),
                tgt_mask=nn.Transformer.generate_square_subsequent_mask(inputs.shape[1]),
                src_key_padding_mask=hidden,
                memory_key_padding_mask=hidden,
                tgt_is_causal=True,
            )
            logits = linear(features[real], embedding.weight)
            loss = cross_entropy(logits, target[real], label_smoothing=SMOOTHING)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, CLIP)
            optimizer.step()
            meter.update(int(real.sum()))


if __name__ == "__main__":
    main(Job.from_json(sys.argv[1]), json.loads(sys.argv[2]))
