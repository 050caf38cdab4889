"""Small layers made for a CPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from dragoman.nn.chance import chance
from dragoman.nn.precision import trains_here

FEW = 8192  # elements: for fewer, seeding a generator takes longer than it saves


class Dropout(nn.Module):
    """Dropout whose mask is made of one random byte an element.

    ``bernoulli_`` draws one number an element and costs about a fifth of a training step on a CPU. Here one 64-bit draw
    serves eight elements; where they are many, torch's stream only gives a seed to a generator that is three times as
    fast. A byte is compared with a threshold that is rounded up or down by chance, so the share is met on average.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        if not self._draws(x):
            return nn.functional.dropout(x, self.share, self.training)
        return x * self._mask(x)

    def added(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual + dropout(x), in one pass."""
        if not self._draws(x):
            return residual + self(x)
        return torch.addcmul(residual, x, self._mask(x))

    def rectified(self, x: Tensor) -> Tensor:
        """dropout(max(0, x)). Both are one mask, so there is one pass back instead of two."""
        if not self._draws(x):
            return self(torch.relu(x))
        mask = self._mask(x)
        # the mask where x > 0, else 0: what relu's own backward does with a gradient
        torch.ops.aten.threshold_backward.grad_input(mask, x.detach(), 0.0, grad_input=mask)
        return x * mask

    def _draws(self, x: Tensor) -> bool:
        return self.training and self.share > 0.0 and x.device.type == "cpu"

    def _mask(self, x: Tensor) -> Tensor:
        """0 where x is dropped, what makes up for it where it is kept."""
        if self.share > 255 / 256:  # too near to 1 for a byte
            kept = (torch.rand(x.shape, generator=chance()) >= self.share).to(x.dtype)
            return kept.mul_(1.0 / (1.0 - self.share))
        count = x.numel()
        own = 1 + (count + 7) // 8 if count < FEW else 2  # words of torch's stream
        words = torch.empty(own, dtype=torch.int64).random_(-(2**63), 2**63 - 1, generator=chance())
        threshold = int(self.share * 256 + int(words[0]) / 2**64 + 0.5) - 128
        if count < FEW:
            draws = words[1:].view(torch.int8)
        else:
            more = np.random.SFC64(int(words[1]) + 2**63).random_raw((count + 7) // 8)
            draws = torch.from_numpy(more.view(np.int8))
        # compared into numbers, not truth values: that is vectorised, and they need not be turned into numbers
        kept = torch.empty_like(x, memory_format=torch.contiguous_format)
        torch.ge(draws[:count].view(x.shape), threshold, out=kept)
        return kept.mul_(1.0 / (1.0 - self.share))

    def extra_repr(self) -> str:
        return f"share={self.share}"


class Linear(nn.Linear):
    """torch's own, whose training on a CPU adds the bias to the product.

    ``addmm`` first copies the bias into every row and lets the product read it again, which takes longer. Results are
    the same up to rounding (bit for bit on some processors).
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.bias is None or not trains_here(x):
            return super().forward(x)
        return nn.functional.linear(x, self.weight).add_(self.bias)


class Embedding(nn.Module):
    """Token vectors. The table starts small, so that a tied output layer starts near uniform."""

    def __init__(self, vocabulary: int, width: int, dropout: float = 0.0, scale: float | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width))
        nn.init.normal_(self.weight, std=width**-0.5 if scale is None else scale)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.dropout(nn.functional.embedding(tokens, self.weight))  # (..., D)


def fast_tanh(x: Tensor) -> Tensor:
    """tanh(x) = 2 sigmoid(2x) - 1, the same to 1e-7 and more than twice as fast on a CPU."""
    return torch.sigmoid(x * 2).mul_(2).sub_(1) if not torch.is_grad_enabled() else torch.sigmoid(x * 2) * 2 - 1


def compact(states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """States (B, S, D) and mask (B, S) with the real positions first, in their order, and no column without any."""
    order = (~mask).int().argsort(dim=1, stable=True)[:, : int(mask.sum(1).max())]
    return states.gather(1, order[..., None].expand(-1, -1, states.shape[-1])), mask.gather(1, order)
