"""Make recordings of telephone numbers dialled in tones, and a table of their digits.

    python examples/tones/make.py            # writes data/ beside this script

The files are the same every time. Each key of a telephone gives two tones at once (ITU-T Q.23). Speed, loudness and
gaps vary, and there is noise. No number is in two of train, dev and test.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

FOLDER = Path(__file__).parent / "data"
RATE = 8000
LOW = (697, 770, 852, 941)  # Hz, one for each row of keys
HIGH = (1209, 1336, 1477)  # Hz, one for each column
KEYS = ("123", "456", "789", " 0 ")
SIZES = {"train": 240, "dev": 30, "test": 30}
PITCH = {
    key: (LOW[row], HIGH[column]) for row, line in enumerate(KEYS) for column, key in enumerate(line) if key != " "
}


def dial(digits: str, generator: np.random.Generator, slowness: float | None = None) -> npt.NDArray[np.float64]:
    """Return the sound of a number as samples between -1 and 1."""  # (N,)
    return dial_timed(digits, generator, slowness)[0]


def dial_timed(
    digits: str, generator: np.random.Generator, slowness: float | None = None
) -> tuple[npt.NDArray[np.float64], list[tuple[float, float]]]:
    """Return the sound of a number, and when the tone of each digit begins and ends, in seconds."""
    slow = generator.uniform(0.7, 1.4) if slowness is None else slowness
    loudness = generator.uniform(0.15, 0.4)
    pieces = [np.zeros(int(RATE * generator.uniform(0.01, 0.06)))]
    tone_times, begin = [], len(pieces[0])
    for digit in digits:
        times = np.arange(int(RATE * slow * generator.uniform(0.05, 0.09))) / RATE
        fade = np.minimum(1.0, np.minimum(times, times[::-1]) / 0.004)  # no clicks
        tones = sum(np.sin(2 * np.pi * (pitch * times + generator.random())) for pitch in PITCH[digit])
        pieces += [loudness * fade * tones, np.zeros(int(RATE * slow * generator.uniform(0.03, 0.07)))]
        tone_times.append((begin / RATE, (begin + len(times)) / RATE))
        begin += len(times) + len(pieces[-1])
    sound = np.concatenate(pieces)
    noise = np.repeat(generator.standard_normal(len(sound) // 4 + 1), 4)[
        : len(sound)
    ]  # less high frequency than white noise, so FLAC compresses it
    return np.clip(sound + generator.uniform(0.002, 0.01) * noise, -1, 1), tone_times


def draw_numbers(count: int, generator: np.random.Generator) -> list[str]:
    """Draw distinct numbers of two to six digits."""
    numbers: dict[str, None] = {}
    while len(numbers) < count:
        numbers["".join(map(str, generator.integers(0, 10, generator.integers(2, 7))))] = None
    return list(numbers)


def write(folder: Path) -> None:
    """Write the recordings, a table of file names and digits for each split, and a table of all tones."""
    generator = np.random.default_rng(16)
    folder.mkdir(parents=True, exist_ok=True)
    numbers = iter(draw_numbers(sum(SIZES.values()), generator))
    timed = ["sound\tdigit\tbegin\tend"]
    for split, size in SIZES.items():
        lines = ["sound\tdigits"]
        for index in range(size):
            digits, name = next(numbers), f"{split}-{index:03d}.flac"
            sound, times = dial_timed(digits, generator)
            samples = np.round(sound * 512) * 64  # ten bits are enough for tones, at half the size
            soundfile.write(folder / name, samples.clip(-32768, 32767).astype(np.int16), RATE, subtype="PCM_16")
            lines.append(f"{name}\t{digits}")
            timed += [
                f"{name}\t{digit}\t{begin:.4f}\t{end:.4f}" for digit, (begin, end) in zip(digits, times, strict=True)
            ]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    (folder / "times.tsv").write_text("\n".join(timed) + "\n", encoding="utf-8", newline="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write train.tsv, dev.tsv, test.tsv and their recordings.")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write to")
    write(parser.parse_args().out)


if __name__ == "__main__":
    main()
