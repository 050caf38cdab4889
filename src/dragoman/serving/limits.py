"""How much one request may ask for, and how long it may take: every limit of a server, said once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dragoman.errors import UserError


class RequestRefused(UserError):
    """A request is not answered. ``status`` is the HTTP status that says so."""

    def __init__(
        self, status: int, sentence: str, retry_after: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.retry_after = retry_after  # seconds, for the header Retry-After
        self.headers = {**(headers or {}), **({} if retry_after is None else {"Retry-After": str(retry_after)})}


@dataclass(frozen=True)
class Limits:
    """The limits of a server. The defaults are those of the studio, which listens on loopback."""

    # The connection
    connections: int = 200
    """Most connections at a time."""
    head_bytes: int = 16_384
    """Most bytes of the request line and the headers."""
    path_bytes: int = 2_048
    """Most bytes of the path with its query."""
    body_bytes: int = 2_000_000
    """Most bytes of a body that is not an upload."""
    upload_bytes: int = 32_000_000
    """Most bytes of an uploaded file."""
    stored_bytes: int = 512_000_000
    """Most bytes of all uploads; the oldest are deleted."""
    patience: float = 0.75
    """Seconds in which a head has to arrive, and a body beyond what ``slowest_body`` allows."""
    slowest_body: int = 100_000
    """Bytes per second of the slowest body that is waited for."""
    idle_seconds: float = 30.0
    """Seconds after which a connection on which nothing was sent is closed."""

    # The question
    texts: int = 128
    """Most inputs of one request."""
    sources: int = 32
    """Most texts of one input."""
    characters: int = 20_000
    """Most characters of a text."""
    tokens: int = 5_000
    """Most tokens of an input."""
    frames: int = 50_000
    """Most frames of a recording or a sequence of features."""
    beam: int = 100
    """Widest beam."""
    n_best: int = 100
    """Most outputs of an input."""
    samples: int = 100
    """Most samples of an input."""
    max_length: int = 10_000
    """Most tokens that an output may be allowed to have."""
    prefix_tokens: int = 1_000
    """Most tokens of a forced prefix, or of an output whose attention is asked for."""
    forbidden: int = 100
    """Most texts that are forbidden."""
    entries: int = 10_000
    """Most entries of a lexicon, a glossary or known answers."""
    patterns: int = 20
    """Most patterns of what is kept."""
    pattern: int = 10_000
    """Most characters of a regular expression, a grammar or a JSON schema that outputs match."""
    kept_pattern: int = 500
    """Most characters of a pattern of what is kept."""
    constraint_bytes: int = 500_000
    """Most bytes of all constraints of a request."""
    rows: int = 20_000
    """Most rows that a table of results lists."""
    points: int = 5_000
    """Most points of a map."""
    alternatives: int = 100
    """Most alternatives of a token, and most neighbours of an input."""
    weights: int = 50_000_000
    """Most attention weights of an answer."""
    nodes: int = 100_000
    """Most candidates of a beam tree."""
    table_bytes: int = 256_000_000
    """Most bytes of a table that a request names."""

    # The queue
    worker_bytes: int = 4_000_000_000
    """Most bytes of memory that a worker may take beyond those of the models."""
    slots: int = 2
    """Number of answers that are computed at a time."""
    reserved: int = 1
    """Slots that are kept for short questions."""
    waiting: int = 32
    """Most questions that wait; the next one is answered with 429."""
    short_seconds: float = 0.5
    """A question that has computed for longer is a long one."""
    turn_seconds: float = 0.25
    """Seconds after which a long question lets the next one compute."""
    question_seconds: float = 60.0
    """Seconds in which a question has to be answered, waiting included."""
    table_seconds: float = 900.0
    """The same for a question about all rows of a table."""

    # The batches, where inputs of several questions are computed together
    batch: int = 32
    """Most inputs that are computed together."""
    window: float = 0.005
    """Seconds for which a batch waits for as many inputs as the last one had."""
    turn: float = 0.1
    """Seconds for which another task waits before a worker adds no more inputs to its batch."""
    drain_seconds: float = 20.0
    """Seconds in which a server that is being stopped answers what it has accepted."""

    def check(self, name: str, number: int | None, what: str = "") -> None:
        """Refuse a number that is larger than the limit of this name. ``what`` is what messages call it."""
        most = int(vars(self)[name])
        if number is not None and number > most:
            raise RequestRefused(422, f"{what or name}: at most {most:,} here; give a smaller number")

    def check_texts(self, texts: str | Mapping[str, str]) -> None:
        """Refuse an input of too many or too long texts."""
        texts = {"the input": texts} if isinstance(texts, str) else texts
        if len(texts) > self.sources:
            raise RequestRefused(422, f"the input has {len(texts):,} texts; at most {self.sources:,} are read here")
        for name, text in texts.items():
            self.check_text(name if len(name) <= 40 else f"{name[:40]}…", text)

    def check_text(self, name: str, text: str | None) -> None:
        """Refuse a text that is too long."""
        if text is not None and len(text) > self.characters:
            raise RequestRefused(
                422,
                f"{name} has {len(text):,} characters; at most {self.characters:,} are read here: shorten or split it",
            )


SERVER = Limits(
    connections=1_000, beam=32, n_best=32, samples=32, max_length=2_000, alternatives=20, weights=5_000_000,
    waiting=512, question_seconds=30.0,
)  # fmt: skip
"""The limits of ``dragoman serve``, which may have many clients. ``waiting`` counts inputs there."""
