"""The application of ``dragoman serve``.

    GET  /                  the endpoints, for people
    GET  /openapi.json      the same for programs
    POST /v1/predict        PredictRequest → PredictAnswer; a form with files; server-sent events
    POST /v1/score          ScoreRequest → ScoreAnswer
    GET  /v1/models         → ModelsAnswer
    POST /translate         TranslateRequest, JSON or form → TranslateAnswer
    GET  /languages         → Language[]
    GET  /healthz           the process lives
    GET  /readyz            it takes requests: 503 until the workers are ready, and while it is being stopped
    GET  /metrics           numbers for Prometheus

Records are in ``records``. What computes goes through the queue of ``batching``. An error is
answered with a ``Problem``, and with the statuses that the studio has (``studio/server.py``); 401 is
for a missing key, 404 for an unknown model.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from dragoman.errors import MissingExtra
from dragoman.serving.asking import Asker
from dragoman.serving.batches import Question
from dragoman.serving.batching import Batcher
from dragoman.serving.compute import Answered, Refused, to_json
from dragoman.serving.guard import MULTIPART, URLENCODED, Guard
from dragoman.serving.keys import Keys
from dragoman.serving.limits import Limits, RequestRefused
from dragoman.serving.logs import NOTES, RequestLog
from dragoman.serving.models import Model, Models
from dragoman.serving.questions import answer, parse_question, validate_question
from dragoman.serving.records import PredictRequest, Request, ScoreRequest, TranslateRequest
from dragoman.serving.translation import as_request, describe_translation

try:
    import fastapi
    from fastapi import FastAPI, Response
    from fastapi.concurrency import run_in_threadpool
except ImportError:
    raise MissingExtra("fastapi and uvicorn", "serve", "dragoman serve") from None

from dragoman.serving.events import EventStream
from dragoman.serving.forms import read_fields, read_uploads
from dragoman.serving.metrics import CONTENT_TYPE, Metrics
from dragoman.serving.openapi import describe_api
from dragoman.serving.page import HEADERS, make_page
from dragoman.serving.problems import add_problem_handlers, respond_with_problem

PREDICT, SCORE, MODELS = "/v1/predict", "/v1/score", "/v1/models"
TRANSLATE, LANGUAGES = "/translate", "/languages"
HEALTH, READY, METRICS, OPENAPI = "/healthz", "/readyz", "/metrics", "/openapi.json"
PATHS = ("/", PREDICT, SCORE, MODELS, TRANSLATE, LANGUAGES, HEALTH, READY, METRICS, OPENAPI)
FORMS = {PREDICT: (MULTIPART,), TRANSLATE: (URLENCODED, MULTIPART), LANGUAGES: (URLENCODED,)}
SMALL_BODY = 20_000  # bytes that are parsed at once, without another thread

Asked = TypeVar("Asked", bound=Request)


class Draining:
    """Whether the server is being stopped: then it answers what it has accepted, and nothing else."""

    since: float | None = None

    def begin(self) -> None:
        """Refuse new questions from now on."""
        self.since = self.since or time.monotonic()


def create_application(
    models: Models,
    batcher: Batcher,
    *,
    limits: Limits,
    metrics: Metrics,
    hosts: tuple[str, ...],
    keys: Keys | None = None,
    is_ready: Callable[[], bool] = lambda: True,
    draining: Draining | None = None,
    logs_texts: bool = False,
    write_log: Callable[[str], Any] | None = None,
) -> FastAPI:
    """Return the application that answers for these models. ``logs_texts``: inputs and outputs are in the log."""
    keys, draining = keys or Keys(), draining or Draining()
    asker = Asker(models, limits)
    uploads = tempfile.TemporaryDirectory(prefix="dragoman-serve-", ignore_cleanup_errors=True)
    folder = Path(uploads.name)
    described = describe_api(models, limits, keys.are_wanted)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        uploads.cleanup()

    # FastAPI's own pages of documentation load scripts from other sites.
    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(
        Guard, limits=limits, hosts=hosts, forms=FORMS, api=("/v1/", TRANSLATE, LANGUAGES), headers=HEADERS
    )
    app.add_middleware(RequestLog, paths=PATHS, count_request=metrics.count_request, write=write_log)
    add_problem_handlers(app, "the server")

    async def read(request: fastapi.Request, kind: type[Asked]) -> Asked:
        """Return the record in a body of JSON."""
        body = await request.body()
        return (
            await run_in_threadpool(parse_question, body, kind)
            if len(body) > SMALL_BODY
            else parse_question(body, kind)
        )

    def admit(request: fastapi.Request, key: str | None = None) -> None:
        """Refuse clients without a key, and all while the server is being stopped."""
        keys.check(request.headers, key)
        if draining.since is not None:
            sentence = "the server is being stopped; ask again when it runs"
            raise RequestRefused(503, sentence, 5, {"Connection": "close"})

    def note(request: fastapi.Request, question: Question) -> None:
        """Let the line of the log say what is asked."""
        notes = request.scope[NOTES]
        notes |= {"model": question.task.model, "inputs": len(question.items)}
        if logs_texts:
            notes["texts"] = [item.source for item in question.items]

    async def compute(request: fastapi.Request, question: Question) -> list[Answered]:
        """Return the answers of all inputs. Raise the refusal of the first input that has one."""
        note(request, question)
        answers: list[Answered] = await answer(batcher, request.receive, question, seconds=limits.question_seconds)
        check_answers(answers)
        if logs_texts:
            request.scope[NOTES]["answers"] = [each.decode() for each in answers if isinstance(each, bytes)]
        return answers

    @app.post(PREDICT)
    async def predict(request: fastapi.Request) -> Response:
        admit(request)
        if request.headers["content-type"].lower().startswith(MULTIPART):
            async with read_uploads(request, models, limits, folder) as (options, inputs):
                model, question = asker.predict_files(options, inputs)
                return _join(model, "predictions", await compute(request, question))
        asked = await read(request, PredictRequest)
        if asked.stream:
            events = EventStream(batcher, limits.question_seconds)
            model, question = asker.predict(asked, events.add)
            note(request, question)
            return events.start(question, model.id)
        model, question = asker.predict(asked)
        return _join(model, "predictions", await compute(request, question))

    @app.post(SCORE)
    async def score(request: fastapi.Request) -> Response:
        admit(request)
        model, question = asker.score(await read(request, ScoreRequest))
        return _join(model, "scores", await compute(request, question))

    @app.post(TRANSLATE)
    async def translate(request: fastapi.Request) -> Response:
        if request.headers["content-type"].lower().startswith("application/json"):
            asked = await read(request, TranslateRequest)
        else:
            asked = validate_question(as_request(await read_fields(request, limits)), TranslateRequest)
        admit(request, asked.api_key)
        model = models.translator(asked.source, asked.target)
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        answers = await compute(request, asker.translate(model, texts, asked.alternatives))
        assert model.languages is not None
        return _respond(describe_translation(asked, answers, model.languages[0]))

    @app.get(LANGUAGES)
    async def languages(request: fastapi.Request) -> Response:
        has_body = request.headers.get("content-length", "0") != "0"
        fields = await read_fields(request, limits) if has_body else {}  # so LibreTranslate's clients show their key
        keys.check(request.headers, str(fields.get("api_key", request.query_params.get("api_key", ""))))
        return _respond(models.list_languages())

    @app.get(MODELS)
    async def list_models(request: fastapi.Request) -> Response:
        keys.check(request.headers)
        return _respond({"models": [model.describe() for model in models.by_id.values()]})

    @app.get(HEALTH)
    async def health() -> Response:
        return _respond({"status": "alive"})

    @app.get(READY)
    async def ready() -> Response:
        if draining.since is not None:
            return respond_with_problem(503, "the server is being stopped", {"Retry-After": "5"})
        if not is_ready():
            return respond_with_problem(503, "the workers are not ready yet", {"Retry-After": "1"})
        return _respond({"status": "ready"})

    @app.get(METRICS)
    async def show_metrics(request: fastapi.Request) -> Response:
        keys.check(request.headers)
        return Response(metrics.show(), headers={"Content-Type": CONTENT_TYPE})

    @app.get(OPENAPI)
    async def openapi() -> Response:
        return _respond(described)

    @app.get("/")
    async def page() -> Response:
        return Response(make_page(described), media_type="text/html")

    return app


def check_answers(answers: Sequence[Answered]) -> None:
    """Raise the refusal of the first input that was refused."""
    for each in answers:
        if isinstance(each, Refused):
            raise RequestRefused(each.status, each.sentence, 1 if each.status == 503 else None)


def _join(model: Model, name: str, answers: Sequence[Answered]) -> Response:
    """Return an answer made of the JSON of its inputs."""
    parts = b", ".join(each for each in answers if isinstance(each, bytes))
    body = b'{"model": %s, "%s": [%s]}' % (to_json(model.id), name.encode(), parts)
    return Response(body, media_type="application/json")


def _respond(value: Any) -> Response:
    return Response(to_json(value), media_type="application/json")
