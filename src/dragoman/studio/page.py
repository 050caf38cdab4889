"""One-file pages: the built page with its script, its sheet and the data written into it. It asks for nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Literal

from dragoman import __version__
from dragoman.data.examples import Example
from dragoman.errors import UserError
from dragoman.predictions import Raw
from dragoman.studio import history, records, tables, views
from dragoman.studio.media import inlined
from dragoman.studio.records import Inspected, Page, PredictRequest
from dragoman.studio.rows import measured_rows
from dragoman.system import System

LARGEST = 2_000_000  # bytes of a page
SAMPLES = 6  # alignments in a report
STEPS = 400  # points of a curve in a report
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "media-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
)
_SCRIPT = re.compile(r'<script\b[^>]*\bsrc="([^"]+)"[^>]*></script>')
_SHEET = re.compile(r'<link\b[^>]*\brel="stylesheet"[^>]*\bhref="([^"]+)"[^>]*/?>')


def static_folder() -> Path:
    folder = Path(str(resources.files("dragoman.studio"))) / "static"
    if not (folder / "index.html").exists():
        raise UserError(
            "the studio's page is not in this install: build it with `make studio` in a checkout, which needs Node 20 "
            "or later, or install a wheel, which has it"
        )
    return folder


def is_built() -> bool:
    try:
        static_folder()
    except UserError:
        return False
    return True


def inspect_page(system: System, folder: Path, inputs: Sequence[Raw], beam: int | None = None) -> str:
    """The views of these inputs."""
    run = history.run(folder, folder.resolve().name, system.model.parameters_count)
    width = beam or system.recipe.search.beam  # a wider one might find another output than ``predict`` gives
    requests = [PredictRequest(input=_named(one), beam=beam, n_best=min(5, width)) for one in inputs]
    page = Page(
        kind="inspect",
        title=f"{run.name}: {_headline(_shown(system, inputs[0]))}"
        + (f" and {len(inputs) - 1} more" if len(inputs) > 1 else ""),
        version=__version__,
        run=run,
        inspected=[
            inspected(system, source, request, run.id) for source, request in zip(inputs, requests, strict=True)
        ],
        training=None,
        audit=None,
        settings=history.settings(folder, run.id),
        errors=None,
        map=None,
    )
    return write(page)


def report_page(
    folder: Path, system: System, rows: int = 500, known: tuple[Sequence[Example], str] | None = None
) -> str:
    """A run's curves, audit, scores, the errors of so many of its test rows and some alignments.

    ``known``: its test rows and what to call them; else they are read again, and where the files are not there any
    more, what needs them is left out.
    """
    run = history.run(folder, folder.resolve().name, system.model.parameters_count)
    examples, side = known or _rows(system, folder)
    if system.is_language_model:
        examples = []
    shown = examples[:rows]
    label = side if len(shown) == len(examples) else f"the first {len(shown):,} of {len(examples):,} {side} rows"
    page = Page(
        kind="report",
        title=run.name,
        version=__version__,
        run=run,
        inspected=[
            inspected(system, dict(one.sources), PredictRequest(input=dict(one.sources), reference=one.target), run.id)
            for one in shown[:SAMPLES]
        ],
        training=_thin(history.training(folder, run.id)),
        audit=history.audit(folder, run.id) if (folder / "audit.json").exists() else None,
        settings=history.settings(folder, run.id),
        errors=tables.errors(system, shown, label, run.id) if shown else None,
        map=None,
    )
    return write(page)


def _rows(system: System, folder: Path) -> tuple[Sequence[Example], str]:
    try:
        return measured_rows(system, folder)
    except UserError:
        return [], ""


def inspected(system: System, source: Raw, request: PredictRequest, run: str) -> Inspected:
    prediction, found = views.predict(system, source, request, run, inlined)
    tokens = found.result.best.tokens
    kinds: list[Literal["cross", "encoder", "decoder"]] = ["cross", "encoder", "decoder"]
    kinds = [name for name in kinds if views.maps(system, name).layers]
    return Inspected(
        prediction=prediction.model_copy(update={"input": _shown(system, prediction.input)}),
        attention=[views.attention(system, source, tokens, one, most=0, loaded=found.loaded) for one in kinds],
        tree=views.tree(found, request, run),
    )


def write(page: Page, most: int = LARGEST) -> str:
    """The page as HTML. What does not fit goes, the heaviest first: single heads, then trees, rows, n-best lists."""
    folder = static_folder()
    shell = (folder / "index.html").read_text(encoding="utf-8")
    sheets = "".join(f"<style>{_style(folder / one)}</style>" for one in _SHEET.findall(shell))
    scripts = "".join(f'<script type="module">{_script(folder / one)}</script>' for one in _SCRIPT.findall(shell))
    shell = _SHEET.sub("", _SCRIPT.sub("", shell))
    shell = re.sub(r"<title>.*?</title>", lambda _: f"<title>{escape(page.title)}</title>", shell, flags=re.DOTALL)
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    around = len((shell + sheets + scripts + policy).encode())
    page = _handed_on(page)
    data = ""
    for lighter in (lambda one: one, *LIGHTER):
        page = lighter(page)
        data = inert(page.model_dump_json())
        if around + len(data.encode("utf-8", "replace")) + 200 <= most:
            break
    # A function, not a string: what is inserted may hold backslashes.
    shell = re.sub(r"<head[^>]*>", lambda head: f"{head[0]}{policy}", shell, count=1)
    shell = shell.replace("</head>", f"{sheets}</head>", 1)
    return shell.replace("</body>", f"<script>window.__DATA__={data}</script>{scripts}</body>", 1)


def _handed_on(page: Page) -> Page:
    """Without where things lie on this machine: a page is for others, and looks nothing up."""
    run = page.run.model_copy(update={"folder": page.run.name, "train_files": [], "test_files": []})
    audit = page.audit and page.audit.model_copy(
        update={"files": [_only_names(one) for one in page.audit.files]},
    )
    return page.model_copy(update={"run": run, "audit": audit})


def _only_names(audited: records.FileAudit) -> records.FileAudit:
    findings = [
        one.model_copy(
            update={"places": [place.model_copy(update={"file": Path(place.file).name}) for place in one.places]}
        )
        for one in audited.findings
    ]
    return audited.model_copy(update={"files": [Path(one).name for one in audited.files], "findings": findings})


def inert(json: str) -> str:
    """JSON that can stand inside a script element: nothing in it closes the element or opens a comment."""
    for character in "<>&\u2028\u2029":
        json = json.replace(character, f"\\u{ord(character):04x}")
    return json


def _script(path: Path) -> str:
    return re.sub(r"</(script)", r"<\\/\1", path.read_text(encoding="utf-8"), flags=re.IGNORECASE)


def _style(path: Path) -> str:
    return path.read_text(encoding="utf-8").replace("</", "<\\/")


def _each(page: Page, change: Callable[[Inspected], Inspected]) -> Page:
    return page.model_copy(update={"inspected": [change(one) for one in page.inspected]})


def _without_maps(one: Inspected) -> Inspected:
    return one.model_copy(update={"attention": [kind.model_copy(update={"maps": None}) for kind in one.attention]})


def _best_only(one: Inspected) -> Inspected:
    prediction = one.prediction.model_copy(update={"outputs": one.prediction.outputs[:1]})
    return one.model_copy(update={"prediction": prediction})


def _fewer_rows(page: Page) -> Page:
    if page.errors is None:
        return page
    kept = page.errors.rows[: max(20, len(page.errors.rows) // 3)]
    gone = len(page.errors.rows) - len(kept)
    changed = page.errors.model_copy(update={"rows": kept, "left_out": page.errors.left_out + gone})
    return page.model_copy(update={"errors": changed})


LIGHTER: tuple[Callable[[Page], Page], ...] = (
    lambda page: _each(page, _without_maps),
    lambda page: _each(page, lambda one: one.model_copy(update={"tree": None})),
    _fewer_rows,
    _fewer_rows,
    lambda page: _each(page, _best_only),
    lambda page: _each(page, lambda one: one.model_copy(update={"attention": []})),
    lambda page: page.model_copy(update={"inspected": page.inspected[:1]}),
)


def _thin(training: records.Training) -> records.Training:
    every = -(-len(training.stepped) // STEPS) or 1
    return training.model_copy(update={"stepped": training.stepped[::-1][::every][::-1]})


def _named(source: Raw) -> str | dict[str, str]:
    return source if isinstance(source, str) else dict(source)


def _shown(system: System, source: Raw) -> dict[str, str]:
    """By name of source; of a file its name, not where it lies on this machine."""
    given = {"source": source} if isinstance(source, str) else dict(source)
    files = {name for name, one in system.modalities.items() if one.is_file}
    whole = files and set(given) == {"source"}  # the only source may be given without its name
    return {name: Path(one).name if name in files or whole else one for name, one in given.items()}


def _headline(source: Raw) -> str:
    text = records.whole(source if isinstance(source, str) else " / ".join(source.values()))
    return text if len(text) <= 60 else f"{text[:59]}…"
