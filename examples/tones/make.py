"""Makes the recordings of this folder: telephone numbers dialled in tones, and the digits in writing.

    python examples/tones/make.py

The same every time. Each key of a telephone sounds as two tones at once (ITU-T Q.23); here with their own speed and
loudness, gaps of different length, and noise. No number stands on two sides.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

FOLDER = Path(__file__).parent / "data"
RATE = 8000
LOW = (697, 770, 852, 941)  # Hz, a row of keys each
HIGH = (1209, 1336, 1477)  # Hz, a column each
KEYS = ("123", "456", "789", " 0 ")
SIDES = {"train": 240, "dev": 30, "test": 30}
PITCH = {
    key: (LOW[row], HIGH[column]) for row, line in enumerate(KEYS) for column, key in enumerate(line) if key != " "
}


def dial(digits: str, chance: np.random.Generator) -> np.ndarray:
    """(N,) the sound of a number, between -1 and 1."""
    speed = chance.uniform(0.7, 1.4)
    loudness = chance.uniform(0.15, 0.4)
    pieces = [np.zeros(int(RATE * chance.uniform(0.01, 0.06)))]
    for digit in digits:
        times = np.arange(int(RATE * speed * chance.uniform(0.05, 0.09))) / RATE
        fade = np.minimum(1.0, np.minimum(times, times[::-1]) / 0.004)  # no clicks
        tones = sum(np.sin(2 * np.pi * (pitch * times + chance.random())) for pitch in PITCH[digit])
        pieces += [loudness * fade * tones, np.zeros(int(RATE * speed * chance.uniform(0.03, 0.07)))]
    sound = np.concatenate(pieces)
    noise = np.repeat(chance.standard_normal(len(sound) // 4 + 1), 4)[: len(sound)]  # duller than white: packs well
    return np.clip(sound + chance.uniform(0.002, 0.01) * noise, -1, 1)


def numbers(count: int, chance: np.random.Generator) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(map(str, chance.integers(0, 10, chance.integers(2, 7))))] = None
    return list(found)


def main() -> None:
    chance = np.random.default_rng(16)
    FOLDER.mkdir(exist_ok=True)
    left = iter(numbers(sum(SIDES.values()), chance))
    for side, count in SIDES.items():
        lines = ["sound\tdigits"]
        for index in range(count):
            digits, name = next(left), f"{side}-{index:03d}.flac"
            rough = np.round(dial(digits, chance) * 512) * 64  # ten bits are enough for tones, and half the size
            soundfile.write(FOLDER / name, rough.clip(-32768, 32767).astype(np.int16), RATE, subtype="PCM_16")
            lines.append(f"{name}\t{digits}")
        (FOLDER / f"{side}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
