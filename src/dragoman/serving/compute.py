"""What a worker does: answer a batch of inputs, of whichever requests they are, with one call of a session."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dragoman.data.corpus.files import PendingFile
from dragoman.errors import UserError
from dragoman.inference.predictions import Prediction, Raw, Scored, withhold_unsure
from dragoman.inference.requests import PreparedInput
from dragoman.inference.session import Session
from dragoman.inference.steps import SearchCancelled
from dragoman.serving.limits import Limits, RequestRefused
from dragoman.serving.models import Models

Emit = Callable[[int, bytes], None]  # the place of an input in its batch, and an event for its client
CANCELLED = "the question was cancelled"


@dataclass(frozen=True)
class Task:
    """What is asked of a model. Inputs with the same task are computed together."""

    verb: Literal["predict", "translate", "score"]
    model: str
    options: str = "{}"  # of System.predict, as JSON with sorted keys
    is_followed: bool = False  # the client gets each token as it is found


@dataclass(frozen=True)
class Item:
    """One input of a request."""

    source: Raw
    key: int = 0  # its place in the request, which seeds sampling
    target: str | None = None  # to score
    names: Mapping[str, str] = field(default_factory=dict)  # of uploaded files, by the path that each was stored under


@dataclass(frozen=True)
class Refused:
    """An input that is not answered."""

    status: int
    sentence: str


Answered = bytes | Refused  # JSON, or why there is none


def compute(
    models: Models, limits: Limits, task: Task, items: Sequence[Item], emit: Emit, cancelled: Callable[[], bool]
) -> list[Answered]:
    """Answer a batch of inputs. A mistake in one of them does not keep the others from being answered."""
    system = models.by_id[task.model].system
    try:
        session, options = models.sessions.find(task.model, system, task.options)
    except UserError as error:  # of the options, which all of them share
        return [Refused(400, str(error))] * len(items)
    try:
        return _compute_together(session, dict(options), limits, task, items, emit, cancelled)
    except SearchCancelled:
        return [Refused(503, CANCELLED)] * len(items)
    except UserError as error:
        if len(items) == 1:
            return [refuse(error, items[0])]
    answers: list[Answered] = []
    for place, item in enumerate(items):

        def emit_own(_: int, event: bytes, place: int = place) -> None:
            emit(place, event)

        answers += compute(models, limits, task, [item], emit_own, cancelled)
    return answers


def refuse(error: UserError, item: Item) -> Refused:
    """Return the refusal of an input that has a mistake."""
    return Refused(error.status if isinstance(error, RequestRefused) else 400, _rename(str(error), item))


def _compute_together(
    session: Session,
    options: dict[str, Any],
    limits: Limits,
    task: Task,
    items: Sequence[Item],
    emit: Emit,
    cancelled: Callable[[], bool],
) -> list[Answered]:
    if task.verb == "score":
        return _score(session, limits, items, cancelled)
    shows_attention = bool(options.get("attention"))
    answers: dict[int, Answered] = {}
    readable: dict[int, PreparedInput] = {}
    for place, item in enumerate(items):
        prepared = session.prepare(item.source)
        if (refused := check_size(prepared, limits)) is not None:
            answers[place] = refused
        else:
            readable[place] = prepared
    places = list(readable)

    def report(row: int, token: str, text: str) -> None:
        place = places[row]
        emit(place, to_json({"index": items[place].key, "token": token, "text": text}))

    abstain = options.pop("abstain", None)  # the answer has the note that the session would warn of
    predictions = session.predict(
        list[Any](readable.values()),  # prepared inputs are taken as they are
        **{"attention": False, "trace": False, "batch": limits.batch, "keys": [items[place].key for place in places]}
        | options,
        cancelled=cancelled,
        on_token=report if task.is_followed else None,
    )
    for place, prediction in zip(places, predictions, strict=True):
        prediction = withhold_unsure(prediction, abstain)
        answers[place] = to_json(describe_prediction(prediction, items[place], task.verb, shows_attention, limits))
    return [answers[place] for place in range(len(items))]


def describe_prediction(
    prediction: Prediction, item: Item, verb: str, shows_attention: bool, limits: Limits
) -> dict[str, Any]:
    """Return a prediction as a ``records.PredictionAnswer``; for ``translate``, its texts alone."""
    if verb == "translate":
        return {"texts": [output.text for output in prediction.outputs], "error": prediction.error}
    if shows_attention:
        weights = sum(output.attention.size for output in prediction.outputs if output.attention is not None)
        limits.check("weights", weights, "attention weights of an answer")
    described = prediction.to_json()
    del described["source"]  # the client has it; of a file, it is a path of this machine
    if not shows_attention:  # which alignments are read from
        del described["labels"], described["sources"]
        for output in described["outputs"]:
            output.pop("attention", None)
    if prediction.error is not None:
        described["error"] = _rename(prediction.error, item)
    return described


def _score(session: Session, limits: Limits, items: Sequence[Item], cancelled: Callable[[], bool]) -> list[Answered]:
    answers: dict[int, Answered] = {}
    readable: dict[int, PreparedInput] = {}
    for place, item in enumerate(items):
        prepared = session.prepare(item.source)
        refused = check_size(prepared, limits)
        if refused is None and prepared.problem is not None:
            refused = Refused(400, prepared.problem)
        if refused is not None:
            answers[place] = refused
        else:
            readable[place] = prepared

    def check() -> None:
        if cancelled():
            raise SearchCancelled("the question was cancelled")

    if readable:
        targets = [items[place].target or "" for place in readable]
        is_language_model = session.system.is_language_model
        scored = session.score(
            list[Any](readable.values()),
            None if is_language_model else targets,
            batch=limits.batch,
            running=False if is_language_model else None,
            on_batch=check,
        )
        for place, each in zip(readable, scored, strict=True):
            answers[place] = to_json(describe_scored(each))
    return [answers[place] for place in range(len(items))]


def describe_scored(scored: Scored) -> dict[str, Any]:
    """Return a scored target as a ``records.ScoredAnswer``."""
    return {
        "log_prob": scored.log_prob,
        "perplexity": scored.perplexity,
        "tokens": scored.tokens,
        "log_probs": scored.log_probs,
    }


def check_size(prepared: PreparedInput, limits: Limits) -> Refused | None:
    """Refuse an input of too many tokens or frames before anything is computed for it."""
    if prepared.problem is not None:
        return None  # its answer says so
    try:
        for name, feature in prepared.features.items():
            is_file = isinstance(feature, PendingFile)  # its header tells how long it is
            noun = "frames" if is_file else "tokens"
            limits.check(noun, len(feature), f"{noun} of {name}")
    except RequestRefused as refusal:
        return Refused(refusal.status, str(refusal))
    except UserError:
        return None  # a file that cannot be read: its answer says so
    return None


def _rename(sentence: str, item: Item) -> str:
    """Return a sentence in which files have the names under which they were sent."""
    for path, name in item.names.items():
        sentence = sentence.replace(path, name)
    return sentence


def to_json(value: Any) -> bytes:
    """Return a value as JSON in UTF-8. What is no number in JSON becomes null."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_without_nan(value), ensure_ascii=False)
    return text.encode("utf-8", "replace")


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {name: _without_nan(inner) for name, inner in value.items()}
    return [_without_nan(inner) for inner in value] if isinstance(value, (list, tuple)) else value
