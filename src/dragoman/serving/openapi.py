"""The description of the server's endpoints as OpenAPI 3.1, made of the records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from dragoman import __version__
from dragoman.serving import records
from dragoman.serving.limits import Limits
from dragoman.serving.models import Models

REFERENCE = "#/components/schemas/{model}"
RECORDS: tuple[type[BaseModel], ...] = (
    records.PredictRequest, records.PredictOptions, records.PredictAnswer, records.ScoreRequest, records.ScoreAnswer,
    records.TranslateRequest, records.TranslateAnswer, records.Language, records.ModelsAnswer, records.StatusAnswer,
    records.Problem,
)  # fmt: skip
PROBLEMS = {
    400: "Something in the request is wrong; the sentence says what.",
    401: "The key is missing or wrong.",
    403: "The request is for another host, or comes from a page of another site.",
    404: "There is no such model or path.",
    405: "The path has another method.",
    408: "The body did not arrive in time.",
    411: "The length of the body is missing.",
    413: "The body is too large.",
    414: "The path is too long.",
    415: "The body is of another kind.",
    422: "The request asks for more than the limits allow.",
    429: "Too many inputs wait; Retry-After says when to ask again.",
    431: "The headers are too long.",
    500: "A mistake in the server.",
    503: "The server is being stopped, or others were computed until the deadline.",
    504: "There was no answer until the deadline.",
}
OF_GET = (400, 401, 403, 405, 414, 431, 500)  # statuses that a GET request may have besides 200


def describe_api(models: Models, limits: Limits, wants_key: bool) -> dict[str, Any]:
    """Return the description. Limits and models are those of this server."""
    _, made = models_json_schema([(record, "validation") for record in RECORDS], ref_template=REFERENCE)
    schemas: dict[str, Any] = made["$defs"]
    _name_choices(schemas, models)
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Dragoman", "version": __version__, "description": _describe_limits(models, limits)},
        "paths": {
            "/v1/predict": {"post": _describe_predict()},
            "/v1/score": {
                "post": _post("score", "Return the log-probabilities of given targets.", "ScoreRequest", "ScoreAnswer")
            },
            "/translate": {"post": _describe_translate(schemas["TranslateRequest"])},
            "/languages": {"get": _get("languages", "List the languages, as LibreTranslate does.", _many("Language"))},
            "/v1/models": {"get": _get("models", "List the models.", _one("ModelsAnswer"))},
            "/healthz": {"get": _get("health", "Tell that the process lives.", _one("StatusAnswer"))},
            "/readyz": {"get": _get("ready", "Tell whether requests are taken.", _one("StatusAnswer"), (503,))},
            "/metrics": {
                "get": _get("metrics", "Return numbers for Prometheus.", {"type": "string"}, (), "text/plain")
            },
        },
        "components": {"schemas": schemas},
    }
    if wants_key:
        described["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        for path, methods in described["paths"].items():
            for operation in methods.values():
                if path not in ("/healthz", "/readyz"):
                    operation["security"] = [{"bearer": []}, {"header": []}]
    return described


def _describe_limits(models: Models, limits: Limits) -> str:
    return (
        f"Models: {', '.join(models.by_id)}. A request has at most {limits.texts:,} inputs of {limits.characters:,} "
        f"characters and {limits.tokens:,} tokens each, a beam of {limits.beam}, {limits.n_best} outputs, and a body "
        f"of {limits.body_bytes // 10**6} MB, with files {limits.upload_bytes // 10**6} MB. It is answered within "
        f"{limits.question_seconds:g} s. Errors are JSON objects with a sentence in `error`."
    )


def _describe_predict() -> dict[str, Any]:
    described = _post("predict", "Predict outputs of texts or files.", "PredictRequest", "PredictAnswer")
    options = {"$ref": REFERENCE.format(model="PredictOptions")}
    described["requestBody"]["content"]["multipart/form-data"] = {
        "schema": {
            "type": "object",
            "description": "A part for each source of the model, named so; files have file names. Repeated parts are "
            "several inputs.",
            "properties": {"options": options},
            "additionalProperties": {"type": "string", "format": "binary"},
        },
        "encoding": {"options": {"contentType": "application/json"}},
    }
    described["responses"]["200"]["content"]["text/event-stream"] = {
        "schema": {
            "type": "string",
            "description": "With `stream`: events `token` (index, token, text so far), then `done` with a "
            "PredictAnswer, or `error` with a Problem.",
        }
    }
    return described


def _name_choices(schemas: dict[str, Any], models: Models) -> None:
    """Add which models and languages there are."""
    for record in ("PredictRequest", "PredictOptions", "ScoreRequest"):
        required = schemas[record].setdefault("required", [])
        field = schemas[record]["properties"]["model"]
        field["anyOf"][0]["enum"] = list(models.by_id)
        if len(models.by_id) > 1:
            required.append("model")
    languages = models.list_languages()
    fields = schemas["TranslateRequest"]["properties"]
    fields["source"]["enum"] = [*(each["code"] for each in languages if each["targets"]), "auto"]
    if targets := sorted({target for each in languages for target in each["targets"]}):
        fields["target"]["enum"] = targets


def _describe_translate(record: Mapping[str, Any]) -> dict[str, Any]:
    summary = "Translate texts, as LibreTranslate does."
    described = _post("translate", summary, "TranslateRequest", "TranslateAnswer")
    fields = {name: {"type": "string"} for name in ("q", "api_key")}
    fields |= {name: record["properties"][name] for name in ("source", "target")}
    form = {
        "type": "object",
        "properties": fields
        | {"format": {"enum": ["text"]}, "alternatives": {"type": "string", "pattern": "^[0-9]{1,2}$"}},
        "required": ["q", "source", "target"],
        "additionalProperties": False,
    }
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        described["requestBody"]["content"][kind] = {"schema": form}
    return described


def _post(name: str, summary: str, asked: str, answered: str) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": _one(asked)}}},
        "responses": _responses(_one(answered), tuple(PROBLEMS)),
    }


def _get(
    name: str, summary: str, schema: Mapping[str, Any], more: tuple[int, ...] = (), kind: str = "application/json"
) -> dict[str, Any]:
    return {"operationId": name, "summary": summary, "responses": _responses(schema, (*OF_GET, *more), kind)}


def _responses(schema: Mapping[str, Any], problems: tuple[int, ...], kind: str = "application/json") -> dict[str, Any]:
    refused = {"application/json": {"schema": _one("Problem")}}
    return {
        "200": {"description": "The answer.", "content": {kind: {"schema": dict(schema)}}},
        **{str(status): {"description": PROBLEMS[status], "content": refused} for status in sorted(problems)},
    }


def _one(name: str) -> dict[str, Any]:
    return {"$ref": REFERENCE.format(model=name)}


def _many(name: str) -> dict[str, Any]:
    return {"type": "array", "items": _one(name)}
