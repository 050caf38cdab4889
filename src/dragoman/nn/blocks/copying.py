"""Copying: the next token may be one of the source's, chosen by attention (Gu et al. 2016; See et al. 2017).

    P(y) = g P_generate(y) + (1 - g) Σ_{s: x_s = y} α_s          (See et al. 2017, eq. 9)
    g = sigmoid(w · o + b), where o is the input of the output layer

α is the attention of the decoder's last layer, the mean of its heads. A position of the source
writes the target token of the same string. One whose string is no target token writes a slot: the
i-th such position of a source is slot i, and the slots are the last ids of the vocabulary, after the
tokens that can be generated. Where there are more of them than slots, the others write the unknown
token. As an input of the decoder, a slot is the unknown token.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from dragoman.nn.contracts import Decoder
from dragoman.types import Copies, Step


class Copying(nn.Module):
    """Mixes what a decoder generates with what its attention points at."""

    table: Tensor

    def __init__(self, decoder: Decoder, table: Tensor, slots: int, unknown: int) -> None:
        """``table`` (source vocabulary): the target token of each source token; -1: it has none."""
        super().__init__()
        self.generated, self.slots, self.unknown = decoder.vocabulary, slots, unknown
        self.layers, self.heads = decoder.map_shape
        self.register_buffer("table", table, persistent=False)
        self.gate = nn.Linear(decoder.feature_width, 1)

    def targets(self, tokens: Tensor) -> Tensor:
        """Return the token that each position of the sources (B, S) writes."""
        written = self.table[tokens]
        number = (written < 0).cumsum(1) - 1  # of those that no target token has the string of
        slot = torch.where(number < self.slots, self.generated + number, self.unknown)
        return torch.where(written < 0, slot, written)

    def read(self, tokens: Tensor) -> Tensor:
        """Return the tokens (N, T) as the decoder reads them: slots as the unknown token."""
        return tokens.masked_fill(tokens >= self.generated, self.unknown) if self.slots else tokens

    def forward(self, step: Step, targets: Tensor, need_attention: bool) -> Step:
        """Add copying to a step with attention. ``targets`` (B, S): what each position of the source writes."""
        assert step.attention is not None
        last = step.attention.unflatten(2, (self.layers, self.heads))[:, :, -1].mean(2)  # (N, T, S)
        gate = self.gate(step.features)[..., 0]  # (N, T)
        own = targets.repeat_interleave(len(last) // len(targets), 0)  # (N, S)
        copies = Copies(gate, last, own, self.generated + self.slots)
        return replace(step, copies=copies, attention=step.attention if need_attention else None)
