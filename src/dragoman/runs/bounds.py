"""What the weights on disk allow: a config from anyone is compared with them before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.errors import UserError
from dragoman.files import TensorHeader
from dragoman.recipe.schema import Recipe

if TYPE_CHECKING:
    import torch

FREE = 4096  # numbers up to this need no weights: pixels, lengths of windows
MOST_LAYERS = 1024  # a stack of so many layers is built quickly, whether or not the weights have them
BUFFERS = 256 << 20  # bytes of tables that are computed, not stored
_COUNTS = ("layers", "halvings", "heads")  # numbers of modules, each of which has a tensor of its own
_RATES = ("rate",)  # sampling rates, whose limits are those of their section; they say nothing about weights


def check_numbers(recipe: Recipe, header: TensorHeader, path: Path) -> None:
    """Refuse a recipe with a number that is larger than anything the weights of ``path`` could have."""
    sections = {"decoder": recipe.decoder, "joint": recipe.joint}
    for name, source in recipe.sources.items():
        sections |= {f"sources.{name}.modality": source.modality, f"sources.{name}.encoder": source.encoder}
    for section, config in sections.items():
        if config is None:
            continue
        for key, number in _numbers(config.model_dump(), section):
            if key.rpartition(".")[2] in _RATES:
                continue
            is_count = key.rpartition(".")[2] in _COUNTS
            most = min(MOST_LAYERS, len(header.shapes)) if is_count else max(FREE, header.elements)
            if number > most:
                raise UserError(
                    f"{path.parent / 'config.json'}: {key} = {number:,} is more than the weights in {path.name} have "
                    f"room for ({len(header.shapes):,} tensors, {header.elements:,} numbers); the folder is damaged"
                )


def check_buffers(model: torch.nn.Module, header: TensorHeader, path: Path) -> None:
    """Refuse a model on torch's meta device whose tables would need far more memory than its weights."""
    needed = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    if needed > BUFFERS + 8 * header.elements:
        raise UserError(
            f"{path.parent / 'config.json'}: its tables need {needed:,} bytes, far more than the weights in "
            f"{path.name}; the folder is damaged"
        )


def _numbers(value: Any, path: str) -> Iterator[tuple[str, int]]:
    """Yield every whole number of a config with its path; a list also counts as the number of its items."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        yield path, len(value)
        for inner in value:
            yield from _numbers(inner, path)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path, value
