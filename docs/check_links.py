"""Check that every relative link in a Markdown page leads to a file, and every ``#part`` to one of its headings."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = {".venv", "node_modules", "runs", "build", "dist"}
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings: lower case, hyphens for spaces, no punctuation."""
    headings = re.findall(r"^#{1,6}\s+(.+?)\s*$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path, root: Path) -> list[str]:
    """Return one sentence for each link of the page that leads nowhere."""
    text = page.read_text(encoding="utf-8")
    blanked = FENCE.sub(lambda match: "\n" * match.group().count("\n"), text)  # a link in code is not a link
    sentences = []
    for match in LINK.finditer(blanked):
        link = match.group(1)
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        name, _, part = unquote(link).partition("#")
        target = (root / name.lstrip("/") if name.startswith("/") else page.parent / name) if name else page
        line = blanked.count("\n", 0, match.start()) + 1
        if not target.exists():
            sentences.append(f"{page.relative_to(root)}:{line}: no such file: {link}")
        elif part and target.suffix == ".md" and part not in anchors(target.read_text(encoding="utf-8")):
            sentences.append(f"{page.relative_to(root)}:{line}: no such heading: {link}")
    return sentences


def main(root: Path = ROOT) -> int:
    pages = [page for page in sorted(root.rglob("*.md")) if not SKIPPED.intersection(page.relative_to(root).parts)]
    sentences = [sentence for page in pages for sentence in broken(page, root)]
    print("\n".join(sentences) if sentences else f"{len(pages)} pages: every link leads somewhere")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
