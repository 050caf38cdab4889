"""The map: its projection onto the plane, and the examples nearest to an input."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import numpy as np
import pytest

from dragoman.errors import MissingExtra, UserError
from dragoman.evaluation.run_data import read_run_data
from dragoman.inference.system import System
from dragoman.studio import records
from dragoman.studio.endpoints import Studio
from dragoman.studio.library import Library
from dragoman.studio.uploads import Uploads
from dragoman.studio.views.projections import UMAPProjection, principal_directions
from dragoman.studio.views.representation_map import index_examples


def test_the_plane_holds_most_of_the_variance() -> None:
    generator = np.random.default_rng(0)
    points = generator.normal(size=(200, 6)) * [9, 4, 1, 0.1, 0.1, 0.1]
    points -= points.mean(0)
    directions, explained = principal_directions(points)
    np.testing.assert_allclose(directions @ directions.T, np.eye(2), atol=1e-9)
    assert abs(directions[0, 0]) > 0.99 and abs(directions[1, 1]) > 0.99
    shares = np.sort((points**2).sum(0) / (points**2).sum())[::-1]
    np.testing.assert_allclose(explained, shares[:2], atol=0.01)


@pytest.mark.parametrize("which", ["recurrent", "heads"])
def test_an_example_is_its_own_neighbour(which: str, tiny_run: Any, request: pytest.FixtureRequest) -> None:
    system: System = request.getfixturevalue(which)
    rows = read_run_data(system, tiny_run.folder).train
    index = index_examples(system, rows, "train", 50)
    drawn = index.describe_map()
    assert len(drawn.points) == 50 and 0 < sum(drawn.explained or ()) <= 1.0001
    lines = {example.sources["source"]: example.line for example in rows}
    point = drawn.points[7]
    assert lines[point.source["source"]] == point.line
    near = index.describe_neighbours(point.source["source"], 5)
    assert near.neighbours[0].source == point.source and near.neighbours[0].index == 7
    assert near.neighbours[0].similarity == pytest.approx(1, abs=1e-4)
    assert (near.x, near.y) == pytest.approx((point.x, point.y), abs=1e-4)
    assert near.examples == len({example.sources["source"] for example in rows})
    similar = [neighbour.similarity for neighbour in near.neighbours]
    assert similar == sorted(similar, reverse=True)


@pytest.fixture
def umap(monkeypatch: pytest.MonkeyPatch) -> None:
    """UMAP as it is but interpreted: to compile it takes longer than these few points."""
    if importlib.util.find_spec("umap") is None:
        pytest.skip("umap-learn is not installed")
    import numba

    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)


@pytest.mark.usefixtures("umap")
def test_umap_lays_the_same_points_alike_and_keeps_groups_together() -> None:
    generator = np.random.default_rng(0)
    middles = generator.normal(size=(3, 8)) * 4
    points = np.concatenate([middle + generator.normal(size=(9, 8)) * 0.3 for middle in middles]).astype(np.float32)
    points -= points.mean(0)
    projection = UMAPProjection(points)
    assert projection.points.shape == (27, 2) and np.isfinite(projection.points).all() and projection.explained is None
    np.testing.assert_array_equal(UMAPProjection(points).points, projection.points)
    apart = np.linalg.norm(projection.points[:, None] - projection.points[None], axis=-1)
    np.fill_diagonal(apart, np.inf)
    group = np.arange(27) // 9
    assert (group[apart.argmin(1)] == group).all()
    placed = np.array(projection.project(points[4] * 1.01))
    assert group[np.linalg.norm(projection.points - placed, axis=1).argmin()] == 0
    assert projection.project(points[4] * 1.01) == tuple(placed)


@pytest.mark.usefixtures("umap")
@pytest.mark.parametrize("count", [3, 5])
def test_umap_of_very_few_points(count: int) -> None:
    points = np.random.default_rng(1).normal(size=(count, 4)).astype(np.float32)
    assert np.isfinite(UMAPProjection(points - points.mean(0)).points).all()


@pytest.mark.usefixtures("umap")
def test_a_map_has_the_layout_that_was_asked_for(recurrent: System, tiny_run: Any) -> None:
    index = index_examples(recurrent, read_run_data(recurrent, tiny_run.folder).train, "train", 20)
    flat, folded = index.describe_map(), index.describe_map(layout="umap")
    assert (flat.layout, folded.layout) == ("pca", "umap") and folded.explained is None
    assert [point.source for point in flat.points] == [point.source for point in folded.points]
    known = flat.points[3].source["source"]
    first, second = index.describe_neighbours(known, 4), index.describe_neighbours(known, 4, "umap")
    assert first.neighbours == second.neighbours
    assert (first.x, first.y) != (second.x, second.y)


def test_a_missing_umap_is_reported_in_a_sentence(tiny_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    uploads = Uploads()
    uploads.close()  # nothing is uploaded here
    studio = Studio(Library([tiny_run.folder], "cpu"), uploads)
    with pytest.raises(MissingExtra, match=r"the UMAP layout needs umap-learn: pip install 'dragoman\[umap\]'"):
        studio.map("run", records.MapRequest(layout="umap"))
    assert issubclass(MissingExtra, UserError) and studio.map("run", records.MapRequest(n=20)).layout == "pca"
