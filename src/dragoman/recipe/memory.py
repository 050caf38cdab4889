"""How much memory training will need, estimated from the settings alone.

The estimate is for the batch with the longest row, and meant to be right within a factor of two. It
reads plain settings, so that ``check`` can make it without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FLOAT = 4  # bytes
PROCESS = 300 * 2**20  # bytes that the program takes before it has a model
PER_PARAMETER = 5  # weights, gradient, two moments, and a snapshot
LOGITS = 3_200_000  # numbers that the output layer holds at a time
KEPT_STATES = 14  # vectors per position and layer that the backward pass needs
KEPT_MAPS = 2  # numbers per pair of positions that the backward pass of attention needs
FULL_MAPS = ("additive", "concat", "location")  # attention that needs as many vectors for each pair of positions


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the data that memory depends on."""

    sources: Mapping[str, int]  # positions of the longest, by source
    target: int  # tokens of the longest
    vocabularies: Mapping[str, int]  # by source, and of the target under "target"

    @property
    def longest(self) -> int:
        """Return the longest side."""
        return max(self.target, *self.sources.values(), 1)


def estimate_memory(settings: Mapping[str, Any], sizes: Sizes) -> int:
    """Estimate the bytes that training needs at its peak. ``settings``: a recipe as plain values."""
    rows = max(1, settings["training"]["batch_tokens"] // sizes.longest)
    numbers = 0.0
    parameters = 0.0
    for name, length in sizes.sources.items():
        encoder = settings["sources"][name].get("encoder", {})
        numbers += _states(encoder, length) + _self_attention(encoder, length)
        parameters += _weights(encoder) + sizes.vocabularies.get(name, 0) * _width(encoder)
    decoder = settings["decoder"]
    network = decoder.get("network", decoder)
    read = sum(sizes.sources.values())
    own = sizes.target + (read if network is not decoder else 0)  # one network over source and target
    numbers += _states(network, own) + _self_attention(network, own) + _attention(network, sizes.target, read)
    parameters += 2 * _weights(network) + 2 * sizes.vocabularies["target"] * _width(network)
    logits = min(LOGITS, rows * sizes.target * sizes.vocabularies["target"])
    return PROCESS + FLOAT * int(PER_PARAMETER * parameters + rows * numbers + 2 * logits)


def _width(part: Mapping[str, Any]) -> int:
    return int(part.get("width", 256))


def _layers(part: Mapping[str, Any]) -> int:
    return int(part.get("layers", 1)) * (2 if part.get("direction") == "both" else 1)


def _weights(part: Mapping[str, Any]) -> float:
    """Return about the number of weights of a part, its token vectors not counted."""
    return _layers(part) * (8 * _width(part) ** 2 + 2 * _width(part) * int(part.get("feed_forward", 0)))


def _states(part: Mapping[str, Any], length: int) -> float:
    """Return the numbers that the backward pass needs of the states of one row."""
    return length * _layers(part) * (KEPT_STATES * _width(part) + 3 * int(part.get("feed_forward", 0)))


def _self_attention(part: Mapping[str, Any], length: int) -> float:
    return KEPT_MAPS * int(part["layers"]) * int(part["heads"]) * length**2 if "heads" in part else 0.0


def _attention(part: Mapping[str, Any], target: int, source: int) -> float:
    """Return the numbers that the backward pass needs of the attention of one row."""
    if "heads" in part:
        return KEPT_MAPS * int(part["layers"]) * int(part["heads"]) * target * source
    attention = part.get("attention") or {}
    kind = attention if isinstance(attention, str) else attention.get("kind")
    return KEPT_MAPS * target * source * (_width(part) if kind in FULL_MAPS else 1)
