"""Copying: the next token may be one of the source's, chosen by a pointer (Merity et al. 2017; See et al. 2017).

    P(y) = g P_generate(y) + Σ_{s: x_s = y} π_s                  (Merity et al. 2017, eq. 4 and 5)
    [log g; log π] = log_softmax([w · o + b; o · U h])

o is the input of the output layer and h are the states of the source. The pointer π is apart from
the decoder's attention, which has to look at what decides the next token, and that is often not what
is copied.

A position of the source writes the target token of the same string. One whose string is no target
token writes a slot: the i-th such position of a source is slot i, and the slots are the last ids of
the vocabulary, after the tokens that can be generated. Where there are more of them than slots, the
others write nothing. As an input of the decoder, a slot is the unknown token.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from dragoman.nn.contracts import Decoder
from dragoman.types import NOTHING, SLOT, Copies, Memory, Step


class Copying(nn.Module):
    """Mixes what a decoder generates with what a pointer copies."""

    table: Tensor

    def __init__(self, decoder: Decoder, table: Tensor, slots: int, unknown: int, *, memory_width: int) -> None:
        """``table`` (source vocabulary): the target token that each source token writes, SLOT or NOTHING."""
        super().__init__()
        self.generated, self.slots, self.unknown = decoder.vocabulary, slots, unknown
        self.register_buffer("table", table, persistent=False)
        self.gate = nn.Linear(decoder.feature_width, 1)
        self.keys = nn.Linear(memory_width, decoder.feature_width, bias=False)

    def targets(self, tokens: Tensor) -> Tensor:
        """Return the token that each position of the sources (B, S) writes, or NOTHING."""
        written = self.table[tokens]
        number = (written == SLOT).cumsum(1) - 1  # of the positions that write slots
        slot = torch.where(number < self.slots, self.generated + number, NOTHING)
        return torch.where(written == SLOT, slot, written)

    def prepare(self, memory: Memory) -> dict[str, Tensor]:
        """Return what copying needs of the sources: what each position writes, and its key."""
        assert memory.copies is not None
        return {"targets": memory.copies, "keys": self.keys(memory.states)}

    def read(self, tokens: Tensor) -> Tensor:
        """Return the tokens (N, T) as the decoder reads them: slots as the unknown token."""
        return tokens.masked_fill(tokens >= self.generated, self.unknown) if self.slots else tokens

    def forward(self, step: Step, prepared: Any) -> Step:
        """Add copying to a step. ``prepared``: what ``prepare`` returned for its B sources."""
        targets, keys = prepared["targets"], prepared["keys"]
        rows, length, width = step.features.shape
        gate = self.gate(step.features)  # (N, T, 1)
        queries = step.features.reshape(len(keys), -1, width)  # (B, k * T, D): the k rows of a source side by side
        scores = torch.bmm(queries, keys.transpose(1, 2))  # (B, k * T, S)
        scores = scores.masked_fill((targets < 0)[:, None], float("-inf")).view(rows, length, -1)
        log_shares = torch.cat([gate, scores], -1).float().log_softmax(-1)  # (N, T, 1 + S)
        own = targets.clamp_min(0).repeat_interleave(rows // len(targets), 0)  # (N, S)
        copies = Copies(log_shares[..., 0], log_shares[..., 1:].exp(), own, self.generated + self.slots)
        return replace(step, copies=copies)
