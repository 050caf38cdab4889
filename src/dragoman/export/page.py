"""Export a run to one HTML file that runs the model in a browser, without a server or a network.

page.html      the model file of ``export/portable.py``, the native library as WebAssembly, the studio's views
export.json    what was compared with the run, and the figures

The page may load nothing and send nothing: its content policy allows the two scripts and the style
sheet that are in it, by their hashes, and the WebAssembly. The scripts and the WebAssembly are in the
archive runtime.zip beside this file (``studio/pack_runtime.py``).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from dragoman import __version__
from dragoman.export.node import LIBRARY, check_model, read_runtime
from dragoman.export.parity import Answer, Parity, answers
from dragoman.files import write_atomically, write_json
from dragoman.inference.system import System
from dragoman.parts import kind_of

PAGE = "page.html"


def export_page(system: System, folder: Path, inputs: Sequence[Any], *, int8: bool = False) -> Parity:
    """Write the page into a folder, after what is in it has given the run's answers on ``inputs``."""
    files = read_runtime()
    model, parity = check_model(system, files, inputs, int8=int8)
    parity = replace(parity, note=compare_reading(system, inputs))
    html = write_page(describe_page(system, model, files[LIBRARY], int8) | {"note": parity.note}, model, files)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / PAGE, html)
    record = {"format": "page", "version": __version__, "int8": int8, "bytes": len(html), "parity": parity.to_json()}
    write_json(folder / "export.json", record)
    return parity


def compare_reading(system: System, inputs: Sequence[Any]) -> str:
    """Say what the page reads otherwise than the run does, and how many answers that changes; "" if nothing.

    ``check_model`` cannot see this: it gives the page what the run has read.
    """
    described = {name: modality.as_described() for name, modality in system.modalities.items()}
    notes = [note for _, note in described.values() if note]
    if not notes:
        return ""
    other = replace(system, modalities={name: modality for name, (modality, _) in described.items()})
    run, page = (answers(each.session(n_best=1), each.session().prepare_all(list(inputs))) for each in (system, other))
    differ = sum(_text(system, first) != _text(system, second) for first, second in zip(run, page, strict=True))
    counted = (
        f"{differ} of {len(run)} answers that were compared {'differs' if differ == 1 else 'differ'} for this reason."
    )
    return " ".join([*notes, counted])


def _text(system: System, answer: Answer) -> str:
    return answer if isinstance(answer, str) else system.target.decode(answer.tokens)


def describe_page(system: System, model: bytes, library: bytes, int8: bool) -> dict[str, Any]:
    """Return what the page has to know besides the model: ``PageData`` in studio/local/asking.ts."""
    layers, heads = system.model.decoder.map_shape
    sources = [
        {
            "name": name,
            "kind": kind_of(system.recipe.sources[name].modality),
            "is_file": modality.is_file,
            "encoder": "",
            "stride": system.strides[name],
            "reading": dict(modality.describe_reading()),
        }
        for name, modality in system.modalities.items()
    ]
    return {
        "name": system.folder.resolve().name if system.folder else "model",
        "version": __version__,
        "sources": sources,
        "cross": {"layers": layers, "heads": heads},
        "int8": int8,
        "sizes": {"model": len(model), "wasm": len(library)},
    }


def write_page(about: Mapping[str, Any], model: bytes, files: Mapping[str, bytes]) -> bytes:
    """Return the page as one HTML file."""
    engine, script = (re.sub(r"</(script)", r"<\\/\1", files[name].decode(), flags=re.I) for name in SCRIPTS)
    style = files["page.css"].decode().replace("</", "<\\/")
    policy = "; ".join([
        "default-src 'none'",
        f"script-src {_hash(engine)} {_hash(script)} 'wasm-unsafe-eval'",
        # Views set the width of a bar or the place of a label in an element; that can load nothing.
        f"style-src-elem {_hash(style)}",
        "style-src-attr 'unsafe-inline'",
        "worker-src blob:",
        "img-src data: blob:",
        "media-src data: blob:",
        "connect-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    ])  # fmt: skip
    return "\n".join([
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<link rel="icon" href="data:,">',
        f"<title>{escape(about['name'])}</title>",
        f"<style>{style}</style>",
        "</head>",
        "<body>",
        '<div id="root"><p class="state">Opening the model…</p></div>',
        "<noscript><p>This page runs a model with JavaScript and WebAssembly. Allow scripts to use it.</p></noscript>",
        f'<script type="application/json" id="about">{_escape_json(json.dumps(about))}</script>',
        f'<script type="text/plain" id="library">{pack(files[LIBRARY])}</script>',
        f'<script type="text/plain" id="model">{pack(model)}</script>',
        f'<script id="engine">{engine}</script>',
        f"<script>{script}</script>",
        "</body>",
        "</html>",
        "",
    ]).encode()  # fmt: skip


SCRIPTS = ("engine.js", "page.js")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def pack(content: bytes) -> str:
    """Return bytes as text: compressed, then in base 85, which is printable ASCII and 6 % shorter than base64.

    The digits are those of RFC 1924, which have no "/", with "," in place of "<": so no text in them ends the element
    or opens a comment. studio/local/packing.ts reads them.
    """
    return base64.b85encode(zlib.compress(content, 9)).decode().replace("<", ",")


def _escape_json(text: str) -> str:
    """Escape JSON for a script element: no text in it closes the element or opens a comment."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
