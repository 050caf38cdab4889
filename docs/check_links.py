"""Every relative link of every Markdown page leads to a file, and every ``#part`` to a heading of it."""

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
    """The names of a page's headings, as they are made on the web: small letters, hyphens, no signs."""
    headings = re.findall(r"^#{1,6}\s+(.+?)\s*$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path, root: Path) -> list[str]:
    """One sentence for each link of the page that leads nowhere."""
    text = page.read_text(encoding="utf-8")
    blanked = FENCE.sub(lambda match: "\n" * match.group().count("\n"), text)  # code shows links, it does not make them
    found = []
    for match in LINK.finditer(blanked):
        link = match.group(1)
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        name, _, part = unquote(link).partition("#")
        goal = (root / name.lstrip("/") if name.startswith("/") else page.parent / name) if name else page
        line = blanked.count("\n", 0, match.start()) + 1
        if not goal.exists():
            found.append(f"{page.relative_to(root)}:{line}: no such file: {link}")
        elif part and goal.suffix == ".md" and part not in anchors(goal.read_text(encoding="utf-8")):
            found.append(f"{page.relative_to(root)}:{line}: no such heading: {link}")
    return found


def main(root: Path = ROOT) -> int:
    pages = [page for page in sorted(root.rglob("*.md")) if not SKIPPED.intersection(page.relative_to(root).parts)]
    sentences = [sentence for page in pages for sentence in broken(page, root)]
    print("\n".join(sentences) if sentences else f"{len(pages)} pages: every link leads somewhere")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
