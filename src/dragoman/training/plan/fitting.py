"""Third stage: tokenizers and modalities fitted to the training rows, which are then tokenized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dragoman.data import tokenizers
from dragoman.data.corpus.mapped.rows import MappedRows, sample_numbers
from dragoman.data.corpus.mapped.tokens import TokenRows
from dragoman.data.examples import TARGET
from dragoman.data.modality import Modality
from dragoman.data.tokenizers import Tokenizer, TokenizerConfig, choose_together
from dragoman.errors import UserError
from dragoman.parts import dump, kind_of, part
from dragoman.training.corpus import EncodedExamples, encode_examples
from dragoman.training.plan.reading import ReadData

FIT_ROWS = 500_000  # most rows that tokenizers are fitted to


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
    train = read.data.train
    if isinstance(train, MappedRows):
        return _fit_on_disk(read, train)
    modalities, target, reasons = _fit(read)
    return FittedData(read, modalities, target, encode_examples(train, modalities, target), tuple(reasons))


def _fit(read: ReadData) -> tuple[dict[str, Modality], Tokenizer, list[str]]:
    modalities, target, reasons = _fit_shared(read) if read.draft.share_vocabulary else _fit_apart(read)
    rows = len(read.data.train)
    if rows > FIT_ROWS:
        reasons.append(f"tokenisers: fitted to {FIT_ROWS:,} of the {rows:,} training rows, evenly spaced")
    return modalities, _with_slots(read, target), reasons


def _with_slots(read: ReadData, target: Tokenizer) -> Tokenizer:
    """Return the target's tokeniser with the slots of copying, if the run copies."""
    return target.with_slots(read.draft.copy_slots) if read.draft.copying else target


def _fit_on_disk(read: ReadData, train: MappedRows) -> FittedData:
    """Fit and tokenize rows on disk, or take what an earlier start has prepared."""
    settings = {
        "sources": {name: dump(config) for name, config in _source_configs(read).items()},
        "target": read.draft.target.tokenizer.model_dump(),
        "shared": read.draft.share_vocabulary,
        "init": [read.draft.init.model_dump(), dict(read.origins.digests)],
        "rows": [train.identity, FIT_ROWS],
    }
    folder = train.folder.tokens(settings)
    saved = train.folder.remember_fit(folder)
    if saved is None:
        train.folder.progress("fitting tokenisers", 0, None)
        modalities, target, reasons = _fit(read)
        for tokenizer in (target, *(modality.tokenizer for modality in modalities.values())):
            if tokenizer is not None and tokenizer.varies:
                raise UserError(
                    "tokenizer.drop: training rows that are segmented anew in each epoch must be in memory; set drop "
                    "to 0, or --set data.store=memory"
                )
        for name, modality in modalities.items():
            if not read.draft.share_vocabulary:
                modality.save(folder, name)
        target.save(folder, TARGET)
        train.folder.remember_fit(folder, reasons)
    else:
        reasons = list(saved)
        saved_target = tokenizers.load(folder, TARGET)
        target = _with_slots(read, saved_target)
        modalities = {
            name: _class_of(config)(config, saved_target)
            if read.draft.share_vocabulary
            else _class_of(config).load(config, folder, name)
            for name, config in _source_configs(read).items()
        }
    rows = encode_examples(train, modalities, target, folder)
    reasons.append(f"data: {train.stored:,} rows are on disk in {train.folder.path}, not in memory")
    reasons += _describe_unknown(rows)
    return FittedData(read, modalities, target, rows, tuple(reasons))


def _describe_unknown(rows: EncodedExamples) -> list[str]:
    """Describe how many tokens the fit has not seen, where it has not seen all rows."""
    columns = {**rows.sources, TARGET: rows.targets}
    unknown = {name: column.unknown for name, column in columns.items() if isinstance(column, TokenRows)}
    if not any(unknown.values()):
        return []
    counts = ", ".join(f"{name} {count:,}" for name, count in unknown.items())
    return [f"unknown tokens, in rows that the tokenisers were not fitted to: {counts}"]


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
    chosen = _choose_kinds(read, columns)
    modalities: dict[str, Modality] = {}
    reasons: list[str] = []
    notes: list[str] = []  # on tokenizers of other runs
    for name, config in _source_configs(read).items():
        kind = _class_of(config)
        if kind.has_tokenizer:
            tokenization: TokenizerConfig = config.tokenizer
            choice = read.origins.choose_source_tokenizer(name, tokenization, columns[name])
            notes += choice.notes
            modalities[name] = kind(config, choice.fit(columns[name], name, chosen.get(name)))
        else:
            modalities[name] = kind.fit(config, columns[name], name)
        reasons += [note for note in modalities[name].notes if note not in reasons]
    texts = _targets(read)
    choice = read.origins.choose_target_tokenizer(read.draft.target.tokenizer, texts)
    target = choice.fit(texts, "text" if read.draft.is_language_model else "target")
    return modalities, target, [*reasons, *target.notes, *notes, *choice.notes]


def _choose_kinds(read: ReadData, columns: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, str]]:
    """Choose kinds of tokenizers for the text sources together, with reasons, where nobody chose one."""
    configs = _source_configs(read)
    texts = [name for name in configs if _class_of(configs[name]).has_tokenizer]
    return choose_together({name: columns[name] for name in texts if configs[name].tokenizer.kind == "auto"})


def _source_configs(read: ReadData) -> dict[str, Any]:
    """Return the modality's settings of each source, in the order of the data."""
    return {name: read.draft.sources[name].modality for name in read.source_names}


def _source_columns(read: ReadData) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {name: [] for name in read.source_names}
    train = read.data.train
    for row in sample_numbers(len(train), FIT_ROWS):
        sources = train[row].sources
        for name, texts in columns.items():
            texts.append(sources[name])
    return columns


def _targets(read: ReadData) -> Sequence[str]:
    train = read.data.train
    return [train[row].target for row in sample_numbers(len(train), FIT_ROWS)]


def _class_of(config: Any) -> Any:
    return part("modality", kind_of(config))
