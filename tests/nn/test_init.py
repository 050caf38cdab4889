"""A model that is built without drawing weights and then loaded is the model that was saved."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from dragoman.inference.build import build_model
from dragoman.inference.system import System
from dragoman.nn.init import without_initialisation
from dragoman.recipe.layers import preset_names
from dragoman.runs.weights import load_weights, named_weights
from dragoman.training.plan import plan

LETTERS = "abcdefgh"
# Settings that lead to other code: learned positions, other attentions, CTC, group norm.
VARIED: dict[str, tuple[str, dict[str, Any]]] = {
    "learned": ("vaswani2017", {"encoder": {"positions": "learned"}, "decoder": {"positions": "learned"}}),
    "location": ("bahdanau2015", {"decoder": {"attention": {"kind": "location"}}, "training": {"ctc": 0.3}}),
    "cosine": ("luong2015", {"decoder": {"attention": {"kind": "cosine"}}}),
    "gru": ("cho2014", {"encoder": {"cell": "gru"}, "decoder": {"context": "attention"}}),
    "group": ("xu2015", {"encoder": {"norm": "group", "positions": "learned"}}),
}


def write_pairs(folder: Path, source: str) -> Path:
    """A file of 40 pairs whose sources are texts, pictures, sounds, or nothing at all."""
    chance = np.random.default_rng(0)
    lines = []
    for row in range(40):
        text = "".join(chance.choice(list(LETTERS), size=4 + row % 5))
        if source == "image":
            Image.fromarray(chance.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(folder / f"{row}.png")
            lines.append(f"{row}.png\t{text}")
        elif source == "speech":
            soundfile = pytest.importorskip("soundfile")
            soundfile.write(folder / f"{row}.wav", chance.normal(size=3000 + row).astype(np.float32) / 10, 16000)
            lines.append(f"{row}.wav\t{text}")
        else:
            lines.append(text if source == "none" else f"{text}\t{text[::-1]}")
    path = folder / ("pairs.txt" if source == "none" else "pairs.tsv")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def built(folder: Path, preset: str, settings: dict[str, Any]) -> System:
    source = {"xu2015": "image", "chan2016": "speech"}.get(preset, "none" if preset.startswith("lm-") else "text")
    return plan(write_pairs(folder, source), preset=preset, settings=settings).system


@pytest.mark.parametrize(
    ("preset", "settings"),
    [*((name, {}) for name in preset_names()), *VARIED.values()],
    ids=[*preset_names(), *VARIED],
)
def test_what_is_loaded_into_an_undrawn_model_is_the_whole_model(
    tmp_path: Path, preset: str, settings: dict[str, Any]
) -> None:
    system = built(tmp_path, preset, settings)
    with without_initialisation():
        model = build_model(system.recipe, system.modalities, system.target)
    drawn_since_seeding = torch.get_rng_state()
    torch.manual_seed(system.recipe.training.seed)
    assert torch.equal(torch.get_rng_state(), drawn_since_seeding)
    load_weights(model, named_weights(system.model), tmp_path)
    for named in (nn.Module.named_parameters, nn.Module.named_buffers):  # buffers that are not saved, too
        ours, wanted = (dict(named(module, remove_duplicate=False)) for module in (model, system.model))
        assert ours.keys() == wanted.keys()
        assert all(torch.equal(ours[name], wanted[name]) for name in wanted)
        shared = [{name: [n for n in of if of[n] is of[name]] for name in of} for of in (ours, wanted)]
        assert shared[0] == shared[1]
    assert all(
        a.requires_grad == b.requires_grad for a, b in zip(model.parameters(), system.model.parameters(), strict=True)
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(50, 50), lambda: nn.LSTM(50, 50), lambda: nn.Conv2d(9, 9, 9), lambda: nn.Embedding(50, 50),
        lambda: nn.Parameter(torch.randn(50, 50) * 2), lambda: nn.Parameter(torch.empty(50, 50).normal_()),
    ],
)  # fmt: skip
def test_nothing_is_drawn_inside_and_all_is_outside(make: Callable[[], Any]) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with without_initialisation():
        make()
    assert torch.equal(torch.get_rng_state(), before)
    make()
    assert not torch.equal(torch.get_rng_state(), before)


def test_constants_keep_their_values() -> None:
    with without_initialisation():
        norm = nn.LayerNorm(7)
        table = torch.arange(5.0)
    assert (norm.weight == 1).all() and (norm.bias == 0).all() and table.tolist() == [0, 1, 2, 3, 4]


def test_other_threads_draw_theirs() -> None:
    results: list[nn.Linear] = []
    with without_initialisation():
        torch.manual_seed(1)
        thread = threading.Thread(target=lambda: results.append(nn.Linear(9, 9)))
        thread.start()
        thread.join()
    torch.manual_seed(1)
    assert torch.equal(results[0].weight, nn.Linear(9, 9).weight)
