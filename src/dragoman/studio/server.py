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

``{id}`` is ``Run.id`` or ``Upload.id``. An error is answered with a ``Problem``: 400 for what a
person can correct, 404 for an unknown run or upload, 413 for an upload that is too large, 403 for a
request from another site or for another host.
"""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from dragoman.errors import MissingExtra, UserError
from dragoman.studio import records
from dragoman.studio.bundle import read_page
from dragoman.studio.endpoints import Studio
from dragoman.studio.library import Library, NotFound
from dragoman.studio.uploads import MAX_FILE_SIZE, Uploads, UploadTooLarge
from dragoman.studio.views.runs import describe_audit, describe_settings, describe_training

try:
    from fastapi import FastAPI, Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import FileResponse
    from starlette.responses import JSONResponse
except ImportError:
    raise MissingExtra("fastapi and uvicorn", "studio", "the studio") from None

PORT = 8400
MAX_BODY_SIZE = 2_000_000  # bytes of a request that is not an upload
PAGE_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}  # starlette adds the charset
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def create_application(folders: Sequence[Path], device: str = "auto") -> FastAPI:
    """Return the application that serves these runs."""
    library, uploads = Library(folders, device), Uploads()
    studio = Studio(library, uploads)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        uploads.close()  # here, since SIGTERM ends the process right after the server stops

    # No pages of documentation: they load scripts from other sites.
    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.uploads, app.state.library = uploads, library

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        refusal = refuse(request)
        response = _respond_with_problem(*refusal) if refusal else await call_next(request)
        response.headers.update(
            {
                "Content-Security-Policy": CONTENT_SECURITY_POLICY,
                "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "no-referrer",
                "Cross-Origin-Resource-Policy": "same-origin",
                "Cache-Control": "no-store",
            }
        )
        return response

    @app.exception_handler(UserError)
    async def report_user_error(_: Request, error: UserError) -> Response:
        codes = {NotFound: 404, UploadTooLarge: 413}
        return _respond_with_problem(codes.get(type(error), 400), str(error))

    @app.exception_handler(RequestValidationError)
    async def report_invalid_request(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        field = ".".join(str(name) for name in first["loc"][1:])
        return _respond_with_problem(400, f"{field or 'the request'}: {first['msg']}")

    @app.get("/api/runs")
    def runs() -> Response:
        return _respond(studio.overview())

    @app.get("/api/runs/{run}/examples")
    def examples(run: str) -> Response:
        return _respond(studio.examples(run))

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
    def predict(run: str, request: records.PredictRequest) -> Response:
        return _respond(studio.predict(run, request))

    @app.post("/api/runs/{run}/tree")
    def tree(run: str, request: records.PredictRequest) -> Response:
        return _respond(studio.tree(run, request))

    @app.post("/api/runs/{run}/attention")
    def attention(run: str, request: records.AttentionRequest) -> Response:
        return _respond(studio.attention(run, request))

    @app.post("/api/runs/{run}/errors")
    def errors(run: str, request: records.FileRequest) -> Response:
        return _respond(studio.errors(run, request))

    @app.post("/api/runs/{run}/map")
    def representations(run: str, request: records.MapRequest) -> Response:
        return _respond(studio.map(run, request))

    @app.post("/api/runs/{run}/neighbours")
    def neighbours(run: str, request: records.NeighboursRequest) -> Response:
        return _respond(studio.neighbours(run, request))

    @app.post("/api/compare")
    def compare(request: records.CompareRequest) -> Response:
        return _respond(studio.compare(request))

    @app.post("/api/upload")
    async def upload(request: Request, name: str) -> Response:
        return _respond(await uploads.store(name, request.stream()))

    @app.get("/api/uploads/{identity}")
    def uploaded(identity: str) -> Response:
        stored = uploads.get(identity)
        return FileResponse(stored.path, media_type=stored.content_type)

    @app.get("/api/uploads/{identity}/about")
    def about_upload(identity: str) -> Response:
        return _respond(uploads.get(identity).record)

    @app.get("/{path:path}")
    def page(path: str) -> Response:
        if not path.startswith("api/"):
            name = path or "index.html"
            content = read_page().get(name)
            if content is not None and Path(name).suffix in PAGE_TYPES:
                return Response(content, media_type=PAGE_TYPES[Path(name).suffix])
        return _respond_with_problem(404, f"/{path}: not found")

    return app


def refuse(request: Request) -> tuple[int, str] | None:
    """Return the status and the reason for which a request is refused, or None if it is not.

    Listening on loopback does not keep other sites out. A page of another site can make the browser
    send requests here, and with a host name that resolves to 127.0.0.1 it can even read the answers
    (DNS rebinding). So the host has to be a name of loopback, and the request has to come from the
    studio's own page.
    """
    host = request.headers.get("host", "")
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    if name not in LOOPBACK:
        return 403, f"the studio answers on this machine only, not as {host!r}"
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "none")
    is_api = request.url.path.startswith("/api/")
    if (origin is not None and origin != f"http://{host}") or (is_api and site not in ("none", "same-origin")):
        return 403, "the studio answers its own page only, not another site"
    if request.method == "POST":
        is_upload = request.url.path == "/api/upload"
        size = request.headers.get("content-length", "")
        if not size.isdecimal():
            return 411, "the Content-Length header is missing"
        if len(size) > 20 or int(size) > (MAX_FILE_SIZE if is_upload else MAX_BODY_SIZE):
            return 413, "the file is too large; give a smaller one" if is_upload else "the request is too long"
    return None


def serve(folders: Sequence[Path], port: int | None, browser: bool, device: str, say: Callable[[str], Any]) -> None:
    """Serve the studio until Ctrl-C.

    With ``port`` None it is the usual port, or a free one if that is taken.
    """
    try:
        import uvicorn
    except ImportError:
        raise MissingExtra("fastapi and uvicorn", "studio", "the studio") from None
    read_page()
    app = create_application(folders, device)
    listener = _listen(port)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    if watched := app.state.library.watched:
        names = ", ".join(map(str, watched))
        say(f"studio: {len(app.state.library.entries):,} runs; new ones in {names} appear on the page by themselves")
    say(f"studio: {address} (Ctrl-C ends it)")
    if browser:
        webbrowser.open(address)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


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


def _respond(answer: records.Record | Sequence[records.Record]) -> Response:
    """Write records as JSON.

    FastAPI would validate them once more, which takes long for large blocks of attention.
    """
    if isinstance(answer, records.Record):
        text = answer.model_dump_json()
    else:
        text = f"[{','.join(record.model_dump_json() for record in answer)}]"
    return Response(text.encode("utf-8", "replace"), media_type="application/json")


def _respond_with_problem(status: int, sentence: str) -> Response:
    return JSONResponse(records.Problem(error=sentence).model_dump(), status)
