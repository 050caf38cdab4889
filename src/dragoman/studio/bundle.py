"""The built web page, which is an archive in this folder, and one-file pages made of it.

A one-file page is one HTML file with the script, the style sheet and the data inside. It loads
nothing from anywhere.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from dragoman.errors import UserError
from dragoman.studio.records import FileAudit, Inspected, Page

MAX_PAGE_SIZE = 2_000_000  # bytes
MAX_TEXT = 100_000  # characters of a text that a person may have written
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "media-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
)
_SCRIPT = re.compile(r'<script\b[^>]*\bsrc="([^"]+)"[^>]*></script>')
_STYLE_SHEET = re.compile(r'<link\b[^>]*\brel="stylesheet"[^>]*\bhref="([^"]+)"[^>]*/?>')


def read_page() -> Mapping[str, bytes]:
    """Return the files of the built page by name. Raise a ``UserError`` if this install has none."""
    return _read_archive(Path(str(resources.files("dragoman.studio"))) / "page.zip")


@cache
def _read_archive(path: Path) -> Mapping[str, bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path}: the studio's page cannot be read ({error}); install dragoman again, or run `make studio` in a "
            "checkout"
        ) from None


def write_html(page: Page, max_size: int = MAX_PAGE_SIZE) -> str:
    """Return a page as one HTML file.

    A page of more than ``max_size`` bytes is made smaller by leaving out the heaviest data.
    """
    files = {name: content.decode() for name, content in read_page().items()}
    html = files["index.html"]
    styles = "".join(f"<style>{_escape_style(files[_name(path)])}</style>" for path in _STYLE_SHEET.findall(html))
    scripts = "".join(
        f'<script type="module">{_escape_script(files[_name(path)])}</script>' for path in _SCRIPT.findall(html)
    )
    html = _STYLE_SHEET.sub("", _SCRIPT.sub("", html))
    # Replacements are functions, not strings: what is inserted may contain backslashes.
    html = re.sub(r"<title>.*?</title>", lambda _: f"<title>{escape(page.title)}</title>", html, flags=re.DOTALL)
    policy = f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">'
    size_without_data = len((html + styles + scripts + policy).encode()) + 200  # 200: the tags around the data
    data = _fit_data(_remove_paths(page), max_size - size_without_data)
    html = re.sub(r"<head[^>]*>", lambda head: f"{head[0]}{policy}", html, count=1)
    html = html.replace("</head>", f"{styles}</head>", 1)
    return html.replace("</body>", f"<script>window.__DATA__={data}</script>{scripts}</body>", 1)


def _fit_data(page: Page, max_size: int) -> str:
    """Return the data of a page as JSON, with as many of the ``REDUCTIONS`` as it takes to fit."""
    data = _escape_json(page.model_dump_json())
    for reduce in REDUCTIONS:
        if len(data.encode("utf-8", "replace")) <= max_size:
            break
        page = reduce(page)
        data = _escape_json(page.model_dump_json())
    return data


def _escape_json(json: str) -> str:
    """Escape JSON for a script element: no text in it closes the element or opens a comment."""
    for character in "<>&\u2028\u2029":
        json = json.replace(character, f"\\u{ord(character):04x}")
    return json


def _name(path: str) -> str:
    return path.removeprefix("./")


def _escape_script(script: str) -> str:
    return re.sub(r"</(script)", r"<\\/\1", script, flags=re.IGNORECASE)


def _escape_style(style: str) -> str:
    return style.replace("</", "<\\/")


# ---- paths of this machine, which a page for others does not show


def _remove_paths(page: Page) -> Page:
    """Return the page without folders of this machine.

    Files keep their names. Folders that are known to the page, the working folder and the home folder are also removed
    from all texts, such as settings, notes and reasons.
    """
    files = [*page.run.train_files, *page.run.test_files]
    if page.audit is not None:
        files += [file for audit in page.audit.files for file in audit.files]
    folders = {Path(page.run.folder).absolute(), *(Path(file).absolute().parent for file in files)}
    folders |= {Path(page.run.folder).resolve(), *(Path(file).resolve().parent for file in files)}
    folders |= {inner for folder in folders for inner in folder.parents if len(inner.parts) > 2}
    folders |= {folder for folder in (Path.cwd(), Path.home()) if len(folder.parts) > 1}
    run = page.run.model_copy(update={"folder": page.run.name, "train_files": [], "test_files": []})
    audit = page.audit and page.audit.model_copy(update={"files": [_keep_names(file) for file in page.audit.files]})
    page = page.model_copy(update={"run": run, "audit": audit})
    longest_first = sorted(map(str, folders), key=len, reverse=True)
    pattern = re.compile("|".join(rf"{re.escape(folder)}(?:/|\\|(?![\w.-]))" for folder in longest_first) or r"(?!)")
    return Page.model_validate(_map_strings(page.model_dump(), lambda text: pattern.sub("", text)))


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value as JSON has it, with every string changed but the long ones, which are matrices and pictures."""
    if isinstance(value, str):
        return change(value) if len(value) < MAX_TEXT else value
    if isinstance(value, dict):
        return {key: _map_strings(inner, change) for key, inner in value.items()}
    return [_map_strings(inner, change) for inner in value] if isinstance(value, (list, tuple)) else value


