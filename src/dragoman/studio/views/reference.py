"""Whether the search found the reference, and if not, why and at which step it was lost.

A reference that the request itself does not permit is excluded. A search error is a reference that
the model scores higher than the output. Any other reference that was not found is a model error
(Stahlberg and Byrne, 2019, "On NMT search errors and model errors: cat got your tongue?").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from dragoman.data.examples import tidy
from dragoman.data.vocabulary import EOS, UNK
from dragoman.inference.scoring import ForcedPath
from dragoman.inference.system import System
from dragoman.studio import records
from dragoman.studio.inspection import Inspection
from dragoman.studio.views.tokens import describe_tokens, permitted_mask
from dragoman.types import KEPT, PRUNED, Frontier

Verdict: TypeAlias = Literal["found", "excluded", "search error", "model error"]

TOLERANCE = 1e-5  # two orders of summation may differ by as much in a normalised score


def encode_reference(system: System, reference: str | None) -> tuple[int, ...]:
    """Return the tokens of a reference with the end symbol, or none if there is no reference."""
    text = tidy(reference or "")
    return (*system.target.encode(text), EOS) if text else ()


def describe_reference(inspection: Inspection, text: str, path: ForcedPath) -> records.Reference:
    """Describe a reference that the model scores as ``path``, beside what was found."""
    session = inspection.session
    total = float(path.log_probs.sum(dtype=np.float64))
    log_probs = session.rank_scores(inspection.prepared, path)  # (T,)
    score = float(log_probs.sum(dtype=np.float64)) / session.config.penalty(len(path.tokens))
    lost_at = find_loss(inspection, path.tokens)
    margin = None
    if lost_at is not None:
        steps = inspection.result.trace.steps
        gap = lowest_taken(steps[lost_at]) - float(log_probs[: lost_at + 1].sum(dtype=np.float64))
        margin = gap if np.isfinite(gap) and gap >= 0 else None
    verdict = _judge(inspection, text, path, score)
    return records.Reference(
        text=text,
        log_prob=total if np.isfinite(total) else None,
        score=score if np.isfinite(score) else None,
        verdict=verdict,
        sentence=_explain(inspection, verdict, path, score, lost_at),
        lost_at=lost_at,
        margin=margin,
        tokens=describe_tokens(session.system, path),
    )


def follow_path(inspection: Inspection, tokens: Sequence[int]) -> list[int]:
    """Return the index of the candidate for each token, as far as the search followed them.

    The last of the candidates may have been pruned.
    """
    path: list[int] = []
    row = 0
    for frontier, token in zip(inspection.result.trace.steps, tokens, strict=False):
        matches = np.flatnonzero((frontier.token == token) & (frontier.parent == row))
        if not len(matches):
            break
        candidate = int(matches[0])
        path.append(candidate)
        if frontier.fate[candidate] != KEPT:
            break
        row = int(np.flatnonzero(frontier.kept == candidate)[0])
    return path


def find_loss(inspection: Inspection, tokens: Sequence[int]) -> int | None:
    """Return the step at which the search dropped these tokens, or None if it did not."""
    steps = inspection.result.trace.steps
    path = follow_path(inspection, tokens)
    pruned = bool(path) and bool(steps[len(path) - 1].fate[path[-1]] == PRUNED)
    survived = len(path) - pruned
    return None if survived == len(tokens) or survived >= len(steps) else survived


def lowest_taken(frontier: Frontier) -> float:
    """Return the lowest total of the candidates of a step that were not pruned."""
    taken = frontier.total[frontier.fate != PRUNED]
    return float(taken.min()) if len(taken) else float(frontier.total.max())


def _judge(inspection: Inspection, text: str, path: ForcedPath, score: float) -> Verdict:
    best = inspection.result.best
    is_same_text = inspection.prediction.text == inspection.system.target.canonical(tidy(text))
    if best.tokens == path.tokens or is_same_text:
        return "found"
    if not _begins_as_forced(inspection, path) or _is_forbidden(inspection, path):
        return "excluded"
    return "search error" if score > best.score + TOLERANCE else "model error"


def _begins_as_forced(inspection: Inspection, path: ForcedPath) -> bool:
    return path.tokens[: len(inspection.prefix)] == inspection.prefix


def _is_forbidden(inspection: Inspection, path: ForcedPath) -> bool:
    """Tell whether a rule of the search forbids a token of the reference; unknown tokens do not count here."""
    return any(
        token != UNK and not permitted_mask(inspection.session, path.tokens[:index])[token]
        for index, token in enumerate(path.tokens)
    )


def _explain(inspection: Inspection, verdict: Verdict, path: ForcedPath, score: float, lost_at: int | None) -> str:
    if verdict == "found":
        is_forced = bool(inspection.prefix) and not inspection.system.is_language_model
        return f"{'With the forced beginning, the' if is_forced else 'The'} best output is the reference."
    best = _signed(inspection.result.best.score)
    if verdict == "excluded":
        if not _begins_as_forced(inspection, path):
            return "No output can be the reference, because it does not begin as the forced beginning does."
        return "No output can be the reference, because it has something that the search may not write."
    if verdict == "search error":
        sentence = f"The model scores the reference ({_signed(score)}) higher than the output ({best})"
        was_found = lost_at is None and len(follow_path(inspection, path.tokens)) == len(path.tokens)
        sentence += (
            ", yet it ranks lower here." if was_found else ", but the search dropped it. A wider beam may find it."
        )
    else:
        shown = _signed(score) if np.isfinite(score) else "probability zero"
        sentence = f"The model scores the output ({best}) higher than the reference ({shown}). No search will help."
    if UNK in path.tokens:
        sentence += " The reference has tokens that are not in the vocabulary."
    return sentence


def _signed(value: float) -> str:
    """Return a score with the minus sign that the page writes everywhere."""
    return f"{value:.3f}".replace("-", "−")
