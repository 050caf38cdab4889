"""Word dropout: in training, rare tokens are randomly replaced by the unknown token."""

from __future__ import annotations

import torch
from torch import Tensor

from dragoman.process.generators import current_generator


def drop_words(tokens: Tensor, rates: Tensor, unknown: int) -> Tensor:
    """Replace tokens by ``unknown``, each with the probability that ``rates`` (V,) gives for it."""
    dropped = torch.rand(tokens.shape, device=tokens.device, generator=current_generator()) < rates[tokens]
    return tokens.masked_fill(dropped, unknown)
