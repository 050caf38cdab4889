"""Errors as answers: a sentence in JSON with the right status, for every application of this room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dragoman.errors import MissingExtra, UserError
from dragoman.serving.limits import RequestRefused
from dragoman.serving.questions import problem

try:
    from fastapi import FastAPI, Request, Response
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException
except ImportError:
    raise MissingExtra("fastapi and uvicorn", "serve", "a server") from None


def respond_with_problem(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return the answer to a request that has none."""
    return Response(problem(sentence), status, headers, "application/json")


def add_problem_handlers(app: FastAPI, name: str, not_found: type[UserError] | tuple[()] = ()) -> None:
    """Let an application answer every error with a sentence.

    ``name`` is what the application is called, ``not_found`` the error for something that does not exist.
    """

    @app.exception_handler(UserError)
    async def report_user_error(_: Request, error: UserError) -> Response:
        if isinstance(error, RequestRefused):
            return respond_with_problem(error.status, str(error), error.headers)
        return respond_with_problem(404 if isinstance(error, not_found) else 400, str(error))

    @app.exception_handler(RequestValidationError)
    async def report_invalid_request(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:])
        return respond_with_problem(400, f"{field or 'the request'}: {first['msg']}")

    @app.exception_handler(HTTPException)
    async def report_http_error(request: Request, error: HTTPException) -> Response:
        headers: Mapping[str, Any] | None = error.headers
        sentence = f"{request.url.path[:200]}: {str(error.detail).lower()}"
        return respond_with_problem(error.status_code, sentence, headers)

    @app.exception_handler(Exception)
    async def report_bug(_: Request, error: Exception) -> Response:
        kind = type(error).__name__
        return respond_with_problem(500, f"{name} failed ({kind}): a mistake in it; its terminal shows where")
