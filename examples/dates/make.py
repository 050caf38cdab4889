"""Make pairs of dates as people write them in many languages and the same dates in ISO 8601.

    python examples/dates/make.py            # writes train.tsv, dev.tsv and test.tsv beside this script

Names and patterns come from the Unicode CLDR, as Babel ships it; the noise is added here. The same seed and the same
version of Babel give the same files. README.md states the rules by which every line means one date only.
"""

from __future__ import annotations

import argparse
import random
import re
import unicodedata
from collections.abc import Callable
from datetime import date, timedelta
from itertools import islice
from pathlib import Path

from babel import Locale
from babel.dates import format_date
from rapidfuzz.distance import OSA

LOCALES = (
    *("en", "en_GB", "de", "fr", "es", "it", "pt", "nl", "sv", "da", "fi"),
    *("pl", "cs", "hu", "ro", "tr", "ru", "uk", "el", "he", "ja", "ko"),
)
YEAR_FIRST = {"hu", "ja", "ko"}
FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)
PIVOT = range(1969, 2069)  # the years that two digits can mean
SEED = 2026
SIZES = {"train": 10_000, "dev": 500, "test": 1_000}
ORDINAL = "\ue000"  # placeholder in a pattern for the day as an ordinal


def _english(day: int) -> str:
    """Return the English ordinal of a day."""
    return f"{day}{'th' if 11 <= day <= 13 else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"


def _first(suffix: str) -> Callable[[int], str]:
    """Return the writer of a language that has an ordinal for the first of the month only."""
    return lambda day: f"1{suffix}" if day == 1 else str(day)


# How a day is written as an ordinal, and the patterns that use it.
ORDINALS: dict[str, tuple[Callable[[int], str], tuple[str, ...]]] = {
    "en": (_english, ("MMMM @, y", "MMMM @ y", "MMM @, y", "EEEE, MMMM @, y", "'the' @ 'of' MMMM y")),
    "en_GB": (_english, ("@ MMMM y", "@ MMM y", "@ 'of' MMMM y", "EEEE @ MMMM y", "EEE @ MMM y")),
    "fr": (_first("er"), ("@ MMMM y", "'le' @ MMMM y", "EEEE @ MMMM y")),
    "es": (_first(".º"), ("@ 'de' MMMM 'de' y", "@ 'de' MMMM 'del' y")),
    "it": (_first("º"), ("@ MMMM y", "EEEE @ MMMM y")),
    "pt": (_first("º"), ("@ 'de' MMMM 'de' y", "@ 'de' MMMM y")),
    "nl": (lambda day: f"{day}e", ("@ MMMM y", "'de' @ MMMM y")),
    "sv": (lambda day: f"{day}:{'a' if day % 10 in (1, 2) and day not in (11, 12) else 'e'}", ("'den' @ MMMM y",)),
    "ru": (lambda day: f"{day}-го", ("@ MMMM y", "@ MMMM y 'года'")),
    "uk": (lambda day: f"{day}-го", ("@ MMMM y", "@ MMMM y 'року'")),
    "el": (lambda day: f"{day}η", ("@ MMMM y",)),
}


def fold(word: str) -> str:
    """Remove case, accents and points from a word."""
    decomposed = unicodedata.normalize("NFD", word.casefold())
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn").strip(".׳")


def collect_month_names() -> dict[str, int]:
    """Map every folded name of a month, in any language, to its number; refuse a name that means two months."""
    names: dict[str, int] = {}
    for code in LOCALES:
        for width in ("wide", "abbreviated"):
            for month, name in Locale.parse(code).months["format"][width].items():
                for form in (fold(name), "ב" + fold(name)) if code == "he" else (fold(name),):
                    if names.setdefault(form, month) != month:
                        raise ValueError(f"{name!r} ({code}) means two months")
    return names


MONTHS = collect_month_names()


def list_patterns(code: str) -> dict[str, list[str]]:
    """Return the patterns by which a language writes a date, by style."""
    formats = Locale.parse(code).date_formats
    cldr = [formats[style].pattern.replace("c", "E").replace("\u202f", " ") for style in ("medium", "long", "full")]
    named = [pattern for pattern in cldr if "MMM" in pattern]
    long = next((pattern for pattern in cldr[1:] if "MMMM" in pattern), cldr[1])
    short = long.replace("MMMM", "MMM")
    styles = {"named": named + [long] * 2, "abbreviated": [short]}
    if code in YEAR_FIRST:
        separated = ["y. MM. dd.", "y. M. d.", "y.MM.dd."] if code != "ja" else ["y/M/d", "y/MM/dd", "y.M.d"]
        return styles | {"numeric": separated}
    order = "EEE, {}" if code == "en" else "EEE {}"
    styles["abbreviated"] += [order.format(short), re.sub(r"\by\b", "yy", short)]
    if code in ORDINALS:
        styles["ordinal"] = [pattern.replace("@", ORDINAL) for pattern in ORDINALS[code][1]]
    days = ("d{0}M{0}y", "dd{0}MM{0}y", "d{0}M{0}yy", "dd{0}MM{0}yy")
    styles["numeric"] = [day.format(separator) for day in days for separator in "./-"] + ["d. M. y"]
    return styles


