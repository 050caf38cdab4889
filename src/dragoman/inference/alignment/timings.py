"""When each unit of an output is heard in a recording.

CTC gives times by forced alignment: the most probable path of labels and blanks that spells the output (Graves et al.
2006, section 3; Viterbi). Attention gives them by a division of all positions among the tokens, in order, with the
largest product of weights; of its share, a token has what is around its largest weight and at least a tenth of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np

from dragoman.data.vocabulary import BLANK
from dragoman.errors import UserError
from dragoman.inference.alignment.units import UnitKind, Units

MadeFrom: TypeAlias = Literal["ctc", "attention"]
TimeUnit: TypeAlias = Literal["seconds", "frames"]
Stretch: TypeAlias = tuple[int, int]  # of positions: the first, and the one after the last

TENTH = 0.1  # of its largest weight: where a token begins and ends
LEAST = 1e-3  # what is added to a weight, so that none makes a division impossible


@dataclass(frozen=True, slots=True)
class Timing:
    """A unit of an output with its begin and end."""

    text: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True, repr=False)
class Timings:
    """When each unit of an output is heard."""

    unit: UnitKind
    units: tuple[Timing, ...]  # in order; none begins before the one before it ends
    duration: float  # of the whole recording
    path: str  # of the file
    made_from: MadeFrom
    time_unit: TimeUnit = "seconds"  # frames: of a feature sequence, of which nobody says how long one lasts

    def __repr__(self) -> str:
        shown = ", ".join(f"{each.text!r} {each.begin:g}–{each.end:g}" for each in self.units[:3])
        more = ", …" if len(self.units) > 3 else ""
        return f"Timings({len(self.units)} {self.unit}s in {self.duration:g} {self.time_unit}: {shown}{more})"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with the begin and end of each unit."""
        units = [{"text": each.text, "begin": each.begin, "end": each.end} for each in self.units]
        head = {"unit": self.unit, "time_unit": self.time_unit, "duration": self.duration, "from": self.made_from}
        return head | {"units": units}

    def to_ctm(self) -> str:
        """Return lines of a CTM file: recording, channel, begin, duration, word."""
        from dragoman.inference.alignment.formats import write_ctm

        return write_ctm(self._in_seconds())

    def to_srt(self) -> str:
        """Return subtitles."""
        from dragoman.inference.alignment.formats import write_srt

        return write_srt(self._in_seconds())

    def to_textgrid(self) -> str:
        """Return a TextGrid of Praat, with one tier."""
        from dragoman.inference.alignment.formats import write_textgrid

        return write_textgrid(self._in_seconds())

    def _in_seconds(self) -> Timings:
        if self.time_unit != "seconds":
            raise UserError(
                f"{self.path}: a feature sequence does not say how long a frame lasts, so its times are in frames and "
                "cannot be written in this format; ask for JSON"
            )
        return self


def time_units(target: Units, stretches: Sequence[Stretch | None], step: float, duration: float) -> list[Timing]:
    """Return when the units are heard whose tokens have these stretches of positions.

    ``step``: how long a position lasts. A token without a stretch says nothing about its unit.
    """
    timings = []
    last = 0.0
    for number, text in enumerate(target.texts):
        tokens = np.flatnonzero(target.shares[:, number]).tolist()
        own = [stretch for token in tokens if (stretch := stretches[token]) is not None]
        begin = min((first for first, _ in own), default=0) * step if own else last
        end = max((after for _, after in own), default=0) * step if own else last
        begin = min(max(begin, last), duration)
        end = min(max(end, begin), duration)
        timings.append(Timing(text, round(begin, 4), round(end, 4)))
        last = end
    return timings


