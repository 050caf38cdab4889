"""The map of source representations: sentences alike to the model lie close. Neighbours are by cosine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from dragoman.data.examples import Example, references
from dragoman.errors import UserError
from dragoman.predictions import Raw
from dragoman.studio import records
from dragoman.studio.looking import load_input
from dragoman.studio.planes import PLANES, Plane, of_length_one
from dragoman.studio.tables import first_lines
from dragoman.system import System

SEARCHED = 5000  # examples that neighbours are looked for among


@dataclass(frozen=True)
class Neighbourhood:
    """Examples as vectors. The first ``shown`` of them are drawn and lay out the plane; all are searched.

    A plane is laid out when it is first asked for, so that another layout does not encode the examples again.
    """

    system: System
    file: str
    examples: list[tuple[Mapping[str, str], str, int]]  # sources, a target, line
    vectors: np.ndarray  # (N, D), less the mean of those drawn
    centre: np.ndarray  # (D,) that mean
    shown: int
    representation: str
    planes: dict[records.Layout, Plane] = field(default_factory=dict)

    def plane(self, layout: records.Layout) -> Plane:
        if layout not in self.planes:
            self.planes[layout] = PLANES[layout](self.vectors[: self.shown])
        return self.planes[layout]

    def record(self, run: str = "", layout: records.Layout = "pca") -> records.RepresentationMap:
        plane = self.plane(layout)
        points = [
            records.Point(x=float(x), y=float(y), source=dict(source), target=target, line=line)
            for (x, y), (source, target, line) in zip(plane.places, self.examples, strict=False)
        ]
        return records.RepresentationMap(
            run=run,
            file=self.file,
            representation=self.representation,
            layout=layout,
            explained=plane.explained,
            points=points,
        )

    def neighbours(self, source: Raw, count: int, layout: records.Layout = "pca") -> records.Neighbours:
        loaded = load_input(self.system, source)
        vector = _vectors(self.system, [loaded.tensors])[0][0] - self.centre
        x, y = self.plane(layout).place(vector)
        near = of_length_one(self.vectors) @ of_length_one(vector[None])[0]
        best = np.argsort(-near, kind="stable")[:count]
        return records.Neighbours(
            x=x,
            y=y,
            examples=len(self.examples),
            neighbours=[
                records.Neighbour(
                    index=int(index) if index < self.shown else None,
                    similarity=float(near[index]),
                    source=dict(self.examples[index][0]),
                    target=self.examples[index][1],
                    line=self.examples[index][2],
                )
                for index in best
            ],
        )


def neighbourhood(system: System, examples: Sequence[Example], file: str, n: int) -> Neighbourhood:
    """Of every distinct source, the first ``n`` drawn at random but always alike."""
    if system.is_language_model:
        raise UserError("a language model has no source to draw a map of")
    groups = references(examples)
    lines = first_lines(examples)
    order = np.random.default_rng(0).permutation(len(groups))[: max(n, SEARCHED)]
    kept: list[tuple[Mapping[str, str], str, int]] = []
    found: list[np.ndarray] = []
    representation = ""
    batch = 64
    for begin in range(0, len(order), batch):
        rows = []
        for index in order[begin : begin + batch].tolist():
            source, targets = groups[index]
            try:
                tensors = load_input(system, source).tensors
            except UserError:
                continue  # a file that cannot be read has no place on the map
            rows.append(tensors)
            kept.append((source, targets[0], lines[index]))
        if rows:
            vectors, representation = _vectors(system, rows)
            found.append(vectors)
    if len(kept) < 3:
        raise UserError(f"{file}: a map needs at least three different sources that can be read")
    vectors = np.concatenate(found)
    centre = vectors[:n].mean(0)
    return Neighbourhood(system, file, kept, vectors - centre, centre, min(n, len(kept)), representation)


def _vectors(system: System, tensors: Sequence[Mapping[str, Tensor]]) -> tuple[np.ndarray, str]:
    """(B, D): what the encoder sums the source up in, or where it has no summary the mean of its states."""
    system.model.eval()
    with torch.inference_mode():
        memory = system.model.encode(system._padded(tensors))
    assert memory is not None
    if memory.summary is not None:
        return memory.summary.flatten(1).float().cpu().numpy(), "the encoder's summary of the source"
    real = memory.mask[..., None].to(memory.states.dtype)
    mean = (memory.states * real).sum(1) / real.sum(1)
    return mean.float().cpu().numpy(), "the mean of the encoder's states"
