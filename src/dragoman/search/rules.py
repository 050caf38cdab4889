"""Rules that forbid tokens. A rule never changes a score, so the log-probabilities reported stay the model's own.

A rule follows the rows of a search: ``start`` gives it one row per source, ``advance`` says which row each new row
extends and by which token. ``bans`` says what may not come next, as lists of numbers: nothing of the size of the
vocabulary is made for a rule that forbids a few tokens. A new rule is a class here, made in ``build_rules``.

Most rules are preferences: a row to which they leave nothing may end, and if the model gives the end probability zero,
they are waived for that row and step. A rule that is ``hard`` is never waived: a row to which it leaves nothing dies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from dragoman.errors import UserError
from dragoman.search.options import SearchConfig

NEVER = float("-inf")
NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Bans:
    """What N rows may not write next."""

    everywhere: np.ndarray = field(default_factory=lambda: NOTHING)  # (F,) tokens that no row may write
    rows: np.ndarray = field(default_factory=lambda: NOTHING)  # (M,) with ``tokens``: pairs of a row and a token
    tokens: np.ndarray = field(default_factory=lambda: NOTHING)  # (M,)
    restricted: np.ndarray = field(default_factory=lambda: NOTHING)  # (R,) rows that may write only what follows
    allowed_rows: np.ndarray = field(default_factory=lambda: NOTHING)  # (K,) with ``allowed_tokens``: pairs again
    allowed_tokens: np.ndarray = field(default_factory=lambda: NOTHING)  # (K,)


def allow_only(rows: Sequence[int], tokens: Sequence[np.ndarray]) -> Bans:
    """Return what leaves each of some rows only its own tokens."""
    lengths = [len(own) for own in tokens]
    return Bans(
        restricted=np.array(rows, np.int64),
        allowed_rows=np.repeat(np.array(rows, np.int64), lengths),
        allowed_tokens=np.concatenate([NOTHING, *tokens]),
    )


class Rule(ABC):
    """What the rows of one search may write. It belongs to that search and keeps what it needs of each row.

    Laws: what is forbidden to a row depends on the source and the tokens of that row alone, not on its number or on
    the other rows; ``start`` with a prefix equals ``start`` without one and ``advance`` by each of its tokens.
    """

    hard: ClassVar[bool] = False  # never waived: a row to which it leaves nothing dies

    @abstractmethod
    def start(self, sources: Sequence[int], prefixes: np.ndarray) -> None:
        """Begin with one row per source. ``sources`` are their numbers, ``prefixes`` (B, P) the tokens they have."""

    @abstractmethod
    def advance(self, parents: np.ndarray, tokens: np.ndarray) -> None:
        """Go on with N rows: row i is the earlier row ``parents[i]`` with the token ``tokens[i]`` after it."""

    @abstractmethod
    def bans(self) -> Bans:
        """Return what the rows may not write next."""


class LeadingRule(Rule):
    """A rule that wants something to occur in an output, and knows the tokens that lead there.

    A beam divides its places by how much each hypothesis still needs (``banks.py``). A single path is led there when
    its most probable token is the end, which is forbidden until then.
    """

    hard = True

    @abstractmethod
    def is_bound(self, row: int) -> bool:
        """Tell whether a row still needs something, or may come to need it again."""

    @abstractmethod
    def proposals(self, row: int) -> Sequence[int]:
        """Return the tokens that lead a row to what it needs."""

    @abstractmethod
    def need_after(self, row: int, token: int) -> int:
        """Return how many tokens a row needs at least after this one, the end symbol not counted."""

    @abstractmethod
    def lead(self, row: int) -> None:
        """Lead a row from now on, until it needs one thing less."""

    @abstractmethod
    def is_led(self, row: int) -> bool:
        """Tell whether a row is being led."""


def build_rules(config: SearchConfig, eos: int) -> tuple[Rule, ...]:
    """Return the rules that a config asks for, for one search."""
    rules: list[Rule] = []
    if config.min_length:
        rules.append(RequireLength(config.min_length, eos))
    if config.forbidden:
        rules.append(Forbid(config.forbidden))
    if any(config.forbidden_runs):
        rules.append(ForbidRuns([run for run in config.forbidden_runs if run]))
    if config.no_repeat_ngram:
        rules.append(ForbidRepeatedNgrams(config.no_repeat_ngram))
    if config.only:
        rules.append(AllowOnly(config.only, eos))
    return tuple(rules)


class Forbid(Rule):
    """Forbid these tokens everywhere."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._bans = Bans(everywhere=np.array(sorted(set(tokens))))

    def start(self, sources: Sequence[int], prefixes: np.ndarray) -> None:
        pass

    def advance(self, parents: np.ndarray, tokens: np.ndarray) -> None:
        pass

    def bans(self) -> Bans:
        return self._bans


