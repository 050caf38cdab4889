"""What a worker does with a continuous batch: inputs enter and leave while others are computed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from dragoman.errors import UserError
from dragoman.inference.arrivals import Arrival, Changes
from dragoman.inference.constraints import OPTIONS as CONSTRAINTS
from dragoman.inference.predictions import Prediction, withhold_unsure
from dragoman.inference.session import Session
from dragoman.inference.system import split_options
from dragoman.serving.compute import (
    CANCELLED,
    Answered,
    Item,
    Refused,
    Task,
    check_size,
    describe_prediction,
    refuse,
    to_json,
)
from dragoman.serving.limits import Limits
from dragoman.serving.models import Models

# Inputs of a continuous batch that have come since the last call, and those that nobody waits for any more.
Receive = Callable[[], tuple[Mapping[int, Item], Sequence[int]]]
Deliver = Callable[[Mapping[int, Answered]], None]
CONTINUOUS = ("attention", "alignments", "align_unit", "prefix", "abstain")  # options of inputs that may join others
REMEMBERED, LONGEST = 1_000, 4_000  # tasks that were found to be continuous or not; characters of their options


def find_continuous(models: Models) -> Callable[[Task], bool]:
    """Return ``is_continuous`` for these models, which remembers what it has found. Long options are not looked at."""
    remembered = lru_cache(REMEMBERED)(partial(is_continuous, models))
    return lambda task: len(task.options) <= LONGEST and remembered(task)


def is_continuous(models: Models, task: Task) -> bool:
    """Tell whether inputs of a task may join others that are being computed."""
    options = json.loads(task.options)
    if task.verb == "score" or task.is_followed or any(name in options for name in CONSTRAINTS):
        return False
    try:
        asked, settings = split_options(options)
        session = models.by_id[task.model].system.session(**settings)
    except UserError:
        return False  # whoever computes it says why
    if any(value for name, value in asked.items() if name not in CONTINUOUS):
        return False
    return session.takes_arrivals(prefix=asked.get("prefix"))


def compute_continuously(
    models: Models, limits: Limits, task: Task, first: Mapping[int, Item], receive: Receive, deliver: Deliver
) -> None:
    """Answer inputs, and those that come while they are computed, each as it is done, until no more come."""
    try:
        session, asked = models.sessions.find(task.model, models.by_id[task.model].system, task.options)
    except UserError as error:  # of the options, which all of them share
        deliver({index: refuse(error, item) for index, item in first.items()})
        return
    added = first
    while added:
        _Continuous(session, asked, limits, task, added, receive, deliver).run()
        added, _ = receive()  # some may have come while the last answers were sent


class _Continuous:
    """Inputs of one task that are computed while others come and go."""

    def __init__(
        self,
        session: Session,
        asked: Mapping[str, Any],
        limits: Limits,
        task: Task,
        first: Mapping[int, Item],
        receive: Receive,
        deliver: Deliver,
    ) -> None:
        self.session, self.limits, self.task = session, limits, task
        self.options = {name: value for name, value in asked.items() if name in CONTINUOUS and name != "abstain"}
        self.abstain = asked.get("abstain")  # the answer has the note that the session would warn of
        self.first, self.receive, self.deliver = first, receive, deliver
        self.items: dict[int, Item] = {}  # that are computed
        self.ready: dict[int, Answered] = {}  # sent together before the next token

    def run(self) -> None:
        """Compute until all inputs are answered and no more come."""
        try:
            for index, found in self.session.answer_arrivals(self._feed, batch=self.limits.batch, **self.options):
                self.ready[index] = self._describe(found, self.items.pop(index))
        except UserError as error:  # of the options, which all of them share
            self.ready |= {index: refuse(error, item) for index, item in (*self.first.items(), *self.items.items())}
        self._send()

    def _send(self) -> None:
        if self.ready:
            ready, self.ready = self.ready, {}
            self.deliver(ready)

    def _feed(self) -> Changes:
        self._send()
        added, gone = (self.first, ()) if self.first else self.receive()
        self.first = {}
        arrived = []
        for index, item in added.items():
            try:
                prepared = self.session.prepare(item.source)
            except UserError as error:
                self.ready[index] = refuse(error, item)
                continue
            if (refused := check_size(prepared, self.limits)) is not None:
                self.ready[index] = refused
                continue
            self.items[index] = item
            arrived.append(Arrival(index, prepared, item.key))
        for index in gone:
            if self.items.pop(index, None) is not None:
                self.ready[index] = Refused(503, CANCELLED)
        return Changes([each for each in arrived if each.index in self.items], gone)

    def _describe(self, found: Prediction | UserError, item: Item) -> Answered:
        if isinstance(found, UserError):
            return refuse(found, item)
        shows_attention = bool(self.options.get("attention"))
        prediction = withhold_unsure(found, self.abstain)
        try:
            return to_json(describe_prediction(prediction, item, self.task.verb, shows_attention, self.limits))
        except UserError as error:
            return refuse(error, item)
