"""Rows whose sources are files: each file looked at once, the rows of those that cannot be used dropped by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeAlias

from dragoman.data.audit import Audit
from dragoman.data.examples import Example
from dragoman.data.media import examine, resolve
from dragoman.data.media.files import MediaError, Probe
from dragoman.data.media.measures import MediaStatistics

THREADS = 8  # most of the time of a look goes into waiting for the disk or the network behind it
FEW = 32  # files that are looked at sooner than threads are started

Found: TypeAlias = "tuple[str, Probe] | MediaError"  # the path and what its header tells


def attach(examples: Sequence[Example], kinds: Mapping[str, str], folder: str, audit: Audit) -> list[Example]:
    """The rows whose files can be used, their sources now paths. ``kinds`` are those of the sources that are files."""
    found = {name: _look({example.sources[name] for example in examples}, kind, folder) for name, kind in kinds.items()}
    for name, kind in kinds.items():
        if kind == "features":
            _agree(found[name], [example.sources[name] for example in examples])
    kept = []
    used: dict[str, dict[str, Probe]] = {name: {} for name in kinds}
    for example in examples:
        paths: dict[str, str] = {}
        for name in kinds:
            value = example.sources[name]
            result = found[name][value]
            if isinstance(result, MediaError):
                audit.drop_file(example, result.category, f"{value}: {result}")
                break
            paths[name] = result[0]
        else:
            for name, path in paths.items():
                used[name][path] = found[name][example.sources[name]][1]  # type: ignore[index]
            kept.append(replace(example, sources={**example.sources, **paths}, written=example.sources))
    audit.media = {
        name: MediaStatistics.of(kinds[name], list(probes.values())) for name, probes in used.items() if probes
    }
    return kept


def _look(values: Iterable[str], kind: str, folder: str) -> dict[str, Found]:
    def look(value: str) -> Found:
        try:
            path = resolve(value, folder)
            return path, examine(path, kind)
        except MediaError as error:
            return error

    distinct = sorted(values)  # neighbours in a folder, or in a store
    if len(distinct) <= FEW:
        return {value: look(value) for value in distinct}
    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(distinct, pool.map(look, distinct), strict=True))


def _agree(found: dict[str, Found], values: Sequence[str]) -> None:
    """Feature sequences must have as many columns as most rows have; of equally many, as the first row."""
    columns = Counter(result[1].features for value in values if not isinstance(result := found[value], MediaError))
    if len(columns) < 2:
        return
    usual = columns.most_common(1)[0][0]
    for value, result in found.items():
        if not isinstance(result, MediaError) and result[1].features != usual:
            reason = f"{result[1].features:,} columns, but most have {usual:,}"
            found[value] = MediaError(reason, "wrong_shape")
