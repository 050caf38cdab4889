"""Fourth stage: the whole recipe, chosen for the data, and the rows that fit it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dragoman.config import merge
from dragoman.data.examples import TARGET, references
from dragoman.data.modality import Modality
from dragoman.data.splits import DEV_SOURCES, Data
from dragoman.data.tokenizers import Tokenizer
from dragoman.errors import UserError
from dragoman.evaluation import metrics
from dragoman.parts import dump, kind_of, part
from dragoman.process.devices import pick_device
from dragoman.process.memory import total_memory
from dragoman.recipe import auto
from dragoman.recipe.classes import describe_classes, find_classes
from dragoman.recipe.limits import (
    MOST_MEMORY,
    USUAL_LIMIT,
    Lengths,
    Loss,
    find_too_long,
    fit_limit,
    format_bytes,
    longest_row,
)
from dragoman.recipe.memory import Sizes, estimate_memory
from dragoman.recipe.schema import Recipe, SourceConfig, make_recipe
from dragoman.training.corpus import EncodedExamples
from dragoman.training.plan.describing import describe_recipe
from dragoman.training.plan.fitting import FittedData
from dragoman.training.plan.reading import ReadData
from dragoman.training.transfer.origins import Origins


@dataclass(frozen=True, slots=True)
class Choice:
    """The complete recipe, with the data and the modalities that belong to it."""

    recipe: Recipe  # complete: nothing in it is "auto" any more but the metric and the device
    modalities: Mapping[str, Modality]
    target: Tokenizer
    data: Data  # without the training rows that are too long
    rows: EncodedExamples  # likewise
    metric: metrics.MetricChoice
    origins: Origins
    reasons: tuple[str, ...]
    classes: tuple[str, ...]  # of a classifier


@dataclass(frozen=True, slots=True)
class Settled:
    """The recipe for the rows within a limit."""

    recipe: Recipe  # with this limit
    shape: auto.Shape  # of these rows
    data: Data
    rows: EncodedExamples
    explained: list[str]
    sizes: Sizes

    @property
    def memory(self) -> int:
        """Return about the bytes that training needs."""
        return estimate_memory(self.recipe.dump(), self.sizes)


def choose(fitted: FittedData) -> Choice:
    """Choose every setting that nobody named, and leave out the training rows that are too long."""
    read = fitted.read
    settled = settle_rows(fitted)
    recipe, data = name_tokenizers(settled.recipe, fitted), settled.data
    classes: tuple[str, ...] = ()
    if not recipe.is_language_model:
        held_out = [example.target for side in (data.dev, data.test) for example in side]
        targets = (example.target for example in data.train if not example.made)
        classes = find_classes(targets, held_out, fitted.target, recipe.target.classes)
    metric = choose_metric(recipe, fitted.target, data, len(classes))
    reasons = (
        *settled.explained,
        *describe_recipe(recipe, settled.shape),
        *describe_memory(settled),
        *describe_classes(classes),
        *describe_validation(metric, data, is_classifier=bool(classes)),
    )
    modalities = {name: apply_settings(modality, recipe.sources[name]) for name, modality in fitted.modalities.items()}
    return Choice(recipe, modalities, fitted.target, data, settled.rows, metric, read.origins, reasons, classes)


def settle_rows(fitted: FittedData) -> Settled:
    """Choose the limit on the length of rows and, for the rows within it, the recipe.

    The limit is what was asked for. Else it is the usual one or, where rows are longer, the longest
    row, if memory suffices. A limit that nobody asked for may not lose many rows.
    """
    asked: int | None = fitted.read.settings.get("max_tokens")
    if fitted.read.draft.data.running:
        return settle(fitted, asked or USUAL_LIMIT)
    lengths = text_lengths(fitted)
    whole = settle(fitted, asked or max(USUAL_LIMIT, longest_row(lengths)))
    total = total_memory() if pick_device(whole.recipe.training.device).type == "cpu" else None
    if asked is not None or total is None:
        return whole
    limit = fit_limit(
        lengths,
        lambda most: (whole if most == whole.recipe.token_limit else settle(fitted, most)).memory,
        MOST_MEMORY * total,
    )
    if limit == whole.recipe.token_limit:
        return whole
    settled = settle(fitted, limit)
    rows, kept = len(fitted.rows.targets), len(settled.rows.targets)
    loss = Loss(rows - kept, rows, limit, longest_row(lengths), whole.memory, total)
    if loss.is_too_much:
        raise UserError(str(loss))
    return settled


def settle(fitted: FittedData, limit: int) -> Settled:
    """Leave out the rows above the limit and choose the recipe for the others. Running text is one row."""
    read, rows, data = fitted.read, fitted.rows, fitted.read.data
    if not read.draft.data.running:
        data, rows = drop_too_long(data, rows, text_lengths(fitted), limit)
    kept = replace(fitted, rows=rows)
    shape = measure(kept)
    recipe, explained = choose_recipe(read, shape)
    recipe = recipe.model_copy(update={"max_tokens": limit})
    vocabularies = {
        name: modality.tokenizer.size for name, modality in fitted.modalities.items() if modality.tokenizer is not None
    }
    sizes = Sizes(
        {name: int(column.max()) for name, column in rows.lengths.items()},
        recipe.training.chunk if recipe.data.running else 1 + int(rows.target_lengths.max()),
        {**vocabularies, TARGET: fitted.target.size},
    )
    return Settled(recipe, shape, data, rows, explained, sizes)


def text_lengths(fitted: FittedData) -> dict[str, np.ndarray]:
    """Return the tokens of each row's texts, without end symbols.

    Files have limits of their own, which their modality and the audit know.
    """
    rows = fitted.rows
    lengths = {name: rows.lengths[name] - 1 for name, modality in fitted.modalities.items() if not modality.is_file}
    return {**lengths, TARGET: rows.target_lengths}


def measure(fitted: FittedData) -> auto.Shape:
    """Measure the training rows: what ``auto`` chooses by."""
    rows, modalities = fitted.rows, fitted.modalities
    targets = rows.target_lengths + 1  # with the end symbol
    tokenizers = [modality.tokenizer for modality in modalities.values() if modality.tokenizer is not None]
    longest = max(int(column.max()) for column in (targets, *rows.lengths.values()))
    tokens = sum(_total(rows.lengths[name]) for name, modality in modalities.items() if not modality.is_file)
    frames = {  # nine of ten sources have no more
        name: int(np.sort(rows.lengths[name])[len(targets) * 9 // 10])
        for name, modality in modalities.items()
        if modality.is_file
    }
    vocabulary = max((tokenizer.size for tokenizer in tokenizers), default=0)
    return auto.Shape(
        len(targets), tokens, _total(targets), vocabulary, fitted.target.size, longest, frames, find_tagged(fitted)
    )


def find_tagged(fitted: FittedData) -> frozenset[str]:
    """Return the sources in which the audit has recognised tags that are tokens of their own."""
    statistics = fitted.read.data.audits["train"].statistics
    return frozenset(
        name
        for name, modality in fitted.modalities.items()
        if name in statistics and statistics[name].has_tags and modality.has_tags
    )


def _total(lengths: np.ndarray) -> int:
    return int(lengths.sum(dtype=np.int64))


def choose_recipe(read: ReadData, shape: auto.Shape) -> tuple[Recipe, list[str]]:
    """Choose what nobody asked for, and return the recipe and the reasons in sentences."""
    kinds = read.data.kinds
    if read.draft.is_language_model:
        chosen = auto.choose_language_model(shape, read.draft.training.chunk if read.draft.data.running else None)
    else:
        wanted = merge(read.origins.settings(), read.settings)
        chosen = auto.choose(shape, kinds, lambda kind: can_build(kind, wanted))
    new_sources = read.layers.sources_beyond_preset(kinds)
    if read.is_auto:
        below = merge(merge(chosen, choose_ctc(read, shape)), read.origins.settings())
    else:  # the model is the preset's, except for sources of a kind that the preset does not know
        below = {"training": chosen["training"], "sources": {name: chosen["sources"][name] for name in new_sources}}
    training = read.settings.get("training", {})
    if "max_epochs" in training or "max_updates" in training:  # who names the end means the end
        below = merge(below, {"training": {"extend": 0.0}})
    recipe = make_recipe(merge(below, read.settings))
    if read.is_auto and shape.tagged:
        encoders = {name: kind_of(recipe.sources[name].encoder) for name in shape.tagged - read.origins.sources.keys()}
        recipe = make_recipe(merge(merge(below, auto.choose_tags(encoders)), read.settings))
    explained = [
        name for name in new_sources if has_chosen_encoder(chosen["sources"][name], recipe.sources[name].encoder)
    ]
    # In the order of the data, which is the order of the model's parts: loading builds a model by its recipe alone.
    recipe = recipe.model_copy(update={"sources": {name: recipe.sources[name] for name in read.source_names}})
    return recipe, auto.explain(shape, {name: kinds[name] for name in explained})


def choose_ctc(read: ReadData, shape: auto.Shape) -> dict[str, Any]:
    """Choose CTC where the data calls for it and nobody named its share, an encoder or a decoder."""
    tables = [source.get("encoder", {}) for source in read.settings.get("sources", {}).values()]
    tables.append(read.settings.get("decoder", {}))
    asked = read.settings.get("training", {}).get("ctc") is not None or read.draft.is_language_model
    if asked or any(isinstance(table, str) or "kind" in table for table in tables) or read.origins.settings():
        return {}
    return auto.choose_ctc(shape, read.data.kinds)


def can_build(kind: str, settings: Mapping[str, Any]) -> bool:
    """Return whether encoders and decoder of this kind have all the settings that were asked for."""
    tables = [("encoder", source.get("encoder", {})) for source in settings.get("sources", {}).values()]
    tables.append(("decoder", settings.get("decoder", {})))
    for family, table in tables:
        wanted = {"kind": table} if isinstance(table, str) else table
        known = {"kind", *part(family, kind).Config.model_fields}
        if wanted.get("kind", kind) != kind or not known.issuperset(wanted):
            return False
    return True


def has_chosen_encoder(chosen: Mapping[str, Any], encoder: Any) -> bool:
    """Return whether the encoder is the one that was chosen, or whether the person wanted another."""
    wanted, built = chosen.get("encoder", {}), dump(encoder)
    return all(built.get(name) == wanted[name] for name in ("kind", "layers") if name in wanted)


def name_tokenizers(recipe: Recipe, fitted: FittedData) -> Recipe:
    """Return the recipe with the kinds of tokenizer that were fitted in place of "auto"."""
    sources = {}
    for name, source in recipe.sources.items():
        tokenizer = fitted.modalities[name].tokenizer
        if tokenizer is not None:
            modality: Any = source.modality
            resolved = modality.tokenizer.resolved(tokenizer.kind)
            source = source.model_copy(update={"modality": modality.model_copy(update={"tokenizer": resolved})})
        sources[name] = source
    target = recipe.target.model_copy(update={"tokenizer": recipe.target.tokenizer.resolved(fitted.target.kind)})
    return recipe.model_copy(update={"sources": sources, "target": target})


def apply_settings(modality: Modality, source: SourceConfig) -> Modality:
    """Return a text modality with the settings of the recipe; for others the draft had them all."""
    return modality if modality.tokenizer is None else type(modality)(source.modality, modality.tokenizer)  # type: ignore[call-arg]


def drop_too_long(data: Data, rows: EncodedExamples, lengths: Lengths, most: int) -> tuple[Data, EncodedExamples]:
    """Leave out the training rows of more than ``most`` tokens, each recorded in the audit.

    Dev and test are never cut.
    """
    too_long = find_too_long(lengths, most)
    if not too_long:
        return data, rows
    remaining = np.delete(np.arange(len(rows.targets)), list(too_long))
    if not len(remaining):
        raise UserError(
            f"every training row has more than max_tokens = {most} tokens; --set max_tokens={longest_row(lengths)} "
            "keeps them all"
        )
    audit = copy.deepcopy(data.audits["train"])
    for row, reason in too_long.items():
        if not rows.examples[row].made:  # the audit counts rows of the files
            audit.drop(rows.examples[row], "too_many_tokens", reason)
    rows = rows.select(remaining)
    return replace(data, train=rows.examples, audits={**data.audits, "train": audit}), rows


def choose_metric(recipe: Recipe, target: Tokenizer, data: Data, classes: int = 0) -> metrics.MetricChoice:
    """Choose the metrics of the run; the first decides which weights are the best."""
    if recipe.is_language_model:
        choice = metrics.LANGUAGE_MODEL_CHOICE
    else:
        choice = metrics.choose_metrics(target.kind, [example.target for example in data.dev], classes)
    if recipe.metric == "auto":
        return choice
    return metrics.MetricChoice(recipe.metric, choice.metrics, "it was asked for")


def describe_memory(settled: Settled) -> list[str]:
    """Describe how much memory the longest row needs."""
    total = total_memory()
    here = f", of {format_bytes(total)} here" if total else ""
    unit = "positions" if settled.shape.frames else "tokens"
    longest = f"the longest training row has {settled.sizes.longest:,} {unit}"
    if len(settled.sizes.sources) > 1:
        sides = {**settled.sizes.sources, TARGET: settled.sizes.target}
        longest = f"the longest of each side: {', '.join(f'{name} {count:,}' for name, count in sides.items())} {unit}"
    return [f"memory: about {format_bytes(settled.memory)}{here}; {longest}"]


def describe_validation(metric: metrics.MetricChoice, data: Data, is_classifier: bool = False) -> list[str]:
    """Describe how validations measure the model."""
    label = metrics.label_metric(metric.headline, classes=is_classifier)
    reasons = [f"metric: {label}, because {metric.reason}"]
    if metric.headline != "perplexity" and (sources := len(references(data.dev))) > DEV_SOURCES:
        reasons.append(
            f"validation: decodes {DEV_SOURCES:,} of the {sources:,} dev sources; the loss is that of all rows"
        )
    return reasons
