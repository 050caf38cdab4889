"""Constraints of requests: contents only, never a path, bounded before any work, and built once for many batches."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from dragoman.errors import UserError
from dragoman.files.reading import parse_json
from dragoman.inference.constraints import OPTIONS
from dragoman.inference.session import Session
from dragoman.inference.system import System, split_options
from dragoman.serving.limits import Limits, RequestRefused
from dragoman.serving.records import PredictOptions

PATTERNS = ("match", "grammar", "json_schema")
TEXT_OR_PATH = ("lexicon", "glossary", "known")  # the library reads a file where it is given a text for one of these
REMEMBERED = 8  # sessions with constraints of a worker


def take_constraints(request: PredictOptions, limits: Limits) -> dict[str, Any]:
    """Return the constraints of a request as JSON values, after checking how much they are. None is built here."""
    given = {name: value for name in OPTIONS if (value := getattr(request, name)) is not None}
    for name in ("lexicon", "glossary", "known"):
        limits.check("entries", len(given.get(name, ())), f"entries of {name}")
    if isinstance(given.get("keep"), str):
        given["keep"] = [given["keep"]]
    limits.check("patterns", len(given.get("keep", ())), "patterns of keep")
    if isinstance(given.get("json_schema"), Mapping):  # a text: the order of its properties means something
        given["json_schema"] = json.dumps(given["json_schema"])
    for name in PATTERNS:
        check_pattern(limits, name, given.get(name, ""), limits.pattern)
    for pattern in given.get("keep", ()):
        check_pattern(limits, "keep", pattern, limits.kept_pattern)
    _refuse_unbounded(given)
    if isinstance(given.get("glossary"), list):
        given["glossary"] = _join_pairs(given["glossary"])
    if isinstance(given.get("known"), Mapping):
        given["known"] = [[source, answer] for source, answer in given["known"].items()]
    size = len(json.dumps(given)) if given else 0
    if size > limits.constraint_bytes:
        raise RequestRefused(
            413, f"the constraints have {size:,} bytes; at most {limits.constraint_bytes:,} are read here: shorten them"
        )
    return given


def check_pattern(limits: Limits, name: str, pattern: str, most: int) -> None:
    """Refuse a regular expression, a grammar or a schema that is too long."""
    if len(pattern) > most:
        raise RequestRefused(422, f"{name} has {len(pattern):,} characters; at most {most:,} are read here: shorten it")


def _refuse_unbounded(given: dict[str, Any]) -> None:
    """Refuse what llguidance builds without a limit of time and memory: multiples of large numbers."""
    if "json_schema" in given:
        try:
            schema = json.dumps(parse_json(given["json_schema"].encode("utf-8", "replace")))  # without escapes
        except (ValueError, RecursionError) as error:
            raise UserError(f"json_schema: is not JSON that can be read: {error}") from None
        if '"multipleOf"' in schema:
            raise UserError("json_schema: multipleOf is not taken by a server; leave it out")
    if "%json" in given.get("grammar", ""):
        raise UserError("grammar: %json is not taken by a server; give the schema as json_schema")


def _join_pairs(pairs: Sequence[Sequence[str]]) -> dict[str, str]:
    terms: dict[str, str] = {}
    for source, target in pairs:
        if terms.setdefault(source, target) != target:
            raise UserError(f"glossary: {source[:100]!r} has two targets; separate variants by |")
    return terms


def as_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a task as ``System.session`` takes them. Nothing in them can be the path of a file."""
    settings = dict(options)
    for name in TEXT_OR_PATH:
        if not isinstance(settings.get(name, []), (list, dict)):
            raise UserError(f"{name}: give its entries; a server reads no files for its clients")
    if "known" in settings:
        known: dict[tuple[str, ...], str] = {}
        for *sources, answer in settings["known"]:
            if known.setdefault(tuple(sources), answer) != answer:
                raise UserError(f"known: {' | '.join(sources)[:100]!r} has two answers; leave one of them out")
        settings["known"] = known
    return settings


class Sessions:
    """Sessions for the options of tasks. The last ones with constraints are kept, for these take time to build.

    Why one cannot be built is kept as well. Many threads may ask.
    """

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], Session | UserError] = OrderedDict()

    def find(self, name: str, system: System, options: str) -> tuple[Session, dict[str, Any]]:
        """Return the session for the options of a task, and those of them that are for ``Session.predict``."""
        asked, settings = split_options(json.loads(options))
        if not any(option in settings for option in OPTIONS):
            return system.session(**settings), asked
        key = name, options
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
        if found is None:
            try:
                found = system.session(**as_settings(settings))
            except UserError as error:
                found = error
            with self._lock:
                self._kept[key] = found
                while len(self._kept) > self._most:
                    self._kept.popitem(last=False)
        if isinstance(found, UserError):
            raise found.with_traceback(None)
        return found, asked
