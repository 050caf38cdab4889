"""How choices are trained through which no gradient flows: REINFORCE (Williams 1992) as in Xu et al. 2015, section 4.1.

    loss = - log p(y | s)  -  weight * (reward - baseline) * log p(s)  -  entropy * H[s]          (eq. 12)

with s what was drawn and the baseline a moving average of the reward. We differ in two things. The paper credits every
choice with the log-probability of the whole sentence, in which the effect of one choice drowns; here it is that of the
choice's own token, which is exact for attention after the cell without input feeding, where a choice touches no other
token, and also learnt faster in the other timings than one that counts later tokens. And the paper takes the soft
weights in half of the sentences; here training always reads what inference will read, one position.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from dragoman.config import Section
from dragoman.types import Choices


class ReinforceConfig(Section):
    """Heeded by hard attention alone (decoder.selection)."""

    weight: float = Field(1.0, ge=0)  # of the choices' term beside the tokens' cross-entropy
    entropy: float = Field(0.05, ge=0)  # reward for an open mind, so that a choice is not settled too early
    decay: float = Field(0.9, ge=0, lt=1)  # share of the old baseline in the new one

    def moved(self, baseline: float | None, reward: float) -> float:
        """The baseline after an update whose choices earned ``reward`` on average."""
        return reward if baseline is None else self.decay * baseline + (1 - self.decay) * reward


def surrogate(choices: Choices, mask: Tensor, reward: Tensor, baseline: float, config: ReinforceConfig) -> Tensor:
    """Summed over the real tokens, ``reward`` (tokens,). Its gradient is that of eq. 12; its value means nothing."""
    log_probs, entropy = choices.log_probs[mask], choices.entropy[mask]  # (tokens,)
    return -(config.weight * (reward - baseline) * log_probs + config.entropy * entropy).sum()
