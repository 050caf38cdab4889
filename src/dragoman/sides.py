"""The three sides of a run: read, audited, and held out where they are not given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragoman.data.audit import Audit
from dragoman.data.examples import Example, Overlap, overlap, references
from dragoman.data.options import DataConfig
from dragoman.data.reading import Corpus, read
from dragoman.data.split import split, split_running
from dragoman.errors import UserError

DEV_SOURCES = 1000  # decoded at each validation, at most

PathLike = str | Path
Paths = PathLike | Sequence[PathLike]


@dataclass
class Data:
    """The three sides of a run and the truth about them."""

    train: list[Example]
    dev: list[Example]
    test: list[Example]
    audits: dict[str, Audit]
    overlaps: dict[str, Overlap] = field(default_factory=dict)
    held_out: str = ""  # how dev and test came about, in a sentence
    kinds: Mapping[str, str] = field(default_factory=dict)  # of the sources, as recognised: text, image, …

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": {"train": len(self.train), "dev": len(self.dev), "test": len(self.test)},
            "held_out": self.held_out,
            "files": {name: audit.to_json() for name, audit in self.audits.items()},
            "overlap": {name: found.to_json() for name, found in self.overlaps.items()},
        }

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for rows in (self.train, self.dev, self.test):
            for example in rows:
                digest.update(json.dumps([dict(example.as_written), example.target]).encode())
            digest.update(b"|")
        return digest.hexdigest()


def decoded_at_validations(dev: Sequence[Example]) -> list[tuple[Mapping[str, str], list[str]]]:
    """The distinct dev sources with their targets; of very many some, spread over all."""
    groups = references(dev)
    if len(groups) <= DEV_SOURCES:
        return groups
    return [groups[index * len(groups) // DEV_SOURCES] for index in range(DEV_SOURCES)]


def read_data(
    train: Paths, dev: Paths | None, test: Paths | None, config: DataConfig, kinds: Mapping[str, str] | None = None
) -> Data:
    """Read, audit, and hold out by hash of the source what is not given. ``kinds``: of sources, where they are said."""
    corpus = read(train, config, kinds)
    audits = {"train": corpus.audit}
    given: dict[str, Corpus] = {}
    for name, paths in (("dev", dev), ("test", test)):
        if paths is not None:
            given[name] = read(paths, config, corpus.kinds)
            audits[name] = given[name].audit
    dev_share = 0.0 if "dev" in given else config.dev_share
    test_share = 0.0 if given else config.test_share  # a person who brings a dev file has a test file elsewhere
    divide = split_running if config.running else split
    rows, dev_rows, test_rows = divide(corpus.examples, dev_share, test_share, limit=config.held_out_limit)
    sides = [name for name, share in (("dev", dev_share), ("test", test_share)) if share]
    sentence = ""
    if sides:
        unit = "line" if config.is_plain else "source"
        how = (
            ": the end of the text, each in one piece"
            if config.running
            else f", chosen by a hash of the {unit}, so that no {unit} stands on two sides"
        )
        sentence = (
            f"{len(dev_rows):,} rows held out as dev" + (f" and {len(test_rows):,} as test" if test_share else "") + how
        )
    data = Data(
        rows,
        given["dev"].examples if "dev" in given else dev_rows,
        given["test"].examples if "test" in given else test_rows,
        audits,
        held_out=sentence,
        kinds=corpus.kinds,
    )
    data.overlaps = {name: overlap(rows, given[name].examples) for name in given}
    if not data.dev:
        raise UserError("there is nothing to validate on: give --dev, or set data.dev_share above 0")
    return data
