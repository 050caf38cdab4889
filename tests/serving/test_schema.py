"""Requests made from the server's own description, valid and invalid ones: each answer is one that it describes.

``make serve-schema`` tries 5,000 of them, half of them with a key.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from dragoman.serving.keys import Keys
from dragoman.serving.limits import SERVER

schemathesis = pytest.importorskip("schemathesis")
# Loaded here: what a test loads beside the threads of a server, pytest may fail to rewrite.
pytest.importorskip("schemathesis.specs.openapi.adapter")

CASES = int(os.environ.get("DRAGOMAN_SCHEMA_CASES", "36"))
KEY = "secret-key"
# A request may be valid by its types and still ask for too much, or for settings that contradict each other.
ALLOWED = {200, 400, 404, 413, 422, 429}


@pytest.mark.parametrize("key", [None, KEY])
def test_every_answer_is_as_described(serve_here: Callable[..., Any], key: str | None) -> None:
    from schemathesis.generation import GenerationMode

    limits = replace(SERVER, beam=4, n_best=4, samples=4, max_length=20, patience=60.0)
    served = serve_here(limits=limits, keys=Keys(() if key is None else (key,)))
    url = str(served.http.base_url)
    refused = {"expected-statuses": ["4xx"]}  # 411 too, for a body that is missing
    config = schemathesis.Config.from_dict({"checks": {"negative_data_rejection": refused}})
    schema = schemathesis.openapi.from_dict(served.http.get("/openapi.json").json(), config=config)
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    operations = [result.ok() for result in schema.get_all_operations()]
    tried: Counter[str] = Counter()
    posts = sum(operation.method == "post" for operation in operations)
    each = -(-CASES // (2 * 2 * posts))  # with and without a key, valid and not
    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            if mode == GenerationMode.NEGATIVE and operation.method == "get":
                continue  # without parameters it cannot be asked wrongly
            try_operation(operation, mode, each, url, headers, tried)
    print(f"\n{sum(tried.values())} cases: {dict(sorted(tried.items()))}")
    if CASES >= 1000:
        assert len({name for name in tried if name.endswith(" 200")}) == len(operations)
    assert served.batcher.is_idle and served.http.get("/healthz").status_code == 200


def try_operation(
    operation: Any, mode: Any, cases: int, url: str, headers: dict[str, str], tried: Counter[str]
) -> None:
    """Try some requests to one endpoint."""

    @settings(
        max_examples=cases, database=None, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def try_case(case: Any) -> None:
        response = case.call(base_url=url, headers=headers)
        case.validate_response(response, excluded_checks=EXCLUDED)
        tried[f"{case.operation.label} {response.status_code}"] += 1
        if mode.is_positive:
            assert response.status_code in ALLOWED, response.text

    try_case()


def _excluded() -> list[Any]:
    from schemathesis.specs.openapi import checks

    return [checks.positive_data_acceptance]  # ALLOWED says more


EXCLUDED = _excluded()
