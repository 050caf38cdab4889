"""Boosting: an ensemble of seeds and one folded model, with the figures of all three; the result is an ordinary run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.errors import UserError
from dragoman.files import read_json
from dragoman.runs.folder import ENSEMBLE_FOLDER
from dragoman.training.boosting import DISTILLED, FIGURES


def test_an_ensemble_is_folded_into_one_run(tiny_run: Any, tiny_settings: dict[str, Any], tmp_path: Path) -> None:
    training = {**tiny_settings["training"], "max_updates": 60, "native": False}
    settings = {**tiny_settings, "training": training}
    out = tmp_path / "run"
    boosted = dragoman.boost(tiny_run.pairs, out=out, seeds=2, tokens=True, settings=settings)
    assert len(boosted.singles) == 2 and read_json(out / FIGURES) == boosted.to_json()
    for words in ("mean of 2", "ensemble", "folded"):
        assert words in boosted.to_text()
    members = dragoman.load([out / ENSEMBLE_FOLDER / f"seed-{seed}" for seed in (1, 2)])
    lines = (out / ENSEMBLE_FOLDER / DISTILLED).read_text(encoding="utf-8").splitlines()[1:]
    assert len(lines) > 20
    for line in lines[:3]:
        source, output = line.split("\t")
        assert members(source) == output, "the rows are what the ensemble says"
    assert boosted.tokens and "probabilities of each token" in boosted.to_text()
    folded = dragoman.load(out)
    assert len(folded.recipe.training.distill.teachers) == 2
    assert folded.target.vocabulary.symbols == members.target.vocabulary.symbols
    assert folded.model.parameters_count == dragoman.load(out / ENSEMBLE_FOLDER / "seed-1").model.parameters_count
    before = (out / "model.safetensors").read_bytes()
    again = dragoman.boost(tiny_run.pairs, out=out, seeds=2, tokens=True, settings=settings)
    assert again.to_json() == boosted.to_json() and (out / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("why", ["not asked for", "subwords"])
def test_outputs_alone_where_probabilities_are_not_wanted_or_not_comparable(
    tiny_run: Any, tiny_settings: dict[str, Any], tmp_path: Path, why: str
) -> None:
    training = {**tiny_settings["training"], "max_updates": 10, "native": False}
    settings = {**tiny_settings, "training": training}
    if why == "subwords":
        settings["source"] = {**settings.get("source", {}), "tokenizer": {"kind": "subwords", "size": 280}}
    boosted = dragoman.boost(tiny_run.pairs, out=tmp_path / "run", seeds=2, tokens=why == "subwords", settings=settings)
    assert not boosted.tokens and "outputs alone" in boosted.to_text()
    assert dragoman.load(tmp_path / "run").recipe.training.distill.teachers == ()


def test_a_run_that_is_there_is_left_alone(tiny_run: Any) -> None:
    with pytest.raises(UserError, match="without an ensemble"):
        dragoman.boost(tiny_run.pairs, out=tiny_run.folder, seeds=2)
