"""At the end of training: fit the confidence of the outputs on dev, once for the final weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dragoman.data.examples import Example
from dragoman.errors import UserError
from dragoman.evaluation.calibrate import Fit, even_sample, fit_confidence
from dragoman.files import delete_files
from dragoman.inference.system import System
from dragoman.runs.confidence import CONFIDENCE, write_confidence

MOST_SOURCES = 2000  # of dev, which are decoded for the fit


def add_confidence(
    system: System, folder: Path, dev: Sequence[Example], headline: str
) -> tuple[System, Fit | None, str | None]:
    """Return the system with the confidence of its final weights, which are in the folder, and the fit.

    There is no fit if the folder has a confidence for these weights already. The last value is a
    sentence if none can be fitted: the model is trained, and that is what was asked for.
    """
    if system.is_language_model or not dev:
        return system, None, None
    try:
        saved = replace(system, folder=folder).with_confidence()
    except UserError:  # a damaged file, which is replaced
        delete_files(folder, [CONFIDENCE])
        saved = replace(system, folder=folder).with_confidence()
    if saved.confidence is not None:
        return saved, None, None
    try:
        fit = fit_confidence(system, even_sample(dev, MOST_SOURCES), headline=headline)
    except UserError as error:
        return saved, None, f"outputs will have no confidence: {error}"
    write_confidence(folder, saved.made_of, fit.confidence)
    return replace(saved, confidence=fit.confidence), fit, None
