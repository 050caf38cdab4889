"""From a recipe and fitted modalities to a model: the wiring of widths and vocabularies."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from dragoman.config import ConfigError
from dragoman.contracts import Modality
from dragoman.data.tokenizers import Tokenizer
from dragoman.modalities.text import TextFrontend
from dragoman.nn.model import Model
from dragoman.parts import kind_of, part
from dragoman.recipe import Recipe
from dragoman.training.ctc import check_head


def build_model(recipe: Recipe, modalities: Mapping[str, Modality], target: Tokenizer) -> Model:
    """A model with fresh weights, the same for the same seed."""
    _check_pairing(recipe)
    torch.manual_seed(recipe.training.seed)
    frontends, encoders = {}, {}
    for name, modality in modalities.items():
        config = recipe.sources[name].encoder
        frontends[name] = modality.frontend()
        encoders[name] = part("encoder", kind_of(config))(config, input_width=frontends[name].width)
    only = next(iter(encoders.values()), None)
    decoder = part("decoder", kind_of(recipe.decoder))(
        recipe.decoder,
        vocabulary=target.size,
        memory_width=None if only is None else only.width,
        summary_shape=None if only is None else only.summary_shape,
    )
    if recipe.share_embeddings:
        for frontend in frontends.values():
            if isinstance(frontend, TextFrontend):
                if frontend.embedding.weight.shape != decoder.embedding.weight.shape:
                    raise ConfigError(
                        "share_embeddings needs token vectors of one width on both sides, but source.embedding is "
                        f"{frontend.width} and decoder.embedding is {decoder.embedding.weight.shape[1]}"
                    )
                frontend.embedding.weight = decoder.embedding.weight
    model = Model(frontends, encoders, decoder)
    check_head(len(encoders), recipe.training.ctc)
    if recipe.training.ctc:
        model.ctc = torch.nn.Linear(next(iter(encoders.values())).width, target.size)  # behind all others' draws
    return model


def _check_pairing(recipe: Recipe) -> None:
    """What a decoder that reads the source itself needs of the other side."""
    kind = kind_of(recipe.decoder)
    if not part("decoder", kind).reads_source:
        return
    for source in recipe.sources.values():
        if kind_of(source.encoder) != "identity":
            raise ConfigError(
                f"decoder.kind = {kind!r} is one network that reads the source itself: it needs encoder.kind = "
                f"'identity', not {kind_of(source.encoder)!r}"
            )
        is_text = kind_of(source.modality) == "text"
        if getattr(recipe.decoder, "source_loss", 0.0) and not (is_text and recipe.share_vocabulary):
            raise ConfigError(
                "decoder.source_loss predicts the source's tokens too: it needs text on both sides and "
                "share_vocabulary = true"
            )
