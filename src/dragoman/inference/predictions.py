"""What a system gives back for an input: outputs with text, scores, attention and the trace of the search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dragoman.data.examples import SOURCE, TARGET
from dragoman.data.tokenizers import Tokenizer
from dragoman.errors import UserError
from dragoman.search.trace import Result
from dragoman.tables import shorten
from dragoman.types import Axis, Hypothesis, Trace

if TYPE_CHECKING:
    from dragoman.drawing.attention import Drawing
    from dragoman.inference.alignment.boxes import Boxes
    from dragoman.inference.alignment.links import Alignment
    from dragoman.inference.alignment.timings import Timings

Raw = str | Mapping[str, str]  # one source, or several by name
Aligned = TypeVar("Aligned")


@dataclass(frozen=True, slots=True, repr=False)
class Output:
    """One output for one input."""

    text: str
    score: float  # what the search ranked by
    log_prob: float  # of the whole output
    tokens: tuple[str, ...]  # with the end symbol, if it was produced
    log_probs: tuple[float, ...]  # of each token
    finished: bool  # False: cut off at the length limit
    attention: np.ndarray | None  # (T, A, S), one row per token; the maps of a layer are its heads, layer after layer
    self_attention: np.ndarray | None = None  # (L, H, T, P) on request; columns: ``self_attention_columns``
    alignment: Alignment | None = None  # on request: links to the units of the sources that are texts
    timings: Timings | None = None  # on request: when its units are heard in a recording
    boxes: Boxes | None = None  # on request: where its units are in a picture
    alternatives: tuple[tuple[tuple[str, float], ...], ...] | None = (
        None  # on request: at each place the likeliest tokens with their log-probabilities, best first
    )
    confidence: float | None = None  # the probability that it is right; None: the run has none fitted

    def __repr__(self) -> str:
        unfinished = "" if self.finished else ", unfinished"
        return f"Output({shorten(self.text)!r}, score {self.score:.3f}{unfinished})"

    def to_json(self, maps: bool = False) -> dict[str, Any]:
        """Return a JSON object. ``maps`` adds every attention map, and self-attention."""
        plain = {name: getattr(self, name) for name in ("text", "score", "log_prob", "tokens", "log_probs", "finished")}
        if self.confidence is not None:
            plain["confidence"] = self.confidence
        if self.attention is not None:
            plain["attention"] = np.round(self.attention.mean(1), 5).tolist()
        for name in ("alignment", "timings", "boxes"):
            if (found := getattr(self, name)) is not None:
                plain[name] = found.to_json()
        if self.alternatives is not None:
            plain["alternatives"] = [
                [{"token": token, "log_prob": log_prob} for token, log_prob in place] for place in self.alternatives
            ]
        if maps:
            plain["attention_maps"] = _rounded(None if self.attention is None else self.attention.transpose(1, 0, 2))
            plain["self_attention"] = _rounded(self.self_attention)
        return plain


@dataclass(frozen=True, slots=True, repr=False)
class Prediction:
    """The outputs for one input. ``text``, ``score``, … are those of the best output.

    >>> prediction = system.predict("abc")
    >>> prediction
    Prediction('abc' → '...', score ...)
    >>> prediction.tokens[-1], len(prediction.labels)
    ('</s>', 4)
    """

    source: Raw
    outputs: tuple[Output, ...]  # best first
    axes: Mapping[str, Axis] = field(default_factory=dict)  # the S axis of attention: the sources, one after the other
    trace: Trace | None = None
    self_attention: np.ndarray | None = (
        None  # (L, H, S, S) of the encoder, on request; with several sources, of the joint one
    )
    error: str | None = None  # why there is no output, for example a file that cannot be read
    arrays: Mapping[str, np.ndarray] | None = None  # on request: the sources that are files, as the model read them
    strides: Mapping[str, int] = field(default_factory=dict)  # positions of each source in one state of its encoder
    probabilities: Mapping[str, float] | None = (
        None  # of the classes of a classifier, the likeliest first; without label smoothing if that was fitted
    )
    raw_probabilities: Mapping[str, float] | None = None  # the same, as the model gives them
    reads_source: bool = False  # one network reads source and target, so that self-attention reaches the source too
    known: bool = False  # the answer was given (``known``), and the model was not asked
    confidence_note: str | None = None  # why the confidence may be off: the search was not the one it was fitted with
    abstained: bool = False  # the output was left out, because it was less sure than asked for

    def __repr__(self) -> str:
        source = _shown(self.source)
        if self.error is not None:
            return f"Prediction({source!r}, error {shorten(self.error, 80)!r})"
        more = f", {len(self.outputs)} outputs" if len(self.outputs) > 1 else ""
        return f"Prediction({source!r} → {shorten(self.text)!r}, score {self.score:.3f}{more})"

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of the positions along the S axis of attention."""
        return tuple(label for axis in self.axes.values() for label in axis.labels)

    def spans(self) -> list[dict[str, Any]]:
        """Return which positions of the S axis belong to which source: from ``begin`` to before ``end``."""
        spans: list[dict[str, Any]] = []
        begin = 0
        for name, axis in self.axes.items():
            span = {"name": name, "kind": axis.kind, "begin": begin, "end": begin + len(axis.labels)}
            optional = {"grid": axis.grid, "seconds": axis.seconds}
            spans.append(span | {key: value for key, value in optional.items() if value is not None})
            begin += len(axis.labels)
        return spans

    @property
    def text(self) -> str:
        return self.outputs[0].text

    @property
    def score(self) -> float:
        return self.outputs[0].score

    @property
    def confidence(self) -> float | None:
        return self.outputs[0].confidence

    @property
    def tokens(self) -> tuple[str, ...]:
        return self.outputs[0].tokens

    @property
    def log_probs(self) -> tuple[float, ...]:
        return self.outputs[0].log_probs

    @property
    def attention(self) -> np.ndarray | None:
        return self.outputs[0].attention

    @property
    def alignment(self) -> Alignment:
        """Return which unit of the source each unit of the output comes from."""
        return self._aligned(self.outputs[0].alignment, "alignment", "texts")

    @property
    def timings(self) -> Timings:
        """Return when each unit of the output is heard in the recording."""
        return self._aligned(self.outputs[0].timings, "timings", "recordings")

    @property
    def boxes(self) -> Boxes:
        """Return where in the picture each unit of the output is."""
        return self._aligned(self.outputs[0].boxes, "boxes", "pictures")

    def _aligned(self, found: Aligned | None, name: str, sources: str) -> Aligned:
        if found is None:
            reason = f": {self.error}" if self.error is not None else (
                f"; runs on {sources} give them if the model has attention: predict one input, or "
                "predict(…, alignments=True)"
            )  # fmt: skip
            raise UserError(f"this prediction has no {name}{reason}")
        return found

    def to_json(self, maps: bool = False, raw: bool = False) -> dict[str, Any]:
        """Return a JSON object. ``maps`` adds every attention map, and self-attention.

        ``raw`` adds the probabilities of classes as the model gives them.
        """
        plain: dict[str, Any] = {
            "source": self.source,
            "labels": list(self.labels),
            "sources": self.spans(),
            "outputs": [output.to_json(maps) for output in self.outputs],
        }
        if self.probabilities is not None:
            plain["probabilities"] = dict(self.probabilities)
        if raw and self.raw_probabilities is not None:
            plain["raw_probabilities"] = dict(self.raw_probabilities)
        if self.known:
            plain["known"] = True
        if self.confidence_note is not None:
            plain["confidence_note"] = self.confidence_note
        if self.abstained:
            plain["abstained"] = True
        if self.error is not None:
            plain["error"] = self.error
        return plain | ({"self_attention": _rounded(self.self_attention)} if maps else {})

    def plot(self, path: str | Path | None = None) -> Drawing:
        """Draw where each token of the best output looked, and write the drawing to ``path``, if one is given.

        A notebook shows what is returned. Of a text it is an SVG; over a picture or below a recording, a PNG, for which
        the prediction has to be made of one input, or with ``keep_arrays=True``.
        """
        from dragoman.inference.attention_view import draw_prediction

        drawing = draw_prediction(self, None if path is None else Path(path))
        if path is not None:
            drawing.save(path)
        return drawing

    def _repr_html_(self) -> str:
        from dragoman.inference.attention_view import prediction_html

        return prediction_html(self)

    def to_row(self) -> dict[str, Any]:
        """Return the input and its best output as cells of a table."""
        best = self.outputs[0]
        cells: dict[str, Any] = {"output": best.text, "score": best.score, "log_prob": best.log_prob}
        cells |= {} if best.confidence is None else {"confidence": best.confidence}
        cells |= {"tokens": len(best.tokens), "finished": best.finished}
        cells |= {f"p({label})": share for label, share in sorted((self.probabilities or {}).items())}
        if self.error is not None:  # there is no output, so nothing is known of it
            cells = {**dict.fromkeys(cells), "tokens": 0, "error": self.error}
        elif self.abstained:
            cells = {**dict.fromkeys(cells), "tokens": 0, "confidence": best.confidence, "abstained": True}
        return {**_source_cells(self.source), **cells}


