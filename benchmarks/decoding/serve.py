"""What every worker does: answer requests from standard input, and say how long each took.

A worker has one model. A request is a line of JSON: {"rows": N, "beam": 5, "batch": 64} decodes the first N
inputs together, {"rows": N, "beam": 5, "batch": 1} one by one. The answer is a line of JSON with the processor time and
the time of the clock, and with the outputs if the request has "outputs". This file is also run by the Pythons of
other toolkits, so it imports nothing but the standard library.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

# inputs, beam, batch → outputs: texts, lists of pieces, or lists of ids
Decode = Callable[[Sequence[Any], int, int], Sequence[Any]]


def serve(inputs: Sequence[Any], decode: Decode) -> None:
    """Answer requests until the input ends."""
    print(json.dumps({"ready": len(inputs)}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        rows = inputs[request.get("first", 0) :: request.get("step", 1)][: request["rows"]]
        beam, batch = request["beam"], request["batch"]
        answer: dict[str, Any] = {}
        if batch == 1:
            cpu: list[float] = []
            outputs: list[Any] = []
            for row in rows:
                began = time.process_time()
                outputs += decode([row], beam, 1)
                cpu.append(time.process_time() - began)
            answer["each"] = cpu
        else:
            began, clock = time.process_time(), time.perf_counter()
            outputs = list(decode(rows, beam, batch))
            answer["cpu"], answer["clock"] = time.process_time() - began, time.perf_counter() - clock
        if request.get("outputs"):
            answer["outputs"] = outputs
        print(json.dumps(answer), flush=True)
