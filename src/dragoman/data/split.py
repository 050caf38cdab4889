"""Held-out rows by hash of the source: the same file always splits the same way, and no source stands on two sides.

Each source has a fixed place between 0 and 1, the hash of its text. Test is what lies below the test share, dev what
lies above one minus the dev share, train the rest. So a source's side depends on nothing but its own text: adding,
removing or shuffling other rows does not move it. All targets of one source stay together.

A limit on the number of held-out sources lowers the share to ``limit / distinct sources``; the number held out is
then about the limit, not exactly. As such a corpus grows, test and dev give sources back to train from their inner
edges; never the other way, and never from one to the other.

Running text is held out in pieces, not by line: what is measured is how well a line follows from those before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from dragoman.data.examples import Example, Identity, identity
from dragoman.errors import UserError

FEWEST = 10  # distinct sources; fewer are not worth holding any out from


def place(source: Identity, seed: str) -> float:
    """Where between 0 (included) and 1 (excluded) a source lies."""
    parts = (source,) if isinstance(source, str) else source
    # Lengths first, so that no two different lists of sources give the same bytes.
    text = "".join(f"{len(part)}:{part}" for part in (seed, *parts))
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)  # 53 bits are what a float holds exactly


def split(
    examples: Sequence[Example], dev: float = 0.1, test: float = 0.1, *, limit: int = 1000, seed: str = "dragoman"
) -> tuple[list[Example], list[Example], list[Example]]:
    """Train, dev and test, each in file order. A share of 0 holds nothing out for that side.

    Where chance leaves a wanted side empty, it gets the one source nearest its edge.
    """
    if not 0 <= dev < 1 or not 0 <= test < 1 or dev + test >= 1:
        raise UserError(f"shares dev={dev:g} and test={test:g} leave nothing for training; their sum must be below 1")
    if not dev and not test:
        return list(examples), [], []
    keys = [identity(example, as_written=True) for example in examples]
    what = "sources" if examples and examples[0].sources else "lines"
    places = {key: place(key, seed) for key in dict.fromkeys(keys)}
    file = f"{examples[0].file}: " if examples else ""
    if len(places) < FEWEST:
        raise UserError(
            f"{file}{len(places)} distinct {what} are too few to hold some out for dev or test "
            f"(at least {FEWEST} are needed); add rows, or give dev and test files of their own"
        )
    ordered = sorted(places, key=places.__getitem__)
    low = _share(test, limit, len(places))
    high = 1 - _share(dev, limit, len(places))
    test_sources = {key for key in ordered if places[key] < low} or ({ordered[0]} if test else set())
    rest = [key for key in ordered if key not in test_sources]
    dev_sources = {key for key in rest if dev and places[key] >= high} or (set(rest[-1:]) if dev else set())
    if len(rest) == len(dev_sources):
        raise UserError(
            f"{file}with dev={dev:g} and test={test:g} none of the {what} is left for training; lower the shares"
        )
    sides: tuple[list[Example], list[Example], list[Example]] = ([], [], [])
    for key, example in zip(keys, examples, strict=True):
        sides[1 if key in dev_sources else 2 if key in test_sources else 0].append(example)
    return sides


def split_running(
    examples: Sequence[Example], dev: float = 0.1, test: float = 0.1, *, limit: int = 1000
) -> tuple[list[Example], list[Example], list[Example]]:
    """Train, dev and test of a running text, each in one piece: dev and test are its end, in this order."""
    if len(examples) < FEWEST and (dev or test):
        file = f"{examples[0].file}: " if examples else ""
        raise UserError(
            f"{file}{len(examples)} lines are too few to hold some out for dev or test (at least {FEWEST} are needed); "
            "add lines, or give dev and test files of their own"
        )
    sizes = [max(1, min(limit, round(share * len(examples)))) if share else 0 for share in (dev, test)]
    first = len(examples) - sum(sizes)
    if first < 1:
        raise UserError(f"shares dev={dev:g} and test={test:g} leave no line for training; lower them")
    second = first + sizes[0]
    return list(examples[:first]), list(examples[first:second]), list(examples[second:])


def _share(share: float, limit: int, sources: int) -> float:
    return min(share, limit / sources)
