"""What happens at a validation: the loss on all dev rows, and the score of the decoded ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dragoman.data.examples import Example
from dragoman.data.splits import validation_sample
from dragoman.evaluation import metrics
from dragoman.inference.predictions import texts_of
from dragoman.inference.steps import SearchCancelled
from dragoman.inference.system import System
from dragoman.nn.model import Model
from dragoman.training.corpus import encode_corpus
from dragoman.training.events import Scores
from dragoman.training.objective.loss import summed_loss

PATIENCE = 2.0  # seconds: a shorter validation is finished even if training is asked to stop
MOST_TOKENS = 4096  # of a batch, unless a single row has more


def make_validator(
    system: System,
    dev: Sequence[Example],
    metric: str,
    folder: Path | None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Callable[[Model], Scores]:
    """Return a function that validates the system's model on ``dev``.

    ``folder``: the run's, for cached files; None: nothing is written. A validation that takes long
    asks ``should_stop`` and raises ``SearchCancelled`` when that returns True.
    """
    if system.is_language_model:
        return _text_validator(system, [example.target for example in dev], should_stop)
    groups = validation_sample(dev)
    sources, references = [dict(source) for source, _ in groups], [targets for _, targets in groups]
    corpus = encode_corpus(system, dev, folder)
    batches = corpus.batches(max(MOST_TOKENS, max(corpus.target_lengths)), seed=0, epoch=0)
    label = metrics.label_metric(metric, classes=bool(system.classes))
    is_higher_better = metrics.METRICS[metric].better == "higher"

    def validate(model: Model) -> Scores:
        total, tokens = 0.0, 0
        cancelled = _cancellation(should_stop)
        for rows in batches:
            if cancelled():
                raise SearchCancelled("the validation was cancelled")
            batch = corpus.batch(rows).to(system.device)
            total += float(summed_loss(model.teach(batch), batch))
            tokens += batch.tokens
        if metric == "perplexity":
            value = _perplexity(total / tokens)
        else:
            greedy = system.session(beam=1, n_best=1)
            options: dict[str, Any] = {"attention": False, "trace": False, "probabilities": False}
            outputs = texts_of(greedy.predict(sources, **options, cancelled=cancelled))
            value = metrics.score(metric, outputs, references)
        score = value if is_higher_better else -value
        return Scores(total / tokens, score, label, {metric: value})

    return validate


def _cancellation(should_stop: Callable[[], bool]) -> Callable[[], bool]:
    """Return a function that tells whether the validation that begins now is to end early."""
    began = time.monotonic()
    return lambda: time.monotonic() - began > PATIENCE and should_stop()


def _text_validator(system: System, texts: Sequence[str], should_stop: Callable[[], bool]) -> Callable[[Model], Scores]:
    """Return a function that measures a language model on texts."""
    label = metrics.METRICS["perplexity"].label

    def validate(model: Model) -> Scores:
        cancelled = _cancellation(should_stop)

        def check() -> None:
            if cancelled():
                raise SearchCancelled("the validation was cancelled")

        scored = system.session().score(texts, on_batch=check)
        loss = -sum(text.log_prob for text in scored) / sum(len(text.tokens) for text in scored)
        value = _perplexity(loss)
        return Scores(loss, -value, label, {"perplexity": value})

    return validate


def _perplexity(loss: float) -> float:
    return math.exp(min(700.0, loss))  # more would overflow