def _keep_names(audit: FileAudit) -> FileAudit:
    findings = [
        finding.model_copy(
            update={"places": [place.model_copy(update={"file": Path(place.file).name}) for place in finding.places]}
        )
        for finding in audit.findings
    ]
    return audit.model_copy(update={"files": [Path(file).name for file in audit.files], "findings": findings})


# ---- what is left out of a page that is too large


def _change_inputs(page: Page, change: Callable[[Inspected], Inspected]) -> Page:
    return page.model_copy(update={"inspected": [change(inspected) for inspected in page.inspected]})


def _drop_single_maps(inspected: Inspected) -> Inspected:
    averages = [attention.model_copy(update={"maps": None}) for attention in inspected.attention]
    return inspected.model_copy(update={"attention": averages})


def _drop_tree(inspected: Inspected) -> Inspected:
    return inspected.model_copy(update={"tree": None})


def _keep_best_output(inspected: Inspected) -> Inspected:
    prediction = inspected.prediction.model_copy(update={"outputs": inspected.prediction.outputs[:1]})
    return inspected.model_copy(update={"prediction": prediction})


def _drop_attention(inspected: Inspected) -> Inspected:
    return inspected.model_copy(update={"attention": []})


def _list_fewer_errors(page: Page) -> Page:
    if page.errors is None:
        return page
    rows = page.errors.rows[: max(20, len(page.errors.rows) // 3)]
    left_out = page.errors.left_out + len(page.errors.rows) - len(rows)
    return page.model_copy(update={"errors": page.errors.model_copy(update={"rows": rows, "left_out": left_out})})


def _drop_thumbnails(page: Page) -> Page:
    if page.errors is None:
        return page
    rows = [
        row.model_copy(
            update={"files": {name: file.model_copy(update={"url": ""}) for name, file in row.files.items()}}
        )
        for row in page.errors.rows
    ]
    return page.model_copy(update={"errors": page.errors.model_copy(update={"rows": rows})})


REDUCTIONS: tuple[Callable[[Page], Page], ...] = (  # the heaviest and least needed first
    lambda page: _change_inputs(page, _drop_single_maps),
    lambda page: _change_inputs(page, _drop_tree),
    _list_fewer_errors,
    _list_fewer_errors,
    _drop_thumbnails,
    lambda page: _change_inputs(page, _keep_best_output),
    lambda page: _change_inputs(page, _drop_attention),
    lambda page: page.model_copy(update={"inspected": page.inspected[:1]}),
)
