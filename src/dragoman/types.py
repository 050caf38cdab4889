"""The records that pass between rooms, and the legend of shapes.

Shape legend, used in every comment of the package:

    B  sources in the batch          N  decoder rows, N = B * k (k hypotheses, in training 1)
    S  source positions              T  target positions in this call
    D  width of a vector             V  target vocabulary
    A  attention maps of a step      L  layers            Q  queries per source in one call
    H, W  height and width of pictures, in pixels; C  their channels

Batch is axis 0 of everything that crosses a file. Masks are boolean, True = real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from dragoman.tables import make_frame

if TYPE_CHECKING:  # only for annotations: whoever has tensors has imported torch
    import torch
    from torch import Tensor

# How the positions of a source are arranged: in a row (B, S, D), or in rows and columns (B, H, W, C).
Layout: TypeAlias = Literal["sequence", "picture"]

# A padded batch before it becomes tensors: the data, and the mask of its real positions.
PaddedArrays: TypeAlias = tuple[np.ndarray, np.ndarray]

# A tree is a tensor, or a mapping of names to trees. The state of a decoder is such a tree, so that selecting and
# reordering hypotheses is the same for all decoders.
Tree: TypeAlias = "Tensor | Mapping[str, Tree]"


def map_tree(function: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    """Apply ``function`` to every tensor of ``tree``."""
    if isinstance(tree, Mapping):
        return {name: map_tree(function, branch) for name, branch in tree.items()}
    return function(tree)


def map_history(function: Callable[[Growing], Growing], history: History) -> History:
    """Apply ``function`` to everything in a history."""
    if isinstance(history, Mapping):
        return {name: map_history(function, branch) for name, branch in history.items()}
    return function(history)


def first_tensor(state: State) -> Tensor | None:
    """Return a tensor of a state; None if it has none."""
    for tree in (state.carry, state.fixed):
        for _, tensor in name_leaves(tree):
            return tensor
    found: list[Tensor] = []

    def collect(grown: Growing) -> Growing:
        found.append(grown.tensor)
        return grown

    map_history(collect, state.history)
    return found[0] if found else None


def name_leaves(tree: Tree, above: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a tree, each with the names that lead to it, joined by dots."""
    if isinstance(tree, Mapping):
        for name, branch in tree.items():
            yield from name_leaves(branch, f"{above}.{name}" if above else name)
    else:
        yield above, tree


def tree_of(leaves: Mapping[str, Tensor]) -> dict[str, Tree]:
    """Return the tree of these tensors: the inverse of ``name_leaves``."""
    tree: dict[str, Any] = {}
    for name, tensor in leaves.items():
        *above, last = name.split(".")
        branch = tree
        for step in above:
            branch = branch.setdefault(step, {})
        branch[last] = tensor
    return tree


def cat_trees(trees: Sequence[Tree]) -> Tree:
    """Concatenate the tensors of trees of the same form along axis 0."""
    import torch

    first = trees[0]
    if isinstance(first, Mapping):
        return {name: cat_trees([tree[name] for tree in trees if isinstance(tree, Mapping)]) for name in first}
    return torch.cat([tree for tree in trees if not isinstance(tree, Mapping)])


@dataclass(frozen=True, slots=True)
class Padded:
    """Sequences of different lengths, padded on the right; pictures on the right and below."""

    data: Tensor  # (B, S) token ids, (B, S, D) vectors, or (B, H, W, C) pictures
    mask: Tensor  # (B, S), for pictures (B, H, W); True = real
    numbers: Tensor | None = None  # (B, S) of the positions, where some are not counted: those have -1

    @classmethod
    def from_numpy(cls, data: np.ndarray, mask: np.ndarray) -> Padded:
        """Copy a padded batch of arrays into tensors.

        Copied, not shared: torch aligns its memory, and the last bits of a matrix product may
        depend on that.
        """
        import torch

        return cls(torch.tensor(data), torch.tensor(mask))

    def to(self, device: torch.device | str) -> Padded:
        """Move the tensors to a device."""
        numbers = None if self.numbers is None else self.numbers.to(device)
        return Padded(self.data.to(device), self.mask.to(device), numbers)