PATTERNS = {code: list_patterns(code) for code in LOCALES}
ISO_LIKE = ("y-MM-dd", "y/MM/dd", "y.MM.dd", "y-M-d", "yMMdd")
STYLES = {"named": 40, "abbreviated": 25, "ordinal": 12, "numeric": 18, "iso": 5}


def write_date(day: date, code: str, generator: random.Random) -> str:
    """Write the day in the language, in a style drawn at random."""
    styles = {style: weight for style, weight in STYLES.items() if style in PATTERNS[code] or style == "iso"}
    style = generator.choices(list(styles), list(styles.values()))[0]
    options = ISO_LIKE if style == "iso" else PATTERNS[code][style]
    if day.year not in PIVOT:
        options = [option for option in options if "yy" not in option]
    text = format_date(day, generator.choice(options), locale=code)
    return text.replace(ORDINAL, ORDINALS[code][0](day.day)) if ORDINAL in text else text


def misspell(word: str, generator: random.Random) -> str:
    """Drop, double or swap a letter, unless the word could then be read as another month."""
    place = generator.randrange(1, len(word) - 1)
    before, letter, after, rest = word[:place], word[place], word[place + 1], word[place + 2 :]
    wrong = generator.choice(
        [before + after + rest, before + letter * 2 + after + rest, before + after + letter + rest]
    )
    meant = MONTHS.get(fold(word))
    if any(OSA.distance(fold(wrong), name, score_cutoff=1) <= 1 for name, month in MONTHS.items() if month != meant):
        return word
    return wrong


def strip_accents(text: str) -> str:
    """Remove accents, except where they make a letter of its own, as in й."""
    decomposed = unicodedata.normalize("NFD", text)
    bare = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
    return bare if not re.search("[\u0400-\u04ff\u0590-\u05ff\u3040-\u30ff\uac00-\ud7af]", text) else text


def disturb(text: str, generator: random.Random) -> str:
    """Add the slips and habits of people, each with a small probability."""

    def sometimes(percent: float) -> bool:
        return generator.random() * 100 < percent

    named = any(character.isalpha() for character in text)
    if sometimes(6):
        text = strip_accents(text)
    words = re.findall(r"[^\W\d_]{6,}", text)
    if words and sometimes(6):
        word = generator.choice(words)
        text = text.replace(word, misspell(word, generator), 1)
    if sometimes(8):
        text = text.lower()
    elif sometimes(6):
        text = text.upper()
        if re.search("[\u0370-\u03ff]", text):
            text = strip_accents(text)  # Greek capitals have none
    if named and sometimes(15):  # remove commas and points, where no digits would run together
        text = re.sub(r"[,.](?=\s|$)", "", text)
    if sometimes(4):
        text = re.sub(r"(?<=[^\W\d]) (?=\d)|(?<=\d) (?=[^\W\d])", "", text, count=1)
    if sometimes(4):
        text = text.replace(" ", "  ", 1)
    return text


def make_rows(count: int, seed: int) -> list[tuple[str, str]]:
    """Return distinct sources with their ISO dates."""
    generator = random.Random(seed)
    rows: dict[str, str] = {}
    while len(rows) < count:
        if generator.random() < 0.5:
            day = FIRST + timedelta(days=generator.randrange((LAST - FIRST).days + 1))
        else:  # half of all dates are recent
            day = date(1969, 1, 1) + timedelta(days=generator.randrange(100 * 365))
        text = disturb(write_date(day, generator.choice(LOCALES), generator), generator)
        text = unicodedata.normalize("NFC", text)
        if rows.setdefault(text, day.isoformat()) != day.isoformat():
            raise ValueError(f"{text!r} means both {rows[text]} and {day.isoformat()}")
    return list(rows.items())


def write(folder: Path, seed: int = SEED) -> None:
    """Write one table of sources and ISO dates for each split."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = iter(make_rows(sum(SIZES.values()), seed))
    for split, size in SIZES.items():
        lines = "".join(f"{source}\t{target}\n" for source, target in islice(rows, size))
        (folder / f"{split}.tsv").write_text(lines, encoding="utf-8", newline="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write train.tsv, dev.tsv and test.tsv.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write to")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    write(options.out, options.seed)


if __name__ == "__main__":
    main()
