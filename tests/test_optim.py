"""The optimiser's step: clipping inside of it is clipping before it; orthogonal steps are orthogonal."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from dragoman.config import merge
from dragoman.recipe.schema import spell_out
from dragoman.recipe.training import OptimConfig
from dragoman.training.checkpoints.checkpoint import read_progress
from dragoman.training.events import Event, Validated
from dragoman.training.optim.muon import Muon, cut_into_blocks, hidden_matrices, join_blocks, orthogonalise
from dragoman.training.optim.optimizer import clipped_step, gradient_norm, make_optimizer
from dragoman.training.plan import plan
from dragoman.training.run import train


@pytest.mark.parametrize("kind", ["adam", "adamw", "muon"])
@pytest.mark.parametrize("limit", [0.0, 0.5, 1e6])
def test_a_clipped_step_is_torchs_clipping_and_a_step(kind: str, limit: float) -> None:
    torch.manual_seed(1)
    config = OptimConfig(kind=kind, clip=limit, weight_decay=0.01)
    mine = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    theirs = copy.deepcopy(mine)
    steps = [make_optimizer(config, list(model.parameters()), {model[1].weight: 1}) for model in (mine, theirs)]
    for _ in range(5):
        x = torch.randn(4, 5)
        for model in (mine, theirs):
            model.zero_grad()
            model(x).square().sum().backward()
        norm = gradient_norm(list(mine.parameters()))
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), limit or float("inf"))
        assert norm == pytest.approx(float(expected), rel=1e-5)
        clipped_step(steps[0], norm, limit)
        steps[1].step()
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b)
            for name, kept in steps[0].state[a].items():  # orthogonal steps hardly show how large the gradients are
                torch.testing.assert_close(kept, steps[1].state[b][name])


def test_the_norm_counts_only_what_has_a_gradient() -> None:
    with_gradient, without = nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(3))
    with_gradient.grad = torch.tensor([[3.0, 0.0], [0.0, 4.0]]).t()
    assert gradient_norm([with_gradient, without]) == 5.0
    assert gradient_norm([without]) == 0.0
    with_gradient.grad = torch.tensor([[float("nan"), 0.0], [0.0, 4.0]])
    assert gradient_norm([with_gradient]) != gradient_norm([with_gradient])


@given(st.integers(1, 4), st.sampled_from([(6, 6), (12, 6), (6, 12), (5, 7), (7, 5)]))
@settings(max_examples=30, deadline=None)
def test_blocks_cover_a_matrix_once(parts: int, shape: tuple[int, int]) -> None:
    rows, columns = shape
    matrix = torch.arange(parts * rows * columns).view(parts * rows, columns)
    blocks = cut_into_blocks(matrix, parts)
    assert torch.equal(join_blocks(blocks, matrix.shape, parts), matrix)
    assert sorted(blocks.flatten().tolist()) == list(range(matrix.numel()))
    for one, whole in zip(blocks.reshape(parts, -1), matrix.view(parts, -1), strict=True):
        assert set(one.tolist()) == set(whole.tolist())  # no block lies in two parts
    if max(rows, columns) % min(rows, columns) == 0:
        assert blocks.shape[1] == blocks.shape[2]


def test_packed_matrices_are_cut_apart() -> None:
    """Q, K and V of one product, the second layer of a feed-forward, whose inputs lie side by side, and gates."""
    parts = torch.rand(3, 4, 4)
    assert torch.equal(cut_into_blocks(torch.cat(list(parts))), parts)
    assert torch.equal(cut_into_blocks(torch.cat(list(parts), 1)), parts)
    gates = torch.rand(3, 4, 6)  # a cell's: 12 x 6 are two squares, but each would hold one gate and a half
    assert torch.equal(cut_into_blocks(gates.view(12, 6), 3), gates)


def test_singular_values_come_near_one_and_directions_stay() -> None:
    torch.manual_seed(3)
    stacks = [torch.randn(2, 8, 8), torch.randn(1, 5, 9), torch.randn(3, 9, 5), torch.randn(1, 8, 8) * 1e-3]
    for before, found in zip(stacks, orthogonalise(stacks), strict=True):
        left, values, right = torch.linalg.svd(before, full_matrices=False)
        turned = left.mT @ found @ right.mT  # diagonal: the directions are the same
        diagonal = turned.diagonal(dim1=1, dim2=2)
        torch.testing.assert_close(turned, torch.diag_embed(diagonal), rtol=0, atol=2e-3)
        assert diagonal[values > 0.1 * values.amax(1, keepdim=True)].min() > 0.6
        assert diagonal.max() < 1.25
    assert torch.equal(orthogonalise([torch.zeros(1, 4, 4)])[0], torch.zeros(1, 4, 4))


def test_a_step_is_as_large_as_adams_and_does_not_depend_on_the_gradients_size() -> None:
    torch.manual_seed(1)
    gradient = torch.randn(48, 16)
    moved = []
    for size in (1.0, 1e-4):
        matrix, table = nn.Parameter(torch.zeros(48, 16)), nn.Parameter(torch.zeros(9, 4))
        matrix.grad, table.grad = gradient * size, torch.ones(9, 4)
        make_optimizer(OptimConfig(kind="muon", learning_rate=0.01), [table, matrix], {matrix: 1}).step()
        assert float(table.detach().square().mean().sqrt()) == pytest.approx(0.01, rel=1e-3)  # Adam's first
        moved.append(matrix.detach())
    torch.testing.assert_close(moved[0], moved[1], rtol=1e-2, atol=1e-5)
    assert 0.7 * 0.002 < float(moved[0].square().mean().sqrt()) < 1.2 * 0.002


FAMILIES: dict[str, dict[str, Any]] = {
    "transformer": {
        "encoder": {"kind": "transformer", "width": 16, "heads": 2, "layers": 1, "feed_forward": 32},
        "decoder": {"kind": "transformer", "width": 16, "heads": 2, "layers": 1, "feed_forward": 32},
    },
    "rnn": {"encoder": {"kind": "rnn", "cell": "gru"}, "decoder": {"cell": "gru", "tie_embeddings": False}},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_muon_learns_and_goes_on_exactly(
    family: str, pairs_file: Callable[..., Path], tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    """Tables and output layers are Adam's; a run that was stopped ends with the weights of one that was not."""
    pairs = pairs_file(tmp_path / "pairs.tsv", 100)
    found = merge(spell_out(tiny_settings), spell_out(FAMILIES[family]))
    optim = {"kind": "muon", "learning_rate": 0.01, "warmup": 4, "weight_decay": 0.01}
    found = merge(found, {"training": {"max_updates": 24, "validate_every": 12, "optim": optim}})
    model = plan(pairs, settings=found).system.model
    matrices = hidden_matrices(model)
    names = {name for name, one in model.named_parameters() if one in matrices}
    assert all(matrices[one] == (3 if "_l0" in name else 1) for name, one in model.named_parameters() if name in names)
    assert names and not [name for name in names if "embedding" in name or name == "decoder.project.weight"]
    assert any(name.startswith("encoders.") for name in names) and any(name.startswith("decoder.") for name in names)
    events: list[Event] = []
    train(pairs, out=tmp_path / "whole", settings=found, on_event=events.append)
    losses = [event.loss for event in events if isinstance(event, Validated)]
    assert losses[-1] < losses[0]
    asked = iter(range(1, 100))
    train(pairs, out=tmp_path / "parts", settings=found, should_stop=lambda: next(asked) == 7)
    assert read_progress(tmp_path / "parts" / "checkpoint.safetensors").update == 7
    train(pairs, out=tmp_path / "parts", settings=found)
    whole, parts = (load_file(tmp_path / name / "checkpoint.safetensors") for name in ("whole", "parts"))
    assert [name for name in whole if name.endswith(".momentum")]
    assert whole.keys() == parts.keys() and all(torch.equal(whole[name], parts[name]) for name in whole)


def test_frozen_matrices_are_left_out() -> None:
    table, matrix = nn.Parameter(torch.ones(3, 2)), nn.Parameter(torch.ones(2, 2))
    for parameters, kinds in (([table], torch.optim.AdamW), ([matrix], Muon), ([table, matrix], Muon)):
        for one in parameters:
            one.grad = torch.eye(2) if one is matrix else torch.ones(3, 2)
        optimizer = make_optimizer(OptimConfig(kind="muon"), parameters, {matrix: 1})
        assert isinstance(optimizer, kinds)
        held = [one for group in optimizer.param_groups for one in group["params"]]
        assert len(held) == len(parameters) and set(held) == set(parameters)
        before = [one.detach().clone() for one in (table, matrix)]
        optimizer.step()
        moved = [not torch.equal(one, old) for one, old in zip((table, matrix), before, strict=True)]
        assert moved == [table in set(parameters), matrix in set(parameters)]
