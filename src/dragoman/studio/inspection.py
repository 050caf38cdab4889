"""One input, searched with the trace of every step, so that all views can be made of it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from dragoman.data.corpus.files import PendingFile
from dragoman.data.examples import SOURCE, tidy
from dragoman.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK
from dragoman.errors import UserError
from dragoman.inference.predictions import Prediction, Raw
from dragoman.inference.requests import PreparedInput
from dragoman.inference.session import Session
from dragoman.inference.system import System
from dragoman.search.trace import Result
from dragoman.serving.limits import Limits
from dragoman.serving.queue import UNLIMITED, Job
from dragoman.studio.records import PredictRequest, replace_surrogates


@dataclass(frozen=True)
class Inspection:
    """A search and everything it produced."""

    session: Session
    prepared: PreparedInput
    prediction: Prediction
    result: Result
    length_limit: int  # most tokens of an output
    prefix: tuple[int, ...]  # forced tokens
    seconds: float  # that the search took

    @property
    def system(self) -> System:
        """Return the system that was asked."""
        return self.session.system


def inspect(
    system: System, source: Raw, request: PredictRequest, job: Job = UNLIMITED, limits: Limits | None = None
) -> Inspection:
    """Search for outputs of an input with the settings of the request. ``limits`` are those of a server."""
    session = system.session(
        beam=request.beam,
        n_best=request.n_best,
        normalize=request.normalize,
        max_length=request.max_length,
        sample=False,
        forbid=request.forbidden or None,
    )
    prepared = read_input(session, source, limits)
    prefix = _encode_prefix(system, prepared, request)
    if limits is not None:
        limits.check("tokens" if system.is_language_model else "prefix_tokens", len(prefix), "tokens of the prefix")
    if system.classes and prefix:
        session, prefix = _choose_labels(session, prefix, request)
    began = time.perf_counter()
    prefixes = None if not prefix and not system.is_language_model else [prefix]
    (result,) = session.search([prepared], prefixes, keys=[0], cancelled=job.checkpoint)
    seconds = time.perf_counter() - began
    prompt = prepared.texts[SOURCE] if system.is_language_model else None
    has_prefix = bool(request.prefix or request.prefix_tokens)
    prediction = session.describe(prepared, result, prompt=prompt, has_prefix=has_prefix)
    limit = session.length_limit(prepared, prefix)
    if session.config.max_length is not None:
        limit = min(limit, session.config.max_length)
    return Inspection(session, prepared, prediction, result, limit, tuple(prefix), seconds)


def read_input(session: Session, source: Raw, limits: Limits | None = None) -> PreparedInput:
    """Prepare an input and read its files.

    Raise a ``UserError`` for an empty input, one that is longer than ``limits`` allow, or a file that
    cannot be read.
    """
    files = {name for name, modality in session.system.modalities.items() if modality.is_file}
    if isinstance(source, str):
        source = source if files else replace_surrogates(source)
    else:
        source = {name: text if name in files else replace_surrogates(text) for name, text in source.items()}
    prepared = session.prepare(source)
    if prepared.is_empty:
        raise UserError("an empty input has an empty output, so there is nothing to show; give some text")
    if limits is not None and prepared.problem is None:
        for name, feature in prepared.features.items():
            is_file = isinstance(feature, PendingFile)  # its header tells how long it is
            limits.check(
                "frames" if is_file else "tokens", len(feature), f"{'frames' if is_file else 'tokens'} of {name}"
            )
    return prepared.read()


def _choose_labels(session: Session, prefix: list[int], request: PredictRequest) -> tuple[Session, list[int]]:
    """Return a session that answers with labels that begin as it is forced, and the tokens that all of them have.

    A label may begin with a text and not with its tokens. Tokens that begin a label are forced as they are.
    """
    outputs = [[*output, EOS] for output in session.config.only]
    if request.prefix is None and any(output[: len(prefix)] == prefix for output in outputs):
        return session, prefix
    text = session.system.target.decode(prefix) if request.prefix is None else tidy(request.prefix)
    session = session.beginning_with(text)
    is_common = all([*output, EOS][: len(prefix)] == prefix for output in session.config.only)
    return session, prefix if is_common else []


def _encode_prefix(system: System, prepared: PreparedInput, request: PredictRequest) -> list[int]:
    """Return the tokens that every output has to begin with.

    For a language model these are the tokens of its prompt.
    """
    target = system.target
    if request.prefix_tokens is not None and request.prefix is not None:
        raise UserError("a prefix is a text or tokens, not both; leave one out")
    if request.prefix_tokens is not None:
        invalid = [token for token in request.prefix_tokens if not 0 <= token < target.size]
        if invalid:
            raise UserError(f"prefix: there is no token {invalid[0]}, the vocabulary ends at {target.size - 1}")
        if special := [token for token in request.prefix_tokens if token in (PAD, UNK, BOS)]:
            raise UserError(
                f"prefix: {SPECIALS[special[0]]} stands for no text, so no output can have it; leave it out"
            )
        return list(request.prefix_tokens)
    if system.is_language_model:
        return target.encode(prepared.texts[SOURCE])
    return target.encode(tidy(request.prefix)) if request.prefix else []