@dataclass(frozen=True, slots=True, repr=False)
class Scored:
    """The log-probability that a system gives to a target, token by token.

    >>> scored = system.score("abc", "cba")
    >>> scored
    Scored('cba', log_prob ..., perplexity ...)
    >>> scored.tokens
    ('c', 'b', 'a', '</s>')
    """

    log_prob: float
    tokens: tuple[str, ...]
    log_probs: tuple[float, ...]
    source: Raw | None = None  # None for a language model
    target: str = ""
    unknown: int = 0  # tokens of the target that are not in the vocabulary, scored as <unk>
    is_label: bool | None = None  # of a classifier: whether the target is one of its labels, which alone it outputs

    def __repr__(self) -> str:
        numbers = f"log_prob {self.log_prob:.3f}, perplexity {self.perplexity:.3f}"
        unknown = f", unknown tokens {self.unknown}" if self.unknown else ""
        unknown += ", no label of this run" if self.is_label is False else ""
        return f"Scored({shorten(self.target)!r}, {numbers}{unknown})"

    @property
    def perplexity(self) -> float:
        return math.exp(min(700.0, -self.log_prob / max(1, len(self.tokens))))

    def to_row(self) -> dict[str, Any]:
        """Return the source, the target and its scores as cells of a table."""
        source = {} if self.source is None else _source_cells(self.source)
        numbers = {"log_prob": self.log_prob, "perplexity": self.perplexity, "tokens": len(self.tokens)}
        label = {} if self.is_label is None else {"is_label": self.is_label}
        return {**source, TARGET: self.target, **numbers, **label}


