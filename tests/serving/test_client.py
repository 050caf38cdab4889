"""The Python client gives what the system gives; another project's client of LibreTranslate works unchanged."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dragoman
from dragoman.serving.keys import Keys

Serve = Callable[..., Any]
TEXTS = ["abc", "hgfed", "ab", "cagebad"]


def test_predictions_are_those_of_the_system(serve_here: Serve) -> None:
    served = serve_here()
    with dragoman.Client(str(served.http.base_url)) as client:
        assert client.is_ready() and client.models()[0]["id"] == "run"
        one, own = client.predict("abc", attention=True, alternatives=2), served.system.predict("abc", alternatives=2)
        assert (one.text, one.tokens, one.labels, one.spans()) == (own.text, own.tokens, own.labels, own.spans())
        assert one.attention is not None and own.attention is not None
        np.testing.assert_allclose(one.attention[:, 0], own.attention.mean(1), atol=1e-4)
        assert one.outputs[0].alternatives is not None and own.outputs[0].alternatives is not None
        assert [[token for token, _ in place] for place in one.outputs[0].alternatives] == [
            [token for token, _ in place] for place in own.outputs[0].alternatives
        ]
        aligned = client.predict(TEXTS, alignments=True)
        expected_links = [each.alignment for each in served.system.predict(TEXTS, alignments=True)]
        for each, links in zip(aligned, expected_links, strict=True):
            assert each.attention is None and each.alignment is not None and links is not None
            assert each.alignment.to_pharaoh() == links.to_pharaoh() and each.alignment.source == links.source
        many = client.predict(TEXTS * 30, n_best=2)  # more than one request takes
        assert [prediction.text for prediction in many] == [each.text for each in served.system.predict(TEXTS)] * 30
        scored, expected = client.score("abc", "cba"), served.system.score("abc", "cba")
        assert math.isclose(scored.log_prob, expected.log_prob, rel_tol=1e-4) and scored.target == "cba"
        assert len(client.score(TEXTS, TEXTS)) == len(TEXTS)
        *tokens, last = client.stream("abc", beam=1)
        greedy = served.system.predict("abc", beam=1)
        assert isinstance(last, dragoman.Prediction) and last.text == greedy.text
        assert tuple(each.token for each in tokens if not isinstance(each, dragoman.Prediction)) == greedy.tokens
        for call in (lambda: client.predict("a", beam=1000), lambda: list(client.stream("a", beam=3))):
            with pytest.raises(dragoman.UserError, match="status 4"):
                call()


def test_a_key_is_sent_and_a_missing_server_is_said(serve_here: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve_here(keys=Keys(("secret-key",)))
    url = str(served.http.base_url)
    monkeypatch.delenv("DRAGOMAN_API_KEY", raising=False)
    with dragoman.Client(url) as client, pytest.raises(dragoman.UserError, match="wants a key"):
        client.models()
    monkeypatch.setenv("DRAGOMAN_API_KEY", "secret-key")
    with dragoman.Client(url) as client:
        assert client.models()
    with dragoman.Client("http://127.0.0.1:9") as client:
        assert not client.is_ready()
        with pytest.raises(dragoman.UserError, match="does it run"):
            client.models()


@pytest.mark.parametrize("key", [None, "secret-key"])
def test_libretranslatepy_works_unchanged(serve_here: Serve, key: str | None) -> None:
    api = pytest.importorskip("libretranslatepy")
    served = serve_here(keys=Keys(() if key is None else (key,)))
    client = api.LibreTranslateAPI(f"{served.http.base_url}", key)
    expected = [prediction.text for prediction in served.system.predict(TEXTS)]
    assert [client.translate(text, "de", "en") for text in TEXTS] == expected
    assert client.languages()[0] == {"code": "de", "name": "German", "targets": ["en"]}


def test_importing_the_package_loads_no_client() -> None:
    code = "import sys, dragoman; dragoman.UserError; sys.exit('httpx' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import sys, dragoman; dragoman.Client; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
