"""What a request may ask for, checked before anything is computed: numbers, texts, paths, sizes of answers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from dragoman.errors import UserError
from dragoman.files import open_regular
from dragoman.serving.limits import Limits, RequestRefused
from dragoman.studio import records
from dragoman.studio.inspection import Inspection
from dragoman.studio.views.attention import Which, count_maps

MAX_PATH = 4096  # characters of a path, or of the name of a run


def check_request(request: records.Request, limits: Limits) -> None:
    """Refuse a request that asks for more than the limits allow."""
    if isinstance(request, records.PredictRequest):
        limits.check_texts(request.input)
        for name, number in (
            ("beam", request.beam),
            ("n_best", request.n_best),
            ("max_length", request.max_length),
            ("alternatives", request.alternatives),
            ("forbidden", len(request.forbidden)),
        ):
            limits.check(name, number)
        limits.check("prefix_tokens", len(request.prefix_tokens or ()), "tokens of prefix_tokens")
        for name, text in (("prefix", request.prefix), ("reference", request.reference)):
            limits.check_text(name, text)
        limits.check_text("forbidden", " ".join(request.forbidden))
    elif isinstance(request, records.AttentionRequest):
        limits.check_texts(request.input)
        limits.check("max_length", len(request.tokens), "tokens")
    elif isinstance(request, records.NeighboursRequest):
        limits.check_texts(request.input)
        limits.check("alternatives", request.count, "count")
        limits.check("points", request.n, "n")
    elif isinstance(request, records.MapRequest):
        limits.check("points", request.n, "n")
    elif isinstance(request, records.FileRequest | records.CompareRequest):
        limits.check("beam", request.beam)
        limits.check("rows", request.limit, "limit")


def check_attention(inspection: Inspection, request: records.PredictRequest, limits: Limits) -> None:
    """Refuse outputs that have too many attention weights: they are all in memory at once."""
    lengths = [len(hypothesis.tokens) for hypothesis in inspection.result.hypotheses]
    outputs = len(lengths) + bool(request.reference)
    maps = count_maps(inspection.system, "cross")
    positions = len(inspection.prediction.labels)
    _check_weights(outputs * max(lengths, default=0) * max(1, maps.layers * maps.heads) * positions, limits)


def check_maps(inspected: records.Maps, which: Which, tokens: int, positions: int, limits: Limits) -> None:
    """Refuse attention maps of one output that have too many weights."""
    rows, columns = {
        "cross": (tokens, positions),
        "encoder": (positions, positions),
        "decoder": (tokens, positions + tokens),
    }[which]
    _check_weights(inspected.layers * inspected.heads * rows * columns, limits)


def _check_weights(count: int, limits: Limits) -> None:
    if count > limits.weights:
        raise RequestRefused(
            422,
            f"the answer would have {count:,} attention weights, and at most {limits.weights:,} are shown here; ask "
            "for a shorter input, a smaller max_length or fewer outputs",
        )


def check_tree(inspection: Inspection, limits: Limits) -> None:
    """Refuse a beam tree that has too many candidates."""
    count = sum(len(frontier.token) for frontier in inspection.result.trace.steps)
    if count > limits.nodes:
        raise RequestRefused(
            422,
            f"the search had {count:,} candidates, and a tree shows at most {limits.nodes:,}; use a smaller beam or "
            "max_length",
        )


def resolve_table(file: str, folders: Iterable[Path], limits: Limits) -> str:
    """Return the real path of a table that a request names.

    It has to be a regular file in one of the folders, wherever links and ``..`` lead, and not too
    large. Other files can be uploaded.
    """
    shown = f"{file[:200]}{'…' * (len(file) > 200)}"
    if len(file) > MAX_PATH:
        raise UserError(f"{shown!r}: the path is too long; upload the file")
    try:
        path = Path(file).resolve()
        is_inside = any(path.is_relative_to(folder) for folder in folders)
    except (OSError, ValueError, RuntimeError) as error:  # a NUL character, a loop of links
        raise UserError(f"{shown!r}: cannot be read ({error}); give a path, or upload the file") from None
    if not is_inside:
        raise RequestRefused(
            403,
            f"{shown}: not in a folder that this studio reads, which are those of the runs, of their data, and the one "
            "that it was started in; upload the file",
        )
    try:
        with open_regular(path) as opened:
            size = os.fstat(opened.fileno()).st_size
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{shown}: no such file; give a file like those that the run was trained on") from None
    except OSError as error:
        raise UserError(f"{shown}: cannot be read ({error.strerror})") from None
    if size > limits.table_bytes:
        raise RequestRefused(
            413,
            f"{shown}: has {size:,} bytes, and the studio reads at most {limits.table_bytes:,}; `dragoman evaluate` "
            "reads more",
        )
    return str(path)
