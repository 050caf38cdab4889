"""Forced scoring in batches: what a decoder thinks of each token of given outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

import torch
from torch import Tensor

from dragoman.asking import read
from dragoman.data.stored import Pending
from dragoman.data.vocabulary import BOS, EOS
from dragoman.search import Decodes, force, force_running
from dragoman.types import State

Told: TypeAlias = tuple[Sequence[int], tuple[float, ...]]  # tokens, and the log-probability of each
Encode: TypeAlias = Callable[[Sequence[Mapping[str, Tensor]]], Any]  # rows, by the name of the source → their memory


def row_by_row(
    decoder: Decodes,
    encode: Encode,
    tensors: Sequence[Mapping[str, Tensor | Pending]],
    gold: Sequence[Sequence[int]],
    batch: int,
) -> list[Told]:
    """Each output behind its own source; those of about one length are scored together."""
    order = sorted(range(len(gold)), key=lambda row: len(gold[row]))
    found: dict[int, Told] = {}
    for begin in range(0, len(order), batch):
        rows = order[begin : begin + batch]
        with torch.inference_mode():
            memory = encode([read(tensors[row]) for row in rows])
            scored = force(decoder, memory, len(rows), [gold[row] for row in rows], bos=BOS, eos=EOS)
        for row, hypothesis in zip(rows, scored, strict=True):
            found[row] = hypothesis.tokens, hypothesis.log_probs
    return [found[row] for row in range(len(gold))]


def running(
    decoder: Decodes, encode: Encode, gold: Sequence[Sequence[int]], *, chunk: int, carries: bool, batch: int
) -> list[Told]:
    """The lines of one text, each behind those before it."""

    def start(rows: int) -> State:
        return decoder.start(encode([{}] * rows), rows)

    told = iter(force_running(decoder, start, gold, bos=BOS, eos=EOS, chunk=chunk, carries=carries, batch=batch))
    return [(tokens, tuple(islice(told, len(tokens)))) for tokens in gold]
