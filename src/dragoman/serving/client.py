"""Ask a server of ``dragoman serve`` from Python: the same calls and results as a system in this process."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from dragoman.errors import MissingExtra, UserError
from dragoman.inference.alignment.boxes import Box, Boxes
from dragoman.inference.alignment.links import Alignment, Link
from dragoman.inference.alignment.timings import Timing, Timings
from dragoman.inference.constraint_files import read_format, read_glossary, read_known, read_lexicon
from dragoman.inference.predictions import Output, Prediction, Raw, Scored
from dragoman.inference.requests import OneInput, as_inputs, as_strings, is_single
from dragoman.tables import Rows
from dragoman.types import Axis

try:
    import httpx
except ImportError:
    raise MissingExtra("httpx", "client", "dragoman.Client") from None

VARIABLE = "DRAGOMAN_API_KEY"
BUSY = (429, 503)  # statuses after which the same request may be answered
MOST_INPUTS = 64  # of one request; longer lists are sent in several


@dataclass(frozen=True)
class TokenEvent:
    """A token of an output that is being made."""

    index: int  # of the input
    token: str
    text: str  # so far


class Client:
    """A connection to a server.

    ``api_key`` is by default what the environment variable DRAGOMAN_API_KEY has. A server that is busy is asked again
    up to ``retries`` times, when it says. ``timeout`` is in seconds.

    >>> with dragoman.Client("http://127.0.0.1:8500") as client:  # doctest: +SKIP
    ...     client.predict("some text").text
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8500",
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        retries: int = 3,
    ) -> None:
        self.url, self.model, self.retries = url.rstrip("/"), model, retries
        key = api_key or os.environ.get(VARIABLE)
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @overload
    def predict(self, sources: OneInput, **options: Any) -> Prediction: ...

    @overload
    def predict(self, sources: Iterable[OneInput], **options: Any) -> Rows[Prediction]: ...

    def predict(self, sources: OneInput | Iterable[OneInput], **options: Any) -> Prediction | Rows[Prediction]:
        """Return the prediction for one input, or a list of predictions for several, in order.

        A path object is a file, which is uploaded; a string is a text. ``options`` are those of ``/v1/predict``: beam,
        n_best, sample, prefix, attention, abstain, lexicon, … Files of constraints are read here, and their contents
        are sent. An input that cannot be read, or whose constraint cannot be met, has an ``error`` in its prediction.
        """
        inputs = as_inputs(sources)
        predictions: list[Prediction] = []
        for begin in range(0, len(inputs), MOST_INPUTS):
            some = inputs[begin : begin + MOST_INPUTS]
            body = self._upload(some, options) if any(map(_has_files, some)) else self._send(some, options)
            described = zip(some, body["predictions"], strict=True)
            predictions += [read_prediction(as_strings(source), each) for source, each in described]
        return predictions[0] if is_single(sources) else Rows(predictions)

    def stream(self, source: OneInput, **options: Any) -> Iterator[TokenEvent | Prediction]:
        """Yield the tokens of the output for one text as they are found, then its prediction.

        For greedy search (``beam=1``) and sampling.
        """
        asked = self._asked({"inputs": as_strings(source), "stream": True, **options})
        with self._http.stream("POST", "/v1/predict", json=asked) as response:
            if response.status_code != httpx.codes.OK:
                response.read()
                raise _as_error(response)
            name = ""
            for line in response.iter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    data = json.loads(value)
                    if name == "error":
                        raise UserError(data["error"])
                    if name == "token":
                        yield TokenEvent(data["index"], data["token"], data["text"])
                    else:
                        yield read_prediction(as_strings(source), data["predictions"][0])

    @overload
    def score(self, sources: OneInput, targets: str | None = None) -> Scored: ...  # type: ignore[overload-overlap]

    @overload
    def score(self, sources: Iterable[OneInput], targets: Iterable[str] | None = None) -> Rows[Scored]: ...

    def score(
        self, sources: OneInput | Iterable[OneInput], targets: Iterable[str] | None = None
    ) -> Scored | Rows[Scored]:
        """Return the log-probability of a given target, or of a list of them. A language model takes no targets."""
        inputs = [as_strings(source) for source in as_inputs(sources)]
        wanted = None if targets is None else [*as_inputs(targets, "a target")]
        rows: Rows[Scored] = Rows()
        for begin in range(0, len(inputs), MOST_INPUTS):
            some = inputs[begin : begin + MOST_INPUTS]
            own = None if wanted is None else wanted[begin : begin + MOST_INPUTS]
            body = self._ask("POST", "/v1/score", json=self._asked({"inputs": some, "targets": own}))
            for place, each in enumerate(body["scores"]):
                source, target = (None, some[place]) if own is None else (some[place], own[place])
                total, *log_probs = (-math.inf if number is None else number for number in _numbers(each))
                rows.append(Scored(total, tuple(each["tokens"]), tuple(log_probs), source, str(target)))
        return rows[0] if is_single(sources) else rows

    def models(self) -> list[dict[str, Any]]:
        """Return what the server says about its models."""
        return list(self._ask("GET", "/v1/models")["models"])

    def is_ready(self) -> bool:
        """Tell whether the server takes requests now."""
        try:
            return self._http.get("/readyz").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    # ---- requests

    def _asked(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        model = {} if self.model is None else {"model": self.model}
        return model | {name: self._contents(name, value) for name, value in fields.items() if value is not None}

    def _contents(self, name: str, value: Any) -> Any:
        """Return what is sent for an option: of a file of constraints its contents, for a server reads none."""
        if name == "lexicon":
            return list(read_lexicon(value))
        if name == "glossary":
            return {source: "|".join(variants) for source, variants in read_glossary(value).items()}
        if name == "known":
            return [[*sources, answer] for sources, answer in read_known(value, self._source_names()).items()]
        if name in ("grammar", "json_schema"):
            return read_format(name, value)
        return list(value) if name in ("keep", "forbid") and not isinstance(value, str) else value

    def _source_names(self) -> list[str]:
        models = [each for each in self.models() if self.model in (None, each["id"])]
        return [source["name"] for source in models[0]["sources"]] if models and models[0]["sources"] else ["prompt"]

    def _send(self, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
        asked = self._asked({"inputs": [as_strings(source) for source in inputs], **options})
        return self._ask("POST", "/v1/predict", json=asked)

    def _upload(self, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Send inputs that are files, or have some, as a form."""
        with ExitStack() as opened:
            parts: list[tuple[str, Any]] = [("options", (None, json.dumps(self._asked(options)), "application/json"))]
            for source in inputs:
                for name, value in (source if isinstance(source, Mapping) else {"input": source}).items():
                    if isinstance(value, os.PathLike):
                        path = Path(value)
                        try:
                            file = opened.enter_context(path.open("rb"))
                        except OSError as error:
                            raise UserError(f"{path}: cannot be read ({error.strerror})") from None
                        parts.append((name, (path.name, file)))
                    else:
                        parts.append((name, (None, str(value))))
            return self._ask("POST", "/v1/predict", files=parts)

    def _ask(self, method: str, path: str, **body: Any) -> Any:
        """Return the JSON of an answer; raise a ``UserError`` with the server's sentence for any other."""
        for attempt in range(self.retries + 1):
            try:
                response = self._http.request(method, path, **body)
            except httpx.TransportError as error:
                raise UserError(
                    f"{self.url}: cannot be asked ({error or type(error).__name__}); does it run?"
                ) from None
            if response.status_code not in BUSY or attempt == self.retries or "files" in body:
                break
            time.sleep(min(60.0, float(response.headers.get("Retry-After", "1"))))
        if response.status_code != httpx.codes.OK:
            raise _as_error(response)
        return response.json()


def _as_error(response: httpx.Response) -> UserError:
    try:
        sentence = str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        sentence = "no sentence says why; is this the address of dragoman serve?"
    return UserError(f"{response.request.url}: status {response.status_code}: {sentence}")


def _numbers(scored: Mapping[str, Any]) -> list[float | None]:
    return [scored["log_prob"], *scored["log_probs"]]


def _has_files(source: Any) -> bool:
    values = source.values() if isinstance(source, Mapping) else [source]
    return any(isinstance(value, os.PathLike) for value in values)


def read_prediction(source: Raw, described: Mapping[str, Any]) -> Prediction:
    """Return a prediction from its JSON. Its attention is the mean over all maps, as one map."""
    axes = {}
    labels = described.get("labels", [])
    for span in described.get("sources", ()):
        own = tuple(labels[span["begin"] : span["end"]])
        grid = None if span.get("grid") is None else tuple(span["grid"])
        axes[span["name"]] = Axis(span["kind"], own, grid=grid, seconds=span.get("seconds"))
    outputs = tuple(
        Output(
            each["text"],
            each["score"],
            each["log_prob"],
            tuple(each["tokens"]),
            tuple(each["log_probs"]),
            each["finished"],
            None if each.get("attention") is None else np.array(each["attention"], np.float32)[:, None],
            alternatives=_read_alternatives(each.get("alternatives")),
            alignment=_read_alignment(each.get("alignment")),
            timings=_read_timings(each.get("timings"), source),
            boxes=_read_boxes(each.get("boxes")),
            confidence=each.get("confidence"),
        )
        for each in described["outputs"]
    )
    return Prediction(
        source,
        outputs,
        axes,
        error=described.get("error"),
        probabilities=described.get("probabilities"),
        known=described.get("known", False),
        confidence_note=described.get("confidence_note"),
        abstained=described.get("abstained", False),
    )


def _read_alignment(described: Any) -> Alignment | None:
    if described is None:
        return None
    links = tuple(Link(each["source"], each["target"], each["weight"]) for each in described["links"])
    units, source, target = described["units"], tuple(described["source"]), tuple(described["target"])
    weights = np.zeros((len(target), len(source)), np.float32)
    for link in links:  # the others are not sent
        weights[link.target, link.source] = link.weight
    return Alignment(units["source"], units["target"], source, target, links, weights)


def _read_timings(described: Any, source: Raw) -> Timings | None:
    if described is None:
        return None
    units = tuple(Timing(each["text"], each["begin"], each["end"]) for each in described["units"])
    path = source if isinstance(source, str) else next(iter(source.values()))
    return Timings(described["unit"], units, described["duration"], path, described["from"], described["time_unit"])


def _read_boxes(described: Any) -> Boxes | None:
    if described is None:
        return None
    edges = ("left", "top", "right", "bottom")
    units = tuple(
        Box(text=each["text"], weight=each["weight"], **{edge: each[edge] for edge in edges})
        for each in described["units"]
    )
    return Boxes(described["unit"], units, described["source"], (described["height"], described["width"]))


def _read_alternatives(places: Any) -> tuple[tuple[tuple[str, float], ...], ...] | None:
    if places is None:
        return None
    return tuple(tuple((each["token"], each["log_prob"]) for each in place) for place in places)
