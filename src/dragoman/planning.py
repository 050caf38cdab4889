"""All that is settled before the first update: the data read and split, tokenisers fitted, every setting resolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragoman import auto, metrics
from dragoman.building import build_model
from dragoman.config import ConfigError, merge
from dragoman.contracts import Modality
from dragoman.data import tokenizers
from dragoman.data.examples import references
from dragoman.errors import UserError
from dragoman.modalities.text import Text
from dragoman.parts import dump, kind_of, part
from dragoman.predictions import Lengths
from dragoman.published import take_published
from dragoman.recipe import Recipe, ask, make_recipe, without_kindless
from dragoman.sides import DEV_SOURCES, Data, Paths, read_data
from dragoman.system import System
from dragoman.training.ctc import describe_ctc
from dragoman.training.freezing import find_frozen
from dragoman.training.objective import check_attention
from dragoman.transfer import Origins, Transfer


@dataclass
class Plan:
    """All that is settled before the first update."""

    system: System
    data: Data
    reasons: list[str]
    metric: metrics.Choice
    transfers: list[Transfer] = field(default_factory=list)  # what was taken from other runs
    origins: dict[str, str] = field(default_factory=dict)  # those runs, and a digest of their weights


def plan(
    train: Paths,
    dev: Paths | None = None,
    test: Paths | None = None,
    *,
    preset: str | None = None,
    config: Path | None = None,
    settings: Sequence[str] | Mapping[str, Any] = (),
) -> Plan:
    """Read the data, fit the tokenisers, settle every setting, build the model."""
    said = ask(preset, config, settings)
    first = make_recipe(without_kindless(said.merged))
    data = read_data(train, dev, test, first.reading, said.kinds())
    names = list(data.train[0].sources)
    if not names and not first.is_language_model:
        raise ConfigError(
            "the data has no source, but the config has one; for a language model use --preset lm-rnn or lm-transformer"
        )
    kinds = data.kinds
    asked = said.for_sources(kinds)
    first = make_recipe(without_kindless(asked))
    reasons: list[str] = []
    origins = Origins(first.init, names)
    if asked["preset"] == "auto":
        first = make_recipe(merge(origins.settings(), without_kindless(asked)))
    modalities, target = _fit(first, data, names, reasons, origins)
    lengths = {name: [m.length(example.sources[name]) for example in data.train] for name, m in modalities.items()}
    shape = _shape(modalities, lengths, target, data)
    if first.is_language_model:
        chosen = auto.choose_language_model(shape, first.training.chunk if first.data.running else None)
    else:
        chosen = auto.choose(shape, kinds, lambda kind: _suits(merge(origins.settings(), asked), kind))
    others = said.beyond_preset(kinds)
    guessed = chosen
    if asked["preset"] == "auto":
        chosen = merge(chosen, origins.settings())
    else:  # the model is the preset's alone, but for sources of a kind that it does not know
        chosen = {"training": chosen["training"], "sources": {name: chosen["sources"][name] for name in others}}
    recipe = make_recipe(merge(chosen, asked))
    taken = [name for name in others if _is_taken(guessed["sources"][name], recipe.sources[name].encoder)]
    reasons += auto.explain(shape, {name: kinds[name] for name in taken})
    # in the order of the data, which is that of the model's parts: a loaded model is built by the recipe alone
    recipe = recipe.model_copy(update={"sources": {name: recipe.sources[name] for name in names}})
    recipe = _with_tokenizers(recipe, modalities, target)
    for name, modality in modalities.items():
        if isinstance(modality, Text):
            modality.config = recipe.sources[name].modality  # type: ignore[assignment]
    if not recipe.data.running:
        _drop_too_long(data, modalities, lengths, target, recipe.max_tokens)
    if recipe.is_language_model:
        metric = metrics.of_language_model()
    else:
        metric = metrics.choose(target.kind, [example.target for example in data.dev])
    if recipe.metric != "auto":
        metric = metrics.Choice(recipe.metric, metric.metrics, "it was asked for")
    reasons += _describe(recipe, shape)
    reasons.append(f"metric: {metrics.METRICS[metric.headline].label}, because {metric.reason}")
    if metric.headline != "perplexity" and (sources := len(references(data.dev))) > DEV_SOURCES:
        reasons.append(
            f"validation: decodes {DEV_SOURCES:,} of the {sources:,} dev sources; the loss is that of all rows"
        )
    model = build_model(recipe, modalities, target)
    check_attention(model.decoder, recipe.training)
    limits = Lengths.of(
        [max((column[row] for column in lengths.values()), default=0) for row in range(len(data.train))],
        [min(len(target.encode(e.target)), recipe.max_tokens) + 1 for e in data.train],  # running text has longer lines
    )
    system = System(recipe, modalities, target, model, limits)
    if recipe.training.ctc:
        (source,) = lengths.values()
        stride = int(next(iter(model.encoders.values())).stride)  # type: ignore[arg-type]
        states = [-(-length // stride) for length in source]
        reasons += describe_ctc(recipe.training.ctc, states, [target.encode(example.target) for example in data.train])
    reasons += take_published(recipe, model)
    transfers = origins.apply(system)
    reasons += [line for transfer in transfers for line in transfer.describe()]
    reasons += find_frozen(model, recipe.training.freeze).describe(recipe.training.freeze)
    return Plan(system, data, reasons, metric, transfers, origins.digests)


def _is_taken(chosen: Mapping[str, Any], encoder: Any) -> bool:
    """Is the encoder the one that was chosen, or did the person want another?"""
    wanted, found = chosen.get("encoder", {}), dump(encoder)
    return all(found.get(name) == wanted[name] for name in ("kind", "layers") if name in wanted)


def _fit(
    recipe: Recipe, data: Data, names: Sequence[str], reasons: list[str], origins: Origins
) -> tuple[dict[str, Modality], tokenizers.Tokenizer]:
    raws = {name: [example.sources[name] for example in data.train] for name in names}
    targets = [example.target for example in data.train]
    written = [name for name in names if isinstance(recipe.sources[name].modality, Text.Config)]
    shared: tokenizers.Tokenizer | None = None
    if recipe.share_vocabulary:
        both = [text for name in written for text in raws[name]] + targets
        shared = _tokenizer(
            origins.target_tokenizer(recipe.target.tokenizer, both, shared=True), both, "source and target"
        )
        reasons += [*origins.notes, *shared.notes]
    modalities: dict[str, Modality] = {}
    for name in names:
        config = recipe.sources[name].modality
        if not isinstance(config, Text.Config):
            modalities[name] = part("modality", kind_of(config)).fit(config, raws[name], name)
        elif shared is not None:
            modalities[name] = Text(config, shared)
            continue
        else:
            chosen = origins.source_tokenizer(name, config.tokenizer, raws[name])
            modalities[name] = Text(config, _tokenizer(chosen, raws[name], name))
        reasons += modalities[name].notes
    if shared is not None:
        return modalities, shared
    side = "text" if recipe.is_language_model else "target"
    target = _tokenizer(origins.target_tokenizer(recipe.target.tokenizer, targets), targets, side)
    reasons += [*target.notes, *origins.notes]
    return modalities, target


def _tokenizer(
    chosen: tokenizers.Tokenizer | tokenizers.TokenizerConfig, texts: Sequence[str], side: str
) -> tokenizers.Tokenizer:
    """A tokeniser that came from another run, or one fitted here."""
    return chosen if isinstance(chosen, tokenizers.Tokenizer) else tokenizers.fit(chosen, texts, side)


def _with_tokenizers(recipe: Recipe, modalities: Mapping[str, Modality], target: tokenizers.Tokenizer) -> Recipe:
    """The recipe with the kinds that were chosen in place of "auto"."""

    sources = {}
    for name, source in recipe.sources.items():
        modality = modalities[name]
        if isinstance(modality, Text):
            tokenizer = source.modality.tokenizer.resolved(modality.tokenizer.kind)  # type: ignore[attr-defined]
            source = source.model_copy(update={"modality": source.modality.model_copy(update={"tokenizer": tokenizer})})
        sources[name] = source
    side = recipe.target.model_copy(update={"tokenizer": recipe.target.tokenizer.resolved(target.kind)})
    return recipe.model_copy(update={"sources": sources, "target": side})


def _suits(asked: Mapping[str, Any], kind: str) -> bool:
    """Can encoders and decoder of this kind have all that was said of them?"""
    tables = [("encoder", source.get("encoder", {})) for source in asked.get("sources", {}).values()]
    tables.append(("decoder", asked.get("decoder", {})))
    for family, table in tables:
        said = {"kind": table} if isinstance(table, str) else table
        known = {"kind", *part(family, kind).Config.model_fields}
        if said.get("kind", kind) != kind or not known.issuperset(said):
            return False
    return True


def _shape(
    modalities: Mapping[str, Modality],
    lengths: Mapping[str, Sequence[int]],
    target: tokenizers.Tokenizer,
    data: Data,
) -> auto.Shape:
    targets = [len(target.encode(example.target)) + 1 for example in data.train]
    vocabulary = max((m.tokenizer.size for m in modalities.values() if isinstance(m, Text)), default=0)
    longest = max([*targets, *(length for column in lengths.values() for length in column)])
    tokens = sum(sum(lengths[name]) for name, modality in modalities.items() if not modality.is_file)
    frames = {
        name: sorted(lengths[name])[len(data.train) * 9 // 10]
        for name, modality in modalities.items()
        if modality.is_file
    }
    return auto.Shape(len(data.train), tokens, sum(targets), vocabulary, target.size, longest, frames)


def _describe(recipe: Recipe, shape: auto.Shape) -> list[str]:
    """What will be trained, as it was settled, in sentences."""
    decoder, network = kind_of(recipe.decoder), getattr(recipe.decoder, "network", None)
    encoders = " and ".join(f"{kind_of(source.encoder)} encoder" for source in recipe.sources.values())
    if network is not None:
        model = f"one {kind_of(network)} network over source and target"
    else:
        model = f"{decoder} language model" if recipe.is_language_model else f"{encoders}, {decoder} decoder"
    if recipe.preset == "auto":
        of = "" if recipe.is_language_model else "target "
        origin = f"chosen for {shape.target_tokens:,} {of}tokens of {shape.target_vocabulary:,} kinds"
    else:
        origin = f"preset {recipe.preset}, {recipe.reference}"
    width = getattr(network or recipe.decoder, "width", None)
    size = f" of width {width}" if width else ""
    training = recipe.training
    rounds = f"{training.max_epochs} epochs" if training.max_epochs else f"{training.max_updates} updates"
    sampling = training.sampling.describe()
    reasons = [
        f"model: {model}{size} ({origin})",
        f"training: at most {rounds}, batches of {training.batch_tokens:,} tokens",
        *([sampling] if sampling else []),
    ]
    if recipe.data.running:
        goes_on = "the state goes on from chunk to chunk"
        if not part("decoder", decoder).endless:
            goes_on = f"each starts afresh, because a {decoder} decoder's state would grow without end"
        reasons.append(f"running text, in chunks of {training.chunk} tokens: {goes_on}")
    return reasons


def _drop_too_long(
    data: Data,
    modalities: Mapping[str, Modality],
    lengths: dict[str, list[int]],
    target: tokenizers.Tokenizer,
    most: int,
) -> None:
    """Training rows of more than ``most`` tokens are left out, by name; dev and test are never cut.

    Files have limits of their own, which their modality and the audit know.
    """
    kept, rows = [], []
    for row, example in enumerate(data.train):
        sizes = {name: lengths[name][row] - 1 for name, modality in modalities.items() if not modality.is_file}
        sizes["target"] = len(target.encode(example.target))
        long = [f"{name} has {size} tokens" for name, size in sizes.items() if size > most]
        if long:
            reason = f"{' and '.join(long)}; the limit is max_tokens = {most}"
            data.audits["train"].drop(example, "too_many_tokens", reason)
        else:
            kept.append(example)
            rows.append(row)
    if not kept:
        raise UserError(f"every training row has more than max_tokens = {most} tokens; --set max_tokens=… raises it")
    data.train = kept
    for name, column in lengths.items():
        lengths[name] = [column[row] for row in rows]
