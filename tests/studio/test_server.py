"""The server answers the studio's own page on loopback, within limits, and nobody else."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

import httpx

from dragoman.errors import UserError
from dragoman.evaluation.run_data import read_run_data
from dragoman.inference.system import System
from dragoman.serving.limits import Limits
from dragoman.studio import bundle, endpoints, records, server
from dragoman.studio.inspection import inspect
from dragoman.studio.server import create_application
from dragoman.studio.views.matrices import unpack_weights

HOME = "http://127.0.0.1:8400"


class Client:
    """One question at a time, straight to the application: no socket is opened."""

    def __init__(self, app: Any, run_async: Callable[..., Any]) -> None:
        self.app = app
        self.run_async = run_async

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.run_async(self._ask("GET", path, options))

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.run_async(self._ask("POST", path, options))

    async def _ask(self, method: str, path: str, options: dict[str, Any]) -> httpx.Response:
        if isinstance(options.get("content"), list):
            options["content"] = _pieces(options["content"])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=HOME, timeout=60) as client:
            return await client.request(method, path, **options)


async def _pieces(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


@pytest.fixture(scope="module")
def client(tiny_run: Any, heads_folder: Path, run_async: Callable[..., Any]) -> Iterator[Client]:
    yield from serve_to_client([tiny_run.folder, heads_folder], run_async)


def serve_to_client(
    folders: list[Path], run_async: Callable[..., Any], limits: Limits | None = None
) -> Iterator[Client]:
    app = create_application(folders, "cpu", limits)
    yield Client(app, run_async)
    app.state.queue.close()
    app.state.uploads.close()


def test_runs_training_audit_settings(client: Client) -> None:
    overview = records.Overview(**client.get("/api/runs").json())
    assert [run.id for run in overview.runs] == ["run", "heads"] and not overview.watched
    assert [run.held_out for run in overview.runs] == ["test", "test"]
    first = records.Training(**client.get("/api/runs/run/training").json())
    assert first.stepped and not client.get(f"/api/runs/run/training?after={first.offset}").json()["stepped"]
    assert records.Audit(**client.get("/api/runs/run/audit").json()).train > 0
    assert records.Settings(**client.get("/api/runs/run/settings").json()).settings


def test_predict_tree_and_attention_are_of_one_search(client: Client, recurrent: System) -> None:
    request = {"input": "abcd", "beam": 3, "n_best": 3, "reference": "dcba"}
    prediction = records.Prediction(**client.post("/api/runs/run/predict", json=request).json())
    inspection = inspect(recurrent, "abcd", records.PredictRequest(**request))
    (searched,) = inspection.session.search([inspection.prepared], attention=True)
    assert [output.text for output in prediction.outputs] == [output.text for output in inspection.prediction.outputs]
    tree = records.Tree(**client.post("/api/runs/run/tree", json=request).json())
    pruned = [(i, j) for i, step in enumerate(tree.steps) for j, node in enumerate(step) if node.fate == "pruned"]
    step, place = pruned[0]
    np.testing.assert_allclose(tree.steps[step][place].total, inspection.result.trace.steps[step].total[place])
    tokens = [token.id for token in prediction.outputs[1].tokens]
    answer = client.post("/api/runs/run/attention", json={"input": "abcd", "tokens": tokens})
    shown = records.Attention(**answer.json())
    assert shown.maps is not None and searched.hypotheses[1].attention is not None
    np.testing.assert_allclose(unpack_weights(shown.maps)[0], searched.hypotheses[1].attention[:, 0], atol=1e-4)


def test_tables_and_map(client: Client, tiny_run: Any) -> None:
    errors = records.Errors(**client.post("/api/runs/run/errors", json={}).json())
    assert errors.rows and errors.file == "test"
    by_path = records.Errors(**client.post("/api/runs/run/errors", json={"file": str(tiny_run.pairs)}).json())
    assert by_path.evaluation.rows == 200 and by_path.file == "pairs.tsv"
    compared = records.Comparison(**client.post("/api/compare", json={"a": "run", "b": "heads"}).json())
    assert compared.count == errors.evaluation.rows and (compared.a_name, compared.b_name) == ("run", "heads")
    drawn = records.RepresentationMap(**client.post("/api/runs/heads/map", json={"n": 30}).json())
    assert len(drawn.points) == 30
    near = client.post("/api/runs/heads/neighbours", json={"input": drawn.points[3].source["source"], "n": 30}).json()
    assert records.Neighbours(**near).neighbours[0].index == 3


@pytest.mark.parametrize(
    "text", ["</script><img src=x onerror=alert(1)>", "مرحبا ab", "a👩‍👩‍👧b", "ab " * 1666, "\ud800 a"]
)
def test_any_text_comes_back_as_it_was(client: Client, text: str) -> None:
    body = json.dumps({"input": text, "max_length": 15})
    answer = client.post("/api/runs/run/predict", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.json()["input"]["source"] == text.strip().replace("\ud800", "\ufffd")


def test_mistakes_are_answered_with_a_sentence(client: Client) -> None:
    for path, body, code, words in (
        ("/api/runs/run/predict", {"input": ""}, 400, "empty input"),
        ("/api/runs/run/predict", {"input": "a", "beam": 0}, 400, "beam"),
        ("/api/runs/run/predict", {"input": "a", "beem": 2}, 400, "beem"),
        ("/api/runs/none/predict", {"input": "a"}, 404, "no run 'none'"),
        ("/api/runs/run/errors", {"file": "no/such.tsv"}, 400, "no such file"),
        ("/api/runs/run/errors", {"file": "/no/such.tsv"}, 403, "upload the file"),
        ("/api/runs/run/errors", {"file": "upload-00"}, 404, "no such upload"),
    ):
        answer = client.post(path, json=body)
        assert answer.status_code == code and words in records.Problem(**answer.json()).error


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:8400"},
        {"host": "127.0.0.1.evil.example:8400"},
        {"host": "192.168.0.7:8400"},
        {"host": ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_other_hosts_and_other_sites_are_refused(client: Client, headers: dict[str, str]) -> None:
    for answer in (
        client.get("/api/runs", headers=headers),
        client.post("/api/runs/run/predict", json={"input": "ab"}, headers=headers),
        client.post("/api/upload?name=a.png", content=b"x", headers=headers),
    ):
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("host", ["127.0.0.1:8400", "localhost:8400", "[::1]:8400", "localhost"])
def test_loopback_is_answered(client: Client, host: str) -> None:
    own = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
    assert client.get("/api/runs", headers=own).status_code == 200


def test_uploads_are_kept_limited_and_given_back(client: Client, run_async: Callable[..., Any]) -> None:
    upload = records.Upload(**client.post("/api/upload?name=../../x.PNG", content=b"\x89PNG rest").json())
    assert (upload.name, upload.kind, upload.size) == ("x.PNG", "image", 9)
    back = client.get(upload.url)
    assert back.content == b"\x89PNG rest" and back.headers["content-type"] == "image/png"
    assert client.post("/api/upload?name=a.svg", content=b"<svg/>").status_code == 400
    assert client.post("/api/upload?name=a.png", content=b"").status_code == 400
    assert client.get("/api/uploads/..%2f..%2fetc%2fpasswd").status_code == 404
    too_much = client.post(
        "/api/upload?name=a.png", headers={"content-length": str(Limits().upload_bytes + 1)}, content=b"x"
    )
    endless = client.post("/api/upload?name=a.png", headers={"content-length": "9" * 5000}, content=b"x")
    assert endless.status_code == 413
    assert too_much.status_code == 413
    for small in serve_to_client(
        [client.app.state.library.entry("run").folder], run_async, Limits(upload_bytes=10, stored_bytes=10)
    ):
        assert small.post("/api/upload?name=a.png", content=b"x" * 11).status_code == 413
        first = small.post("/api/upload?name=a.png", content=b"x" * 9).json()["url"]
        assert small.post("/api/upload?name=b.png", content=b"x" * 9).status_code == 200
        assert small.get(first).status_code == 404


def test_a_question_without_a_length_or_too_long_is_refused(client: Client) -> None:
    assert client.post("/api/runs/run/predict", content=[b'{"input": "a"}']).status_code == 411
    assert client.post("/api/runs/run/predict", json={"input": "a" * 2_100_000}).status_code == 413


def test_an_uploaded_table_is_measured(client: Client) -> None:
    upload = client.post("/api/upload?name=mine.tsv", content=b"abc\tcba\nabd\tdba\n").json()
    errors = records.Errors(**client.post("/api/runs/run/errors", json={"file": upload["id"]}).json())
    assert errors.file == "mine.tsv" and [row.line for row in errors.rows] == [1, 2]
    upload = client.post("/api/upload?name=mine.csv", content=b"source,target\nabc,cba\n").json()
    errors = records.Errors(**client.post("/api/runs/run/errors", json={"file": upload["id"]}).json())
    assert errors.file == "mine.csv" and [row.source for row in errors.rows] == [{"source": "abc"}]


def test_the_page_is_served_and_nothing_beside_it(client: Client) -> None:
    answer = client.get("/")
    assert answer.status_code == 200 and "text/html" in answer.headers["content-type"]
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for name, kind in re.findall(r'(?:src|href)="\./([^"]+\.(js|css))"', answer.text):
        served = client.get(f"/{name}")
        assert served.status_code == 200 and served.content == bundle.read_page()[name]
        assert served.headers["content-type"].startswith({"js": "text/javascript", "css": "text/css"}[kind])
    assert "studio.js" in answer.text and "studio.css" in answer.text
    for path in ("/..%2fserver.py", "/%2e%2e/server.py", "/nothing.js", "/sources.sha256", "/docs", "/openapi.json"):
        assert client.get(path).status_code == 404


def test_no_request_leaves(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was attempted")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert client.post("/api/runs/run/predict", json={"input": "abc"}).status_code == 200
    assert client.post("/api/runs/run/map", json={"n": 10}).status_code == 200


def test_a_port_in_use_is_reported_or_avoided() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match="cannot be used"):
            server._listen(port)
        listener = server._listen(None)
        assert listener.getsockname()[0] == "127.0.0.1"
        listener.close()


def test_a_studio_without_its_page_says_so(tiny_run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bundle.resources, "files", lambda _: tmp_path)
    with pytest.raises(UserError, match="make studio"):
        server.serve([tiny_run.folder], 0, False, "cpu", print)


def test_runs_of_the_same_name_are_told_apart(tiny_run: Any, tmp_path: Path) -> None:
    from dragoman.studio.library import Library

    assert list(Library([tiny_run.folder] * 3).entries) == ["run", "run-2", "run-3"]
    with pytest.raises(UserError, match="no such folder"):
        Library([tiny_run.folder / "nothing"])
    numbered = [tmp_path / name for name in ("dates-2", "dates", "dates-old", "other/dates")]
    for folder in numbered:
        shutil.copytree(tiny_run.folder, folder)
    library = Library(numbered)
    assert [entry.folder for entry in library.entries.values()] == numbered
    assert list(library.entries) == ["dates-2", "dates", "dates-old", "dates-3"]
    shutil.rmtree(numbered[1])  # the others are still shown
    assert [run.id for run in library.runs()] == ["dates-2", "dates-old", "dates-3"]


def test_a_folder_of_runs_is_watched(tiny_run: Any, tmp_path: Path, run_async: Callable[..., Any]) -> None:
    root = tmp_path / "runs"
    shutil.copytree(tiny_run.folder, root / "dates")
    app = create_application([root], "cpu")
    client = Client(app, run_async)
    overview = records.Overview(**client.get("/api/runs").json())
    assert [run.id for run in overview.runs] == ["dates"] and overview.watched == ["runs"]
    shutil.copytree(tiny_run.folder, root / "group" / "seed-1")  # as several seeds of one model are saved
    runs = records.Overview(**client.get("/api/runs").json()).runs
    assert [(run.id, run.name) for run in runs] == [("dates", "dates"), ("group_seed-1", "group/seed-1")]
    assert client.post("/api/runs/group_seed-1/predict", json={"input": "abc"}).status_code == 200
    app.state.uploads.close()


def test_layouts_that_are_not_installed_are_not_offered(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for installed, layouts in ((None, ["pca"]), (object(), ["pca", "umap"])):
        monkeypatch.setattr(endpoints, "find_spec", lambda _, installed=installed: installed)
        assert client.get("/api/runs").json()["layouts"] == layouts


def test_dev_rows_are_offered_to_try(client: Client, tiny_run: Any, recurrent: System) -> None:
    dev = read_run_data(recurrent, tiny_run.folder).dev
    offered = [records.Example(**example) for example in client.get("/api/runs/run/examples").json()]
    assert 1 < len(offered) <= endpoints.EXAMPLES
    assert {example.source["source"] for example in offered} <= {example.sources["source"] for example in dev}
    assert len({example.source["source"] for example in offered}) == len(offered)


def test_a_run_without_test_rows_is_measured_on_dev_rows(tiny_run: Any, tmp_path: Path) -> None:
    from dragoman.studio.views.runs import describe_run
    from dragoman.training.run import train

    settings = tiny_run.settings | {"training": tiny_run.settings["training"] | {"max_updates": 2}}
    dev = Path(shutil.copy(tiny_run.pairs, tmp_path / "dev.tsv"))
    train(tiny_run.pairs, dev=dev, out=tmp_path / "run", settings=settings)
    assert describe_run(tmp_path / "run", "run").held_out == "dev"
    assert describe_run(tmp_path / "run", "run").test_files == [str(dev)]
    test = Path(shutil.copy(tiny_run.pairs, tmp_path / "test.tsv"))
    train(tiny_run.pairs, dev=dev, test=test, out=tmp_path / "tested", settings=settings)
    assert describe_run(tmp_path / "tested", "tested").test_files == [str(test), str(dev)], "dev rows are offered too"
    dev.unlink()
    assert describe_run(tmp_path / "run", "run").held_out == ""
