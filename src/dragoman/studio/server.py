"""The studio's server, on loopback only. Every body is JSON but an upload's; every record is in ``records/``.

    GET  /                              the page
    GET  /api/runs                      → Run[]
    GET  /api/runs/{id}/training        ?after=BYTES → Training: what happened since
    GET  /api/runs/{id}/audit           → Audit
    GET  /api/runs/{id}/settings        → Settings
    POST /api/runs/{id}/predict         PredictRequest → Prediction
    POST /api/runs/{id}/tree            PredictRequest → Tree: of the same search
    POST /api/runs/{id}/attention       AttentionRequest → Attention: all layers and heads at once
    POST /api/runs/{id}/errors          FileRequest → Errors
    POST /api/runs/{id}/map             MapRequest → RepresentationMap
    POST /api/runs/{id}/neighbours      NeighboursRequest → Neighbours
    POST /api/compare                   CompareRequest → Comparison
    POST /api/upload?name=NAME          the bytes of a file → Upload
    GET  /api/uploads/{id}              the bytes again

``{id}`` is ``Run.id``. What a person can mend is answered with 400 and a ``Problem``, an unknown run or upload with
404, an upload that is too large with 413, a request from another site or for another host with 403.
"""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from dragoman.errors import MissingExtra, UserError
from dragoman.studio import history, records
from dragoman.studio.answers import Studio
from dragoman.studio.library import Library, Unknown
from dragoman.studio.page import static_folder
from dragoman.studio.uploads import LARGEST, TooLarge, Uploads

try:
    from fastapi import FastAPI, Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import FileResponse
    from starlette.responses import JSONResponse
except ImportError:
    raise MissingExtra("fastapi and uvicorn", "studio", "the studio") from None

PORT = 8400
LARGEST_BODY = 2_000_000  # bytes of a question that is no upload
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def application(folders: Sequence[Path], device: str = "auto") -> FastAPI:
    library, uploads = Library(folders, device), Uploads()
    studio = Studio(library, uploads)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        uploads.close()  # here, since a polite kill ends the process right after

    app = FastAPI(
        lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )  # the usual pages of docs load from elsewhere
    app.state.uploads = uploads

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        problem = refusal(request)
        response = _problem(*problem) if problem else await call_next(request)
        response.headers.update(
            {
                "Content-Security-Policy": POLICY,
                "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "no-referrer",
                "Cross-Origin-Resource-Policy": "same-origin",
                "Cache-Control": "no-store",
            }
        )
        return response

    @app.exception_handler(UserError)
    async def mistake(_: Request, error: UserError) -> Response:
        codes = {Unknown: 404, TooLarge: 413}
        return _problem(codes.get(type(error), 400), str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(one) for one in first["loc"][1:])
        return _problem(400, f"{where or 'the question'}: {first['msg']}")

    @app.get("/api/runs")
    def runs() -> Response:
        return _answer(library.runs())

    @app.get("/api/runs/{run}/training")
    def training(run: str, after: int = 0) -> Response:
        return _answer(history.training(library.entry(run).folder, run, max(0, after)))

    @app.get("/api/runs/{run}/audit")
    def audit(run: str) -> Response:
        return _answer(history.audit(library.entry(run).folder, run))

    @app.get("/api/runs/{run}/settings")
    def settings(run: str) -> Response:
        return _answer(history.settings(library.entry(run).folder, run))

    @app.post("/api/runs/{run}/predict")
    def predict(run: str, request: records.PredictRequest) -> Response:
        return _answer(studio.predict(run, request))

    @app.post("/api/runs/{run}/tree")
    def tree(run: str, request: records.PredictRequest) -> Response:
        return _answer(studio.tree(run, request))

    @app.post("/api/runs/{run}/attention")
    def attention(run: str, request: records.AttentionRequest) -> Response:
        return _answer(studio.attention(run, request))

    @app.post("/api/runs/{run}/errors")
    def errors(run: str, request: records.FileRequest) -> Response:
        return _answer(studio.errors(run, request))

    @app.post("/api/runs/{run}/map")
    def representations(run: str, request: records.MapRequest) -> Response:
        return _answer(studio.map(run, request))

    @app.post("/api/runs/{run}/neighbours")
    def neighbours(run: str, request: records.NeighboursRequest) -> Response:
        return _answer(studio.neighbours(run, request))

    @app.post("/api/compare")
    def compare(request: records.CompareRequest) -> Response:
        return _answer(studio.compare(request))

    @app.post("/api/upload")
    async def upload(request: Request, name: str) -> Response:
        return _answer(await uploads.take(name, request.stream()))

    @app.get("/api/uploads/{identity}")
    def uploaded(identity: str) -> Response:
        kept = uploads.get(identity)
        return FileResponse(kept.path, media_type=kept.content_type)

    @app.get("/{path:path}")
    def page(path: str) -> Response:
        if not path.startswith("api/"):
            folder = static_folder().resolve()
            file = (folder / (path or "index.html")).resolve()
            if file.is_relative_to(folder) and file.is_file():
                return FileResponse(file)
        return _problem(404, f"/{path}: there is nothing here")

    return app


def refusal(request: Request) -> tuple[int, str] | None:
    """Why a request is not answered, or None.

    Loopback does not keep other sites out: a page elsewhere can ask the browser to send requests here, and with a name
    that it points at 127.0.0.1 even read the answers. So the host must be loopback by name, and what asks must be the
    studio's own page.
    """
    host = request.headers.get("host", "")
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    if name not in LOOPBACK:
        return 403, f"the studio answers on this machine only, not as {host!r}"
    origin = request.headers.get("origin")
    asks = request.headers.get("sec-fetch-site", "none")
    is_api = request.url.path.startswith("/api/")
    if (origin is not None and origin != f"http://{host}") or (is_api and asks not in ("none", "same-origin")):
        return 403, "the studio answers its own page only, not another site"
    if request.method == "POST":
        size = request.headers.get("content-length", "")
        if not size.isdecimal():
            return 411, "say how long the body is"
        if len(size) > 20 or int(size) > (LARGEST if request.url.path == "/api/upload" else LARGEST_BODY):
            return 413, "too large: give a smaller file" if "upload" in request.url.path else "too long a question"
    return None


def serve(folders: Sequence[Path], port: int | None, browser: bool, device: str, say: Callable[[str], Any]) -> None:
    """Until Ctrl-C. ``port`` None: the usual one, or a free one if that is taken."""
    try:
        import uvicorn
    except ImportError:
        raise MissingExtra("fastapi and uvicorn", "studio", "the studio") from None
    static_folder()
    app = application(folders, device)
    listener = _listen(port)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
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


def _answer(found: records.Record | Sequence[records.Record]) -> Response:
    """Written once, without a second validation: blocks of attention are large."""
    if isinstance(found, records.Record):
        text = found.model_dump_json()
    else:
        text = f"[{','.join(one.model_dump_json() for one in found)}]"
    return Response(text.encode("utf-8", "replace"), media_type="application/json")


def _problem(code: int, sentence: str) -> Response:
    return JSONResponse(records.Problem(error=sentence).model_dump(), code)
