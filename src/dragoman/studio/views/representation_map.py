"""The map of source representations: sources that the model represents alike lie close together."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dragoman.data.examples import Example, references
from dragoman.errors import UserError
from dragoman.evaluation.rows import first_examples
from dragoman.inference.predictions import Raw
from dragoman.inference.requests import PreparedInput
from dragoman.inference.system import System
from dragoman.parts import kind_of
from dragoman.serving.limits import Limits
from dragoman.serving.queue import UNLIMITED, Job
from dragoman.studio import records
from dragoman.studio.inspection import read_input
from dragoman.studio.views.media import Link, describe_source, link_nothing
from dragoman.studio.views.projections import PROJECTIONS, Projection, normalize_rows

MAX_INDEXED = 5000  # examples among which neighbours are searched
BATCH = 64  # examples that are encoded together


class IndexedExample(NamedTuple):
    """A distinct source with its first target, and the line where it first occurs."""

    source: Mapping[str, str]
    target: str
    line: int
    length: int | None  # of the longest source that is not a picture, in tokens or frames


@dataclass(frozen=True)
class RepresentationIndex:
    """The vectors of some examples, for a map and for nearest neighbours by cosine.

    Neighbours are searched among all examples. The first ``drawn`` of them are points of the map,
    and the projection is fitted to these. It is computed on first use, so that another layout does
    not encode the examples again. Many threads may use an index at once.
    """

    system: System
    file: str
    examples: Sequence[IndexedExample]
    vectors: np.ndarray  # (N, D), centred
    centre: np.ndarray  # (D,) the mean of the vectors that are drawn
    drawn: int
    representation: str  # what the vectors are, in words
    _projections: dict[records.Layout, Projection] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)  # of the projections: UMAP is not thread-safe

    def describe_map(
        self, run: str = "", layout: records.Layout = "pca", link: Link = link_nothing
    ) -> records.RepresentationMap:
        """Describe the points of the map. ``link`` says how the page finds a source that is a file."""
        projection = self._projection(layout)
        points = []
        for (x, y), example in zip(projection.points, self.examples, strict=False):
            texts, files = describe_source(self.system, example.source, link)
            points.append(
                records.Point(
                    x=float(x),
                    y=float(y),
                    source=texts,
                    files=files,
                    target=example.target,
                    line=example.line,
                    source_length=example.length,
                )
            )
        return records.RepresentationMap(
            run=run,
            file=self.file,
            representation=self.representation,
            layout=layout,
            explained=projection.explained,
            points=points,
        )

    def describe_neighbours(
        self,
        source: Raw,
        count: int,
        layout: records.Layout = "pca",
        link: Link = link_nothing,
        limits: Limits | None = None,
    ) -> records.Neighbours:
        """Describe an input's place on the map and the ``count`` examples most similar to it."""
        session = self.system.session()
        vector = session.represent([read_input(session, source, limits)])[0][0] - self.centre  # (D,)
        with self._lock:
            x, y = self._projection(layout).project(vector)
        similarities = normalize_rows(self.vectors) @ normalize_rows(vector[None])[0]  # (N,)
        neighbours = []
        for index in np.argsort(-similarities, kind="stable")[:count].tolist():
            example = self.examples[index]
            texts, files = describe_source(self.system, example.source, link)
            neighbours.append(
                records.Neighbour(
                    index=index if index < self.drawn else None,
                    similarity=float(similarities[index]),
                    source=texts,
                    files=files,
                    target=example.target,
                    line=example.line,
                )
            )
        return records.Neighbours(x=x, y=y, examples=len(self.examples), neighbours=neighbours)

    def _projection(self, layout: records.Layout) -> Projection:
        with self._lock:
            if layout not in self._projections:
                self._projections[layout] = PROJECTIONS[layout](self.vectors[: self.drawn])
            return self._projections[layout]


def index_examples(
    system: System, examples: Sequence[Example], file: str, drawn: int, job: Job = UNLIMITED
) -> RepresentationIndex:
    """Encode the distinct sources of some examples, chosen at random with a fixed seed.

    ``drawn`` of them become points of the map. A source whose file cannot be read is left out.
    """
    if system.is_language_model:
        raise UserError("a language model has no source, so there is no map of sources")
    session = system.session()
    groups = references(examples)
    lines = [example.line for example in first_examples(examples)]
    order = np.random.default_rng(0).permutation(len(groups))[: max(drawn, MAX_INDEXED)]
    indexed: list[IndexedExample] = []
    blocks: list[np.ndarray] = []
    representation = ""
    for begin in range(0, len(order), BATCH):
        job.checkpoint()
        batch = []
        for index in order[begin : begin + BATCH].tolist():
            source, targets = groups[index]
            try:
                prepared = read_input(session, source)
            except UserError:
                continue
            batch.append(prepared)
            indexed.append(IndexedExample(source, targets[0], lines[index], _measure_length(system, prepared)))
        if batch:
            block, representation = session.represent(batch)  # (B, D)
            blocks.append(block)
    if len(indexed) < 3:
        raise UserError(f"{file}: a map needs at least three different sources that can be read")
    vectors = np.concatenate(blocks)  # (N, D)
    centre = vectors[:drawn].mean(0)
    return RepresentationIndex(
        system, file, indexed, vectors - centre, centre, min(drawn, len(indexed)), representation
    )


def _measure_length(system: System, prepared: PreparedInput) -> int | None:
    """Return the length of the longest source that is a sequence: tokens without the end symbol, or frames."""
    lengths = [
        len(prepared.arrays[name]) - (not modality.is_file)
        for name, modality in system.modalities.items()
        if kind_of(system.recipe.sources[name].modality) != "image"
    ]
    return max(lengths, default=None)
