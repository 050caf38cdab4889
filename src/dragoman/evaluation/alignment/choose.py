"""Choose the attention map, and the row of it, that say best where the words of an output come from.

For texts, by agreement with confident pairs of IBM Model 1 on dev rows: the model's own outputs are aligned with every
candidate, and the one that links the most of these pairs is kept. A decoder may look at the source of a token either
when it predicts it or when it has read it (Chen et al. 2020), and a recurrent encoder may keep a token in the state
beside it, so rows or positions may be moved by one. For recordings without CTC, by the weight on a monotone path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dragoman.data.corpus.mapped.rows import sample_numbers
from dragoman.data.examples import Example, references
from dragoman.errors import UserError
from dragoman.evaluation.alignment.ibm1 import Texts, WordPairs
from dragoman.inference.alignment.aligner import InputAligner, TextMaps, can_align
from dragoman.inference.alignment.links import join_source, join_target, move
from dragoman.inference.alignment.timings import path_weight
from dragoman.inference.alignment.units import choose_units, split_units
from dragoman.inference.predictions import Output
from dragoman.inference.session import Session
from dragoman.inference.system import System
from dragoman.runs.alignment import AlignmentChoice
from dragoman.types import Hypothesis

MOST_PAIRS = 5000  # of the training data
MOST_ROWS = 200  # of dev
FEWEST_LINKS = 20  # confident ones; with fewer nothing is chosen
TOLERANCE = 0.003  # share of the links that a simpler candidate may lack
LEAST = 0.5  # share of the links; with less the default is kept
CHANCE = 2  # links that it may lack besides: so many are right by chance
MOVED = 0.02  # share of the links that a candidate with moved rows or positions has to give more
BATCH = 16  # rows that are answered together; with all maps they need much memory


class Place(NamedTuple):
    """How rows and positions of a map are moved."""

    shift: int
    offset: int


# The simplest first. Not both moved at once: where a source is read from left to right, that would undo itself.
PLACES = (Place(0, 0), Place(1, 0), Place(0, -1), Place(0, 1))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to read an alignment."""

    maps: tuple[int, ...]  # none: all
    place: Place


def choose_alignment(system: System, pairs: Sequence[Example], dev: Sequence[Example]) -> AlignmentChoice | None:
    """Return how to read the alignments of a run, by its own pairs and some dev rows; None: there is no choice.

    There is none for a model without attention, where times come from CTC, for a recording and a single map, for
    pictures, and if there are too few confident links.
    """
    session = system.session(beam=1, n_best=1)
    if not can_align(session) or not system.engine.has_attention or not dev:
        return None
    texts = [name for name, modality in system.modalities.items() if modality.tokenizer is not None]
    picked = [pairs[number] for number in sample_numbers(len(pairs), MOST_PAIRS)]
    groups = references(dev)
    sources = [dict(groups[number][0]) for number in sample_numbers(len(groups), MOST_ROWS)]
    if texts:
        return _choose_by_links(session, _units_of(system, texts, picked), sources)
    if system.engine.has_ctc or not all(modality.is_timed for modality in system.modalities.values()):
        return None
    return _choose_by_paths(session, sources)


def _units_of(system: System, names: Sequence[str], examples: Sequence[Example]) -> list[Texts]:
    """Return the units of the texts of some examples, as they are aligned."""
    target = system.target
    tokenizers = [modality.tokenizer for name in names if (modality := system.modalities[name]).tokenizer is not None]
    source_kind, target_kind = choose_units([each for each in tokenizers if each is not None], target)
    found: list[Texts] = []
    for example in examples:
        ours = [
            text[begin:end] for name in names for text in [example.sources[name]]
            for begin, end in split_units(text, source_kind)
        ]  # fmt: skip
        theirs = [example.target[begin:end] for begin, end in split_units(example.target, target_kind)]
        found.append((ours, theirs))
    return found


def _choose_by_links(
    session: Session, pairs: Sequence[Texts], sources: Sequence[dict[str, str]]
) -> AlignmentChoice | None:
    words = WordPairs.learn(pairs)
    layers = _layers(session.system)
    right: dict[Candidate, int] = {}
    total = rows = 0
    for aligner, output, hypothesis in _answers(session, sources):
        maps = aligner.text_maps(output, hypothesis.tokens)
        pairs_here = words.confident_pairs([text for units in maps.sources for text in units.texts], maps.target.texts)
        total += sum(min(map(len, pair)) for pair in pairs_here)
        rows += bool(pairs_here)
        for place in PLACES if pairs_here else ():
            moved = _unit_weights(maps, place)  # (A, target units, source units)
            for group in _groups(len(moved), layers):
                best = (moved[list(group)] if group else moved).mean(0).argmax(1).tolist()  # of each target unit
                candidate = Candidate(group, place)
                right[candidate] = right.get(candidate, 0) + sum(_count_right(best, *pair) for pair in pairs_here)
    if total < FEWEST_LINKS:
        return None
    return _best({candidate: count / total for candidate, count in right.items()}, "ibm1", total, rows)