@dataclass(frozen=True, slots=True)
class Batch:
    """The data of one training step.

    ``inputs`` are the ``targets`` shifted right by one, with the start symbol first.
    """

    sources: Mapping[str, Padded]  # by name; empty for a language model
    inputs: Tensor  # (B, T) token ids
    targets: Tensor  # (B, T) token ids
    mask: Tensor  # (B, T) True = real
    rows: tuple[int, ...] = ()  # the numbers of the examples
    state: State | None = None  # running text: the decoder's state after the batch before; None: a fresh start

    @classmethod
    def from_numpy(
        cls,
        sources: Mapping[str, PaddedArrays],
        inputs: np.ndarray,
        targets: np.ndarray,
        mask: np.ndarray,
        rows: tuple[int, ...] = (),
    ) -> Batch:
        """Copy arrays into tensors."""
        import torch

        padded = {name: Padded.from_numpy(*source) for name, source in sources.items()}
        return cls(padded, torch.tensor(inputs), torch.tensor(targets), torch.tensor(mask), rows)

    @property
    def tokens(self) -> int:
        """The number of target tokens: end symbols count, padding does not."""
        return int(self.mask.sum())

    def to(self, device: torch.device | str) -> Batch:
        """Move the tensors to a device."""
        sources = {name: source.to(device) for name, source in self.sources.items()}
        inputs, targets, mask = (tensor.to(device) for tensor in (self.inputs, self.targets, self.mask))
        return Batch(sources, inputs, targets, mask, self.rows, self.state)


@dataclass(frozen=True, slots=True)
class Memory:
    """What a decoder gets from an encoder: a set of states, and a summary of the whole source.

    Real positions come first, whatever the source was. The regions of a picture are in reading
    order, and several sources follow each other.
    """

    states: Tensor  # (B, S, D) what attention compares with (keys)
    mask: Tensor  # (B, S) True = real
    values: Tensor | None = None  # (B, S, D) what attention averages; None = the states themselves
    summary: Tensor | None = None  # (B, L, P, D) last states: L layers of P parts (LSTM: hidden and cell), or None
    copies: Tensor | None = None  # (B, S) the target token that each position writes if it is copied; < 0: none


@dataclass(frozen=True, slots=True)
class Axis:
    """The labels of the positions of one source along the S axis of attention."""

    kind: str  # of the modality: "text", "image", …
    labels: tuple[str, ...]  # one for each position
    grid: tuple[int, int] | None = None  # of a picture: rows and columns of regions, in reading order
    seconds: float | None = None  # of sound: how long a position lasts
    frames: int | None = None  # of a feature sequence: how many of its frames a position moves on by


