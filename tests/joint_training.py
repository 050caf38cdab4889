"""What each process of ``torchrun`` does in ``test_processes.py``: train as a file of JSON says, one run after another.

A job: {"data": [of process 0, of process 1], "out", "settings", "stop": the update after which to stop, or null}. Only
the second process asks to stop: all have to agree. What happened is written to OUTCOMES.RANK.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dragoman.errors import ReportedError, UserError
from dragoman.process import prepare

prepare()

from dragoman.process.place import find_place  # noqa: E402
from dragoman.training.events import Event, Stepped, Stopped  # noqa: E402
from dragoman.training.run import train  # noqa: E402


def run(job: dict[str, Any]) -> dict[str, Any]:
    rank = find_place().rank
    asked: list[int] = []
    events: list[Event] = []

    def should_stop() -> bool:
        asked.append(1)
        return rank == 1 and job["stop"] is not None and len(asked) >= job["stop"]

    try:
        data, out, settings = job["data"][rank], job["out"], job["settings"]
        system = train(data, out=out, settings=settings, on_event=events.append, should_stop=should_stop)
    except ReportedError:
        return {"reported": True}
    except UserError as error:
        return {"error": str(error)}
    return {
        "losses": [event.loss for event in events if isinstance(event, Stepped)],
        "stopped": next((event.update for event in events if isinstance(event, Stopped)), None),
        "weights": float(sum(tensor.double().abs().sum() for tensor in system.model.state_dict().values())),
        "asked": len(asked),
    }


def main() -> None:
    jobs = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    outcomes = [run(job) for job in jobs]
    Path(f"{sys.argv[2]}.{find_place().rank}").write_text(json.dumps(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main()
