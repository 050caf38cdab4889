"""The map of source representations: sentences alike to the model lie close. PCA, and neighbours by cosine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dragoman.data.examples import Example, references
from dragoman.errors import UserError
from dragoman.predictions import Raw
from dragoman.studio import records
from dragoman.studio.looking import load_input
from dragoman.studio.tables import first_lines
from dragoman.system import System

SEARCHED = 5000  # examples that neighbours are looked for among


@dataclass(frozen=True)
class Neighbourhood:
    """Examples as vectors. The first ``shown`` of them are drawn and lay out the plane; all are searched."""

    system: System
    file: str
    examples: list[tuple[Mapping[str, str], str, int]]  # sources, a target, line
    vectors: np.ndarray  # (N, D), of length 1 after the mean of those drawn is taken out
    centre: np.ndarray  # (D,)
    directions: np.ndarray  # (2, D)
    places: np.ndarray  # (shown, 2)
    explained: tuple[float, float]
    representation: str

    def record(self, run: str = "") -> records.RepresentationMap:
        points = [
            records.Point(x=float(x), y=float(y), source=dict(source), target=target, line=line)
            for (x, y), (source, target, line) in zip(self.places, self.examples, strict=False)
        ]
        return records.RepresentationMap(
            run=run,
            file=self.file,
            representation=self.representation,
            explained=self.explained,
            points=points,
        )

    def neighbours(self, source: Raw, count: int) -> records.Neighbours:
        loaded = load_input(self.system, source)
        vector = _vectors(self.system, [loaded.tensors])[0][0] - self.centre
        x, y = self.directions @ vector
        near = self.vectors @ (vector / max(float(np.linalg.norm(vector)), 1e-9))
        best = np.argsort(-near, kind="stable")[:count]
        return records.Neighbours(
            x=float(x),
            y=float(y),
            examples=len(self.examples),
            neighbours=[
                records.Neighbour(
                    index=int(index) if index < len(self.places) else None,
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
    drawn = vectors[:n]
    centre = drawn.mean(0)
    directions, explained = principal(drawn - centre)
    away = vectors - centre
    lengths = np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-9)
    places = (drawn - centre) @ directions.T
    return Neighbourhood(
        system, file, kept, (away / lengths).astype(np.float32), centre, directions, places, explained, representation
    )


def principal(centred: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """The two directions (2, D) of most variance, and their shares of it. Signs are such that the result is unique."""
    _, sizes, directions = np.linalg.svd(centred.astype(np.float64), full_matrices=False)
    if len(directions) < 2:
        directions = np.concatenate([directions, np.zeros_like(directions)])[:2]
        sizes = np.append(sizes, 0.0)
    variance = sizes**2 / max(float((sizes**2).sum()), 1e-12)
    two = directions[:2]
    strongest = two[np.arange(2), np.abs(two).argmax(1)]
    return two * np.where(strongest < 0, -1.0, 1.0)[:, None], (float(variance[0]), float(variance[1]))


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
