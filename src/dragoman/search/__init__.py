"""Greedy, sampled, forced and beam search over anything that answers as a decoder does."""

from __future__ import annotations

from dragoman.search.options import SearchConfig
from dragoman.search.paths import force
from dragoman.search.rules import Rule
from dragoman.search.run import search
from dragoman.search.running import force_running
from dragoman.search.trace import Result

__all__ = ["Result", "Rule", "SearchConfig", "force", "force_running", "search"]
