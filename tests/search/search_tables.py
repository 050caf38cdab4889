"""Decoders whose distributions are written in a table, and searches too slow to be wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from dragoman.search.options import SearchConfig
from dragoman.search.run import search
from dragoman.search.trace import Result
from dragoman.types import FINISHED, KEPT, Hypothesis, State, Step, Trace

EOS = 0
SEEDS = st.integers(0, 2**31)


class TableDecoder:
    """p(token | prefix) by table. A prefix is a node; its children are numbered as in a heap, modulo the table.

    The memory is the table itself, (B, nodes, V) logits: every source has distributions of its own. With as many
    nodes as the tree has, each prefix has its own row; with fewer, prefixes share rows and outputs can be any length.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []  # (rows, tokens) of each call

    def start(self, memory: Tensor, sources: int) -> State:
        assert len(memory) == sources
        return State(sources, {"table": memory}, {"node": torch.full((sources,), -1)})

    def __call__(self, tokens: Tensor, state: State, need_attention: bool = False) -> Step:
        assert isinstance(state.fixed, dict)
        assert isinstance(state.carry, dict)
        table, node = state.fixed["table"], state.carry["node"]
        assert len(tokens) == len(node)
        assert len(node) % state.sources == 0
        self.calls.append((tokens.shape[0], tokens.shape[1]))
        source = torch.arange(state.sources).repeat_interleave(len(node) // state.sources)
        nodes = []
        for token in tokens.unbind(1):
            node = torch.where(node < 0, 0, (node * table.shape[2] + token + 1) % table.shape[1])
            nodes.append(node)
        visited = torch.stack(nodes, 1)  # (N, T)
        logits = table[source.unsqueeze(1), visited]
        seen = torch.stack([looks(visited), 1 - looks(visited)], -1).unsqueeze(2) if need_attention else None
        return Step(logits, torch.clone, State(state.sources, state.fixed, {"node": node}), seen)


def looks(node: Tensor) -> Tensor:
    """A made-up attention weight that tells the prefix it belongs to."""
    return 1.0 / (node + 2)


def nodes_of(vocabulary: int, depth: int) -> int:
    return int(sum(vocabulary**level for level in range(depth + 1)))


def random_tables(seed: int, sources: int, vocabulary: int, depth: int, spread: float = 1.5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(sources, nodes_of(vocabulary, depth), vocabulary, generator=generator)


def walk(table: Tensor, tokens: Sequence[int]) -> Iterator[int]:
    """The nodes that predict each of the tokens, and the one after them."""
    node = 0
    yield node
    for token in tokens:
        node = (node * table.shape[1] + token + 1) % table.shape[0]
        yield node


def log_probs_of(table: Tensor, tokens: Sequence[int]) -> list[float]:
    log_probs = torch.log_softmax(table, -1)
    return [float(log_probs[node, token]) for node, token in zip(walk(table, tokens), tokens, strict=False)]


def every_output(table: Tensor, limit: int, eos: int) -> list[tuple[tuple[int, ...], float]]:
    """All outputs of at most ``limit`` tokens that end, and all of ``limit`` tokens that do not, with their sums."""
    log_probs = torch.log_softmax(table, -1).double().numpy()
    found: list[tuple[tuple[int, ...], float]] = []
    open_ones: list[tuple[tuple[int, ...], int, float]] = [((), 0, 0.0)]
    for _ in range(limit):
        longer = []
        for tokens, node, total in open_ones:
            for token in range(table.shape[1]):
                candidate = (*tokens, token), total + float(log_probs[node, token])
                if token == eos:
                    found.append(candidate)
                else:
                    longer.append((candidate[0], (node * table.shape[1] + token + 1) % table.shape[0], candidate[1]))
        open_ones = longer
    return found + [(tokens, total) for tokens, _, total in open_ones]


def normalized(total: float, length: int, config: SearchConfig) -> float:
    divisor: float = {"none": 1.0, "average": length, "gnmt": ((5 + length) / 6) ** config.alpha}[config.normalize]
    return total / divisor


def exhaustive(table: Tensor, limit: int, eos: int, config: SearchConfig) -> list[tuple[tuple[int, ...], float]]:
    """All outputs, those that end first, best first."""
    scored = [(y, normalized(total, len(y), config)) for y, total in every_output(table, limit, eos)]
    return sorted(scored, key=lambda output: (output[0][-1] != eos, -output[1]))


def greedy(table: Tensor, limit: int, eos: int) -> tuple[int, ...]:
    tokens: list[int] = []
    node = 0
    while len(tokens) < limit and eos not in tokens:
        tokens.append(int(np.argmax(table[node].numpy())))
        node = (node * table.shape[1] + tokens[-1] + 1) % table.shape[0]
    return tuple(tokens)


def decode(tables: Tensor, config: SearchConfig, limit: int | list[int] = 6, **more: Any) -> list[Result]:
    limits = torch.tensor([limit] * len(tables) if isinstance(limit, int) else limit)
    decoder = more.pop("decoder", None) or TableDecoder()
    return search(decoder, tables, len(tables), config, bos=tables.shape[2], eos=EOS, limits=limits, **more)


def simple(results: list[Result]) -> list[list[tuple[tuple[int, ...], bool]]]:
    return [[(output.tokens, output.finished) for output in result.hypotheses] for result in results]


def follow_path(trace: Trace, output: Hypothesis) -> None:
    """A hypothesis is a path of its trace: tokens, log-probabilities and sums can be read again from it."""
    assert len(output.path) == len(output.tokens) == len(output.log_probs)
    total = 0.0
    for index, (step, candidate) in enumerate(zip(trace.steps, output.path, strict=False)):
        assert step.token[candidate] == output.tokens[index]
        assert step.log_prob[candidate] == output.log_probs[index]
        total += output.log_probs[index]
        assert step.total[candidate] == pytest.approx(total, abs=1e-9)
        last = index == len(output.path) - 1
        assert step.fate[candidate] == (FINISHED if last and output.finished else KEPT)
        parent = step.parent[candidate]
        assert parent == 0 if index == 0 else trace.steps[index - 1].kept[parent] == output.path[index - 1]
