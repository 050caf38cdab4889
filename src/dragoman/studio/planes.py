"""Where vectors lie in the plane: along the two directions of most variance (PCA), or as UMAP folds them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from dragoman.errors import MissingExtra
from dragoman.studio.records import Layout

AROUND = 15  # neighbours whose distances UMAP keeps


class Plane(Protocol):
    """What a layout gives: places of the vectors it was made from, and a place for any other."""

    @property
    def places(self) -> np.ndarray: ...  # (N, 2)

    @property
    def explained(self) -> tuple[float, float] | None: ...  # shares of the variance along x and y, if axes have any

    def place(self, vector: np.ndarray) -> tuple[float, float]: ...


class Principal:
    """Far apart in the plane is far apart in truth; what varies along other directions is not seen."""

    def __init__(self, centred: np.ndarray) -> None:
        self.directions, self.explained = principal(centred)
        self.places = centred @ self.directions.T

    def place(self, vector: np.ndarray) -> tuple[float, float]:
        x, y = self.directions @ vector
        return float(x), float(y)


class Folded:
    """UMAP: who is near whom is kept, distances between groups are not.

    It starts from the places of PCA and draws from a fixed seed in one thread, so the same vectors always lie alike.
    Only the angles of the vectors count, as for the neighbours that are listed.
    """

    explained = None

    def __init__(self, centred: np.ndarray) -> None:
        reducer = umap_reducer()
        start = Principal(centred).places
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sparse graphs that fall apart: they are drawn all the same
            self.fitted = reducer(
                n_neighbors=min(AROUND, len(centred) - 1), init=start, random_state=0, n_jobs=1, transform_seed=0
            ).fit(of_length_one(centred))
        self.places = self.fitted.embedding_

    def place(self, vector: np.ndarray) -> tuple[float, float]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x, y = self.fitted.transform(of_length_one(vector[None]))[0]
        return float(x), float(y)


PLANES: dict[Layout, Callable[[np.ndarray], Plane]] = {"pca": Principal, "umap": Folded}


def umap_reducer() -> Any:
    """The class; asked for before the long work, so that its absence is told at once."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that another of its parts would need another library
            from umap import UMAP
    except ImportError:
        raise MissingExtra("umap-learn", "umap", "the UMAP layout") from None
    return UMAP


def of_length_one(vectors: np.ndarray) -> np.ndarray:
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return (vectors / lengths).astype(np.float32)


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