def make_prediction(
    source: Raw, axes: Mapping[str, Axis], result: Result, target: Tokenizer, *, trace: bool, prompt: str | None = None
) -> Prediction:
    """Turn the token ids of a search result into text. ``prompt``: what each output was made to begin with."""
    outputs = tuple(_make_output(hypothesis, axes, target, prompt) for hypothesis in result.hypotheses)
    return Prediction(source, outputs, dict(axes), _with_text(result.trace, target) if trace else None)


def empty_prediction(source: Raw, error: str | None = None) -> Prediction:
    """Return the prediction for an input that is empty, or that has no output because of an error."""
    return Prediction(source, (Output("", 0.0, 0.0, (), (), True, None),), error=error)


def known_prediction(source: Raw, answer: str) -> Prediction:
    """Return the prediction for an input whose answer was given. The model has no part in it, so it has no score."""
    return Prediction(source, (Output(answer, 0.0, 0.0, (), (), True, None),), known=True)


def withhold(prediction: Prediction) -> Prediction:
    """Return the prediction without its outputs. Their confidence stays."""
    nothing = Output("", 0.0, 0.0, (), (), True, None, confidence=prediction.confidence)
    return replace(
        prediction, outputs=(nothing,), trace=None, probabilities=None, raw_probabilities=None, abstained=True
    )


def withhold_unsure(prediction: Prediction, abstain: float | None) -> Prediction:
    """Return the prediction, without its outputs if the best of them has a lower confidence than ``abstain``."""
    is_unsure = abstain is not None and prediction.confidence is not None and prediction.confidence < abstain
    return withhold(prediction) if is_unsure else prediction


def texts_of(predictions: Iterable[Prediction]) -> list[str]:
    """Return the text of each prediction's best output."""
    return [prediction.text for prediction in predictions]


def output_text(tokens: Sequence[int], target: Tokenizer, prompt: str | None = None) -> str:
    """Return the text of an output, or of its beginning. ``prompt``: what it was made to begin with."""
    text = target.decode(tokens)
    if prompt:  # as it was written, also where the model read <unk>
        text = prompt + text[len(target.decode(target.encode(prompt))) :]
    return text


def self_attention_columns(source: Sequence[str], tokens: Sequence[str], reads_source: bool) -> list[str]:
    """Return the labels of what a decoder has read when it produces each token.

    These are the start symbol and the tokens after it. Where one network reads source and target (``reads_source``),
    the positions of the source come first.
    """
    return [*(source if reads_source else ()), "<s>", *tokens[:-1]]


def _with_text(trace: Trace, target: Tokenizer) -> Trace:
    """Return the trace with the tokens of each step as text."""
    steps = (replace(step, text=tuple(target.pieces(step.token.tolist()))) for step in trace.steps)
    return replace(trace, steps=tuple(steps))


def _make_output(hypothesis: Hypothesis, axes: Mapping[str, Axis], target: Tokenizer, prompt: str | None) -> Output:
    attention = hypothesis.attention  # (T, A, S), with padding
    positions = sum(len(axis.labels) for axis in axes.values())
    return Output(
        output_text(hypothesis.tokens, target, prompt),
        hypothesis.score,
        hypothesis.log_prob,
        tuple(target.pieces(hypothesis.tokens)),
        hypothesis.log_probs,
        hypothesis.finished,
        None if attention is None else attention[..., :positions],
    )


def _shown(source: Raw) -> str:
    """Return an input as one short text."""
    return shorten(source if isinstance(source, str) else " | ".join(source.values()))


def _source_cells(source: Raw) -> dict[str, str]:
    return {SOURCE: source} if isinstance(source, str) else dict(source)


def _rounded(weights: np.ndarray | None) -> list[Any] | None:
    return None if weights is None else np.round(weights, 5).tolist()
