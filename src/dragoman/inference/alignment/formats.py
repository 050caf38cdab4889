"""Times of words in the formats of other programs: CTM (NIST), SRT subtitles, TextGrid (Praat)."""

from __future__ import annotations

import re
from pathlib import PurePath

from dragoman.inference.alignment.timings import Timing, Timings

LONGEST_CUE = 42  # characters of a subtitle
LONGEST_PAUSE = 0.6  # seconds inside a subtitle


def write_ctm(timings: Timings) -> str:
    """Return one line per word: recording, channel, begin, duration, word; times in seconds.

    The columns are those of NIST's scoring tools. A name has no white space, so it becomes ``_``.
    """
    name = re.sub(r"\s+", "_", PurePath(timings.path).stem) or "_"
    lines = []
    for each in timings.units:
        begin, end = round(each.begin, 3), round(each.end, 3)
        word = re.sub(r"\s+", "_", each.text)
        lines.append(f"{name} 1 {begin:.3f} {end - begin:.3f} {word}\n")
    return "".join(lines)


def write_srt(timings: Timings) -> str:
    """Return numbered subtitles. A new one begins after a pause, or where a line would be too long."""
    cues: list[list[Timing]] = []
    space = "" if timings.unit == "character" else " "
    for each in timings.units:
        last = cues[-1] if cues else []
        length = len(space.join(word.text for word in [*last, each]))
        if last and length <= LONGEST_CUE and each.begin - last[-1].end <= LONGEST_PAUSE:
            last.append(each)
        else:
            cues.append([each])
    blocks = (
        f"{number}\n{_clock(cue[0].begin)} --> {_clock(cue[-1].end)}\n{space.join(word.text for word in cue)}\n"
        for number, cue in enumerate(cues, 1)
    )
    return "\n".join(blocks)


def write_textgrid(timings: Timings) -> str:
    """Return a TextGrid in Praat's long text format: one interval tier, whose intervals cover the recording."""
    intervals: list[Timing] = []
    last, end = 0.0, max(timings.duration, max((each.end for each in timings.units), default=0.0), 0.001)
    for each in timings.units:
        if each.end <= each.begin:  # an interval of Praat lasts
            continue
        if each.begin > last:
            intervals.append(Timing("", last, each.begin))
        intervals.append(each)
        last = each.end
    if last < end:
        intervals.append(Timing("", last, end))
    lines = [
        'File type = "ooTextFile"',
        'Object class = "TextGrid"',
        "",
        "xmin = 0",
        f"xmax = {end}",
        "tiers? <exists>",
        "size = 1",
        "item []:",
        "    item [1]:",
        '        class = "IntervalTier"',
        f'        name = "{timings.unit}s"',
        "        xmin = 0",
        f"        xmax = {end}",
        f"        intervals: size = {len(intervals)}",
    ]
    for number, each in enumerate(intervals, 1):
        text = each.text.replace('"', '""')
        lines += [
            f"        intervals [{number}]:",
            f"            xmin = {each.begin}",
            f"            xmax = {each.end}",
            f'            text = "{text}"',
        ]
    return "\n".join(lines) + "\n"


def _clock(seconds: float) -> str:
    """Return hours, minutes, seconds and milliseconds as SRT writes them."""
    thousandths = round(seconds * 1000)
    minutes, rest = divmod(thousandths, 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest // 1000:02d},{rest % 1000:03d}"