class Growing:
    """What the rows of each source have read so far, (B, H, P, D), appended to along axis 2.

    It is a value: ``append`` returns another one and leaves this one as it was. Without gradients
    the memory is allocated ahead, and the first to append writes behind the end in place. Who
    appends to the same value once more, for another continuation, gets a copy. A value must not be
    appended to by two threads at once.
    """

    __slots__ = ("_buffer", "_filled", "length")

    def __init__(self, tensor: Tensor) -> None:
        self._buffer = tensor  # (B, H, capacity, D)
        self.length = tensor.shape[2]
        self._filled = [self.length]  # how much of the buffer is taken: one list for all who share it

    @property
    def tensor(self) -> Tensor:
        """The content, (B, H, P, D)."""
        return self._buffer[:, :, : self.length]

    def padded(self, count: int) -> Tensor:
        """Return the content, and if there is room, finite numbers behind it up to ``count`` entries."""
        return self._buffer[:, :, : max(self.length, count)]

    def append(self, new: Tensor) -> Growing:
        """Return the value with ``new`` (B, H, n, D) after the others."""
        import torch

        begin, end = self.length, self.length + new.shape[2]
        if torch.is_grad_enabled() or new.device.type != "cpu":
            return Growing(new if not begin else torch.cat([self.tensor, new], 2))
        buffer, filled = self._buffer, self._filled
        is_ours = filled[0] == begin and end <= buffer.shape[2]
        if not is_ours or buffer.is_inference() != torch.is_inference_mode_enabled():
            buffer = new.new_zeros(*new.shape[:2], max(24, end + end // 2), new.shape[3])
            buffer[:, :, :begin] = self.tensor
            filled = [begin]
        buffer[:, :, begin:end] = new
        filled[0] = end
        grown = Growing.__new__(Growing)
        grown._buffer, grown._filled, grown.length = buffer, filled, end
        return grown

    def select(self, sources: Tensor) -> Growing:
        """Return what these sources have read."""
        return Growing(self.tensor.index_select(0, sources))

    def detach(self) -> Growing:
        """Return the value without gradients."""
        return Growing(self.tensor.detach())


# What a decoder keeps for all rows of a source together, by name.
History: TypeAlias = "Growing | Mapping[str, History]"


@dataclass(frozen=True, slots=True)
class State:
    """A decoder's state: a value, which is never stored on ``self``.

    ``fixed`` is computed once per source (projected keys, masks); axis 0 has ``sources`` entries.
    ``carry`` changes with every token; axis 0 has N = sources * k rows, the k rows of a source side
    by side. ``history`` grows with every call by what all rows of a source have read, and is never
    reordered: whoever keeps one keeps in the carry which of its entries belong to a row.
    """

    sources: int
    fixed: Tree = field(default_factory=dict)
    carry: Tree = field(default_factory=dict)
    history: History = field(default_factory=dict)

    def spread(self, k: int) -> State:
        """Repeat each row ``k`` times, side by side."""
        return replace(self, carry=map_tree(lambda x: x.repeat_interleave(k, 0), self.carry))

    def reorder(self, rows: Tensor) -> State:
        """Return the state whose row i is row ``rows[i]``. Rows must stay with their source."""
        return replace(self, carry=map_tree(lambda x: x.index_select(0, rows), self.carry))

    def detach(self) -> State:
        """Return the state without gradients, to truncate backpropagation through time."""
        history = map_history(Growing.detach, self.history)
        return replace(self, carry=map_tree(lambda x: x.detach(), self.carry), history=history)

    def select(self, sources: Tensor) -> State:
        """Return the state of these sources, in this order, with all their rows."""

        def pick(x: Tensor) -> Tensor:
            grouped = x.view(self.sources, len(x) // self.sources, *x.shape[1:])  # (B, k, ...); x may have no elements
            return grouped.index_select(0, sources).flatten(0, 1)

        fixed = map_tree(lambda x: x.index_select(0, sources), self.fixed)
        history = map_history(lambda grown: grown.select(sources), self.history)
        return State(len(sources), fixed, map_tree(pick, self.carry), history)


@dataclass(frozen=True, slots=True)
class Choices:
    """What a decoder drew at random: training credits it with the outcome."""

    log_probs: Tensor  # (N, T) of what was drawn for each token
    entropy: Tensor  # (N, T) of the distribution that it was drawn from


@dataclass(frozen=True, slots=True)
class Reading:
    """What a decoder predicted while reading the source, where that is part of the loss."""

    features: Tensor  # (B, S, D) after each source position; the readout is the step's
    weight: float  # of a source token in the loss; that of a target token is 1


SLOT, NOTHING = -1, -2  # of a source position that writes no target token: it writes a slot, or cannot be copied


@dataclass(frozen=True, slots=True)
class Copies:
    """What a step may copy from its source: together with what it generates, the probabilities sum to 1."""

    log_generate: Tensor  # (N, T) log-probability that the token is generated
    weights: Tensor  # (N, T, S) probability that a position is copied; 0 if it writes nothing
    targets: Tensor  # (N, S) the token that each position writes
    vocabulary: int  # V, with the slots; the readout has logits of those before the slots

    def mix(self, logits: Tensor) -> Tensor:
        """Return the log-probabilities (N, T, V) of tokens that are generated, with these logits, or copied."""
        import torch

        generated = logits.float().log_softmax(-1) + self.log_generate[..., None]
        slots = self.vocabulary - generated.shape[-1]
        generated = torch.nn.functional.pad(generated, (0, slots), value=-torch.inf)
        targets = self.targets[:, None].expand(-1, generated.shape[1], -1)
        copied = torch.zeros_like(generated).scatter_add(2, targets, self.weights)
        return torch.logaddexp(generated, copied.log())

    def last(self) -> Copies:
        """Return what may be copied after the last token, T = 1."""
        return replace(self, log_generate=self.log_generate[:, -1:], weights=self.weights[:, -1:])


@dataclass(frozen=True, slots=True)
class Step:
    """What a decoder returns: one prediction after each of the tokens.

    The projection onto the vocabulary (``readout``) is separate, so that training can skip
    padding and project in chunks; ``logits`` and ``log_probs`` are views for everybody else.
    """

    features: Tensor  # (N, T, D) the input of the readout
    readout: Callable[[Tensor], Tensor]  # (..., D) -> (..., V) logits
    state: State
    attention: Tensor | None = None  # (N, T, A, S) when asked for
    choices: Choices | None = None  # of hard attention, in training
    reading: Reading | None = None  # in training, where the source is part of the loss
    copies: Copies | None = None  # where tokens may be copied; the readout is then of generated tokens alone

    @property
    def logits(self) -> Tensor:
        """The unnormalised scores of every token."""
        logits = self.readout(self.features)  # (N, T, V)
        return logits if self.copies is None else self.copies.mix(logits)

    @property
    def log_probs(self) -> Tensor:
        """The log-probabilities of every token, in float32."""
        if self.copies is not None:
            return self.logits
        return self.logits.float().log_softmax(-1)  # (N, T, V)

    def next_log_probs(self) -> Tensor:
        """Return the log-probabilities after the last token, (N, V), as a new tensor that may be changed."""
        import torch

        if self.copies is not None:
            return self.copies.last().mix(self.readout(self.features[:, -1:]))[:, 0]
        scores = self.readout(self.features[:, -1]).float()
        if torch.is_grad_enabled():
            return scores.log_softmax(-1)
        return torch.log_softmax(scores, -1, out=scores)  # in its own memory, which takes half the time


# What happened to a candidate of the beam.
PRUNED, KEPT, FINISHED = 0, 1, 2
FATES = ("pruned", "kept", "finished")  # by number


@dataclass(frozen=True, slots=True, repr=False)
class Frontier:
    """One step of the search for one source: the candidates that were considered, best first."""

    parent: np.ndarray  # (C,) int: the KEPT candidate of the step before that it extends; 0 at the first step
    token: np.ndarray  # (C,) int
    log_prob: np.ndarray  # (C,) float: of this token, as the model reports it
    total: np.ndarray  # (C,) float: summed over the path, as the model reports it
    fate: np.ndarray  # (C,) int8: PRUNED, KEPT or FINISHED
    attention: np.ndarray | None = None  # (kept rows of the step before, A, S): where each row looked
    text: tuple[str, ...] = ()  # (C,) the tokens as text, where a prediction has them

    def __repr__(self) -> str:
        best = [repr(text) for text in self.text[:3]]
        more = ", ".join([*best, *(["…"] if len(self.token) > len(best) else [])])
        return f"Frontier({len(self.token)} candidates: {more})"

    @property
    def kept(self) -> np.ndarray:
        """Indices of the candidates that are extended, in the order of the next step's rows."""
        return np.flatnonzero(self.fate == KEPT)


@dataclass(frozen=True, slots=True, repr=False)
class Trace:
    """The candidates of every step of a search, with back-pointers: every hypothesis is a path.

    >>> trace = system.predict("abc", beam=3).trace
    >>> trace
    Trace(... steps, ... candidates)
    >>> len(trace.steps[0].text) == len(trace.steps[0].token)
    True
    """

    steps: tuple[Frontier, ...]
    prefix: tuple[int, ...] = ()  # forced tokens; each is a step with one candidate

    def __repr__(self) -> str:
        return f"Trace({len(self.steps)} steps, {sum(len(step.token) for step in self.steps)} candidates)"

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row per candidate: its token, scores, and what became of it."""
        return make_frame(
            {
                "step": number,
                "candidate": index,
                "parent": int(step.parent[index]),
                "token": step.text[index] if step.text else int(step.token[index]),
                "log_prob": float(step.log_prob[index]),
                "total": float(step.total[index]),
                "fate": FATES[int(step.fate[index])],
            }
            for number, step in enumerate(self.steps)
            for index in range(len(step.token))
        )


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output: a path of the trace."""

    tokens: tuple[int, ...]  # the end symbol included if it was produced
    log_probs: tuple[float, ...]  # one for each token
    score: float  # what the search ranked by: the sum, after length normalisation
    finished: bool  # False: stopped at the length limit
    path: tuple[int, ...]  # index of the candidate in each step of the trace
    attention: np.ndarray | None = None  # (T, A, S)

    @property
    def log_prob(self) -> float:
        """The log-probability of the whole output."""
        return float(sum(self.log_probs))


@dataclass(frozen=True, eq=False)
class Spelling:
    """The bytes that each token of a vocabulary adds to a text, for rules about the text of an output.

    A token may add other bytes in another place: at the start of a text, for example, the space before a word is left
    out. Such places are views: in view v, token t adds ``spelled[v][t]``, and the token after it is read in view
    ``after[v, t]``.

    Law: the bytes that the tokens of an output add are the UTF-8 of its text.
    """

    spelled: tuple[tuple[bytes | None, ...], ...]  # by view and token; None: the token has no place in a text
    after: np.ndarray  # (views, V)
    start: int = 0  # the view of the first token
    is_unique: bool = False  # a text can be divided into tokens in one way only

    @property
    def spells_all(self) -> bool:
        """Whether every text can be spelled: each single byte is a token, in every view."""
        return all({bytes([value]) for value in range(256)} <= {*spelled} for spelled in self.spelled)

    def spell(self, tokens: Sequence[int]) -> bytes:
        """Return the bytes that some tokens add, from the start of a text. Tokens without a place add nothing."""
        view, added = self.start, []
        for token in tokens:
            if (own := self.spelled[view][token]) is not None:
                added.append(own)
                view = int(self.after[view, token])
        return b"".join(added)
