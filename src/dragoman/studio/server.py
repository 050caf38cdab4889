"""The studio's local server, on loopback only.

Bodies are JSON records of ``records/``, except those of uploads.

    GET  /                              the page
    GET  /api/runs                      → Overview: the runs, and what the studio can do
    GET  /api/runs/{id}/examples        → Example[]: some dev rows to try
    GET  /api/runs/{id}/training        ?after=BYTES → Training: the events since then
    GET  /api/runs/{id}/audit           → Audit
    GET  /api/runs/{id}/settings        → Settings
    POST /api/runs/{id}/predict         PredictRequest → Prediction
    POST /api/runs/{id}/tree            PredictRequest → Tree of the same search
    POST /api/runs/{id}/attention       AttentionRequest → Attention, all layers and heads
    POST /api/runs/{id}/errors          FileRequest → Errors
    POST /api/runs/{id}/map             MapRequest → RepresentationMap
    POST /api/runs/{id}/neighbours      NeighboursRequest → Neighbours
    POST /api/compare                   CompareRequest → Comparison
    POST /api/upload?name=NAME          the bytes of a file → Upload
    GET  /api/uploads/{id}              → the bytes
    GET  /api/uploads/{id}/about        → Upload

``{id}`` is ``Run.id`` or ``Upload.id``. What computes goes through the queue of ``serving``. An
error is answered with a ``Problem``:

- 400 for what a person can correct, 404 for an unknown run or upload, 405 for another method;
- 403 for a request from another site, for another host, or for a file outside the studio's folders;
- 408, 411, 413, 414, 415, 431 for a body, path or headers that are too slow, too long or of another
  kind; 422 for a question that asks for more than the limits allow;
- 429 if too many questions wait, 503 and 504 for a question that was not answered in time.
"""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from dragoman.errors import MissingExtra, UserError
from dragoman.serving.guard import Guard
from dragoman.serving.limits import Limits
from dragoman.serving.questions import answer, parse_question
from dragoman.serving.queue import Job, Queue
from dragoman.studio import records
from dragoman.studio.bundle import read_page
from dragoman.studio.checks import check_request
from dragoman.studio.endpoints import Studio
from dragoman.studio.library import Library, NotFound
from dragoman.studio.uploads import Uploads
from dragoman.studio.views.runs import describe_audit, describe_settings, describe_training

try:
    from fastapi import FastAPI, Request, Response
    from fastapi.concurrency import run_in_threadpool
    from fastapi.responses import FileResponse
except ImportError:
    raise MissingExtra("fastapi and uvicorn", "studio", "the studio") from None

from dragoman.serving.problems import add_problem_handlers, respond_with_problem

PORT = 8400
PAGE_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}  # starlette adds the charset
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
UPLOAD = "/api/upload"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
        "img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SMALL_BODY = 20_000  # bytes that are parsed at once, without another thread

Question = TypeVar("Question", bound=records.Request)
Answer = records.Record | Sequence[records.Record]


