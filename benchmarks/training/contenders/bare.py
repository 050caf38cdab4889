"""A plain PyTorch loop, as an engineer would write it in an afternoon, with torch's own layers.

Run as a program, it trains until it is stopped and prints target tokens per second.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..job import (
    CLIP,
    DECODER,
    DROPOUT,
    EMBEDDING,
    ENCODER,
    LEARNING_RATE,
    REPORT_EVERY,
    SENTENCES,
    Contender,
    Job,
    Shape,
    read_ids,
)
from ..meter import Meter, read_meter

if TYPE_CHECKING:
    import torch

PAD, UNK, BOS, EOS = 0, 1, 2, 3
POOL = 40  # batches that are sorted together


def batches(shape: Shape, source_lengths: list[int], target_lengths: list[int], seed: int = 1) -> list[np.ndarray]:
    """Return batches of a fixed number of sentences, sorted by length within shuffled pools."""
    generator = np.random.default_rng(seed)
    lengths, order, chunks = np.asarray(target_lengths), generator.permutation(len(target_lengths)), list[np.ndarray]()
    for begin in range(0, len(order), SENTENCES * POOL):
        pool = order[begin : begin + SENTENCES * POOL]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        chunks += [pool[first : first + SENTENCES] for first in range(0, len(pool), SENTENCES)]
    return [chunks[index] for index in generator.permutation(len(chunks))]


def command(job: Job, keep_pages: bool = False) -> list[str]:
    return [sys.executable, "-m", __name__, job.to_json(), json.dumps(keep_pages)]


def contender(keep_pages: bool = False) -> Contender:
    name = "bare loop, keeping pages" if keep_pages else "bare loop"
    about = "the same, with glibc told to keep its pages" if keep_pages else "torch's own layers and loss"
    return Contender(name, about, partial(command, keep_pages=keep_pages), read_meter, batches)


def begin(job: Job, keep_pages: bool) -> tuple[list[list[int]], list[list[int]], int]:
    """Set up torch for the job; return source ids, target ids and the vocabulary size."""
    if keep_pages:
        from dragoman.process import allocator

        allocator.keep_pages()  # before torch is imported
    import torch

    torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed)
    return read_ids(Path(job.corpus), EOS + 1, UNK, EOS)


def pad(rows: list[list[int]]) -> torch.Tensor:
    import torch

    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def main(job: Job, keep_pages: bool) -> None:
    sources, targets, vocabulary = begin(job, keep_pages)
    source_lengths, target_lengths = ([len(row) for row in side] for side in (sources, targets))
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    from .bare_model import BareModel

    model = BareModel(vocabulary, EMBEDDING, ENCODER, DECODER, DROPOUT, job.shape)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
    meter = Meter(REPORT_EVERY)
    for epoch in range(10**9):
        for rows in batches(job.shape, source_lengths, target_lengths, seed=job.seed * 1000 + epoch):
            source = pad([sources[row] for row in rows])
            target = pad([targets[row] for row in rows])
            inputs = torch.cat([torch.full((len(rows), 1), BOS), target[:, :-1]], 1)
            real = target != PAD
            tokens = int(real.sum())
            features = model(source, inputs)
            loss = cross_entropy(model.output(features[real]), target[real])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            meter.update(tokens)


if __name__ == "__main__":
    main(Job.from_json(sys.argv[1]), json.loads(sys.argv[2]))
