"""A recipe in sentences."""

from __future__ import annotations

from typing import Any

from dragoman.parts import kind_of, part
from dragoman.recipe import auto
from dragoman.recipe.schema import Recipe


def describe_recipe(recipe: Recipe, shape: auto.Shape) -> list[str]:
    """Describe the model and how it will be trained."""
    training = recipe.training
    limit = f"{training.max_epochs} epochs" if training.max_epochs else f"{training.max_updates} updates"
    if training.extend and training.max_epochs:
        limit += f" ({training.max_epochs + int(training.extend * training.max_epochs)} if dev still rises)"
    reasons = [
        f"model: {_describe_model(recipe)} ({_describe_origin(recipe, shape)})",
        f"training: at most {limit}, batches of {training.batch_tokens:,} tokens",
    ]
    reasons += [_describe_tags(name, recipe) for name in sorted(shape.tagged)]
    if sampling := training.sampling.describe():
        reasons.append(sampling)
    if recipe.data.running:
        reasons.append(f"running text, in chunks of {training.chunk} tokens: {_describe_chunks(recipe)}")
    return reasons


def _describe_tags(name: str, recipe: Recipe) -> str:
    """Describe how the tags of a source are read, which the audit has recognised."""
    modality: Any = recipe.sources[name].modality
    if modality.tags:
        return f"{name}: tags in angle brackets are told from letters by a vector of their type, and take no positions"
    return f"{name}: tags in angle brackets are read as any other symbol"


def _describe_model(recipe: Recipe) -> str:
    kind = kind_of(recipe.decoder)
    network = part("decoder", kind).network_config(recipe.decoder)
    if network is not recipe.decoder:
        model = f"one {kind_of(network)} network over source and target"
    elif recipe.is_language_model:
        model = f"{kind} language model"
    else:
        encoders = " and ".join(f"{kind_of(source.encoder)} encoder" for source in recipe.sources.values())
        model = f"{encoders}, {kind} decoder"
    return f"{model} of width {network.width}"


def _describe_origin(recipe: Recipe, shape: auto.Shape) -> str:
    """Describe who chose the model: ``auto``, by the data, or a preset."""
    if recipe.preset != "auto":
        return f"preset {recipe.preset}, {recipe.reference}"
    side = "" if recipe.is_language_model else "target "
    return f"chosen for {shape.target_tokens:,} {side}tokens of {shape.target_vocabulary:,} kinds"


def _describe_chunks(recipe: Recipe) -> str:
    kind = kind_of(recipe.decoder)
    if part("decoder", kind).has_bounded_state:
        return "the state goes on from chunk to chunk"
    return f"each starts afresh, because a {kind} decoder's state would grow without end"
