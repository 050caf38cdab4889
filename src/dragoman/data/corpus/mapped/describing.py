"""The audit, the splits and the overlap of rows on disk, found by their digests.

They say what the same functions say of rows in memory: ``Audit.describe``, ``splits.split`` and
``examples.overlap``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dragoman.data.audit.audit import EXAMPLES, Audit, Place, name_earlier
from dragoman.data.corpus.mapped.digests import (
    count_distinct,
    digest_parts,
    digest_rows,
    first_row,
    first_rows,
    positions,
    seen_before,
)
from dragoman.data.corpus.mapped.rows import MappedRows
from dragoman.data.examples import Example, Overlap, Shared


def describe_rows(audit: Audit, rows: MappedRows) -> None:
    """Find duplicates and sources with several targets, and describe the usable rows."""
    pairs, sources = rows.pairs, rows.sources
    repeated, known = seen_before(pairs), seen_before(sources)
    if not rows.layout.names:  # blank lines of running text are no duplicates
        blank = np.frombuffer(digest_parts([""]), ">u8").astype(np.uint64)[0]
        is_blank = sources == blank
        repeated &= ~is_blank
        known |= is_blank
        audit.sources = int(np.count_nonzero(~known))
        others = np.zeros(len(rows), dtype=bool)  # a line without a source has no other target
    else:
        audit.sources = int(np.count_nonzero(~known))
        others = known & ~repeated
    audit.several = count_distinct(sources[others]) if others.any() else 0
    for category, chosen, digests, reason in (
        ("duplicate", repeated, pairs, "repeats {}"),
        ("several_targets", others, sources, "the source of {}"),
    ):
        shown = np.flatnonzero(chosen)[:EXAMPLES].tolist()
        places = []
        for row in shown:
            example, first = rows[row], rows[first_row(digests, digests[row])]
            where = name_earlier(first, example)
            places.append(Place(example.file, example.line, reason.format(where), example.unit))
        audit.record_many(category, int(np.count_nonzero(chosen)), places)
    audit.statistics = dict(rows.statistics)


def split_rows(rows: MappedRows, low: float, high: float, *, dev: bool, test: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return (rows,) which rows are held out for dev, and which for test.

    Test is what lies below ``low``, dev what lies from ``high`` on. Where chance leaves a wanted
    side empty, it gets the one source nearest its edge.
    """
    sources = rows.sources
    places = positions(sources)
    is_test = places < low if test else np.zeros(len(rows), dtype=bool)
    if test and not is_test.any():
        is_test = np.asarray(sources == sources[int(np.argmin(places))])
    places[is_test] = -1.0
    is_dev = places >= high if dev else np.zeros(len(rows), dtype=bool)
    if dev and not is_dev.any():
        is_dev = np.asarray(sources == sources[int(np.argmax(places))])
    return is_dev, is_test


def find_overlap(train: MappedRows, other: Sequence[Example], show: int = 5) -> Overlap:
    """Find the rows of ``other`` whose source is in ``train`` too."""
    cells = [(*example.sources.values(), example.target) for example in other]
    sources, pairs = digest_rows(cells, train.layout.order)
    first_source, first_pair = first_rows(train.sources, sources), first_rows(train.pairs, pairs)
    shared = [row for row, digest in enumerate(sources.tolist()) if digest in first_source]
    exact = [row for row in shared if int(pairs[row]) in first_pair]
    shown = []
    for row in shared[:show]:
        is_exact = int(pairs[row]) in first_pair
        seen, example = train[first_pair[int(pairs[row])] if is_exact else first_source[int(sources[row])]], other[row]
        places = seen.file, seen.line, example.file, example.line
        shown.append(Shared(*places, is_exact, seen.unit, example.unit))
    distinct = len({int(sources[row]) for row in shared})
    plain = bool(other) and not other[0].sources
    return Overlap(len(shared), len(other), distinct, len(exact), tuple(shown), plain)
