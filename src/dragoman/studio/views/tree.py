"""The candidates of a search, step by step."""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np

from dragoman.studio import records
from dragoman.studio.inspection import Inspection
from dragoman.studio.records import PredictRequest
from dragoman.studio.views.reference import describe_reference, encode_reference, follow_path, lowest_taken
from dragoman.studio.views.runs import describe_search
from dragoman.studio.views.tokens import permitted_mask
from dragoman.types import FINISHED, KEPT, PRUNED


def describe_tree(inspection: Inspection, request: PredictRequest, run: str = "") -> records.Tree:
    """Describe the recorded search, with the path of the reference if the request has one."""
    session, trace = inspection.session, inspection.result.trace
    reference, reference_path = None, []
    tokens = encode_reference(inspection.system, request.reference)
    if tokens and request.reference:
        (forced,) = session.force(inspection.prepared, [tokens], permitted=partial(permitted_mask, session))
        reference = describe_reference(inspection, request.reference, forced)
        reference_path = follow_path(inspection, tokens)
    steps: list[list[records.Node]] = []
    parents: list[int] = []  # ids of the candidates that the step extends
    next_id = 0
    for step, frontier in enumerate(trace.steps):
        lowest = lowest_taken(frontier)
        shown = inspection.system.token_probabilities(frontier.log_prob)
        shown /= np.maximum(1.0, np.bincount(frontier.parent, shown))[frontier.parent]  # never more than 100 % together
        is_last = step == len(trace.steps) - 1 and len(trace.steps) >= inspection.length_limit
        nodes = []
        for index, text in enumerate(inspection.system.target.pieces(frontier.token.tolist())):
            total = float(frontier.total[index])
            nodes.append(
                records.Node(
                    id=next_id + index,
                    parent=parents[int(frontier.parent[index])] if parents else None,
                    token=int(frontier.token[index]),
                    text=text,
                    log_prob=float(frontier.log_prob[index]),
                    probability=float(shown[index]),
                    total=total,
                    score=total / session.config.penalty(step + 1),
                    fate=_name_fate(int(frontier.fate[index]), is_last),
                    margin=lowest - total if frontier.fate[index] == PRUNED else None,
                    outputs=[
                        number
                        for number, hypothesis in enumerate(inspection.result.hypotheses)
                        if step < len(hypothesis.path) and hypothesis.path[step] == index
                    ],
                    reference=step < len(reference_path) and reference_path[step] == index,
                )
            )
        parents = [next_id + int(index) for index in frontier.kept]
        next_id += len(nodes)
        steps.append(nodes)
    return records.Tree(
        run=run,
        steps=steps,
        forced=len(trace.prefix),
        search=describe_search(session.config),
        outputs=[output.text for output in inspection.prediction.outputs],
        reference=reference,
    )


def _name_fate(fate: int, is_last: bool) -> Literal["pruned", "kept", "finished", "cut"]:
    """Name what became of a candidate.

    ``is_last``: no output may be longer, so that what was kept is cut off.
    """
    if fate == FINISHED:
        return "finished"
    if fate == KEPT:
        return "cut" if is_last else "kept"
    return "pruned"
