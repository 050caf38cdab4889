"""The server as a process: many clients at once, a worker that is killed, and SIGTERM while it is busy."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

for needed in ("fastapi", "uvicorn", "python_multipart", "prometheus_client"):
    pytest.importorskip(needed)

PATIENCE = 60.0
ASKING = Path(__file__).parents[2] / "benchmarks" / "serving" / "asking.py"


def load_asking() -> Any:
    specification = importlib.util.spec_from_file_location("serving_asking", ASKING)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


@contextmanager
def serving(environment: dict[str, str], folder: Path, log: Path, *options: str) -> Iterator[tuple[Any, int]]:
    """Start a server, and wait until it is ready."""
    command = [sys.executable, "-m", "dragoman", "serve", str(folder), "--port", "0", "--workers", "2", *options]
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment, stderr=output)
    try:
        wait_until(lambda: re.search(r"127\.0\.0\.1:(\d+)", log.read_text()) or process.poll() is not None)
        found = re.search(r"127\.0\.0\.1:(\d+)", log.read_text())
        assert found is not None, log.read_text()
        port = int(found[1])
        wait_until(lambda: status(port, "/readyz") == 200)
        yield process, port
    finally:
        process.kill()
        process.wait()


def run_async(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a thread of its own: browser tests may have left an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def wait_until(is_true: Any) -> None:
    began = time.monotonic()
    while not is_true():
        assert time.monotonic() - began < PATIENCE
        time.sleep(0.02)


def status(port: int, path: str) -> int:
    asking = load_asking()
    try:
        return int(run_async(asking.ask_once(port, "GET", path))[0])
    except OSError:
        return 0


def texts(count: int) -> list[str]:
    return ["".join("abcdefgh"[(number >> 3 * place) & 7] for place in range(5)) for number in range(count)]


def test_many_clients_get_their_own_answers_and_sigterm_loses_none(
    native_run: Any, environment: dict[str, str], tmp_path: Path
) -> None:
    asking = load_asking()
    from dragoman.inference.load import load

    given = texts(400)
    expected = {text: each.text for text, each in zip(given, load(native_run.folder).predict(given), strict=True)}
    assert len(set(expected.values())) > 5
    with serving(environment, native_run.folder, tmp_path / "log") as (process, port):
        tally = asking.Tally()

        async def ask_all() -> None:
            clients = [
                asking.ask_in_turn(port, given[number::40], expected, tally, lambda: False, {}, until_stopped=True)
                for number in range(40)
            ]
            running = asyncio.gather(*clients)
            while len(tally.seconds) < 300:
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            while (await asking.ask_once(port, "GET", "/readyz"))[0] != 503:
                await asyncio.sleep(0.01)
            await running

        run_async(asyncio.wait_for(ask_all(), PATIENCE))
        assert process.wait(PATIENCE) == 0
        assert not tally.wrong and not tally.lost
        assert set(tally.statuses) == {"200", "503"} and tally.statuses["200"] >= 300


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="workers are processes on Linux only")
def test_a_worker_that_is_killed_is_replaced(native_run: Any, environment: dict[str, str], tmp_path: Path) -> None:
    asking = load_asking()
    with serving(environment, native_run.folder, tmp_path / "log") as (process, port):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        before = children.read_text().split()
        assert len(before) == 2
        for each in (process.pid, *before):  # a native run is served without torch
            assert "libtorch" not in Path(f"/proc/{each}/maps").read_text()
        for child in before:
            os.kill(int(child), signal.SIGKILL)

        async def ask() -> int:
            return int((await asking.ask_once(port, "POST", "/v1/predict", {"inputs": "abc"}))[0])

        wait_until(lambda: run_async(ask()) == 200)
        wait_until(lambda: status(port, "/readyz") == 200)
        assert status(port, "/healthz") == 200


def test_a_client_that_goes_away_is_not_computed_for(serve_here: Any) -> None:
    import httpx

    served = serve_here(workers=0)
    with pytest.raises(httpx.TimeoutException):
        served.http.post("/v1/predict", json={"inputs": "abc"}, timeout=0.3)
    wait_until(lambda: served.batcher.is_idle)
    wait_until(lambda: bool(served.log) and served.log[-1]["status"] == 499)


def test_a_missing_extra_is_said(environment: dict[str, str], native_run: Any) -> None:
    code = (
        "import sys; sys.modules['python_multipart'] = None; sys.argv = ['dragoman', 'serve', sys.argv[1]]\n"
        "from dragoman.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(native_run.folder)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and "pip install 'dragoman[serve]'" in done.stderr, done.stderr


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is limited on Linux only")
def test_a_worker_cannot_take_all_memory_and_ends_with_its_parent() -> None:
    program = (
        "import os, signal, sys, time\n"
        "from dragoman.serving.workers import end_with_parent, limit_memory\n"
        "child = os.fork()\n"
        "if child:\n"
        "    sys.stdin.readline()\n"
        "    os._exit(0)\n"
        "end_with_parent()\n"
        "limit_memory(300_000_000)\n"
        "try:\n"
        "    bytearray(1_000_000_000)\n"
        "except MemoryError:\n"
        "    print(os.getpid(), len(bytearray(100_000_000)), flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None and parent.stdin is not None
    child, taken = parent.stdout.readline().split()
    assert int(taken) == 100_000_000
    parent.stdin.write("\n")
    parent.stdin.flush()
    assert parent.wait(10) == 0
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}/statm").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    state = Path(f"/proc/{child}/status")
    assert not state.exists() or "zombie" in state.read_text()
    parent.stdin.close()
    parent.stdout.close()
