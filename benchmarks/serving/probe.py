"""Ask a server twenty times a second whether it lives, and print how long each answer took."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from serving.asking import Connection

EVERY = 0.05  # seconds


async def probe(port: int, seconds: float) -> list[float]:
    """Return the seconds that each answer took."""
    connection, taken = Connection(port), []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        status, _ = await connection.ask("GET", "/healthz")
        assert status == 200, status
        taken.append(round(time.monotonic() - began, 5))
        await asyncio.sleep(EVERY)
    await connection.close()
    return taken


if __name__ == "__main__":
    print(json.dumps(asyncio.run(probe(int(sys.argv[1]), float(sys.argv[2])))))
