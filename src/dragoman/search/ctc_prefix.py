"""Decoding with the help of CTC: attention may skip or repeat a stretch of sound, CTC may not.

    score = (1 - w) log p(y | x) + w log p_ctc(y | x)                                 (Watanabe et al. 2017, section IV)

CTC gives probabilities of whole outputs. Of the outputs that begin with g, a share goes on with the token c and a share
ends: p_ctc(g c …) / p_ctc(g …). So it predicts one token after the other, as every decoder does, and can be searched as
one (Graves 2008, section 7.3).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dragoman.search.combined import Combined, join, split
from dragoman.search.rows import Decodes
from dragoman.types import Memory, State

LEAST = -1e4  # what is impossible to CTC alone must not end a search


class CTCPrefix:
    """p_ctc of the next token, from what each state of the memory says.

    ``readout`` maps states to labels. The token ``blank`` says nothing; ``eos`` is no label: outputs end where the
    states do.
    """

    def __init__(self, readout: nn.Linear, *, blank: int, bos: int, eos: int) -> None:
        self.readout, self.blank, self.bos, self.eos = readout, blank, bos, eos

    def start(self, memory: Memory, sources: int) -> State:
        logits = self.readout(memory.states.to(self.readout.weight.dtype)).double()  # sums over very many paths
        logits[..., self.eos] = -torch.inf
        said = logits.softmax(-1)  # (B, S, V)
        silence = torch.zeros_like(said[:1, :1])
        silence[..., self.blank] = 1.0
        said = torch.where(
            memory.mask[..., None], said, silence
        )  # padding says nothing for sure, which changes nothing
        before = said.new_zeros(sources, 1)
        carry = {
            # log p of having said the prefix by each time, the last state silent or not; time 0 is before all states
            "blank": torch.cat([before, said[..., self.blank].log().cumsum(1)], 1),  # (N, 1 + S)
            "label": torch.full((sources, 1 + said.shape[1]), -torch.inf, dtype=said.dtype, device=said.device),
            "prefix": before[:, 0],  # (N,) log p of all outputs that begin with it
            "last": torch.full((sources,), -1, device=said.device),  # (N,) its last token
        }
        return State(sources, {"said": said}, carry)

    def __call__(self, tokens: Tensor, state: State, need_attention: bool = False) -> Combined:
        fixed: Any = state.fixed
        carry: Any = state.carry
        said = fixed["said"]
        predicted = []
        for token in tokens.T:
            carry = self._read(token, carry, said)
            predicted.append(self._predict(carry, said))
        return Combined(torch.stack(predicted, 1), State(state.sources, state.fixed, carry))

    def _read(self, token: Tensor, carry: dict[str, Tensor], said: Tensor) -> dict[str, Tensor]:
        """The prefix with one more token, (N,). The start symbol leaves it as it was."""
        own = _of(token, said).log()  # (N, S)
        silent = _of(torch.full_like(token, self.blank), said).log()
        begins = torch.where(
            (token == carry["last"])[:, None], carry["blank"], torch.logaddexp(carry["blank"], carry["label"])
        )[:, :-1]  # a token like the last one needs silence between them
        label, blank = [torch.full_like(own[:, 0], -torch.inf)], [torch.full_like(own[:, 0], -torch.inf)]
        for time in range(said.shape[1]):
            blank.append(torch.logaddexp(blank[-1], label[-1]) + silent[:, time])
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

    def _predict(self, carry: dict[str, Tensor], said: Tensor) -> Tensor:
        """(N, V) log-probabilities; all are -inf where the states cannot have said the prefix."""
        total = torch.logaddexp(carry["blank"], carry["label"])  # (N, 1 + S)
        before = total[:, :-1]
        top = before.amax(1, keepdim=True).nan_to_num(neginf=0.0)
        shares = (before - top).exp().view(len(said), -1, said.shape[1])  # (B, k, S)
        scores = (shares @ said).flatten(0, 1).log() + top  # (N, V)
        last = carry["last"].clamp_min(0)
        again = torch.logsumexp(carry["blank"][:, :-1] + _of(last, said).log(), 1, keepdim=True)
        scores = torch.where(carry["last"][:, None] < 0, scores, scores.scatter(1, last[:, None], again))
        scores[:, self.blank] = -torch.inf
        scores[:, self.eos] = total[:, -1]
        prefix = carry["prefix"][:, None]
        return torch.where(prefix > -torch.inf, scores - prefix, -torch.inf).float()


def _of(token: Tensor, said: Tensor) -> Tensor:
    """How likely each state of a row's source says the row's token: (N,), (B, S, V) → (N, S)."""
    sources = torch.arange(len(token), device=token.device) // (len(token) // len(said))
    return said[sources[:, None], torch.arange(said.shape[1], device=token.device), token[:, None]]


class WithCTC:
    """A decoder and CTC over the same memory. The scores rank outputs and are no log-probabilities of anything.

    Behind a prefix that is impossible to CTC, which may have been forced, CTC has no say.
    """

    def __init__(self, decoder: Decodes, ctc: Decodes, weight: float) -> None:
        self.decoder, self.ctc, self.weight = decoder, ctc, weight

    def start(self, memory: Any, sources: int) -> State:
        return join([self.decoder.start(memory, sources), self.ctc.start(memory, sources)])

    def __call__(self, tokens: Tensor, state: State, need_attention: bool = False) -> Combined:
        own, other = split(state, 2)
        step = self.decoder(tokens, own, need_attention)
        told = self.ctc(tokens, other)
        heard = told.log_probs
        heard = torch.where(heard.amax(-1, keepdim=True) > -torch.inf, heard.clamp_min(LEAST), 0.0)
        scores = (1 - self.weight) * step.log_probs + self.weight * heard
        return Combined(scores, join([step.state, told.state]), step.attention)