class RequireLength(Rule):
    """Forbid the end symbol before ``length`` tokens."""

    def __init__(self, length: int, eos: int) -> None:
        self._length, self._produced = length, 0
        self._end = Bans(everywhere=np.array([eos]))

    def start(self, sources: Sequence[int], prefixes: np.ndarray) -> None:
        self._produced = prefixes.shape[1]

    def advance(self, parents: np.ndarray, tokens: np.ndarray) -> None:
        self._produced += 1

    def bans(self) -> Bans:
        return self._end if self._produced < self._length else Bans()


class _TokenRule(Rule):
    """A rule that looks at the last tokens of each row."""

    window: int | None = None  # how many; None: all

    def start(self, sources: Sequence[int], prefixes: np.ndarray) -> None:
        self.produced = prefixes  # (N, t)

    def advance(self, parents: np.ndarray, tokens: np.ndarray) -> None:
        produced = np.concatenate([self.produced[parents], tokens[:, None]], axis=1)
        self.produced = produced if self.window is None else produced[:, max(0, produced.shape[1] - self.window) :]


class ForbidRuns(_TokenRule):
    """Forbid the last token of each run once the tokens before it were produced."""

    def __init__(self, runs: Sequence[Sequence[int]]) -> None:
        self._single = np.array(sorted({run[0] for run in runs if len(run) == 1}), np.int64)
        self._runs = [(np.array(run[:-1]), run[-1]) for run in runs if len(run) > 1]
        self.window = max(len(run) for run in runs)

    def bans(self) -> Bans:
        rows, tokens = [NOTHING], [NOTHING]
        length = self.produced.shape[1]
        for beginning, last in self._runs:
            if length >= len(beginning):
                begun = np.flatnonzero((self.produced[:, length - len(beginning) :] == beginning).all(1))
                rows.append(begun)
                tokens.append(np.full(len(begun), last))
        return Bans(self._single, np.concatenate(rows), np.concatenate(tokens))


class ForbidRepeatedNgrams(_TokenRule):
    """Forbid any run of ``size`` tokens that the output already has."""

    def __init__(self, size: int) -> None:
        self._size = size

    def bans(self) -> Bans:
        length = self.produced.shape[1]
        if length < self._size:
            return Bans()
        runs = np.lib.stride_tricks.sliding_window_view(self.produced, self._size, axis=1)  # (N, t - size + 1, size)
        tail = self.produced[:, None, length - self._size + 1 :]  # (N, 1, size - 1)
        rows, places = np.nonzero((runs[..., :-1] == tail).all(-1))
        return Bans(rows=rows, tokens=runs[rows, places, -1])


class AllowOnly(Rule):
    """Allow the tokens that lead to one of these outputs. An output that was forced off them is free."""

    FREE = -1

    def __init__(self, outputs: Sequence[Sequence[int]], eos: int) -> None:
        self._children: list[dict[int, int]] = [{}]  # by node of the tree of outputs: token → node
        for output in outputs:
            node = 0
            for token in (*output, eos):
                if token not in self._children[node]:
                    self._children[node][token] = len(self._children)
                    self._children.append({})
                node = self._children[node][token]
        self._allowed = [np.array(sorted(children), np.int64) for children in self._children]

    def start(self, sources: Sequence[int], prefixes: np.ndarray) -> None:
        self._nodes = [0] * len(prefixes)
        for column in prefixes.T:
            self.advance(np.arange(len(prefixes)), column)

    def advance(self, parents: np.ndarray, tokens: np.ndarray) -> None:
        before = [self._nodes[parent] for parent in parents.tolist()]
        self._nodes = [
            self.FREE if node == self.FREE else self._children[node].get(token, self.FREE)
            for node, token in zip(before, tokens.tolist(), strict=True)
        ]

    def bans(self) -> Bans:
        rows = [row for row, node in enumerate(self._nodes) if node != self.FREE]
        return allow_only(rows, [self._allowed[self._nodes[row]] for row in rows])


