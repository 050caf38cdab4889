"""The records that cross layers, and the one legend of shapes.

Shape legend, used in every comment of the package:

    B  sources in the batch          N  decoder rows, N = B * k (k hypotheses a source, k = 1 in training)
    S  source positions              T  target positions in this call
    D  width of a vector             V  target vocabulary
    A  attention maps a step has     L  layers            Q  queries a source asks at once
    H, W  height and width of pictures, in pixels; C  their channels

Batch is axis 0 of everything that crosses a file. Masks are boolean, True = real.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

# A tree is a tensor, or a mapping of names to trees. Decoders keep their state in such trees so that selecting
# and reordering hypotheses is one tree-map, whatever the decoder keeps.
Tree: TypeAlias = "Tensor | Mapping[str, Tree]"


def map_tree(function: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    """Apply ``function`` to every tensor of ``tree``."""
    if isinstance(tree, Tensor):
        return function(tree)
    return {name: map_tree(function, branch) for name, branch in tree.items()}


def cat_trees(trees: Sequence[Tree]) -> Tree:
    """Trees of the same form, their tensors behind each other along axis 0."""
    first = trees[0]
    if isinstance(first, Tensor):
        return torch.cat([tree for tree in trees if isinstance(tree, Tensor)])
    return {name: cat_trees([tree[name] for tree in trees if not isinstance(tree, Tensor)]) for name in first}


@dataclass(frozen=True, slots=True)
class Padded:
    """Sequences of different lengths in one tensor, padded on the right; pictures on the right and below."""

    data: Tensor  # (B, S) token ids, (B, S, D) vectors, or (B, H, W, C) pictures
    mask: Tensor  # (B, S), for pictures (B, H, W); True = real

    def to(self, device: torch.device | str) -> Padded:
        return Padded(self.data.to(device), self.mask.to(device))


@dataclass(frozen=True, slots=True)
class Batch:
    """What one training step reads. ``inputs`` is ``targets`` shifted right by one, behind the start symbol."""

    sources: Mapping[str, Padded]  # by name; empty for a language model
    inputs: Tensor  # (B, T) token ids
    targets: Tensor  # (B, T) token ids
    mask: Tensor  # (B, T) True = real
    rows: tuple[int, ...] = ()  # which examples these are
    state: State | None = None  # running text: what the decoder carries on from the batch before; None = starts afresh

    @property
    def tokens(self) -> int:
        """Target tokens, padding not counted, end symbol counted."""
        return int(self.mask.sum())

    def to(self, device: torch.device | str) -> Batch:
        sources = {name: source.to(device) for name, source in self.sources.items()}
        inputs, targets, mask = (tensor.to(device) for tensor in (self.inputs, self.targets, self.mask))
        return Batch(sources, inputs, targets, mask, self.rows, self.state)


@dataclass(frozen=True, slots=True)
class Memory:
    """What an encoder hands to a decoder: a set of states, and a summary of the whole source.

    Real positions come first, whatever the source was: regions of a picture row by row, sources behind each other.
    """

    states: Tensor  # (B, S, D) what attention compares with (keys)
    mask: Tensor  # (B, S) True = real
    values: Tensor | None = None  # (B, S, D) what attention averages; None = the states themselves
    summary: Tensor | None = None  # (B, L, P, D) last states: L layers of P parts (LSTM: hidden and cell), or None


@dataclass(frozen=True, slots=True)
class Axis:
    """The positions of one source as the decoder sees them: what stands along the S axis of attention."""

    kind: str  # of the modality: "text", "image", …
    labels: tuple[str, ...]  # one a position
    grid: tuple[int, int] | None = None  # of a picture: rows and columns of regions; positions go row by row
    seconds: float | None = None  # of sound: how long a position lasts


@dataclass(frozen=True, slots=True)
class State:
    """A decoder's state: a value, never kept on ``self``.

    ``fixed`` is computed once per source (projected keys, masks); axis 0 has ``sources`` entries.
    ``carry`` changes with every token; axis 0 has N = sources * k rows, the k rows of a source side by side.
    """

    sources: int
    fixed: Tree = field(default_factory=dict)
    carry: Tree = field(default_factory=dict)

    def spread(self, k: int) -> State:
        """Give each row ``k`` copies of itself, side by side."""
        return replace(self, carry=map_tree(lambda x: x.repeat_interleave(k, 0), self.carry))

    def reorder(self, rows: Tensor) -> State:
        """Row i of the result carries what row ``rows[i]`` carried. Rows must stay with their source."""
        return replace(self, carry=map_tree(lambda x: x.index_select(0, rows), self.carry))

    def detach(self) -> State:
        """The same numbers, through which no gradient flows back: where backpropagation through time is cut."""
        return replace(self, carry=map_tree(lambda x: x.detach(), self.carry))

    def select(self, sources: Tensor) -> State:
        """Keep (or repeat) whole sources with all their rows, in the order given."""

        def pick(x: Tensor) -> Tensor:
            grouped = x.view(self.sources, len(x) // self.sources, *x.shape[1:])  # (B, k, ...); x may have no elements
            return grouped.index_select(0, sources).flatten(0, 1)

        fixed = map_tree(lambda x: x.index_select(0, sources), self.fixed)
        return State(len(sources), fixed, map_tree(pick, self.carry))


@dataclass(frozen=True, slots=True)
class Choices:
    """What a decoder drew at random on its way: training has to credit it with where it led."""

    log_probs: Tensor  # (N, T) of what was drawn for this token
    entropy: Tensor  # (N, T) of what it was drawn from


@dataclass(frozen=True, slots=True)
class Reading:
    """What a decoder predicted while it read the source, where the loss counts that too."""

    features: Tensor  # (B, S, D) after each source position; the readout is the step's
    weight: float  # of a source token in the loss; a target token has 1


@dataclass(frozen=True, slots=True)
class Step:
    """What a decoder returns for the tokens it was given: one prediction after each of them.

    The projection onto the vocabulary is kept apart (``readout``), so that training can skip padding and
    project in chunks; ``logits`` and ``log_probs`` are views for everybody else.
    """

    features: Tensor  # (N, T, D) what the vocabulary is predicted from
    readout: Callable[[Tensor], Tensor]  # (..., D) -> (..., V) logits
    state: State
    attention: Tensor | None = None  # (N, T, A, S) when asked for
    choices: Choices | None = None  # of hard attention in training mode
    reading: Reading | None = None  # in training, of a decoder whose loss counts the source

    @property
    def logits(self) -> Tensor:
        return self.readout(self.features)  # (N, T, V)

    @property
    def log_probs(self) -> Tensor:
        return torch.log_softmax(self.logits.float(), dim=-1)  # (N, T, V)


# What became of a candidate of the beam.
PRUNED, KEPT, FINISHED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Frontier:
    """One step of the search for one source: the candidates that were considered, best first."""

    parent: np.ndarray  # (C,) int: which KEPT candidate of the step before it extends (0 at the first step)
    token: np.ndarray  # (C,) int
    log_prob: np.ndarray  # (C,) float: of this token, as the model reports it
    total: np.ndarray  # (C,) float: summed over the path, as the model reports it
    fate: np.ndarray  # (C,) int8: PRUNED, KEPT or FINISHED
    attention: np.ndarray | None = None  # (kept rows of the step before, A, S): where each row looked

    @property
    def kept(self) -> np.ndarray:
        """Indices of the candidates that live on, in the order of the next step's rows."""
        return np.flatnonzero(self.fate == KEPT)


@dataclass(frozen=True, slots=True)
class Trace:
    """The search itself: back-pointers of every step. Hypotheses are read off it and pictures are drawn from it."""

    steps: tuple[Frontier, ...]
    prefix: tuple[int, ...] = ()  # forced tokens; each is a step with one candidate


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output: a path of the trace."""

    tokens: tuple[int, ...]  # the end symbol included if it was produced
    log_probs: tuple[float, ...]  # one a token
    score: float  # what the search ranked by: the sum, after length normalisation
    finished: bool  # False: cut off at the length limit
    path: tuple[int, ...]  # index of the candidate in each step of the trace
    attention: np.ndarray | None = None  # (T, A, S)

    @property
    def log_prob(self) -> float:
        return float(sum(self.log_probs))


JSON: TypeAlias = dict[str, Any]
