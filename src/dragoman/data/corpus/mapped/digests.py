"""A digest of every row and of its source, by which equal ones are found without their texts.

A digest has 64 bits. That two different ones of n rows get the same has a probability of about
n² / 2⁶⁵: 3 in a million for ten million rows, 3 % for a billion. Up to there, counts of duplicates
are exact for all practical purposes. Digests are compared in parts that fit into memory: those
that begin with the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from dragoman.data.corpus.blocks import blocks

SEED = "dragoman"
PART = 1 << 22  # digests that are sorted at once


def digest_parts(parts: Iterable[str], seed: str = SEED) -> bytes:
    """Return the digest of some texts in their order."""
    # Lengths first, so that no two different lists of texts give the same bytes.
    text = "".join([f"{len(part)}:{part}" for part in (seed, *parts)])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def digest_rows(rows: Sequence[tuple[str, ...]], order: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the digests of the sources and of the whole rows, (rows,) each.

    ``order``: the cells that are sources, by the order of their names. A row without a source is
    its own source.
    """
    head = f"{len(SEED)}:{SEED}"
    sources, pairs = bytearray(), bytearray()
    encode, blake = str.encode, hashlib.blake2b
    for row in rows:
        target = row[-1]
        cells = [row[index] for index in order] or [target]
        text = head + "".join([f"{len(cell)}:{cell}" for cell in cells])
        sources += blake(encode(text), digest_size=8).digest()
        pairs += blake(encode(f"{text}{len(target)}:{target}"), digest_size=8).digest()
    return np.frombuffer(bytes(sources), ">u8").astype(np.uint64), np.frombuffer(bytes(pairs), ">u8").astype(np.uint64)


def positions(digests: np.ndarray) -> np.ndarray:
    """Return where between 0 (included) and 1 (excluded) digests lie."""
    return (digests >> np.uint64(11)).astype(np.float64) / float(1 << 53)  # 53 bits are what a float holds exactly


def seen_before(digests: np.ndarray, part: int = PART) -> np.ndarray:
    """Return (rows,) True where an earlier row has the same digest."""
    rows = len(digests)
    seen = np.zeros(rows, dtype=bool)
    bits = max(0, -(-rows // part) - 1).bit_length()
    for number in range(1 << bits):
        chosen = np.concatenate(
            [
                np.flatnonzero(digests[block] >> np.uint64(64 - bits) == number) + block.start if bits else
                np.arange(block.start, block.stop)
                for block in blocks(rows)
            ]
            or [np.zeros(0, dtype=np.int64)]
        )  # fmt: skip
        values = np.asarray(digests[chosen])
        order = np.argsort(values, kind="stable")
        values = values[order]
        seen[chosen[order[1:][values[1:] == values[:-1]]]] = True
    return seen


def count_distinct(digests: np.ndarray) -> int:
    """Return how many different digests there are."""
    return int(np.count_nonzero(~seen_before(digests)))


def first_row(digests: np.ndarray, digest: np.uint64) -> int:
    """Return the first row with this digest."""
    for block in blocks(len(digests)):
        found = np.flatnonzero(digests[block] == digest)
        if len(found):
            return int(found[0]) + block.start
    raise ValueError(f"no row has the digest {digest}")


def first_rows(digests: np.ndarray, wanted: np.ndarray) -> dict[int, int]:
    """Return the first row with each of the wanted digests that occur."""
    wanted = np.unique(wanted)
    first: dict[int, int] = {}
    for block in blocks(len(digests) if len(wanted) else 0):
        values = np.asarray(digests[block])
        places = np.searchsorted(wanted, values)
        for row in np.flatnonzero(wanted[np.minimum(places, len(wanted) - 1)] == values).tolist():
            first.setdefault(int(values[row]), row + block.start)
    return first
