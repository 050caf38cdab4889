"""The map: which plane the examples lie in, and which of them are near an input."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import numpy as np
import pytest

from dragoman.errors import MissingExtra, UserError
from dragoman.studio import records
from dragoman.studio.answers import Studio
from dragoman.studio.library import Library
from dragoman.studio.neighbourhood import neighbourhood
from dragoman.studio.planes import Folded, principal
from dragoman.studio.rows import own_rows
from dragoman.studio.uploads import Uploads
from dragoman.system import System


def test_the_plane_holds_most_of_the_variance() -> None:
    chance = np.random.default_rng(0)
    points = chance.normal(size=(200, 6)) * [9, 4, 1, 0.1, 0.1, 0.1]
    points -= points.mean(0)
    directions, explained = principal(points)
    np.testing.assert_allclose(directions @ directions.T, np.eye(2), atol=1e-9)
    assert abs(directions[0, 0]) > 0.99 and abs(directions[1, 1]) > 0.99
    shares = np.sort((points**2).sum(0) / (points**2).sum())[::-1]
    np.testing.assert_allclose(explained, shares[:2], atol=0.01)


@pytest.mark.parametrize("which", ["recurrent", "heads"])
def test_an_example_is_its_own_neighbour(which: str, tiny_run: Any, request: pytest.FixtureRequest) -> None:
    system: System = request.getfixturevalue(which)
    rows = own_rows(system, tiny_run.folder).train
    around = neighbourhood(system, rows, "train", 50)
    drawn = around.record()
    assert len(drawn.points) == 50 and 0 < sum(drawn.explained or ()) <= 1.0001
    lines = {example.sources["source"]: example.line for example in rows}
    point = drawn.points[7]
    assert lines[point.source["source"]] == point.line
    near = around.neighbours(point.source["source"], 5)
    assert near.neighbours[0].source == point.source and near.neighbours[0].index == 7
    assert near.neighbours[0].similarity == pytest.approx(1, abs=1e-4)
    assert (near.x, near.y) == pytest.approx((point.x, point.y), abs=1e-4)
    assert near.examples == len({example.sources["source"] for example in rows})
    similar = [one.similarity for one in near.neighbours]
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
    chance = np.random.default_rng(0)
    middles = chance.normal(size=(3, 8)) * 4
    points = np.concatenate([middle + chance.normal(size=(9, 8)) * 0.3 for middle in middles]).astype(np.float32)
    points -= points.mean(0)
    plane = Folded(points)
    assert plane.places.shape == (27, 2) and np.isfinite(plane.places).all() and plane.explained is None
    np.testing.assert_array_equal(Folded(points).places, plane.places)
    apart = np.linalg.norm(plane.places[:, None] - plane.places[None], axis=-1)
    np.fill_diagonal(apart, np.inf)
    group = np.arange(27) // 9
    assert (group[apart.argmin(1)] == group).all()
    placed = np.array(plane.place(points[4] * 1.01))
    assert group[np.linalg.norm(plane.places - placed, axis=1).argmin()] == 0
    assert plane.place(points[4] * 1.01) == tuple(placed)


@pytest.mark.usefixtures("umap")
@pytest.mark.parametrize("count", [3, 5])
def test_umap_of_very_few_points(count: int) -> None:
    points = np.random.default_rng(1).normal(size=(count, 4)).astype(np.float32)
    assert np.isfinite(Folded(points - points.mean(0)).places).all()


@pytest.mark.usefixtures("umap")
def test_a_map_has_the_layout_that_was_asked_for(recurrent: System, tiny_run: Any) -> None:
    around = neighbourhood(recurrent, own_rows(recurrent, tiny_run.folder).train, "train", 20)
    flat, folded = around.record(), around.record(layout="umap")
    assert (flat.layout, folded.layout) == ("pca", "umap") and folded.explained is None
    assert [one.source for one in flat.points] == [one.source for one in folded.points]
    known = flat.points[3].source["source"]
    first, second = around.neighbours(known, 4), around.neighbours(known, 4, "umap")
    assert first.neighbours == second.neighbours
    assert (first.x, first.y) != (second.x, second.y)


def test_a_missing_umap_is_told_in_a_sentence(tiny_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    uploads = Uploads()
    uploads.close()  # nothing is uploaded here
    studio = Studio(Library([tiny_run.folder], "cpu"), uploads)
    with pytest.raises(MissingExtra, match=r"the UMAP layout needs umap-learn: pip install 'dragoman\[umap\]'"):
        studio.map("run", records.MapRequest(layout="umap"))
    assert issubclass(MissingExtra, UserError) and studio.map("run", records.MapRequest(n=20)).layout == "pca"
