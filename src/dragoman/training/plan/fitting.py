"""Third stage: tokenizers and modalities fitted to the training rows, which are then tokenized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dragoman.data.modality import Modality
from dragoman.data.tokenizers import Tokenizer, TokenizerConfig
from dragoman.parts import kind_of, part
from dragoman.training.corpus import EncodedExamples, encode_examples
from dragoman.training.plan.reading import ReadData


@dataclass(frozen=True, slots=True)
class FittedData:
    """The tokenizers and modalities of a run, and its training rows as tokens."""

    read: ReadData
    modalities: Mapping[str, Modality]  # by source; their settings are those of the draft
    target: Tokenizer
    rows: EncodedExamples  # the training rows
    reasons: tuple[str, ...]


def fit(read: ReadData) -> FittedData:
    """Fit a tokenizer to every text, a modality to every other source, and tokenize the rows."""
    modalities, target, reasons = _fit_shared(read) if read.draft.share_vocabulary else _fit_apart(read)
    return FittedData(read, modalities, target, encode_examples(read.data.train, modalities, target), tuple(reasons))


def _fit_shared(read: ReadData) -> tuple[dict[str, Modality], Tokenizer, list[str]]:
    """Fit one tokenizer to all texts of both sides."""
    configs, columns = _source_configs(read), _source_columns(read)
    texts = [text for name, column in columns.items() if _class_of(configs[name]).has_tokenizer for text in column]
    texts += _targets(read)
    choice = read.origins.choose_target_tokenizer(read.draft.target.tokenizer, texts, shared=True)
    tokenizer = choice.fit(texts, "source and target")
    reasons = [*choice.notes, *tokenizer.notes]
    modalities: dict[str, Modality] = {}
    for name, config in configs.items():
        kind = _class_of(config)
        if kind.has_tokenizer:
            modalities[name] = kind(config, tokenizer)
        else:
            modalities[name] = kind.fit(config, columns[name], name)
            reasons += modalities[name].notes
    return modalities, tokenizer, reasons


def _fit_apart(read: ReadData) -> tuple[dict[str, Modality], Tokenizer, list[str]]:
    """Fit every source and the target on its own."""
    columns = _source_columns(read)
    modalities: dict[str, Modality] = {}
    reasons: list[str] = []
    notes: list[str] = []  # on tokenizers of other runs
    for name, config in _source_configs(read).items():
        kind = _class_of(config)
        if kind.has_tokenizer:
            tokenization: TokenizerConfig = config.tokenizer
            choice = read.origins.choose_source_tokenizer(name, tokenization, columns[name])
            notes += choice.notes
            modalities[name] = kind(config, choice.fit(columns[name], name))
        else:
            modalities[name] = kind.fit(config, columns[name], name)
        reasons += modalities[name].notes
    texts = _targets(read)
    choice = read.origins.choose_target_tokenizer(read.draft.target.tokenizer, texts)
    target = choice.fit(texts, "text" if read.draft.is_language_model else "target")
    return modalities, target, [*reasons, *target.notes, *notes, *choice.notes]


def _source_configs(read: ReadData) -> dict[str, Any]:
    """Return the modality's settings of each source, in the order of the data."""
    return {name: read.draft.sources[name].modality for name in read.source_names}


def _source_columns(read: ReadData) -> dict[str, list[str]]:
    return {name: [example.sources[name] for example in read.data.train] for name in read.source_names}


def _targets(read: ReadData) -> Sequence[str]:
    return [example.target for example in read.data.train]


def _class_of(config: Any) -> Any:
    return part("modality", kind_of(config))
