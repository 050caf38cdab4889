"""Keys that clients have to show, if the server wants any."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from pathlib import Path

from dragoman.errors import UserError
from dragoman.files import open_regular
from dragoman.serving.limits import RequestRefused

VARIABLE = "DRAGOMAN_API_KEY"
SHORTEST = 8  # characters of a key
MOST_BYTES = 100_000  # of a file of keys


class Keys:
    """The keys of a server. Without any, everybody may ask."""

    def __init__(self, keys: tuple[str, ...] = ()) -> None:
        for key in keys:
            if len(key) < SHORTEST or not key.isascii() or not key.isprintable() or " " in key:
                raise UserError(
                    f"an API key has {SHORTEST} or more printable ASCII characters and no space; make one: "
                    "python -c 'import secrets; print(secrets.token_urlsafe(24))'"
                )
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    @property
    def are_wanted(self) -> bool:
        """Tell whether clients need a key."""
        return bool(self._digests)

    def check(self, headers: Mapping[str, str], given: str | None = None) -> None:
        """Refuse a request without a key of this server.

        A key is in the header Authorization (Bearer), in X-API-Key, or ``given`` in a body as LibreTranslate's clients
        do it. How long the comparison takes does not depend on how much of a key is right.
        """
        if not self._digests:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        shown = [token.strip() if scheme.lower() == "bearer" else "", headers.get("x-api-key", ""), given or ""]
        is_right = False
        for key in shown:
            digest = hashlib.sha256(key.encode("utf-8", "replace")).digest()
            for own in self._digests:
                is_right |= hmac.compare_digest(digest, own)
        if not is_right:
            raise RequestRefused(
                401,
                "this server wants a key: send the header Authorization: Bearer KEY",
                headers={"WWW-Authenticate": "Bearer"},
            )


def read_keys(file: Path | None) -> Keys:
    """Return the keys in a file, one on each line, and the one in the environment variable DRAGOMAN_API_KEY."""
    keys = [os.environ[VARIABLE]] if os.environ.get(VARIABLE) else []
    if file is not None:
        try:
            with open_regular(file) as opened:
                data = opened.read(MOST_BYTES + 1)
        except OSError as error:
            raise UserError(f"--api-key-file {file}: cannot be read ({error.strerror})") from None
        if len(data) > MOST_BYTES:
            raise UserError(f"--api-key-file {file}: has more than {MOST_BYTES:,} bytes; is it the right file?")
        lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
        own = [line for line in lines if line and not line.startswith("#")]
        if not own:
            raise UserError(f"--api-key-file {file}: has no key; write one on each line")
        keys += own
    return Keys(tuple(keys))
