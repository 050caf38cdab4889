"""The one door to inference: what it makes on request only, how often it reads, and many threads at once."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dragoman
from dragoman.inference.steps import DeadlineExceeded, SearchCancelled
from dragoman.inference.system import System
from dragoman.modalities.text import Text
from dragoman.nn.init import without_initialisation

INPUTS = ["abc", "hgfedc", "", "a", "bca", "gg"]


@pytest.fixture(scope="module")
def system(tiny_run: Any) -> System:
    return dragoman.load(tiny_run.folder)


def test_a_system_cannot_be_changed(system: System) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        system.folder = Path("elsewhere")  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        system.session().config = system.recipe.search  # type: ignore[misc]


@pytest.mark.parametrize("settings", [{"beam": 3, "n_best": 2}, {"sample": True, "samples": 3}], ids=str)
def test_eight_threads_get_what_they_would_get_alone(tiny_run: Any, settings: dict[str, Any]) -> None:
    """All of them ask one system, freshly loaded, so that nothing is prepared for them."""
    questions = [INPUTS[shift:] + INPUTS[:shift] for shift in range(len(INPUTS))] * 4

    def ask(system: System, question: list[str]) -> tuple[Any, Any]:
        predictions = system.predict(question, **settings)
        outputs = [[(output.tokens, output.score, output.log_probs) for output in one.outputs] for one in predictions]
        return outputs, system.score(question, question[::-1])

    alone = [ask(dragoman.load(tiny_run.folder), question) for question in questions]
    shared = dragoman.load(tiny_run.folder)
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda question: ask(shared, question), questions))
    assert together == alone


def test_axes_are_made_on_request(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()
    plain = Text.axis

    def counted(self: Text, *arguments: Any, **named: Any) -> Any:
        calls["axis"] += 1
        return plain(self, *arguments, **named)

    monkeypatch.setattr(Text, "axis", counted)
    without = system.predict(INPUTS, attention=False)
    assert not calls and all(not prediction.axes for prediction in without)
    assert [one.tokens for one in system.predict(INPUTS)] == [one.tokens for one in without]
    assert calls["axis"] == sum(map(bool, INPUTS))


def test_a_search_ends_at_its_deadline_and_when_nobody_wants_it(system: System) -> None:
    session = system.session()
    prepared = [session.prepare(text).read() for text in ("abc", "hgf")]
    with pytest.raises(DeadlineExceeded, match="time"):
        session.search(prepared, deadline=time.monotonic() - 1)
    with pytest.raises(SearchCancelled):
        session.search(prepared, cancelled=lambda: True)
    steps: list[int] = []
    results = session.search(prepared, deadline=time.monotonic() + 600, cancelled=lambda: bool(steps.append(1)))
    assert len(steps) == max(len(result.trace.steps) for result in results)
    free = session.search(prepared)
    assert [result.best.tokens for result in results] == [result.best.tokens for result in free]


def test_forced_paths_have_the_numbers_of_the_search(system: System) -> None:
    session = system.session(beam=3, n_best=3)
    prepared = session.prepare("abcd").read()
    (result,) = session.search([prepared], attention=True)
    paths = session.force(prepared, [one.tokens for one in result.hypotheses], alternatives=2, attention=True)
    for hypothesis, path in zip(result.hypotheses, paths, strict=True):
        assert path.tokens == hypothesis.tokens
        assert np.allclose(path.log_probs, hypothesis.log_probs, atol=1e-5)
        assert path.attention is not None and hypothesis.attention is not None
        assert np.allclose(path.attention, hypothesis.attention, atol=1e-5)
        assert (path.alternative_log_probs[:, 0] >= path.log_probs - 1e-6).all()
        assert ((path.rank == 1) == (path.alternatives[:, 0] == path.tokens)).all()


def test_loading_draws_no_weights(tiny_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing can take longer than reading, and all of it would be overwritten."""
    expected = dragoman.load(tiny_run.folder).predict(INPUTS)
    drawn: list[str] = []

    @contextmanager
    def spy() -> Iterator[None]:
        drawn.append("skipped")
        with without_initialisation():
            yield
            assert torch.empty(3).zero_().uniform_().tolist() == [0, 0, 0]

    monkeypatch.setattr("dragoman.inference.build.without_initialisation", spy)
    assert [one.tokens for one in dragoman.load(tiny_run.folder).predict(INPUTS)] == [one.tokens for one in expected]
    assert drawn == ["skipped"]
