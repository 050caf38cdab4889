"""What counts as a word."""

from __future__ import annotations


def split_words(text: str) -> list[str]:
    """Split at spaces (U+0020 only, so that a no-break space stays inside its word)."""
    return [word for word in text.split(" ") if word]
