"""Everything on the page about serving is run: its servers are started, its requests sent, its Python executed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

for needed in ("fastapi", "uvicorn", "python_multipart", "prometheus_client", "httpx"):
    pytest.importorskip(needed)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PATIENCE = 60.0


def lines(program: str) -> list[list[str]]:
    """Return the commands of the page that start with a word, as lists of words."""
    found = [line for language, text in FENCE.findall(PAGE) if language == "sh" for line in text.splitlines()]
    return [words for line in found if (words := shlex.split(line, comments=True))[0] == program]


@contextmanager
def starting(words: list[str], place: Path, environment: dict[str, str], number: int) -> Iterator[Any]:
    """Start a server of the page on a free port; it ends as the page says."""
    log = place / f"log{number}"
    if "--port" in words:
        words = [word for at, word in enumerate(words) if "--port" not in words[max(0, at - 1) : at + 1]]
    with log.open("w") as output:
        command = [sys.executable, "-m", "dragoman", *words[1:], "--port", "0"]
        process = subprocess.Popen(command, cwd=place, env=environment, stderr=output)
    try:
        yield process, log
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def port_of(process: Any, log: Path) -> str:
    began = time.monotonic()
    while (found := re.search(r"http://\S+:(\d+)/", log.read_text())) is None:
        assert process.poll() is None and time.monotonic() - began < PATIENCE, log.read_text()
        time.sleep(0.05)
    return found[1]


def test_everything_on_the_page_runs(native_run: Any, tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "keys.txt").write_text("a-key-for-tests\n", encoding="utf-8")
    (tmp_path / "runs").mkdir()
    for name in ("pairs", "a", "b"):
        shutil.copytree(native_run.folder, tmp_path / "runs" / name)
    servers = lines("dragoman")
    assert len(servers) >= 5 and all(words[1] == "serve" for words in servers)
    with ExitStack() as stack:
        started = [
            stack.enter_context(starting(words, tmp_path, environment, number)) for number, words in enumerate(servers)
        ]
        ports = [port_of(*each) for each in started]
        translates = next(number for number, words in enumerate(servers) if "--languages" in words)
        check_requests(ports[translates], environment)
        for language, text in FENCE.findall(PAGE):
            if language == "python":
                exec(compile(text.replace("8500", ports[translates]), "serving.md", "exec"), {})
        if shutil.which("curl") is not None:
            script = ROOT / "examples" / "serving" / "requests.sh"
            subprocess.run(["sh", script, f"http://127.0.0.1:{ports[translates]}"], check=True, capture_output=True)


def check_requests(port: str, environment: dict[str, str]) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    requests = lines("curl")
    assert len(requests) >= 12
    for words in requests:
        command = [word.replace(":8500", f":{port}") for word in words]
        done = subprocess.run(
            [*command, "--fail-with-body"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        if done.stdout.startswith(("{", "[")):
            assert "error" not in json.loads(done.stdout)
        else:
            assert "event: done" in done.stdout or "dragoman_requests_total" in done.stdout


def test_the_page_says_the_limits_that_hold() -> None:
    from dragoman.serving.limits import SERVER

    section = " ".join(PAGE.partition("### Limits")[2].split())
    for numbers in (
        f"{SERVER.texts} inputs of {SERVER.characters:,} characters and {SERVER.tokens:,} tokens",
        f"a beam and a number of outputs of {SERVER.beam}",
        f"{SERVER.alternatives} alternatives, and outputs of {SERVER.max_length:,} tokens",
        f"{SERVER.body_bytes // 10**6} MB, with files {SERVER.upload_bytes // 10**6} MB",
        f"within {SERVER.patience} s",
        f"{SERVER.slowest_body // 1000} kB/s",
        f"{SERVER.connections:,} connections",
    ):
        assert numbers in section, numbers
    assert SERVER.n_best == SERVER.samples == SERVER.beam
