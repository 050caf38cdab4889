"""Joint decoding with CTC: attention may skip or repeat a stretch of sound, CTC may not.

    score = (1 - w) log p(y | x) + w log p_ctc(y | x)                                 (Watanabe et al. 2017, section IV)

CTC gives probabilities of whole outputs. The probability that an output which begins with g continues with the token c
is p_ctc(g c …) / p_ctc(g …). So CTC predicts one token after the other, as every decoder does, and can be searched as
one (Graves 2008, section 7.3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dragoman.search.combined import Combined, join, split
from dragoman.search.rows import SearchDecoder
from dragoman.types import Memory, State

LOWEST = -1e4  # what only CTC holds impossible must not end a search


class CTCPrefix:
    """Predict p_ctc of the next token from the label probabilities of each encoder state.

    ``readout`` maps states to labels. ``blank`` is the empty label. ``eos`` is not a label: an output ends where the
    states do.
    """

    def __init__(self, readout: Callable[[Tensor], Tensor], *, blank: int, bos: int, eos: int) -> None:
        self.readout, self.blank, self.bos, self.eos = readout, blank, bos, eos

    def start(self, memory: Memory, sources: int) -> State:
        logits = self.readout(memory.states).double()  # sums over very many paths
        logits[..., self.eos] = -torch.inf
        labels = logits.softmax(-1)  # (B, S, V)
        blank_only = torch.zeros_like(labels[:1, :1])
        blank_only[..., self.blank] = 1.0
        # Padding is blank with certainty, which changes nothing.
        labels = torch.where(memory.mask[..., None], labels, blank_only)
        before = labels.new_zeros(sources, 1)
        carry = {
            # log p of having emitted the prefix by each time (0: before all states), ending in a blank or in a label
            "blank": torch.cat([before, labels[..., self.blank].log().cumsum(1)], 1),  # (N, 1 + S)
            "label": torch.full((sources, 1 + labels.shape[1]), -torch.inf, dtype=labels.dtype, device=labels.device),
            "prefix": before[:, 0],  # (N,) log p of all outputs that begin with the prefix
            "last": torch.full((sources,), -1, device=labels.device),  # (N,) its last token
        }
        return State(sources, {"labels": labels}, carry)

    def __call__(self, tokens: Tensor, state: State, need_attention: bool = False) -> Combined:
        fixed: Any = state.fixed
        carry: Any = state.carry
        labels = fixed["labels"]
        predicted = []
        for token in tokens.T:
            carry = self._read(token, carry, labels)
            predicted.append(self._predict(carry, labels))
        return Combined(torch.stack(predicted, 1), State(state.sources, state.fixed, carry))

    def _read(self, token: Tensor, carry: dict[str, Tensor], labels: Tensor) -> dict[str, Tensor]:
        """Return the carry of the prefix with one more token, (N,). The start symbol leaves it unchanged."""
        own = _emission(token, labels).log()  # (N, S)
        blank_log_probs = _emission(torch.full_like(token, self.blank), labels).log()
        begins = torch.where(
            (token == carry["last"])[:, None], carry["blank"], torch.logaddexp(carry["blank"], carry["label"])
        )[:, :-1]  # a repeated token needs a blank in between
        label, blank = [torch.full_like(own[:, 0], -torch.inf)], [torch.full_like(own[:, 0], -torch.inf)]
        for time in range(labels.shape[1]):
            blank.append(torch.logaddexp(blank[-1], label[-1]) + blank_log_probs[:, time])
            label.append(torch.logaddexp(label[-1], begins[:, time]) + own[:, time])
        read = {
            "blank": torch.stack(blank, 1),
            "label": torch.stack(label, 1),
            "prefix": torch.logsumexp(begins + own, 1),
            "last": token,
        }
        starts = token == self.bos
        return {
            name: torch.where(starts if value.dim() == 1 else starts[:, None], carry[name], value)
            for name, value in read.items()
        }

    def _predict(self, carry: dict[str, Tensor], labels: Tensor) -> Tensor:
        """Return (N, V) log-probabilities; all are -inf where the states cannot have emitted the prefix."""
        total = torch.logaddexp(carry["blank"], carry["label"])  # (N, 1 + S)
        before = total[:, :-1]
        top = before.amax(1, keepdim=True).nan_to_num(neginf=0.0)
        shares = (before - top).exp().view(len(labels), -1, labels.shape[1])  # (B, k, S)
        scores = (shares @ labels).flatten(0, 1).log() + top  # (N, V)
        last = carry["last"].clamp_min(0)
        again = torch.logsumexp(carry["blank"][:, :-1] + _emission(last, labels).log(), 1, keepdim=True)
        scores = torch.where(carry["last"][:, None] < 0, scores, scores.scatter(1, last[:, None], again))
        scores[:, self.blank] = -torch.inf
        scores[:, self.eos] = total[:, -1]
        prefix = carry["prefix"][:, None]
        return torch.where(prefix > -torch.inf, scores - prefix, -torch.inf).float()


def _emission(token: Tensor, labels: Tensor) -> Tensor:
    """Return how likely each state of a row's source emits the row's token: (N,), (B, S, V) → (N, S)."""
    sources = torch.arange(len(token), device=token.device) // (len(token) // len(labels))
    return labels[sources[:, None], torch.arange(labels.shape[1], device=token.device), token[:, None]]


class WithCTC:
    """A decoder and CTC over the same memory. The mixed scores rank outputs; they are not log-probabilities.

    After a prefix that CTC holds impossible, which may have been forced, the decoder decides alone.
    """

    def __init__(self, decoder: SearchDecoder, ctc: SearchDecoder, weight: float) -> None:
        self.decoder, self.ctc, self.weight = decoder, ctc, weight

    def start(self, memory: Any, sources: int) -> State:
        return join([self.decoder.start(memory, sources), self.ctc.start(memory, sources)])

    def __call__(self, tokens: Tensor, state: State, need_attention: bool = False) -> Combined:
        own, other = split(state, 2)
        step = self.decoder(tokens, own, need_attention)
        ctc_step = self.ctc(tokens, other)
        ctc = ctc_step.log_probs
        ctc = torch.where(ctc.amax(-1, keepdim=True) > -torch.inf, ctc.clamp_min(LOWEST), 0.0)
        scores = (1 - self.weight) * step.log_probs + self.weight * ctc
        return Combined(scores, join([step.state, ctc_step.state]), step.attention)
