"""Rows whose sources are files: each file is examined once, and unusable ones drop their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from dragoman.data.audit.audit import Audit
from dragoman.data.audit.file_statistics import FileStatistics
from dragoman.data.examples import Example
from dragoman.data.media import MediaError, Probe, file_kinds, resolve
from dragoman.data.modality import Modality

THREADS = 8  # examining a file mostly waits for the disk, or for the network behind it
FEW = 32  # files that are examined sooner than threads are started


class _Examined(NamedTuple):
    path: str
    probe: Probe


def attach_files(examples: Sequence[Example], kinds: Mapping[str, str], folder: str, audit: Audit) -> list[Example]:
    """Return the rows whose files can be used, with paths as sources; the audit records the others.

    ``kinds`` are those of the sources that are files. Relative paths start at ``folder``.
    """
    modalities = file_kinds()
    results = {}
    for name, kind in kinds.items():
        values = [example.sources[name] for example in examples]
        results[name] = _examine_all(values, modalities[kind], folder)
        _refuse_other_sizes(results[name], values, modalities[kind])
    usable = []
    used: dict[str, dict[str, Probe]] = {name: {} for name in kinds}
    for example in examples:
        files: dict[str, _Examined] = {}
        for name in kinds:
            value = example.sources[name]
            result = results[name][value]
            if isinstance(result, MediaError):
                audit.drop_file(example, result.category, f"{value}: {result}")
                break
            files[name] = result
        else:
            for name, file in files.items():
                used[name][file.path] = file.probe
            paths = {name: file.path for name, file in files.items()}
            usable.append(replace(example, sources={**example.sources, **paths}, written=example.sources))
    audit.media = {
        name: FileStatistics.of(kinds[name], list(probes.values())) for name, probes in used.items() if probes
    }
    return usable


def _examine_all(values: Iterable[str], modality: type[Modality], folder: str) -> dict[str, _Examined | MediaError]:
    def examine(value: str) -> _Examined | MediaError:
        try:
            path = resolve(value, folder)
            return _Examined(path, modality.examine(path))
        except MediaError as error:
            return error

    distinct = sorted(set(values))  # neighbours in a folder, or in a store
    if len(distinct) <= FEW:
        return {value: examine(value) for value in distinct}
    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(distinct, pool.map(examine, distinct), strict=True))


def _refuse_other_sizes(
    results: dict[str, _Examined | MediaError], values: Sequence[str], modality: type[Modality]
) -> None:
    """Refuse files whose uniform count is not that of most rows (on a tie, of the first row)."""
    if not modality.uniform_count:
        return

    def size(file: _Examined) -> int:
        return modality.counts(file.probe)[modality.uniform_count]

    sizes = Counter(size(file) for value in values if not isinstance(file := results[value], MediaError))
    if len(sizes) < 2:
        return
    usual = sizes.most_common(1)[0][0]
    title = modality.count_titles[modality.uniform_count]
    for value, file in results.items():
        if not isinstance(file, MediaError) and size(file) != usual:
            results[value] = MediaError(f"{size(file):,} {title}, but most have {usual:,}", "wrong_shape")
