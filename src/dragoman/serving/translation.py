"""Requests and answers in the shape that LibreTranslate's clients know."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dragoman.errors import UserError
from dragoman.serving.compute import Answered, Refused
from dragoman.serving.limits import RequestRefused
from dragoman.serving.records import TranslateAnswer, TranslateRequest


def as_request(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a form as those of a ``TranslateRequest``, whose numbers are texts in a form."""
    request = dict(fields)
    if isinstance(number := request.get("alternatives"), str):
        if not (number.isascii() and number.isdecimal() and len(number) < 10):
            raise UserError(f"alternatives: {number[:20]!r} is no number from 0 on")
        request["alternatives"] = int(number)
    return request


def describe_translation(request: TranslateRequest, answers: Sequence[Answered], source: str) -> dict[str, Any]:
    """Return the answer to a request, a ``TranslateAnswer``. ``source`` is the language that was translated."""
    texts: list[str] = []
    others: list[list[str]] = []
    for answer in answers:
        if isinstance(answer, Refused):
            raise RequestRefused(answer.status, answer.sentence)
        described = json.loads(answer)
        if described["error"] is not None:
            raise UserError(described["error"])
        texts.append(described["texts"][0])
        others.append(described["texts"][1:])
    is_single = isinstance(request.q, str)
    translated: dict[str, Any] = {"translatedText": texts[0] if is_single else texts}
    if request.alternatives:
        translated["alternatives"] = others[0] if is_single else others
    if request.source == "auto":
        detected = {"language": source}  # nothing was measured: it is the only one that it could be
        translated["detectedLanguage"] = detected if is_single else [detected] * len(texts)
    assert translated.keys() <= TranslateAnswer.model_fields.keys()
    return translated