def _count_right(best: Sequence[int], sources: Sequence[int], targets: Sequence[int]) -> int:
    """Return how many links of a pair of units are right.

    Where the source unit is in several places, a link to any of them is, but not two links to the same one. So a map
    that looks for equal letters, and not for places, is found out.
    """
    return min(len({best[target] for target in targets} & set(sources)), len(targets))


def _choose_by_paths(session: Session, sources: Sequence[dict[str, str]]) -> AlignmentChoice | None:
    """Choose the map with the largest weight on a monotone path. It does not tell which rows to read."""
    layers = _layers(session.system)
    weight: dict[Candidate, float] = {}
    total = rows = 0
    for _, output, hypothesis in _answers(session, sources):
        assert output.attention is not None
        maps = output.attention.transpose(1, 0, 2)  # (A, T, S)
        tokens = len(hypothesis.tokens) - hypothesis.finished  # the end symbol is nowhere in the recording
        if not tokens or len(maps) == 1:
            continue
        total, rows = total + tokens, rows + 1
        for group in _groups(len(maps), layers):
            chosen = maps[list(group), :tokens].mean(0) if group else maps[:, :tokens].mean(0)
            candidate = Candidate(group, PLACES[0])
            weight[candidate] = weight.get(candidate, 0.0) + path_weight(chosen)
    if total < FEWEST_LINKS:
        return None
    return _best({candidate: min(1.0, value / total) for candidate, value in weight.items()}, "path", total, rows)


def _answers(session: Session, sources: Sequence[dict[str, str]]) -> Iterator[tuple[InputAligner, Output, Hypothesis]]:
    """Yield the best output for each source that can be answered, with what aligns it."""
    for begin in range(0, len(sources), BATCH):
        inputs = []
        for prepared in session.prepare_all(sources[begin : begin + BATCH]):
            try:
                inputs += [] if prepared.is_empty else [prepared.read()]
            except UserError:  # a file that is gone: it says nothing
                continue
        if not inputs:
            continue
        results = session.search_each(inputs, keys=list(range(len(inputs))), attention=True, trace=False)
        for prepared, result in zip(inputs, results, strict=True):
            if isinstance(result, Exception) or not result.hypotheses or result.hypotheses[0].attention is None:
                continue
            prediction = session.describe(prepared, result, trace=False)
            yield InputAligner(session, prepared, prediction.axes), prediction.outputs[0], result.hypotheses[0]


def _unit_weights(maps: TextMaps, place: Place) -> np.ndarray:
    moved = move(maps.attention.transpose(1, 0, 2), *place)  # (A, T, S)
    return join_source(join_target(moved, maps.target), maps.sources)


def _layers(system: System) -> int:
    return system.model.decoder.map_shape[0]


def _groups(maps: int, layers: int) -> list[tuple[int, ...]]:
    """Return the maps that may be averaged, the simplest first: all, those of a layer, each alone."""
    heads = maps // layers if layers else maps
    groups: list[tuple[int, ...]] = [()]
    if layers > 1 and heads > 1:
        groups += [tuple(range(layer * heads, (layer + 1) * heads)) for layer in range(layers)]
    return groups + ([(number,) for number in range(maps)] if maps > 1 else [])


def _best(shares: dict[Candidate, float], method: str, links: int, rows: int) -> AlignmentChoice:
    """Return the best candidate; of those that are nearly as good, the first, which is the simplest.

    A candidate whose rows or positions are moved has to be clearly better than all others.
    """
    values = {each: share - MOVED * (each.place != PLACES[0]) for each, share in shares.items()}
    enough = max(values.values()) - TOLERANCE - CHANCE / links
    order = sorted(shares, key=lambda each: (PLACES.index(each.place), len(each.maps) == 1))
    chosen = next(candidate for candidate in order if values[candidate] >= enough)
    default = Candidate((), PLACES[0])
    if method == "ibm1" and shares[chosen] < LEAST:  # none of them is an alignment
        chosen = default
    return AlignmentChoice(
        chosen.maps, *chosen.place, method, round(shares[chosen], 4), round(shares[default], 4), links, rows
    )
