"""What crosses to clients and back: the base of all records, and the requests and answers of ``dragoman serve``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Record(BaseModel):
    """A frozen value that crosses to a client.

    The docstring below a field describes it for every reader: people, OpenAPI and TypeScript.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Problem(Record):
    """The body of every answer whose status is not 2xx."""

    error: str
    """What is wrong, where, and what to do about it, in a sentence."""


def replace_surrogates(value: Any) -> Any:
    """Replace lone surrogates by U+FFFD in a JSON value: JSON can carry them, but UTF-8 cannot."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {replace_surrogates(key): replace_surrogates(inner) for key, inner in value.items()}
    return [replace_surrogates(inner) for inner in value] if isinstance(value, list) else value


class Request(Record):
    """A request whose texts have no lone surrogates."""

    _replace_surrogates = model_validator(mode="before")(replace_surrogates)


# ---- what clients of ``dragoman serve`` ask

Source = str | dict[str, str]  # one input: a text, or several by the names of the sources
Count = Annotated[int, Field(ge=1)]
Number = Annotated[int, Field(ge=0)]
Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
Row = Annotated[list[str], Field(min_length=2)]


class ModelRequest(Request):
    """A request to one of the models."""

    model_config = ConfigDict(strict=True)

    model: str | None = None
    """Id of the model, as GET /v1/models lists it. May be left out if there is one only."""


class PredictOptions(ModelRequest):
    """How to predict: the options of ``dragoman predict``, which mean the same. What is left out is the run's own."""

    beam: Count | None = None
    """Width of the beam. 1: greedy search."""
    n_best: Count | None = None
    """Number of outputs per input; with ``sample``, of samples."""
    normalize: Literal["none", "average", "gnmt"] | None = None
    """Length normalisation of the score."""
    alpha: Annotated[float, Field(ge=0, le=100)] | None = None
    """Exponent of ``normalize: gnmt``."""
    stop: Literal["complete", "certain"] | None = None
    """When a beam is done."""
    ctc: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Weight of CTC in the ranking, for runs trained with CTC."""
    max_length: Count | None = None
    """Most tokens of an output, the end symbol included."""
    min_length: Number | None = None
    """Fewest tokens before the end symbol."""
    no_repeat_ngram: Annotated[int, Field(ge=0, le=1000)] | None = None
    """No n-gram of this size occurs twice in an output. 0: off."""
    sample: bool | None = None
    """Draw outputs at random instead of searching."""
    temperature: Annotated[float, Field(ge=0.01, le=100)] | None = None
    """Temperature of sampling."""
    top_k: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    """Sample from the k most likely tokens. 0: from all."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Sample from the fewest tokens that together have this probability."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Seed of sampling: the same seed gives the same samples."""
    forbid: list[str] | None = None
    """Texts that no output may contain."""
    prefix: str | None = None
    """Text that every output has to begin with."""
    alternatives: Number = 0
    """Number of the likeliest tokens to list at each place of an output."""
    attention: bool = False
    """Add where each token of an output looked in the input."""
    alignments: bool = False
    """Add where each word comes from: links to a text, times in a recording, boxes in a picture."""
    align_unit: Literal["auto", "words", "tokens"] | None = None
    """What is aligned."""
    abstain: Annotated[float, Field(ge=0, le=1)] | None = None
    """Leave out outputs that are less sure than this. For runs with a confidence."""
    lexicon: list[str] | None = None
    """Every output is one of these texts."""
    lexicon_words: bool | None = None
    """Every word of an output is in the lexicon, instead of the whole output."""
    match: str | None = None
    """Regular expression that a whole output matches."""
    grammar: str | None = None
    """Grammar in the syntax of Lark that a whole output matches."""
    json_schema: dict[str, Any] | str | None = None
    """JSON schema, or its text: every output is JSON that obeys it."""
    glossary: dict[str, str] | list[Pair] | None = None
    """Where a source phrase occurs in an input, its target phrase occurs in the output; variants are separated by |."""
    keep: str | list[str] | None = None
    """Regular expressions: what matches in an input occurs unchanged in the output."""
    known: dict[str, str] | list[Row] | None = None
    """Answers to inputs that are known: source and answer; for several sources, a list with all of them first."""


class PredictRequest(PredictOptions):
    """A request for the outputs of some inputs."""

    inputs: Source | list[Source]
    """A text, or a list of texts; for a run with several sources, objects with a text for each of their names."""
    stream: bool = False
    """Send each token as it is found, as server-sent events; for greedy search and sampling of one output."""


class ScoreRequest(ModelRequest):
    """A request for the log-probabilities of given targets."""

    inputs: Source | list[Source]
    """As in PredictRequest. A language model scores these texts, and takes no targets."""
    targets: str | list[str] | None = None
    """The target of each input."""


class TranslateRequest(Request):
    """A request as LibreTranslate's clients send it."""

    model_config = ConfigDict(strict=True)

    q: str | list[str]
    """A text, or a list of texts."""
    source: str
    """Code of the source language, or "auto"."""
    target: str
    """Code of the target language."""
    format: Literal["text"] = "text"
    """Only plain text is translated."""
    alternatives: Number = 0
    """Number of further translations."""
    api_key: str | None = None
    """The key, if the server wants one."""


