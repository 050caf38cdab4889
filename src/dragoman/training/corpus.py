"""The examples of a run as the batches that training reads.

Every text is tokenized once, by ``encode_examples``. What it returns serves planning, which needs
lengths, and training, which needs the tokens themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dragoman.data.corpus.batching import Encoded
from dragoman.data.corpus.columns import ArrayColumn, Column, FileColumn
from dragoman.data.corpus.files import Cache
from dragoman.data.corpus.running import RunningText
from dragoman.data.examples import Example
from dragoman.data.modality import Modality, pad_tokens
from dragoman.data.tokenizers import Tokenizer, segmentation_sampler
from dragoman.data.vocabulary import BOS, EOS, PAD
from dragoman.inference.system import System
from dragoman.nn.model import Model

TARGET_STREAM = 1  # random stream that varies the tokens of targets; the sources use the others


@dataclass(frozen=True, slots=True)
class EncodedExamples:
    """Examples with their token ids.

    Sources that are files are read later, when a batch needs them.
    """

    examples: Sequence[Example]
    sources: Mapping[str, Sequence[np.ndarray]]  # of the sources that are no files: (S,) token ids each
    lengths: Mapping[str, Sequence[int]]  # of every source, in positions
    targets: Sequence[np.ndarray]  # (T,) token ids each, the end symbol last

    @property
    def target_lengths(self) -> list[int]:
        """Return the number of tokens of each target, the end symbol not counted."""
        return [len(target) - 1 for target in self.targets]

    @property
    def longest_sources(self) -> list[int]:
        """Return the length of the longest source of each example; 0 where there is no source."""
        return [max((lengths[row] for lengths in self.lengths.values()), default=0) for row in range(len(self.targets))]

    def select(self, rows: Sequence[int]) -> EncodedExamples:
        """Return the examples of these row numbers."""
        return EncodedExamples(
            [self.examples[row] for row in rows],
            {name: [column[row] for row in rows] for name, column in self.sources.items()},
            {name: [column[row] for row in rows] for name, column in self.lengths.items()},
            [self.targets[row] for row in rows],
        )


def encode_examples(
    examples: Sequence[Example], modalities: Mapping[str, Modality], target: Tokenizer
) -> EncodedExamples:
    """Tokenize every text once and measure every file."""
    sources: dict[str, list[np.ndarray]] = {}
    lengths: dict[str, list[int]] = {}
    for name, modality in modalities.items():
        raws = [example.sources[name] for example in examples]
        if modality.is_file:
            lengths[name] = [modality.length(raw) for raw in raws]
        else:
            sources[name] = [modality.array(raw) for raw in raws]
            lengths[name] = [len(array) for array in sources[name]]
    targets = [np.array([*target.encode(example.target), EOS], dtype=np.int64) for example in examples]
    return EncodedExamples(examples, sources, lengths, targets)


def training_corpus(system: System, rows: EncodedExamples, folder: Path | None = None) -> Encoded | RunningText:
    """Return what the trainer reads: rows, or one running text.

    ``folder``: the run's, for cached files.
    """
    recipe = system.recipe
    if not recipe.data.running:
        return row_corpus(system, rows, folder)
    carries = system.model.decoder.has_bounded_state  # its state may go on from chunk to chunk
    return RunningText(
        np.concatenate(rows.targets), chunk=recipe.training.chunk, carries=carries, bos=BOS, eos=EOS, pad=PAD
    )


def row_corpus(system: System, rows: EncodedExamples, folder: Path | None = None) -> Encoded:
    """Return examples ready to be put into batches, one example per row."""
    limit = token_limit(system.model, system.recipe.token_limit, len(system.modalities))
    sources: dict[str, Column] = {}
    for index, (name, modality) in enumerate(system.modalities.items()):
        raws = [example.sources[name] for example in rows.examples]
        if modality.is_file:
            cache = system.caches.get(name) or make_cache(system, name, folder)
            sources[name] = FileColumn(modality, raws, cache, rows.lengths[name])
        else:
            stream = index if index < TARGET_STREAM else index + 1
            augment = modality.augmenting(raws) if modality.varies else None
            sources[name] = ArrayColumn(rows.sources[name], modality.collate, augment, limit, stream)
    texts = [example.target for example in rows.examples]
    augment = segmentation_sampler(system.target, texts, EOS) if system.target.varies else None
    return Encoded(sources, ArrayColumn(rows.targets, pad_tokens, augment, limit, TARGET_STREAM), bos=BOS)


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
