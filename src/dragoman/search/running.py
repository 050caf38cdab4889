"""Forced scoring of a running text: every line is read behind those before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from dragoman.data.running import flow
from dragoman.search.rows import Decodes, device_of
from dragoman.types import State

AT_ONCE = 512  # tokens of the one stream, where a state is carried


@torch.inference_mode()
def force_running(
    decoder: Decodes,
    start: Callable[[int], State],
    lines: Sequence[Sequence[int]],
    *,
    bos: int,
    eos: int,
    chunk: int,
    carries: bool,
    batch: int,
) -> list[float]:
    """The log-probability of every token of the text, whose lines end with ``eos``.

    ``start`` gives the state of so many rows that have read nothing. Where the decoder ``carries`` its state on, the
    text is one stream. Where it does not, the text is read in pieces of ``chunk`` tokens that start afresh, as in
    training, ``batch`` of them side by side.
    """
    inputs, targets = flow(lines, bos, eos)
    state = start(1)
    device = device_of(decoder, state)
    found: list[float] = []
    if carries:
        for read, wanted in zip(inputs.split(AT_ONCE), targets.split(AT_ONCE), strict=True):
            step = decoder(read.to(device)[None], state)
            state = step.state
            found += step.log_probs[0].gather(1, wanted.to(device)[:, None])[:, 0].tolist()
        return found
    pieces = zip(inputs.split(chunk * batch), targets.split(chunk * batch), strict=True)
    for read, wanted in pieces:
        rows = -(-len(read) // chunk)
        behind = (0, rows * chunk - len(read))  # padding stands behind the text, so causality hides it
        read, wanted = (torch.nn.functional.pad(x, behind).view(rows, chunk).to(device) for x in (read, wanted))
        log_probs = decoder(read, start(rows)).log_probs.gather(2, wanted[:, :, None])
        found += log_probs.flatten().tolist()
    return found[: len(targets)]