# ---- what they are answered


class Answer(BaseModel):
    """A part of an answer. Later versions may add fields."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Alternative(Answer):
    """A token that could have been at a place of an output."""

    token: str
    log_prob: float


class OutputAnswer(Answer):
    """One output of an input."""

    text: str
    score: float
    """What outputs are ranked by."""
    log_prob: float
    """Log-probability of the whole output, a natural logarithm."""
    tokens: list[str]
    """The tokens, with the end symbol if it was produced."""
    log_probs: list[float]
    """Log-probability of each token."""
    finished: bool
    """False: cut off at the length limit."""
    confidence: float | None = None
    """The probability that the output is right, if the run has a confidence."""
    attention: list[list[float]] | None = None
    """On request: for each token the weights over ``labels``."""
    alternatives: list[list[Alternative]] | None = None
    """On request: for each token the likeliest ones at its place."""
    alignment: dict[str, Any] | None = None
    """With ``alignments``, of texts: the units of both sides, and links with their weights."""
    timings: dict[str, Any] | None = None
    """With ``alignments``, of a recording: when each unit begins and ends."""
    boxes: dict[str, Any] | None = None
    """With ``alignments``, of a picture: a box for each unit."""


class PredictionAnswer(Answer):
    """The outputs of one input."""

    outputs: list[OutputAnswer]
    """Best first."""
    probabilities: dict[str, float] | None = None
    """Of the classes, if the run is a classifier."""
    labels: list[str] | None = None
    """With attention: the positions of the input."""
    sources: list[dict[str, Any]] | None = None
    """With attention: which of the positions belong to which source."""
    known: bool = False
    """The answer was given with ``known``, and the model was not asked."""
    confidence_note: str | None = None
    """Why the confidence may be off: it was fitted with other settings of the search."""
    abstained: bool = False
    """The output was left out, because it is less sure than ``abstain`` asks for. Its confidence stays."""
    error: str | None = None
    """Why this input has no output, for example a constraint that cannot be met. Its output is empty then."""


class PredictAnswer(Answer):
    """The answer to a PredictRequest."""

    model: str
    predictions: list[PredictionAnswer]
    """One for each input, in their order."""


class ScoredAnswer(Answer):
    """The log-probability of a target. Null stands for minus infinity: the target is impossible."""

    log_prob: float | None
    perplexity: float
    tokens: list[str]
    log_probs: list[float | None]


class ScoreAnswer(Answer):
    """The answer to a ScoreRequest."""

    model: str
    scores: list[ScoredAnswer]


class TranslateAnswer(Answer):
    """A translation as LibreTranslate's clients expect it."""

    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    """If they were asked for."""
    detectedLanguage: dict[str, Any] | list[dict[str, Any]] | None = None
    """If ``source`` was "auto"."""


class Language(Answer):
    """A source language, as LibreTranslate's clients expect it."""

    code: str
    name: str
    targets: list[str]
    """Codes of the languages that it can be translated into."""


class SourceAnswer(Answer):
    """What a model reads."""

    name: str
    kind: str
    """Kind of input: "text", "image", "speech" or "features"."""


class ModelAnswer(Answer):
    """A model that this server has."""

    id: str
    sources: list[SourceAnswer]
    """Empty for a language model."""
    parameters: int
    engine: str
    beam: int
    """The run's own width of the beam."""
    languages: list[str] | None = None
    """Source and target language, if they are known."""
    classes: list[str] | None = None
    """Of a classifier."""


class ModelsAnswer(Answer):
    """All models of this server."""

    models: list[ModelAnswer]


class StatusAnswer(Answer):
    """Whether the server lives, or is ready."""

    status: str
