"""From a recipe and fitted modalities to a model: the wiring of widths and vocabularies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from dragoman.config import ConfigError
from dragoman.data.copying import Copier
from dragoman.data.modality import Modality
from dragoman.data.tokenizers import Tokenizer
from dragoman.data.vocabulary import UNK
from dragoman.files import read_tensor_header
from dragoman.nn.blocks.copying import Copying
from dragoman.nn.blocks.joined_sources import JoinedSources
from dragoman.nn.contracts import Encoder, Frontend
from dragoman.nn.init import without_initialisation
from dragoman.nn.model import Model
from dragoman.parts import kind_of, kinds, part
from dragoman.recipe.schema import Recipe
from dragoman.runs.bounds import check_buffers, check_numbers
from dragoman.runs.setup import Setup
from dragoman.runs.weights import KIND, check_origin, check_shapes, load_weights, read_weights
from dragoman.types import Layout


def build_model(recipe: Recipe, modalities: Mapping[str, Modality], target: Tokenizer) -> Model:
    """Return a model with fresh weights, the same for the same seed, in evaluation mode."""
    _check_layouts(recipe)
    _check_pairing(recipe)
    torch.manual_seed(recipe.training.seed)
    frontends, encoders = {}, {}
    for name, modality in modalities.items():
        config = recipe.sources[name].encoder
        frontends[name] = build_frontend(modality)
        encoders[name] = part("encoder", kind_of(config))(config, input_width=frontends[name].width)
    joined = JoinedSources(encoders, _joint(recipe)) if len(encoders) > 1 else None
    memory = joined or next(iter(encoders.values()), None)
    decoder = part("decoder", kind_of(recipe.decoder))(
        recipe.decoder,
        vocabulary=target.size - target.slots,
        memory_width=None if memory is None else memory.width,
        summary_shape=None if memory is None else memory.summary_shape,
    )
    if recipe.share_embeddings:
        for name, frontend in frontends.items():
            if (embedding := frontend.token_embedding) is not None:
                if embedding.weight.shape != decoder.embedding.weight.shape:
                    raise ConfigError(
                        f"share_embeddings needs token vectors of one width on both sides, but {_key(recipe, name)}"
                        f".embedding is {frontend.width} and decoder.embedding is {decoder.embedding.weight.shape[1]}"
                    )
                embedding.weight = decoder.embedding.weight
    model = Model(frontends, encoders, decoder, joined)
    check_ctc([encoder.reads for encoder in encoders.values()], recipe.training.ctc)
    if recipe.training.ctc and memory is not None:
        model.ctc = torch.nn.Linear(memory.width, target.size)  # behind all others' draws
    if recipe.copying:
        _check_copying(recipe, model)
        (modality,) = modalities.values()
        assert modality.tokenizer is not None
        table = torch.from_numpy(Copier(modality.tokenizer, target).table)
        assert memory is not None
        model.copying = Copying(model.decoder, table, target.slots, UNK, memory_width=memory.width)
    return model.eval()


def build_from_file(setup: Setup, path: Path) -> Model:
    """Build the model of a run and load its weights. The caller's random state is left as it was.

    Config and weights may come from anyone. So nothing is allocated before the header of the file has
    shown that the model is as large as the file.
    """
    header = read_tensor_header(path)
    check_origin(path, header.metadata, KIND, setup.run)
    check_numbers(setup.recipe, header, path)
    with torch.random.fork_rng(devices=[]), without_initialisation():
        with torch.device("meta"):
            outline = build_model(setup.recipe, setup.modalities, setup.target)
        check_shapes(outline, header.shapes, path)
        check_buffers(outline, header, path)
        del outline
        model = build_model(setup.recipe, setup.modalities, setup.target)
    load_weights(model, read_weights(path, KIND, setup.run), path)
    return model


def build_frontend(modality: Modality) -> Frontend:
    """Build the trained end of a modality, with fresh weights."""
    frontend: Frontend = part("frontend", modality.frontend_kind)(**modality.frontend_options())
    return frontend


def _joint(recipe: Recipe) -> Callable[[int], Encoder] | None:
    config = recipe.joint
    if config is None:
        return None

    def make(width: int) -> Encoder:
        encoder: Encoder = part("encoder", kind_of(config))(config, input_width=width)
        if encoder.stride != 1:
            raise ConfigError(
                f"joint.kind = {kind_of(config)!r} makes fewer states of many, and then nobody could tell which state "
                "belongs to which source; shorten the sources by their own encoders"
            )
        return encoder

    return make


def _key(recipe: Recipe, name: str, what: str = "modality") -> str:
    """How a person writes the table of a source's modality or encoder."""
    if list(recipe.sources) == ["source"]:
        return {"modality": "source"}.get(what, what)
    return f"sources.{name}.{what}"


