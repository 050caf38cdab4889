"""The rule that an output contains the phrases that its source requires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dragoman.search.constraints.phrases import Phrase, PhraseWriter, Status
from dragoman.search.rules import NOTHING, Bans, LeadingRule, allow_only


class RequirePhrases(LeadingRule):
    """Forbid the end until every phrase is there, and all else when only as many tokens are left as they need."""

    def __init__(
        self, writer: PhraseWriter, phrases: Mapping[int, Sequence[Phrase]], limits: np.ndarray, eos: int
    ) -> None:
        """``phrases`` are those of each source, by its number; ``limits`` (B,) the most tokens of its outputs."""
        self._writer, self._phrases, self._limits, self._eos = writer, phrases, limits, eos
        self._known: dict[tuple[int, bytes, int], Status] = {}
        self._produced = 0

    def start(self, sources: Sequence[int], prefixes: np.ndarray) -> None:
        first = self._writer.spelling.start
        self._rows = [(source, b"", first) for source in sources]
        self._led: list[int | None] = [None] * len(self._rows)  # how many phrases were missing when leading began
        self._produced = 0
        for column in prefixes.T:
            self.advance(np.arange(len(prefixes)), column)

    def advance(self, parents: np.ndarray, tokens: np.ndarray) -> None:
        pairs = list(zip(parents.tolist(), tokens.tolist(), strict=True))
        self._led = [self._led[parent] for parent, _ in pairs]
        self._rows = [self._extend(parent, token) for parent, token in pairs]
        self._produced += 1
        for row, began in enumerate(self._led):
            if began is not None and self._status(row).unmet < began:
                self._led[row] = None

    def _extend(self, row: int, token: int) -> tuple[int, bytes, int]:
        source, text, view = self._rows[row]
        if source not in self._phrases:
            return self._rows[row]
        spelling = self._writer.spelling
        added = spelling.spelled[view][token]
        return self._rows[row] if added is None else (source, text + added, int(spelling.after[view, token]))

    def _status(self, row: int) -> Status:
        return self._look(self._rows[row])

    def _look(self, state: tuple[int, bytes, int]) -> Status:
        if state not in self._known:
            source, text, view = state
            self._known[state] = self._writer.status(self._phrases[source], text, view)
        return self._known[state]

    def bans(self) -> Bans:
        """Forbid the end, or all but what leads to the phrases where no token can be spared."""
        rows, tokens = [], []
        unmet = []
        for row, (source, _, _) in enumerate(self._rows):
            if source not in self._phrases:
                continue
            status, left = self._status(row), int(self._limits[source]) - self._produced
            if status.need:
                unmet.append(row)
            if left <= status.reserve:
                rows.append(row)
                needs = {token: self.need_after(row, token) for token in status.proposals}
                closer = [token for token, need in needs.items() if need < status.need]
                # what leads nearer to a phrase, so that no token is lost on another beginning
                enough = [token for token in closer or needs if needs[token] + 1 <= left - 1]
                tokens.append(np.array(enough if status.need else [self._eos], np.int64))
        restricted = allow_only(rows, tokens)
        return Bans(
            NOTHING, np.array(unmet, np.int64), np.full(len(unmet), self._eos), restricted.restricted,
            restricted.allowed_rows, restricted.allowed_tokens,
        )  # fmt: skip

    def is_bound(self, row: int) -> bool:
        return self._rows[row][0] in self._phrases and self._status(row).reserve > 0

    def proposals(self, row: int) -> Sequence[int]:
        """Return the tokens that lead a row to what it needs, each nearer than now."""
        if not self.is_bound(row):
            return ()
        status = self._status(row)
        return [token for token in status.proposals if self.need_after(row, token) < status.need]

    def need_after(self, row: int, token: int) -> int:
        if self._rows[row][0] not in self._phrases:
            return 0
        return self._status(row).need if token == self._eos else self._look(self._extend(row, token)).need

    def lead(self, row: int) -> None:
        if self._led[row] is None:
            self._led[row] = self._status(row).unmet

    def is_led(self, row: int) -> bool:
        return self._led[row] is not None
