"""One loop for every search: ask the decoder, choose candidates, record them, continue with those kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dragoman.errors import UserError
from dragoman.search.beam import ABSENT, Beam, Candidates
from dragoman.search.options import SearchConfig
from dragoman.search.paths import Sampler, follow
from dragoman.search.rows import DecoderRows, SearchDecoder, device_of
from dragoman.search.rules import build_rules
from dragoman.search.trace import Result, SearchRecord
from dragoman.types import KEPT, Frontier


class Chooser(Protocol):
    """What makes one search differ from another: which candidates it keeps, and when it has enough."""

    def choose(self, rows: DecoderRows, totals: np.ndarray, active: np.ndarray) -> Candidates: ...

    def satisfied(self, candidates: Candidates, active: np.ndarray, length: int) -> np.ndarray: ...


@torch.inference_mode()
def search(
    decoder: SearchDecoder,
    memory: Any,
    sources: int,
    config: SearchConfig,
    *,
    bos: int,
    eos: int,
    limits: Tensor | Sequence[int] | None = None,
    prefix: Sequence[Sequence[int]] | None = None,
    keys: Sequence[int] | None = None,
    need_attention: bool = False,
    on_step: Callable[[], None] | None = None,
) -> list[Result]:
    """Search for the outputs of ``sources`` sources and return one result per source, in their order.

    ``limits`` (B,) are the most tokens that each output may have, counting the end symbol and a prefix; where
    ``config.max_length`` is smaller, it holds. ``prefix`` gives the tokens that each output must begin with; they
    are part of the output and of its score. A prefix that ends in the end symbol, or reaches the limit, is the
    output. ``keys`` name the sources for sampling (default: their position), so that an input samples the same
    output in any batch. ``on_step`` is called before each token, and may end the search by raising.
    """
    most = _limits(limits, config, sources)
    if prefix is not None and len(prefix) != sources:
        raise UserError(f"a forced prefix is needed for each source: got {len(prefix)} for {sources} sources")
    if keys is not None and len(keys) != sources:
        raise UserError(f"a sampling key is needed for each source: got {len(keys)} for {sources} sources")
    if not sources:
        return []
    forced = [tuple(tokens) for tokens in prefix] if prefix is not None else [()] * sources
    groups: dict[tuple[int, bool], list[int]] = defaultdict(list)
    for source, tokens in enumerate(forced):
        if eos in tokens[:-1]:
            raise UserError(f"the forced prefix of input {source + 1} goes on after the end symbol; leave that out")
        groups[len(tokens), tokens[-1:] == (eos,) or len(tokens) >= most[source]].append(source)

    start = decoder.start(memory, sources)
    device = device_of(decoder, start)
    results: list[Result | None] = [None] * sources
    for (_, complete), members in groups.items():
        state = start if len(groups) == 1 else start.select(torch.tensor(members, device=device))
        prefixes = [forced[source] for source in members]
        outcomes: list[Result]
        if complete:
            outcomes = follow(decoder, state, prefixes, bos=bos, eos=eos, config=config, need_attention=need_attention)
            if config.sample:
                outcomes = [Result(result.hypotheses * config.samples, result.trace) for result in outcomes]
        else:
            names = members if keys is None else [keys[source] for source in members]
            limit = most[members]
            chooser: Chooser = Sampler(config, names, eos) if config.sample else Beam(config, limit, eos)
            opening = np.array([[bos, *tokens] for tokens in prefixes])
            rows = DecoderRows(
                decoder, state, opening, rules=build_rules(config, eos), eos=eos, need_attention=need_attention
            )
            outcomes = [record.result(config) for record in _run(rows, chooser, prefixes, limit, on_step)]
        for source, result in zip(members, outcomes, strict=True):
            results[source] = result
    return [result for result in results if result is not None]


def _run(
    rows: DecoderRows,
    chooser: Chooser,
    forced: Sequence[tuple[int, ...]],
    limits: np.ndarray,
    on_step: Callable[[], None] | None,
) -> list[SearchRecord]:
    """Search until every source is done. The sources in ``rows`` have prefixes of one length."""
    attention = rows.attention()  # (B, k, T, A, S)
    log_probs = rows.forced.float().cpu().numpy()  # (B, P)
    records = [SearchRecord() for _ in forced]
    for source, (record, tokens) in enumerate(zip(records, forced, strict=True)):
        record.force(tokens, log_probs[source], None if attention is None else attention[source, 0, :-1].copy(), KEPT)
    totals = log_probs.sum(1, keepdims=True, dtype=np.float64)  # (B, k) sums of the live rows; -inf: no such row
    if not (totals > -np.inf).all():
        raise UserError("a forced prefix is impossible for this model (probability zero); give another")
    active = np.arange(len(forced))  # which sources the rows belong to
    length = len(forced[0])
    while True:
        if on_step is not None:
            on_step()
        length += 1
        candidates = chooser.choose(rows, totals, active)
        _record([records[source] for source in active], candidates, totals, attention)
        kept = candidates.fate == KEPT  # (B, C)
        cut = (limits[active] <= length) & kept.any(1)
        for source in active[cut]:
            records[source].cut()
        done = cut | ~kept.any(1) | chooser.satisfied(candidates, active, length)
        going = np.flatnonzero(~done)  # the sources that continue
        if not len(going):
            return records
        kept = kept[going]
        order = np.argsort(~kept, axis=1, kind="stable")[:, : kept.sum(1).max()]  # the live ones, in their order
        parent, token, total, alive = (
            np.take_along_axis(array, order, axis=1)
            for array in (candidates.parent[going], candidates.token[going], candidates.total[going], kept)
        )
        totals = np.where(alive, total, -np.inf)
        active = active[going]
        rows.advance(going, parent, token)
        attention = rows.attention()


def _record(
    records: Sequence[SearchRecord], candidates: Candidates, totals: np.ndarray, attention: np.ndarray | None
) -> None:
    """Add the step to each source's record, as copies, so that a result does not keep its whole batch in memory."""
    present = candidates.fate != ABSENT
    live = (totals > -np.inf).sum(1)
    for source, record in enumerate(records):
        which = present[source]
        record.add(
            Frontier(
                parent=candidates.parent[source][which],
                token=candidates.token[source][which],
                log_prob=candidates.log_prob[source][which],
                total=candidates.total[source][which],
                fate=candidates.fate[source][which],
                attention=None if attention is None else attention[source, : live[source], -1].copy(),
            )
        )


def _limits(limits: Tensor | Sequence[int] | None, config: SearchConfig, sources: int) -> np.ndarray:
    """Return the most tokens that each output may have, (B,)."""
    if limits is None:
        if config.max_length is None:
            raise UserError("search needs a length limit: set max_length, or give one limit per source")
        return np.full(sources, config.max_length)
    most = np.array(limits.tolist() if isinstance(limits, Tensor) else limits, dtype=np.int64)
    if len(most) != sources or (most < 1).any():
        raise UserError(f"each of {sources} sources needs a length limit of at least 1: got {most.tolist()}")
    return most if config.max_length is None else np.minimum(most, config.max_length)
