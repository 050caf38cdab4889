"""What the audit and the splits need to know of the rows, found by other processes shard by shard."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii

import numpy as np

from dragoman.data.audit.text_statistics import TextCounts
from dragoman.data.corpus.mapped.digests import digest_rows
from dragoman.data.corpus.mapped.rows import Cells, MappedRows, RowLayout, read_shard
from dragoman.data.corpus.processes import Workers
from dragoman.data.examples import TARGET

WORDS = 1 << 19  # distinct words of a side that are counted exactly


@dataclass(frozen=True, slots=True)
class ShardSurvey:
    """What was found in one shard."""

    counts: dict[str, TextCounts]  # by side
    sources: np.ndarray  # (rows,) digests of the sources
    pairs: np.ndarray  # (rows,) digests of the rows


@dataclass(frozen=True, slots=True)
class SurveyShard:
    """Counts the texts of a shard, and computes the digests of its rows."""

    layout: RowLayout

    def __call__(self, shard: int) -> ShardSurvey:
        rows = read_shard(self.layout, shard)
        counts = {}
        for column, name in enumerate((*self.layout.names, TARGET)):
            counts[name] = TextCounts(WORDS)
            counts[name].add(row[column] for row in rows)
        return ShardSurvey(counts, *digest_rows(rows, self.layout.order))


@dataclass(frozen=True, slots=True)
class SerializeShard:
    """Writes some rows of a shard as the fingerprint of the data reads them."""

    layout: RowLayout

    def __call__(self, task: tuple[int, np.ndarray | None]) -> bytes:
        shard, chosen = task
        rows = read_shard(self.layout, shard)
        serialize = serializer(self.layout.names)
        return "".join([serialize(rows[row]) for row in (range(len(rows)) if chosen is None else chosen)]).encode()


def serializer(names: tuple[str, ...]) -> Callable[[Cells], str]:
    """Return a function that writes a row as ``json.dumps([sources, target])`` does."""
    keys = [json.dumps(name) + ": " for name in names]
    quote = encode_basestring_ascii

    def serialize(row: Cells) -> str:
        sources = ", ".join([key + quote(cell) for key, cell in zip(keys, row, strict=False)])
        return f"[{{{sources}}}, {quote(row[-1])}]"

    return serialize


def update_fingerprint(rows: MappedRows, update: Callable[[bytes], object]) -> None:
    """Add rows to a digest, which gets the same bytes as from rows in memory."""
    with Workers(SerializeShard(rows.layout)) as workers:
        for part in workers.map((shard, rows.chosen_within(shard)) for shard in range(rows.shards)):
            update(part)
