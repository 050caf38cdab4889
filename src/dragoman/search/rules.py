"""Rules that forbid tokens. A rule never changes a score, so the log-probabilities reported stay the model's own.

``rule(prefix, log_probs)`` gets the tokens produced so far, (N, t), and the log-probabilities of the next, (N, V); it
gives these back with -inf where a token is forbidden, and never writes into what it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from dragoman.errors import UserError
from dragoman.search.options import SearchConfig

Rule: TypeAlias = Callable[[Tensor, Tensor], Tensor]

NEVER = float("-inf")


def build_rules(config: SearchConfig, eos: int) -> tuple[Rule, ...]:
    """Return the rules that a config asks for."""
    rules: list[Rule] = []
    if config.min_length:
        rules.append(require_length(config.min_length, eos))
    if config.forbidden:
        rules.append(forbid(config.forbidden))
    if any(config.forbidden_runs):
        rules.append(forbid_runs([run for run in config.forbidden_runs if run]))
    if config.no_repeat_ngram:
        rules.append(forbid_repeated_ngrams(config.no_repeat_ngram))
    if config.only:
        rules.append(allow_only(config.only, eos))
    return tuple(rules)


def require_length(length: int, eos: int) -> Rule:
    """Forbid the end symbol before ``length`` tokens."""
    end = forbid((eos,))

    def rule(prefix: Tensor, log_probs: Tensor) -> Tensor:
        return end(prefix, log_probs) if prefix.shape[1] < length else log_probs

    return rule


def forbid(tokens: Sequence[int]) -> Rule:
    """Forbid these tokens everywhere."""

    def rule(prefix: Tensor, log_probs: Tensor) -> Tensor:
        vocabulary = log_probs.shape[1]
        if max(tokens) >= vocabulary:
            raise UserError(
                f"search.forbidden: there is no token {max(tokens)}, the vocabulary ends at {vocabulary - 1}; "
                "give token numbers of this model"
            )
        return log_probs.index_fill(1, torch.tensor(tokens, device=log_probs.device), NEVER)

    return rule


def forbid_runs(runs: Sequence[Sequence[int]]) -> Rule:
    """Forbid the last token of each run once the tokens before it were produced."""
    split = [(torch.tensor(run[:-1]), forbid(run[-1:])) for run in runs]

    def rule(prefix: Tensor, log_probs: Tensor) -> Tensor:
        for beginning, forbid_last in split:
            if prefix.shape[1] >= len(beginning):
                tail = prefix[:, prefix.shape[1] - len(beginning) :]
                is_begun = (tail == beginning.to(prefix.device)).all(1)  # (N,)
                log_probs = torch.where(is_begun[:, None], forbid_last(prefix, log_probs), log_probs)
        return log_probs

    return rule


def allow_only(outputs: Sequence[Sequence[int]], eos: int) -> Rule:
    """Allow the tokens that lead to one of these outputs. An output that was forced off them is free."""
    following: dict[tuple[int, ...], set[int]] = {}
    for output in outputs:
        path = (*output, eos)
        for length, token in enumerate(path):
            following.setdefault(path[:length], set()).add(token)
    allowed = {beginning: torch.tensor(sorted(tokens)) for beginning, tokens in following.items()}

    def rule(prefix: Tensor, log_probs: Tensor) -> Tensor:
        result = torch.full_like(log_probs, NEVER)
        for row, beginning in enumerate(prefix.tolist()):
            tokens = allowed.get(tuple(beginning))
            if tokens is None:
                result[row] = log_probs[row]
            else:
                tokens = tokens.to(log_probs.device)
                result[row, tokens] = log_probs[row, tokens]
        return result

    return rule


def forbid_repeated_ngrams(size: int) -> Rule:
    """Forbid any run of ``size`` tokens that the output already has."""

    def rule(prefix: Tensor, log_probs: Tensor) -> Tensor:
        rows, length = prefix.shape
        if length < size:
            return log_probs
        vocabulary = log_probs.shape[1]
        runs = prefix.unfold(1, size, 1)  # (N, t - size + 1, size)
        tail = prefix[:, length - size + 1 :].unsqueeze(1)  # (N, 1, size - 1)
        repeats = (runs[..., :-1] == tail).all(-1)  # (N, t - size + 1)
        # Runs that the tail does not begin write to a column beyond the vocabulary: writing False instead could
        # wipe out the True of another run with the same last token.
        column = torch.where(repeats, runs[..., -1], vocabulary)
        banned = torch.zeros(rows, vocabulary + 1, dtype=torch.bool, device=log_probs.device)
        banned.scatter_(1, column, True)
        return log_probs.masked_fill(banned[:, :vocabulary], NEVER)

    return rule


def apply_rules(rules: Sequence[Rule], prefix: Tensor, log_probs: Tensor, eos: int) -> Tensor:
    """Return ``log_probs`` with -inf for everything forbidden, but leave each row a way to continue.

    A row for which nothing is left may end (the end symbol is permitted). If the model itself gives the end
    probability zero, the rules are waived for that row and step.
    """
    allowed = log_probs
    for rule in rules:
        allowed = rule(prefix, allowed)
    if allowed is log_probs:
        return log_probs
    blocked = allowed.amax(1) == NEVER  # (N,)
    if not bool(blocked.any()):  # nearly always; saves two passes over the vocabulary
        return allowed
    end = log_probs[:, eos]
    stuck = blocked & (end == NEVER)
    column = torch.full((len(log_probs), 1), eos, device=log_probs.device)
    allowed = allowed.scatter(1, column, torch.where(blocked, end, allowed[:, eos]).unsqueeze(1))
    return torch.where(stuck.unsqueeze(1), log_probs, allowed)
