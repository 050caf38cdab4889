"""Greedy, sampled, forced and beam search over anything that answers as a decoder does."""

from __future__ import annotations

from dragoman.search.combined import Ensemble, Fusion, Renumbered
from dragoman.search.ctc_prefix import CTCPrefix, WithCTC
from dragoman.search.options import SearchConfig
from dragoman.search.paths import force, told_by
from dragoman.search.rows import Decodes
from dragoman.search.rules import Rule
from dragoman.search.run import search
from dragoman.search.running import force_running
from dragoman.search.trace import Result

__all__ = [
    "CTCPrefix",
    "Decodes",
    "Ensemble",
    "Fusion",
    "Renumbered",
    "Result",
    "Rule",
    "SearchConfig",
    "WithCTC",
    "force",
    "force_running",
    "search",
    "told_by",
]