def _check_layouts(recipe: Recipe) -> None:
    """An encoder must read what the modality gives: a sequence, or a picture."""
    for name, source in recipe.sources.items():
        modality, encoder = kind_of(source.modality), kind_of(source.encoder)
        gives, reads = part("modality", modality).gives, part("encoder", encoder).reads
        if gives != reads:
            fitting = [kind for kind in kinds("encoder") if part("encoder", kind).reads == gives]
            raise ConfigError(
                f"{_key(recipe, name, 'encoder')}.kind = {encoder!r} reads a {reads}, but the {modality} modality of "
                f"{name!r} gives a {gives}; encoders that read one: {', '.join(fitting) or 'none'}"
            )
    _check_joint(recipe)


def _check_joint(recipe: Recipe) -> None:
    if recipe.joint is None:
        return
    if len(recipe.sources) < 2:
        raise ConfigError("joint is an encoder that reads several sources together, but here are not several")
    if part("encoder", kind_of(recipe.joint)).reads != "sequence":
        fitting = [kind for kind in kinds("encoder") if part("encoder", kind).reads == "sequence"]
        raise ConfigError(
            f"joint.kind = {kind_of(recipe.joint)!r} reads pictures, but joined sources are a sequence; encoders that "
            f"read one: {', '.join(fitting)}"
        )


def _check_pairing(recipe: Recipe) -> None:
    """What a decoder that reads the source itself needs of the other side."""
    kind = kind_of(recipe.decoder)
    if not part("decoder", kind).reads_source:
        return
    if len(recipe.sources) > 1:
        raise ConfigError(
            f"decoder.kind = {kind!r} is one network that reads the source itself: it takes one source, not "
            f"{', '.join(recipe.sources)}; use another decoder, or put the sources into one column"
        )
    for source in recipe.sources.values():
        if kind_of(source.encoder) != "identity":
            raise ConfigError(
                f"decoder.kind = {kind!r} is one network that reads the source itself: it needs encoder.kind = "
                f"'identity', not {kind_of(source.encoder)!r}"
            )
        is_text = part("modality", kind_of(source.modality)).has_tokenizer
        if part("decoder", kind).predicts_source(recipe.decoder) and not (is_text and recipe.share_vocabulary):
            raise ConfigError(
                "decoder.source_loss predicts the source's tokens too: it needs text on both sides and "
                "share_vocabulary = true"
            )


def _check_copying(recipe: Recipe, model: Model) -> None:
    """Refuse to copy where no encoder has a state for each token of the source."""
    kind = kind_of(recipe.decoder)
    if model.decoder.reads_source:
        raise ConfigError(
            f"copying = true points at the states of an encoder, but decoder.kind = {kind!r} reads the source itself; "
            "use another decoder, or set copying = false"
        )
    ((name, source),) = recipe.sources.items()
    (encoder,) = model.encoders.values()
    modality = source.modality
    if int(encoder.stride) != 1 or modality.states != "tokens":  # type: ignore[arg-type, attr-defined]
        raise ConfigError(
            f"copying = true needs one encoder state for each token of {name!r}; use an encoder that does not shorten "
            "the source, and states = 'tokens'"
        )


def check_ctc(layouts: Sequence[Layout], weight: float) -> None:
    """CTC listens to the states of one encoder, in their order. ``layouts``: what the encoders read."""
    if not weight or list(layouts) == ["sequence"]:
        return
    found = "there is none" if not layouts else "there are several" if len(layouts) > 1 else "this one is a picture"
    raise ConfigError(f"training.ctc listens to the states of one sequence, but {found}; set it to 0")
