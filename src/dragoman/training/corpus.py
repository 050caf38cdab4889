"""The examples of a run as the batches that training reads.

Every text is tokenized once, by ``encode_examples``. What it returns serves planning, which needs
lengths, and training, which needs the tokens themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TypeVar

import numpy as np

from dragoman.data.copying import Copier
from dragoman.data.corpus.batching import Encoded
from dragoman.data.corpus.columns import ArrayColumn, Column, FileColumn
from dragoman.data.corpus.files import Cache
from dragoman.data.corpus.mapped.rows import MappedRows
from dragoman.data.corpus.mapped.tokens import MappedStream, TokenRows, tokenize
from dragoman.data.corpus.running import RunningText
from dragoman.data.examples import Example
from dragoman.data.modality import Modality, pad_tokens
from dragoman.data.tokenizers import Tokenizer, segmentation_sampler
from dragoman.data.vocabulary import BOS, EOS, PAD
from dragoman.inference.system import System
from dragoman.nn.model import Model

Item = TypeVar("Item")

TARGET_STREAM = 1  # random stream that varies the tokens of targets; the sources use the others


@dataclass(frozen=True, slots=True)
class EncodedExamples:
    """Examples with their token ids.

    Sources that are files are read later, when a batch needs them.
    """

    examples: Sequence[Example]
    sources: Mapping[str, Sequence[np.ndarray]]  # of the sources that are no files: (S,) token ids each
    lengths: Mapping[str, np.ndarray]  # of every source, (rows,) positions
    targets: Sequence[np.ndarray]  # (T,) token ids each, the end symbol last
    target_lengths: np.ndarray  # (rows,) tokens of each target, the end symbol not counted

    @property
    def longest_sources(self) -> np.ndarray:
        """Return the length of the longest source of each example; 0 where there is no source."""
        columns = list(self.lengths.values())
        return reduce(np.maximum, columns) if columns else np.zeros(len(self.targets), dtype=np.int32)

    def select(self, rows: np.ndarray) -> EncodedExamples:
        """Return the examples of these row numbers, which must be ascending."""
        return EncodedExamples(
            _select(self.examples, rows),
            {name: _select(column, rows) for name, column in self.sources.items()},
            {name: column[rows] for name, column in self.lengths.items()},
            _select(self.targets, rows),
            self.target_lengths[rows],
        )


def _select(column: Sequence[Item], rows: np.ndarray) -> Sequence[Item]:
    if isinstance(column, (MappedRows, TokenRows)):
        return column.select(rows)  # type: ignore[return-value]
    return [column[row] for row in rows.tolist()]


def encode_examples(
    examples: Sequence[Example], modalities: Mapping[str, Modality], target: Tokenizer, folder: Path | None = None
) -> EncodedExamples:
    """Tokenize every text once and measure every file. ``folder``: for the tokens of rows on disk."""
    if isinstance(examples, MappedRows) and folder is not None:
        return _encode_on_disk(examples, modalities, target, folder)
    sources: dict[str, list[np.ndarray]] = {}
    lengths: dict[str, np.ndarray] = {}
    for name, modality in modalities.items():
        raws = [example.sources[name] for example in examples]
        if modality.is_file:
            lengths[name] = np.array([modality.length(raw) for raw in raws], dtype=np.int32)
        else:
            sources[name] = [modality.array(raw) for raw in raws]
            lengths[name] = np.array([len(array) for array in sources[name]], dtype=np.int32)
    targets = [np.array([*ids, EOS], dtype=np.int64) for ids in _encode_targets(examples, modalities, target)]
    target_lengths = np.array([len(row) - 1 for row in targets], dtype=np.int32)
    return EncodedExamples(examples, sources, lengths, targets, target_lengths)


def _encode_targets(
    examples: Sequence[Example], modalities: Mapping[str, Modality], target: Tokenizer
) -> Iterator[list[int]]:
    """Yield the ids of each target; where tokens are copied, with slots for symbols that only the source has."""
    if not target.slots:
        yield from (target.encode(example.target) for example in examples)
        return
    ((name, modality),) = modalities.items()
    assert modality.tokenizer is not None
    copier = Copier(modality.tokenizer, target)
    yield from (copier.encode(example.sources[name], example.target) for example in examples)


def _encode_on_disk(
    examples: MappedRows, modalities: Mapping[str, Modality], target: Tokenizer, folder: Path
) -> EncodedExamples:
    """Tokenize rows on disk into files."""
    progress = examples.folder.progress
    *sources, targets = tokenize(
        examples, folder, modalities, target, lambda done, rows: progress("tokenising", done, rows)
    )
    columns = dict(zip(examples.layout.names, sources, strict=True))
    lengths = {name: columns[name].lengths for name in modalities}
    return EncodedExamples(
        examples, {name: columns[name] for name in modalities}, lengths, targets, targets.lengths - 1
    )


def training_corpus(system: System, rows: EncodedExamples, folder: Path | None = None) -> Encoded | RunningText:
    """Return what the trainer reads: rows, or one running text.

    ``folder``: the run's, for cached files.
    """
    recipe = system.recipe
    if not recipe.data.running:
        return row_corpus(system, rows, folder)
    carries = system.model.decoder.has_bounded_state  # its state may go on from chunk to chunk
    tokens = MappedStream(rows.targets) if isinstance(rows.targets, TokenRows) else np.concatenate(rows.targets)
    return RunningText(tokens, chunk=recipe.training.chunk, carries=carries, bos=BOS, eos=EOS, pad=PAD)


def row_corpus(system: System, rows: EncodedExamples, folder: Path | None = None) -> Encoded:
    """Return examples ready to be put into batches, one example per row."""
    limit = token_limit(system.model, system.recipe.token_limit, len(system.modalities))
    sources: dict[str, Column] = {}
    for index, (name, modality) in enumerate(system.modalities.items()):
        raws = [] if isinstance(rows.examples, MappedRows) else [example.sources[name] for example in rows.examples]
        if modality.is_file:
            cache = system.caches.get(name) or make_cache(system, name, folder)
            sources[name] = FileColumn(modality, raws, cache, rows.lengths[name])
        else:
            stream = index if index < TARGET_STREAM else index + 1
            augment = modality.augmenting(raws) if modality.varies else None
            sources[name] = ArrayColumn(
                rows.sources[name], modality.collate, augment, limit, stream, lengths=rows.lengths[name]
            )
    augment = None
    if system.target.varies:
        augment = segmentation_sampler(system.target, [example.target for example in rows.examples], EOS)
    lengths = rows.targets.lengths if isinstance(rows.targets, TokenRows) else rows.target_lengths + 1
    targets = ArrayColumn(rows.targets, pad_tokens, augment, limit, TARGET_STREAM, lengths=lengths)
    return Encoded(sources, targets, bos=BOS)


def make_cache(system: System, name: str, folder: Path | None) -> Cache:
    """Return a cache for the files of one source, as the recipe asks for it. ``folder``: the run's."""
    return Cache.of(system.recipe.data.cache, folder and folder / "cache" / name)


def make_caches(system: System, folder: Path | None) -> dict[str, Cache]:
    """Return a cache for each source that is read from files."""
    return {name: make_cache(system, name, folder) for name, modality in system.modalities.items() if modality.is_file}


def encode_corpus(system: System, examples: Sequence[Example], folder: Path | None = None) -> Encoded:
    """Encode examples and return them ready to be put into batches."""
    return row_corpus(system, encode_examples(examples, system.modalities, system.target), folder)


def token_limit(model: Model, max_tokens: int, sources: int) -> int:
    """Return the most tokens that a text may have after training has tokenized it in another way.

    That is what ``max_tokens`` allows and what learned positions suffice for. Where the texts of a
    row are read as one sequence, they share the positions.
    """
    together = model.decoder.reads_source or model.joined is not None
    longest = min(max_tokens + 1, model.longest_sequence or max_tokens + 1)
    return longest // (1 + sources if together else 1)
