"""Answer inputs that arrive while others are computed. Each enters at the next token, and leaves when it is done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from dragoman.data.examples import SOURCE
from dragoman.errors import UserError
from dragoman.inference.engine.contract import Entering, RunningSearch
from dragoman.inference.predictions import Prediction, empty_prediction
from dragoman.inference.requests import OneInput, PreparedInput

if TYPE_CHECKING:
    from dragoman.inference.session import Session


@dataclass(frozen=True, slots=True)
class Arrival:
    """An input that has arrived."""

    index: int  # its name in the answers; no two that are computed have the same
    source: OneInput | PreparedInput
    key: int = 0  # seeds its samples


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed since the last token."""

    arrived: Sequence[Arrival] = ()
    gone: Sequence[int] = ()  # indices of inputs whose answers nobody wants any more; they have none


Receive: TypeAlias = Callable[[], Changes]
Answer: TypeAlias = "tuple[int, Prediction | UserError]"


@dataclass(frozen=True, slots=True)
class _Searched:
    index: int
    key: int
    prepared: PreparedInput
    text: str | None  # what its output begins with


class Arrivals:
    """The inputs of a session that are computed or wait for a place."""

    def __init__(self, session: Session, prefix: str | None, batch: int, options: dict[str, Any]) -> None:
        """``options`` are those of ``Session.stream`` for the answers."""
        self._session, self._prefix, self._batch, self._options = session, prefix, batch, options
        self._waiting: deque[_Searched] = deque()
        self._flying: dict[int, _Searched] = {}  # by the numbers of the search

    def answer(self, receive: Receive) -> Iterator[Answer]:
        """Yield answers until all are there and ``receive``, which is called before each token, brings nothing more."""
        session, is_over = self._session, False
        attention = bool(self._options["attention"]) and session.engine.has_attention
        while not is_over:
            running = session.engine.running_search(session.config, attention=attention, trace=False, batch=self._batch)
            with running as search:
                is_over = yield from self._run(search, receive)

    def _run(self, search: RunningSearch, receive: Receive) -> Generator[Answer, None, bool]:
        """Yield answers, and return True at the end, or False if the search has failed for one of its inputs."""
        while True:
            changes = receive()
            for index in changes.gone:
                self._forget(search, index)
            for arrival in changes.arrived:
                yield from self._read(arrival)
            yield from self._enter(search)
            if not self._flying and not self._waiting:
                if not changes.arrived:
                    return True
                continue
            try:
                search.advance()
            except (UserError, MemoryError):
                failed = [*self._flying.values()]
                self._flying.clear()
                for each in failed:  # only one of them is to blame
                    yield each.index, self._answer_alone(each)
                return False
            for number, result in search.take():
                each = self._flying.pop(number)
                yield each.index, self._session.complete(each.prepared, result, each.text, **self._options)

    def _forget(self, search: RunningSearch, index: int) -> None:
        self._waiting = deque(each for each in self._waiting if each.index != index)
        for number in [number for number, each in self._flying.items() if each.index == index]:
            search.drop(number)
            del self._flying[number]

    def _read(self, arrival: Arrival) -> Iterator[Answer]:
        """Let an input wait for its place, or yield the answer of one that needs no search."""
        prepared = arrival.source
        try:
            prepared = self._session.prepare(prepared)
        except UserError as error:
            yield arrival.index, error
            return
        if prepared.is_empty:
            yield arrival.index, empty_prediction(prepared.source)
            return
        try:
            prepared = prepared.read()
        except UserError as error:
            yield arrival.index, empty_prediction(prepared.source, str(error))
            return
        text = prepared.texts.get(SOURCE, "") if self._session.system.is_language_model else self._prefix
        self._waiting.append(_Searched(arrival.index, arrival.key, prepared, text))

    def _enter(self, search: RunningSearch) -> Iterator[Answer]:
        """Let inputs enter the search, and yield the answers of those that cannot."""
        entering = [self._waiting.popleft() for _ in range(min(len(self._waiting), search.room))]
        with suppress(UserError, MemoryError):  # one of them cannot be encoded
            self._flying |= zip(search.add([self._describe(each) for each in entering]), entering, strict=True)
            return
        for each in entering:
            try:
                self._flying |= zip(search.add([self._describe(each)]), [each], strict=True)
            except (UserError, MemoryError):
                yield each.index, self._answer_alone(each)

    def _describe(self, each: _Searched) -> Entering:
        tokens = self._session.system.target.encode(each.text) if each.text is not None else []
        return Entering(each.prepared.arrays, self._session.length_limit(each.prepared, tokens), tokens, each.key)

    def _answer_alone(self, each: _Searched) -> Prediction | UserError:
        """Return what ``Session.stream`` answers for an input, or why it does not."""
        options = (
            self._options
            | {"trace": False}
            | ({} if self._session.system.is_language_model else {"prefix": self._prefix})
        )
        try:
            alone: list[Any] = [each.prepared]  # a prepared input is taken as it is
            return next(self._session.stream(alone, keys=[each.key], **options))
        except UserError as error:
            return error