class RuleSet:
    """The rules of one search, applied together."""

    def __init__(self, rules: Sequence[Rule], eos: int) -> None:
        self._rules, self._eos = rules, eos
        self._soft: list[Bans] = []
        self._hard: list[Bans] = []
        self.has_hard = any(rule.hard for rule in rules)
        self.leader = next((rule for rule in rules if isinstance(rule, LeadingRule)), None)

    def start(self, sources: Sequence[int], prefixes: np.ndarray) -> None:
        """Begin with one row per source."""
        for rule in self._rules:
            rule.start(sources, prefixes)
        self._ask()

    def advance(self, parents: np.ndarray, tokens: np.ndarray) -> None:
        """Go on with these rows."""
        for rule in self._rules:
            rule.advance(parents, tokens)
        self._ask()

    def _ask(self) -> None:
        self._soft = [rule.bans() for rule in self._rules if not rule.hard]
        self._hard = [rule.bans() for rule in self._rules if rule.hard]

    def forbid(self, scores: Tensor, begin: int) -> None:
        """Write -inf into the scores (n, V) of the rows from ``begin`` on, for everything that is forbidden."""
        for bans in (*self._soft, *self._hard):
            _forbid(bans, scores, begin)

    def lead(self, scores: Tensor, wanted: Tensor) -> None:
        """Lead single paths to what they need: those whose most probable token ``wanted`` (N,) is the end.

        ``scores`` (N, V) are those that the rules have left; -inf is written for what does not lead there.
        """
        leader = self.leader
        if leader is None:
            return
        for row in range(len(scores)):
            if leader.is_led(row) or (int(wanted[row]) == self._eos and leader.is_bound(row)):
                tokens = torch.tensor([*leader.proposals(row)], dtype=torch.long, device=scores.device)
                own = scores[row, tokens].clone()
                if len(own) and bool((own > NEVER).any()):  # otherwise another rule is in the way
                    leader.lead(row)
                    scores[row] = NEVER
                    scores[row, tokens] = own

    def release(self, row: int, original: Tensor) -> Tensor:
        """Return the scores (V,) of a row to which the rules leave nothing, from its ``original`` ones.

        It may end, or else only hard rules hold. If these leave nothing either, all scores are -inf.
        """
        allowed = original.clone()[None]
        for bans in self._hard:
            _forbid(bans, allowed, row)
        end = float(allowed[0, self._eos])
        if end > NEVER:
            allowed.fill_(NEVER)
            allowed[0, self._eos] = end
        return allowed[0]


def permitted(rules: Sequence[Rule], prefix: Sequence[int], vocabulary: int) -> np.ndarray:
    """Return which tokens no rule forbids after ``prefix``, (V,)."""
    scores = torch.zeros(1, vocabulary)
    for rule in rules:
        rule.start([0], np.array([list(prefix)], np.int64).reshape(1, -1))
        _forbid(rule.bans(), scores, 0)
    return (scores[0] > NEVER).numpy()


def _forbid(bans: Bans, scores: Tensor, begin: int) -> None:
    """Write -inf into the scores (n, V) of the rows from ``begin`` on."""
    rows, vocabulary = scores.shape
    device = scores.device
    if len(bans.everywhere):
        last = int(bans.everywhere[-1])
        if last >= vocabulary:
            raise UserError(
                f"search.forbidden: there is no token {last}, the vocabulary ends at {vocabulary - 1}; "
                "give token numbers of this model"
            )
        if device.type == "cpu":  # a third of the time that an operation of torch takes
            scores.numpy()[:, bans.everywhere] = NEVER
        else:
            scores.index_fill_(1, torch.from_numpy(bans.everywhere).to(device), NEVER)
    if len(bans.rows):
        here = (bans.rows >= begin) & (bans.rows < begin + rows)
        pair = (torch.from_numpy(bans.rows[here] - begin), torch.from_numpy(bans.tokens[here]))
        scores[pair[0].to(device), pair[1].to(device)] = NEVER
    if len(bans.restricted):
        restricted, own, tokens = bans.restricted, bans.allowed_rows, bans.allowed_tokens
        if begin or rows <= restricted[-1]:
            restricted = restricted[(restricted >= begin) & (restricted < begin + rows)] - begin
            here = (own >= begin) & (own < begin + rows)
            own, tokens = own[here] - begin, tokens[here]
        places = torch.from_numpy(own * vocabulary + tokens).to(device)
        kept = scores.take(places)
        if len(restricted) == rows:
            scores.fill_(NEVER)
        else:
            scores.index_fill_(0, torch.from_numpy(restricted).to(device), NEVER)
        scores.put_(places, kept)
