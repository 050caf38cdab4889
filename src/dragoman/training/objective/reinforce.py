"""REINFORCE (Williams 1992; Xu et al. 2015, section 4.1): training of discrete choices.

    loss = - log p(y | s)  -  weight * (reward - baseline) * log p(s)  -  entropy * H[s]    (eq. 12)

where s are the positions that were sampled and the baseline is a moving average of the reward. We
differ from the paper in two ways. The paper rewards every choice with the log-probability of the
whole sentence, in which the effect of one choice is lost. Here the reward is the log-probability of
the choice's own token. That is exact for attention after the cell without input feeding, where a
choice affects no other token, and with other timings it also learnt faster than a reward that
counts later tokens. And the paper uses soft weights in half of the sentences; here training always
reads a single position, as inference does.
"""

from __future__ import annotations

from torch import Tensor

from dragoman.recipe.training import ReinforceConfig
from dragoman.types import Choices


def surrogate(choices: Choices, mask: Tensor, reward: Tensor, baseline: float, config: ReinforceConfig) -> Tensor:
    """Return a loss whose gradient is that of eq. 12, summed; its value means nothing.

    ``reward`` (tokens,) has one number for each real token.
    """
    log_probs, entropy = choices.log_probs[mask], choices.entropy[mask]  # (tokens,)
    return -(config.weight * (reward - baseline) * log_probs + config.entropy * entropy).sum()