def create_application(folders: Sequence[Path], device: str = "auto", limits: Limits | None = None) -> FastAPI:
    """Return the application that serves these runs."""
    limits = limits or Limits()
    library, uploads, queue = Library(folders, device), Uploads(limits), Queue(limits)
    studio = Studio(library, uploads, limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        queue.close()
        uploads.close()  # here, since SIGTERM ends the process right after the server stops

    # No pages of documentation: they load scripts from other sites.
    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.uploads, app.state.library, app.state.queue = uploads, library, queue
    app.add_middleware(Guard, limits=limits, hosts=LOOPBACK, uploads=(UPLOAD,), headers=HEADERS)

    async def compute(request: Request, work: Callable[[Job], Answer], is_table: bool = False) -> Response:
        """Answer with what the queue computes."""
        seconds = limits.table_seconds if is_table else limits.question_seconds
        body = await answer(queue, request.receive, lambda job: _to_json(work(job)), seconds=seconds, is_long=is_table)
        return Response(body, media_type="application/json")

    async def ask(
        request: Request, kind: type[Question], work: Callable[[Question, Job], Answer], is_table: bool = False
    ) -> Response:
        """Answer the question in the body of a request."""
        body = await request.body()
        if len(body) > SMALL_BODY:
            question = await run_in_threadpool(parse_question, body, kind)
        else:
            question = parse_question(body, kind)
        check_request(question, limits)
        return await compute(request, lambda job: work(question, job), is_table)

    add_problem_handlers(app, "the studio", NotFound)

    @app.get("/api/runs")
    def runs() -> Response:
        return _respond(studio.overview())

    @app.get("/api/runs/{run}/examples")
    async def examples(run: str, request: Request) -> Response:
        return await compute(request, lambda job: studio.examples(run, job), is_table=True)

    @app.get("/api/runs/{run}/training")
    def training(run: str, after: int = 0) -> Response:
        return _respond(describe_training(library.entry(run).folder, run, max(0, after)))

    @app.get("/api/runs/{run}/audit")
    def audit(run: str) -> Response:
        return _respond(describe_audit(library.entry(run).folder, run))

    @app.get("/api/runs/{run}/settings")
    def settings(run: str) -> Response:
        return _respond(describe_settings(library.entry(run).folder, run))

    @app.post("/api/runs/{run}/predict")
    async def predict(run: str, request: Request) -> Response:
        return await ask(request, records.PredictRequest, lambda question, job: studio.predict(run, question, job))

    @app.post("/api/runs/{run}/tree")
    async def tree(run: str, request: Request) -> Response:
        return await ask(request, records.PredictRequest, lambda question, job: studio.tree(run, question, job))

    @app.post("/api/runs/{run}/attention")
    async def attention(run: str, request: Request) -> Response:
        return await ask(request, records.AttentionRequest, lambda question, job: studio.attention(run, question, job))

    @app.post("/api/runs/{run}/errors")
    async def errors(run: str, request: Request) -> Response:
        return await ask(request, records.FileRequest, lambda question, job: studio.errors(run, question, job), True)

    @app.post("/api/runs/{run}/map")
    async def representations(run: str, request: Request) -> Response:
        return await ask(request, records.MapRequest, lambda question, job: studio.map(run, question, job), True)

    @app.post("/api/runs/{run}/neighbours")
    async def neighbours(run: str, request: Request) -> Response:
        return await ask(
            request, records.NeighboursRequest, lambda question, job: studio.neighbours(run, question, job), True
        )

    @app.post("/api/compare")
    async def compare(request: Request) -> Response:
        return await ask(request, records.CompareRequest, studio.compare, True)

    @app.post(UPLOAD)
    async def upload(request: Request, name: str) -> Response:
        return _respond(await uploads.store(name, request.stream()))

    @app.get("/api/uploads/{identity}")
    def uploaded(identity: str) -> Response:
        stored = uploads.get(identity)
        return FileResponse(stored.path, media_type=stored.content_type)

    @app.get("/api/uploads/{identity}/about")
    def about_upload(identity: str) -> Response:
        return _respond(uploads.get(identity).record)

    @app.post("/{path:path}")
    def nothing(path: str) -> Response:
        return respond_with_problem(404, f"/{path[:200]}: not found")

    @app.get("/{path:path}")
    def page(path: str) -> Response:
        if not path.startswith("api/"):
            name = path or "index.html"
            content = read_page().get(name)
            if content is not None and Path(name).suffix in PAGE_TYPES:
                return Response(content, media_type=PAGE_TYPES[Path(name).suffix])
        return nothing(path)

    return app


def serve(folders: Sequence[Path], port: int | None, browser: bool, device: str, say: Callable[[str], Any]) -> None:
    """Serve the studio until Ctrl-C.

    With ``port`` None it is the usual port, or a free one if that is taken.
    """
    import uvicorn

    from dragoman.serving.connections import configure

    read_page()
    limits = Limits()
    app = create_application(folders, device, limits)
    listener = _listen(port)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    if watched := app.state.library.watched:
        names = ", ".join(map(str, watched))
        say(f"studio: {len(app.state.library.entries):,} runs; new ones in {names} appear on the page by themselves")
    say(f"studio: {address} (Ctrl-C ends it)")
    if browser:
        webbrowser.open(address)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(configure(app, limits)).run(sockets=[listener])


def _listen(port: int | None) -> socket.socket:
    for number in [PORT, 0] if port is None else [port]:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", number))
        except OSError as error:
            listener.close()
            reason = error.strerror
            continue
        listener.listen()
        return listener
    raise UserError(f"--port {port}: cannot be used ({reason}); choose another, or leave it out")


def _respond(answer: Answer) -> Response:
    return Response(_to_json(answer), media_type="application/json")


def _to_json(answer: Answer) -> bytes:
    """Write records as JSON.

    FastAPI would validate them once more, which takes long for large blocks of attention.
    """
    if isinstance(answer, records.Record):
        text = answer.model_dump_json()
    else:
        text = f"[{','.join(record.model_dump_json() for record in answer)}]"
    return text.encode("utf-8", "replace")
