"""One loop for every search: ask the decoder, choose candidates, record them, continue with those kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from dragoman.errors import UserError
from dragoman.search.beam import Beam
from dragoman.search.options import SearchConfig
from dragoman.search.paths import Sampler, follow
from dragoman.search.rows import DecoderRows, SearchDecoder, device_of
from dragoman.search.rules import Rule, build_rules
from dragoman.search.trace import Candidates, RecordedStep, Result, SearchRecord
from dragoman.types import FINISHED, KEPT

OnToken: TypeAlias = Callable[[int, tuple[int, ...]], None]  # a source, and its tokens so far

MakeRules = Callable[[np.ndarray], Sequence[Rule]]  # rules for one search, from the length limits of all sources
LEAVING = 8  # sources that are done leave when one in so many is: copying the state of the others takes time too


class Chooser(Protocol):
    """What makes one search differ from another: which candidates it keeps, and when it has enough."""

    def choose(self, rows: DecoderRows, totals: np.ndarray, active: np.ndarray) -> Candidates: ...

    def satisfied(self, candidates: Candidates, active: np.ndarray, length: int) -> np.ndarray: ...


class TokenReport:
    """Tells the tokens of each source while its only hypothesis grows."""

    def __init__(self, members: Sequence[int], prefixes: Sequence[tuple[int, ...]], on_token: OnToken) -> None:
        self._members, self._on_token = members, on_token
        self._written = [list(tokens) for tokens in prefixes]

    def add(self, candidates: Candidates, active: np.ndarray, alive: np.ndarray) -> None:
        """Report the tokens that one step has chosen for the ``active`` sources that are ``alive``, (B,) each."""
        chosen = (candidates.fate == KEPT) | (candidates.fate == FINISHED)  # (B, C)
        for row in np.flatnonzero(alive & chosen.any(1)).tolist():
            source = int(active[row])
            self._written[source].append(int(candidates.token[row, chosen[row].argmax()]))
            self._on_token(self._members[source], tuple(self._written[source]))


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
    need_trace: bool = True,
    on_step: Callable[[], None] | None = None,
    on_token: OnToken | None = None,
    further: MakeRules | None = None,
) -> list[Result]:
    """Search for the outputs of ``sources`` sources and return one result per source, in their order.

    ``limits`` (B,) are the most tokens that each output may have, counting the end symbol and a prefix; where
    ``config.max_length`` is smaller, it holds. ``prefix`` gives the tokens that each output must begin with; they
    are part of the output and of its score. A prefix that ends in the end symbol, or reaches the limit, is the
    output. ``keys`` name the sources for sampling (default: their position), so that an input samples the same
    output in any batch. Without ``need_trace`` the results have traces without steps. ``on_step`` is called before each
    token, and may end the search by raising. ``on_token`` is called after each token, with the source and all its
    tokens so far, a prefix included. For that there has to be one hypothesis per source: greedy search, or one sample.
    ``further`` makes rules beside those of the config, from the limits.
    """
    most = _limits(limits, config, sources)
    if prefix is not None and len(prefix) != sources:
        raise UserError(f"a forced prefix is needed for each source: got {len(prefix)} for {sources} sources")
    if keys is not None and len(keys) != sources:
        raise UserError(f"a sampling key is needed for each source: got {len(keys)} for {sources} sources")
    if not sources:
        return []
    if on_token is not None:
        config.refuse_many_hypotheses()
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
            outcomes = follow(
                decoder, state, prefixes, bos=bos, eos=eos, config=config, need_attention=need_attention,
                trace=need_trace,
            )  # fmt: skip
            if config.sample:
                outcomes = [Result(result.hypotheses * config.samples, result.trace) for result in outcomes]
        else:
            names = members if keys is None else [keys[source] for source in members]
            limit = most[members]
            chooser: Chooser = Sampler(config, names, eos) if config.sample else Beam(config, limit, eos, need_trace)
            opening = np.array([[bos, *tokens] for tokens in prefixes])
            rules = (*build_rules(config, eos), *(further(most) if further is not None else ()))
            rows = DecoderRows(
                decoder, state, opening, members=members, rules=rules, eos=eos, need_attention=need_attention,
                single=config.sample or config.beam == 1,
            )  # fmt: skip
            report = None if on_token is None else TokenReport(members, prefixes, on_token)
            outcomes = _run(rows, chooser, prefixes, limit, on_step, report).results(config, need_trace)
        for source, result in zip(members, outcomes, strict=True):
            results[source] = result
    return [result for result in results if result is not None]


def _run(
    rows: DecoderRows,
    chooser: Chooser,
    forced: Sequence[tuple[int, ...]],
    limits: np.ndarray,
    on_step: Callable[[], None] | None,
    report: TokenReport | None,
) -> SearchRecord:
    """Search until every source is done. The sources in ``rows`` have prefixes of one length."""
    attention = rows.attention()  # (B, k, T, A, S)
    record = SearchRecord(forced)
    looked = None if attention is None else attention[:, 0, :-1]
    record.force(np.array(forced, np.int64).reshape(len(forced), -1), rows.forced, looked)
    totals = rows.forced.sum(1, keepdims=True, dtype=np.float64)  # (B, k) sums of the live rows; -inf: no such row
    if not (totals > -np.inf).all():
        raise UserError("a forced prefix is impossible for this model (probability zero); give another")
    active = np.arange(len(forced))  # which sources the rows belong to
    alive = np.ones(len(forced), bool)  # which of them are not done
    origin = np.zeros(totals.shape, np.int64)  # (B, k) which candidates of the last step the rows are
    length = len(forced[0])
    while True:
        if on_step is not None:
            on_step()
        length += 1
        candidates = chooser.choose(rows, totals, active)
        looked = None if attention is None else attention[:, :, -1]
        record.add(RecordedStep(active, origin, (totals > -np.inf).sum(1), candidates, looked), alive)
        if report is not None:
            report.add(candidates, active, alive)
        kept = candidates.fate == KEPT  # (B, C)
        continues = kept.any(1)
        cut = (limits[active] <= length) & continues
        if cut.any():
            record.cut(cut[alive])
        alive = continues & ~cut & ~chooser.satisfied(candidates, active, length)
        count = int(alive.sum())
        if not count:
            return record
        leaves = (len(alive) - count) * LEAVING >= len(alive)
        going = np.flatnonzero(alive) if leaves else np.arange(len(alive))  # the sources whose rows continue
        kept = kept[going] & alive[going, None]
        origin = np.argsort(~kept, axis=1, kind="stable")[:, : kept.sum(1).max()]  # the live ones, in their order
        which = going[:, None], origin
        totals = np.where(kept[np.arange(len(going))[:, None], origin], candidates.total[which], -np.inf)
        active, alive = active[going], alive[going]
        rows.advance(going, candidates.parent[which], candidates.token[which])
        attention = rows.attention()


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
