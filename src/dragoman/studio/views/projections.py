"""Projections of vectors onto the plane: principal components (PCA), or UMAP."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from dragoman.errors import MissingExtra
from dragoman.studio import records

UMAP_NEIGHBOURS = 15  # UMAP preserves the distances to this many nearest neighbours


class Projection(Protocol):
    """The points of the vectors it was made from, and a point for any other vector."""

    @property
    def points(self) -> np.ndarray: ...  # (N, 2)

    @property
    def explained(self) -> tuple[float, float] | None: ...  # share of the variance along x and y, if axes mean anything

    def project(self, vector: np.ndarray) -> tuple[float, float]:
        """Return the point of a vector (D,)."""


class PCAProjection:
    """The projection onto the two directions of most variance.

    Vectors that are far apart in the plane are far apart in truth. What varies along other
    directions is not seen.
    """

    def __init__(self, centred: np.ndarray) -> None:
        self.directions, self.explained = principal_directions(centred)
        self.points = centred @ self.directions.T

    def project(self, vector: np.ndarray) -> tuple[float, float]:
        """Return the point of a vector (D,)."""
        x, y = self.directions @ vector
        return float(x), float(y)


class UMAPProjection:
    """The layout of UMAP, which keeps neighbours together but not the distances between groups.

    It starts from the points of PCA and uses a fixed seed and one thread, so that the same vectors
    always have the same points. Only the direction of the vectors counts, as for the neighbours
    that are listed.
    """

    explained = None

    def __init__(self, centred: np.ndarray) -> None:
        umap = import_umap()
        start = PCAProjection(centred).points
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about graphs that are not connected, which are drawn all the same
            self.reducer = umap(
                n_neighbors=min(UMAP_NEIGHBOURS, len(centred) - 1),
                init=start,
                random_state=0,
                n_jobs=1,
                transform_seed=0,
            ).fit(normalize_rows(centred))
        self.points = self.reducer.embedding_

    def project(self, vector: np.ndarray) -> tuple[float, float]:
        """Return the point of a vector (D,)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x, y = self.reducer.transform(normalize_rows(vector[None]))[0]
        return float(x), float(y)


PROJECTIONS: dict[records.Layout, Callable[[np.ndarray], Projection]] = {"pca": PCAProjection, "umap": UMAPProjection}


def import_umap() -> Any:
    """Return the class UMAP.

    Call it before long work, so that a missing library is reported at once.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about an optional library that another part of umap needs
            from umap import UMAP
    except ImportError:
        raise MissingExtra("umap-learn", "umap", "the UMAP layout") from None
    return UMAP


def normalize_rows(vectors: np.ndarray) -> np.ndarray:
    """Scale each row of (N, D) to length 1."""
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return (vectors / lengths).astype(np.float32)


def principal_directions(centred: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """Return the two directions (2, D) of most variance and their shares of it.

    The largest component of a direction is positive, which makes the result unique.
    """
    _, sizes, directions = np.linalg.svd(centred.astype(np.float64), full_matrices=False)
    if len(directions) < 2:
        directions = np.concatenate([directions, np.zeros_like(directions)])[:2]
        sizes = np.append(sizes, 0.0)
    shares = sizes**2 / max(float((sizes**2).sum()), 1e-12)
    first_two = directions[:2]
    largest = first_two[np.arange(2), np.abs(first_two).argmax(1)]
    return first_two * np.where(largest < 0, -1.0, 1.0)[:, None], (float(shares[0]), float(shares[1]))
