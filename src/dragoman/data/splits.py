"""The three sides of a run: train, dev and test, read from files or held out from train.

Rows are held out by a hash of the source: the same file always splits the same way, and no source
is on two sides. Each source has a fixed position between 0 and 1, the hash of its text. Test is
what lies below the test share, dev what lies above one minus the dev share, train the rest. So a
source's side depends on nothing but its own text: adding, removing or shuffling other rows does not
move it. All targets of one source stay together.

A limit on the number of held-out sources lowers the share to ``limit / distinct sources``; the
number held out is then about the limit, not exactly. As such a corpus grows, test and dev give
sources back to train from their inner edges; never the other way, and never from one to the other.

Running text is held out in blocks, not by line: what is measured is how well a line follows from
those before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dragoman.data.audit.audit import Audit
from dragoman.data.corpus.mapped.describing import find_overlap as overlap_on_disk
from dragoman.data.corpus.mapped.describing import split_rows
from dragoman.data.corpus.mapped.digests import count_distinct, digest_parts
from dragoman.data.corpus.mapped.folder import Workspace
from dragoman.data.corpus.mapped.rows import MappedRows
from dragoman.data.corpus.mapped.survey import update_fingerprint
from dragoman.data.examples import Example, Identity, Overlap, count_sources, identity, overlap, references
from dragoman.data.options import DataConfig
from dragoman.data.reading.read import Corpus, DataSource, read
from dragoman.data.reading.rows import ColumnPlace
from dragoman.errors import UserError

FEWEST = 10  # distinct sources; fewer are not worth holding any out from
DEV_SOURCES = 1000  # the most that each validation decodes

PathLike: TypeAlias = str | Path
Paths: TypeAlias = PathLike | Sequence[PathLike]
Sides: TypeAlias = tuple[Sequence[Example], list[Example], list[Example]]  # train, dev, test


@dataclass
class Data:
    """The three sides of a run, with the audits of their files."""

    train: Sequence[Example]  # a list, or rows on disk
    dev: list[Example]
    test: list[Example]
    audits: dict[str, Audit]
    overlaps: dict[str, Overlap] = field(default_factory=dict)
    held_out: str = ""  # how dev and test were held out, in a sentence
    kinds: Mapping[str, str] = field(default_factory=dict)  # of the sources: text, image, …
    columns: Mapping[str, ColumnPlace] = field(default_factory=dict)  # of the sides in the training table
    augmented: Mapping[str, int] = field(default_factory=dict)  # training rows that were made, by how

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": {"train": len(self.train), "dev": len(self.dev), "test": len(self.test)},
            "distinct_sources": {"dev": count_sources(self.dev), "test": count_sources(self.test)},
            "held_out": self.held_out,
            "files": {name: audit.to_json() for name, audit in self.audits.items()},
            "overlap": {name: shared.to_json() for name, shared in self.overlaps.items()},
            **({"augmented": dict(self.augmented)} if self.augmented else {}),
        }

    def fingerprint(self) -> str:
        """Return a digest of all rows."""
        if not isinstance(self.train, MappedRows):
            return self._fingerprint()
        others = [[[dict(example.as_written), example.target] for example in rows] for rows in (self.dev, self.test)]
        known: str = self.train.folder.remember("fingerprint", [self.train.identity, others], self._fingerprint)
        return known

    def _fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for rows in (self.train, self.dev, self.test):
            if isinstance(rows, MappedRows):
                update_fingerprint(rows, digest.update)
            else:
                for example in rows:
                    digest.update(json.dumps([dict(example.as_written), example.target]).encode())
            digest.update(b"|")
        return digest.hexdigest()


def read_data(
    train: DataSource,
    dev: DataSource | None,
    test: DataSource | None,
    config: DataConfig,
    kinds: Mapping[str, str] | None = None,
    workspace: Workspace | None = None,
    on_row: Callable[[int], object] | None = None,
) -> Data:
    """Read and audit files or tables in memory, and hold out what is not given.

    ``kinds``: of the sources whose kind is known. ``workspace``: where many training rows are put.
    ``on_row`` is called with the number of rows of a file read so far.
    """
    corpus = read(train, config, kinds, on_row, workspace)
    audits = {"train": corpus.audit}
    corpora: dict[str, Corpus] = {}
    for name, held_out in (("dev", dev), ("test", test)):
        if held_out is not None:
            corpora[name] = read(held_out, config, corpus.kinds, on_row)
            audits[name] = corpora[name].audit
    dev_share, test_share = held_out_shares(config, corpora)
    rows, dev_rows, test_rows = hold_out(corpus.examples, config, corpora)
    sentence = ""
    if dev_share or test_share:
        unit = "line" if config.is_plain else "source"
        how = (
            ": the end of the text, each in one piece"
            if config.running
            else f", chosen by a hash of the {unit}, so that no {unit} is on two sides"
        )
        sentence = (
            f"{len(dev_rows):,} rows held out as dev" + (f" and {len(test_rows):,} as test" if test_share else "") + how
        )
    data = Data(
        rows,
        list(corpora["dev"].examples) if "dev" in corpora else dev_rows,
        list(corpora["test"].examples) if "test" in corpora else test_rows,
        audits,
        held_out=sentence,
        kinds=corpus.kinds,
        columns=corpus.columns,
    )
    data.overlaps = {name: find_overlap(rows, corpora[name].examples) for name in corpora}
    if not data.dev:
        raise UserError("there is nothing to validate on: give --dev, or set data.dev_share above 0")
    return data


def held_out_shares(config: DataConfig, given: Container[str]) -> tuple[float, float]:
    """Return the shares that are held out for dev and test. ``given``: which of the two have files."""
    dev = 0.0 if "dev" in given else config.dev_share
    # who brings a dev file has a test file elsewhere
    return dev, 0.0 if "dev" in given or "test" in given else config.test_share


def hold_out(examples: Sequence[Example], config: DataConfig, given: Container[str]) -> Sides:
    """Return train, dev and test as training splits a file. ``given``: which of dev and test have files."""
    dev_share, test_share = held_out_shares(config, given)
    divide = split_running if config.running else split
    return divide(examples, dev_share, test_share, limit=config.held_out_limit)


def validation_sample(dev: Sequence[Example]) -> list[tuple[Mapping[str, str], list[str]]]:
    """Return the distinct dev sources with their targets; of very many, an even sample."""
    groups = references(dev)
    if len(groups) <= DEV_SOURCES:
        return groups
    return [groups[index * len(groups) // DEV_SOURCES] for index in range(DEV_SOURCES)]


def split(
    examples: Sequence[Example], dev: float = 0.1, test: float = 0.1, *, limit: int = 1000, seed: str = "dragoman"
) -> Sides:
    """Return train, dev and test, each in file order. A share of 0 holds nothing out for that side.

    Where chance leaves a wanted side empty, it gets the one source nearest its edge.
    """
    if not 0 <= dev < 1 or not 0 <= test < 1 or dev + test >= 1:
        raise UserError(f"shares dev={dev:g} and test={test:g} leave nothing for training; their sum must be below 1")
    if not dev and not test:
        return examples, [], []
    if isinstance(examples, MappedRows):
        return _split_on_disk(examples, dev, test, limit)
    keys = [identity(example, as_written=True) for example in examples]
    unit = "sources" if examples and examples[0].sources else "lines"
    positions = {key: position(key, seed) for key in dict.fromkeys(keys)}
    file = f"{examples[0].file}: " if examples else ""
    _refuse_few(len(positions), file, unit)
    ordered = sorted(positions, key=positions.__getitem__)
    low = _limited_share(test, limit, len(positions))
    high = 1 - _limited_share(dev, limit, len(positions))
    test_sources = {key for key in ordered if positions[key] < low} or ({ordered[0]} if test else set())
    rest = [key for key in ordered if key not in test_sources]
    dev_sources = {key for key in rest if dev and positions[key] >= high} or (set(rest[-1:]) if dev else set())
    if len(rest) == len(dev_sources):
        raise _nothing_left(file, unit, dev, test)
    sides: tuple[list[Example], list[Example], list[Example]] = ([], [], [])
    for key, example in zip(keys, examples, strict=True):
        sides[1 if key in dev_sources else 2 if key in test_sources else 0].append(example)
    return sides


def _split_on_disk(rows: MappedRows, dev: float, test: float, limit: int) -> Sides:
    """Return the same sides as ``split`` of the same rows in memory; train stays on disk."""

    def find_held_out() -> list[list[int]]:
        sources = count_distinct(rows.sources)
        file, unit = f"{rows[0].file}: ", "sources" if rows.layout.names else "lines"
        _refuse_few(sources, file, unit)
        low, high = _limited_share(test, limit, sources), 1 - _limited_share(dev, limit, sources)
        is_dev, is_test = split_rows(rows, low, high, dev=dev > 0, test=test > 0)
        if np.all(is_dev | is_test):
            raise _nothing_left(file, unit, dev, test)
        return [np.flatnonzero(side).tolist() for side in (is_dev, is_test)]

    held_out = rows.folder.remember("held out", [rows.identity, dev, test, limit], find_held_out)
    is_train = np.ones(len(rows), dtype=bool)
    is_train[held_out[0] + held_out[1]] = False
    return rows.select(np.flatnonzero(is_train)), [rows[row] for row in held_out[0]], [rows[row] for row in held_out[1]]


def _refuse_few(sources: int, file: str, unit: str) -> None:
    if sources < FEWEST:
        raise UserError(
            f"{file}too few to hold some out for dev or test: {sources} distinct {unit}, and at least {FEWEST} are "
            f"needed; add rows, or give dev and test files of their own"
        )


def _nothing_left(file: str, unit: str, dev: float, test: float) -> UserError:
    return UserError(
        f"{file}with dev={dev:g} and test={test:g} none of the {unit} is left for training; lower the shares"
    )


def find_overlap(train: Sequence[Example], other: Sequence[Example]) -> Overlap:
    """Find the rows of ``other`` whose source is in ``train`` too, in memory or on disk."""
    return overlap_on_disk(train, other) if isinstance(train, MappedRows) else overlap(train, other)


def position(source: Identity, seed: str) -> float:
    """Return where between 0 (included) and 1 (excluded) a source lies."""
    parts = (source,) if isinstance(source, str) else source
    return (int.from_bytes(digest_parts(parts, seed), "big") >> 11) / (
        1 << 53
    )  # 53 bits are what a float holds exactly


def split_running(examples: Sequence[Example], dev: float = 0.1, test: float = 0.1, *, limit: int = 1000) -> Sides:
    """Return train, dev and test of a running text, three blocks in this order."""
    if len(examples) < FEWEST and (dev or test):
        file = f"{examples[0].file}: " if examples else ""
        raise UserError(
            f"{file}{len(examples)} lines are too few to hold some out for dev or test (at least {FEWEST} are needed); "
            "add lines, or give dev and test files of their own"
        )
    sizes = [max(1, min(limit, round(share * len(examples)))) if share else 0 for share in (dev, test)]
    dev_begin = len(examples) - sum(sizes)
    if dev_begin < 1:
        raise UserError(f"shares dev={dev:g} and test={test:g} leave no line for training; lower them")
    test_begin = dev_begin + sizes[0]
    train = examples.select(np.arange(dev_begin)) if isinstance(examples, MappedRows) else list(examples[:dev_begin])
    return train, list(examples[dev_begin:test_begin]), list(examples[test_begin:])


def _limited_share(share: float, limit: int, sources: int) -> float:
    return min(share, limit / sources)