def ctc_stretches(log_probs: np.ndarray, tokens: Sequence[int]) -> list[Stretch] | None:
    """Return the states that emit each token on the most probable path; None: there are too few states.

    ``log_probs`` (S, V) of the labels at each state.
    """
    needed = len(tokens) + sum(first == second for first, second in pairwise(tokens))
    states = len(log_probs)
    if not tokens or states < needed:
        return None if tokens else []
    labels = np.full(2 * len(tokens) + 1, BLANK)
    labels[1::2] = tokens
    may_skip = np.zeros(len(labels), bool)  # over the blank between two tokens that differ
    may_skip[2:] = (labels[2:] != BLANK) & (labels[2:] != labels[:-2])
    emission = log_probs[:, labels]  # (S, 2 T + 1)
    score = np.full(len(labels), -np.inf)
    score[:2] = emission[0, :2]
    back = np.zeros((states, len(labels)), np.int8)
    for state in range(1, states):
        before = np.full((3, len(labels)), -np.inf)
        before[0] = score
        before[1, 1:] = score[:-1]
        before[2, 2:] = np.where(may_skip[2:], score[:-2], -np.inf)
        back[state] = before.argmax(0)
        score = before.max(0) + emission[state]
    place = len(labels) - 1 if score[-1] >= score[-2] else len(labels) - 2
    if not np.isfinite(score[place]):
        return None
    path = np.empty(states, np.int64)
    for state in range(states - 1, -1, -1):
        path[state] = place
        place -= back[state, place]
    found = []
    for number in range(len(tokens)):
        own = np.flatnonzero(path == 2 * number + 1)
        found.append((int(own[0]), int(own[-1]) + 1))
    return found


def attention_stretches(weights: np.ndarray) -> list[Stretch]:
    """Return the positions of each row of weights (T, S): of its share, those around its largest weight."""
    rows, positions = weights.shape
    if positions < rows or not rows:
        return [(peak, peak + 1) for peak in monotone_peaks(weights)]
    owners = divide_positions(weights)
    found: list[Stretch] = []
    for row in range(rows):
        share = np.flatnonzero(owners == row)
        begin = peak = int(share[weights[row, share].argmax()])
        end = peak + 1
        enough = TENTH * weights[row, peak]
        while begin > share[0] and weights[row, begin - 1] >= enough:
            begin -= 1
        while end <= share[-1] and weights[row, end] >= enough:
            end += 1
        found.append((begin, end))
    return found


def divide_positions(weights: np.ndarray) -> np.ndarray:
    """Return the row of weights (T, S) that each position belongs to, (S,): in order, at least one to each row.

    It is the division with the largest product of weights, by Viterbi. There are at least as many positions as rows.
    """
    rows, positions = weights.shape
    gain = np.log(weights.astype(np.float64) + LEAST)
    score = np.full(rows, -np.inf)
    score[:1] = gain[:1, 0]
    is_new = np.zeros((positions, rows), bool)  # a row begins at this position
    for place in range(1, positions):
        before = np.concatenate([[-np.inf], score[:-1]])
        is_new[place] = before > score
        score = np.maximum(score, before) + gain[:, place]
    owners = np.zeros(positions, np.int64)
    row = rows - 1
    for place in range(positions - 1, -1, -1):
        owners[place] = row
        row -= int(is_new[place, row])
    return owners


def monotone_peaks(weights: np.ndarray) -> list[int]:
    """Return one position for each row of weights (T, S), none before the last, with the largest sum of weights.

    Each is after the one before it, as long as there are as many positions as rows.
    """
    rows, positions = weights.shape
    if not rows or not positions:
        return []
    step = 1 if positions >= rows else 0
    score = weights[0].astype(np.float64)
    back = np.zeros((rows, positions), np.int64)
    for row in range(1, rows):
        best = np.maximum.accumulate(score)  # of the positions up to each
        places = np.where(score == best, np.arange(positions), 0)
        first = np.maximum.accumulate(places)
        reached = np.full(positions, -np.inf)
        reached[step:] = best[: positions - step]
        back[row, step:] = first[: positions - step]
        score = reached + weights[row]
    place = int(score.argmax())
    peaks = [place]
    for row in range(rows - 1, 0, -1):
        place = int(back[row, place])
        peaks.append(place)
    return peaks[::-1]


def path_weight(weights: np.ndarray) -> float:
    """Return the sum of weights (T, S) on the best monotone path."""
    return float(weights[np.arange(len(weights)), monotone_peaks(weights)].sum()) if weights.size else 0.0
