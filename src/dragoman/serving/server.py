"""``dragoman serve``: load the runs, start the workers, listen, and stop without losing an answer."""

from __future__ import annotations

import ipaddress
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dragoman.errors import UserError
from dragoman.process.devices import available_cores
from dragoman.serving.application import Draining, create_application
from dragoman.serving.batching import Batcher
from dragoman.serving.connections import configure
from dragoman.serving.continuous import find_continuous
from dragoman.serving.guard import ANY_HOST
from dragoman.serving.keys import read_keys
from dragoman.serving.limits import SERVER, Limits
from dragoman.serving.metrics import Metrics
from dragoman.serving.models import Models, load_models
from dragoman.serving.workers import Pool

import uvicorn  # after `connections`, which says what is missing  # isort: skip

PORT = 8500
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
GRACE_SECONDS = 1.5  # for which a server that is to stop says so, before it closes its port
WORKER_SECONDS = 2.0  # for which workers may go on when the answers are not wanted any more


class DrainingServer(uvicorn.Server):
    """A server that on SIGTERM answers what it has accepted, refuses the rest, and ends."""

    def __init__(self, config: uvicorn.Config, draining: Draining, batcher: Batcher, limits: Limits) -> None:
        super().__init__(config)
        self.draining, self.batcher, self.limits = draining, batcher, limits
        self._grace = GRACE_SECONDS

    def handle_exit(self, sig: int, frame: Any) -> None:
        if self.draining.since is not None:  # asked a second time: at once
            self.should_exit = self.force_exit = True
            return
        self._grace = 0.0 if sig == signal.SIGINT else GRACE_SECONDS
        self.draining.begin()

    async def on_tick(self, counter: int) -> bool:
        if self.draining.since is not None:
            seconds = time.monotonic() - self.draining.since
            is_done = seconds >= self._grace and self.batcher.is_idle
            self.should_exit |= is_done or seconds > self.limits.drain_seconds
        return await super().on_tick(counter)


def serve(
    runs: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    allow_hosts: Sequence[str] = (),
    languages: Sequence[str] = (),
    workers: int | None = None,
    limits: Limits = SERVER,
    key_file: Path | None = None,
    log_texts: bool = False,
    device: str = "auto",
    engine: str = "auto",
    say: Callable[[str], Any] = lambda sentence: print(sentence, file=sys.stderr),
) -> None:
    """Serve runs over HTTP until SIGTERM or Ctrl-C. With ``port`` None it is the usual port, or a free one."""
    keys = read_keys(key_file)
    hosts = _find_hosts(host, allow_hosts)
    models = load_models(runs, languages, device, engine)
    metrics, draining = Metrics(), Draining()
    batcher = Batcher(limits, workers or available_cores(), metrics.count_batch, find_continuous(models))
    metrics.watch(batcher)
    # The workers are forked before there are threads, connections or a port that they would inherit.
    pool = Pool(models, batcher, limits, on_restart=metrics.restarts.inc)
    try:
        listener = listen(host, port)
        app = create_application(
            models, batcher, limits=limits, metrics=metrics, hosts=hosts, keys=keys, is_ready=lambda: pool.is_ready,
            draining=draining, logs_texts=log_texts,
        )  # fmt: skip
        pool.start()
        _announce(say, models, listener, keys.are_wanted, batcher.workers)
        config = configure(app, limits)
        with suppress(KeyboardInterrupt):
            DrainingServer(config, draining, batcher, limits).run(sockets=[listener])
    finally:
        pool.close(WORKER_SECONDS)


def _find_hosts(host: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """Return the names that the server answers as."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is not None and address.is_unspecified and not allowed:
        raise UserError(
            f"--host {host}: the server would answer on every address; say as which names, such as --allow-host "
            f"models.example.org, or --allow-host '{ANY_HOST}' for all"
        )
    own = f"[{host}]" if address is not None and address.version == 6 else host
    return (*LOOPBACK, own, *allowed)


def listen(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens."""
    reason = ""
    for number in [PORT, 0] if port is None else [port]:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
            listener = socket.socket(family, kind, protocol)
        except OSError as error:
            raise UserError(f"--host {host}: is no address of this machine ({error.strerror})") from None
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            listener.close()
            reason = error.strerror or str(error)
            continue
        listener.listen(1024)
        return listener
    raise UserError(f"--host {host} --port {port or PORT}: cannot be used ({reason}); choose another port")


def _announce(
    say: Callable[[str], Any], models: Models, listener: socket.socket, wants_key: bool, workers: int
) -> None:
    for model in models.by_id.values():
        languages = f", {model.languages[0]} to {model.languages[1]}" if model.languages is not None else ""
        say(f"serve: {model.id} ({model.system.describe_engine()}{languages})")
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    is_loopback = ipaddress.ip_address(host.partition("%")[0]).is_loopback
    if not is_loopback and not wants_key:
        say("serve: everyone who reaches this address may ask; DRAGOMAN_API_KEY or --api-key-file sets a key")
    say(f"serve: http://{shown}:{port}/ with {workers} workers (Ctrl-C or SIGTERM ends it)")
