"""Pictures: large ones are scaled down, and all are normalised by the training pictures.

Augmentation is small and keeps what a caption says: a picture is moved and scaled a little, made
brighter or darker. Mirroring is off by default, since captions name left and right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from dragoman.config import Section
from dragoman.data.media import MediaError, Probe
from dragoman.data.modality import EncoderChoice, Modality
from dragoman.errors import UserError
from dragoman.files import damaged_file, read_json, write_json
from dragoman.modalities import _image_reader as reader
from dragoman.types import Axis, PaddedArrays

SAMPLE = 200  # pictures that statistics are learnt from
SIDE = 8  # a position of a batch is a square of this many pixels along a side
LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # red, green and blue in grey (ITU-R BT.601)
# mean and deviation of red, green and blue over ImageNet, which published weights were trained with
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SMALLEST = 0.02  # standard deviation; less is noise, which must not be amplified


class Image(Modality):
    is_file = True
    is_drawn_over = True
    gives = "picture"
    frontend_kind = "picture"
    suffixes = (".png", ".jpg", ".jpeg", ".webp")
    marks = (rb"\x89PNG", rb"\xff\xd8\xff", rb"RIFF....WEBP")
    file_noun = "a picture"
    file_title = "Pictures"

    class Config(Section):
        size: int = Field(128, gt=0, le=8192)
        """Longest side in pixels. Larger pictures are scaled down and keep their proportions."""
        enlarge: bool = False
        """Scale smaller pictures up to the same size."""
        grey: bool = False
        """One channel instead of three."""
        normalise: Literal["data", "imagenet"] = "data"
        """imagenet: normalise as pretrained weights expect."""
        shift: float = Field(0.05, ge=0.0, lt=0.5)
        """In training, move a picture by up to this share of a side."""
        scale: float = Field(0.1, ge=0.0, lt=0.5)
        """In training, enlarge or shrink a picture by up to this share."""
        brightness: float = Field(0.1, ge=0.0, lt=1.0)
        """In training, change the brightness by up to this share of white."""
        contrast: float = Field(0.1, ge=0.0, lt=1.0)
        """In training, change the contrast by up to this share."""
        flip: bool = False
        """In training, mirror every other picture. Off by default, because captions name left and
        right."""

    config: Config

    def __init__(self, config: Config, mean: Sequence[float], deviation: Sequence[float], note: str = "") -> None:
        self.config, self.mean, self.deviation, self.note = config, tuple(mean), tuple(deviation), note

    @classmethod
    def probe(cls, raw: str) -> Probe:
        return reader.probe(raw)

    @classmethod
    def examine(cls, raw: str) -> Probe:
        return reader.examine(raw)

    @classmethod
    def measures(cls, probe: Probe) -> Mapping[str, float]:
        return {"width in pixels": probe.width, "height in pixels": probe.height}

    @classmethod
    def default_encoder(cls, positions: int, width: int) -> EncoderChoice:
        return EncoderChoice({"kind": "grid"}, "pictures, seen as a grid of regions that attention chooses from")

    @classmethod
    def fit(cls, config: Any, raw: Sequence[str], name: str) -> Image:
        if not raw:
            raise UserError(f"{name}: there are no pictures to learn from")
        sample = raw[:: math.ceil(len(raw) / SAMPLE)]
        unfitted = cls(config, (), ())
        arrays = (unfitted.array(path) for path in sample)
        pixels = [array.reshape(-1, array.shape[2]).astype(np.float64) / 255 for array in arrays]  # of (H * W, C)
        mean = np.mean([values.mean(0) for values in pixels], axis=0)  # every picture counts the same, large or small
        variance = np.mean([((values - mean) ** 2).mean(0) for values in pixels], axis=0)
        deviation = np.maximum(np.sqrt(variance), SMALLEST)
        sides = sorted({unfitted.sizes(path) for path in sample}, key=lambda size: size[0] * size[1])
        extremes = " to ".join(dict.fromkeys(f"{width}×{height}" for height, width in (sides[0], sides[-1])))
        note = f"{name}: pictures of {extremes} pixels{' in grey' if config.grey else ''}"
        if config.normalise == "imagenet":
            mean, deviation = (np.array(values, np.float32) for values in IMAGENET)
            if config.grey:
                mean, deviation = (values.mean(dtype=np.float64, keepdims=True) for values in (mean, deviation))
        else:
            note += f", normalised by the statistics of {len(sample):,} of them"
        return cls(config, mean.tolist(), deviation.tolist(), note)

    @property
    def notes(self) -> list[str]:
        return [self.note] if self.note else []

    def array(self, raw: str) -> np.ndarray:
        return self._channels(self._read_scaled(raw))

    def augmented(self, raw: str, generator: np.random.Generator) -> np.ndarray:
        config = self.config
        pixels = self._read_scaled(raw)
        across, down, zoom, light, spread = generator.uniform(-1.0, 1.0, 5)
        mirrored = generator.random() < 0.5  # always drawn, so that no option changes what others draw
        if config.shift or config.scale:
            pixels = move(pixels, config.shift * down, config.shift * across, 1.0 + config.scale * zoom)
        if config.brightness or config.contrast:
            mean = pixels.mean()
            changed = (pixels - mean) * (1.0 + config.contrast * spread) + mean + 255 * config.brightness * light
            pixels = changed.round().clip(0, 255).astype(np.uint8)
        if config.flip and mirrored:
            pixels = np.ascontiguousarray(pixels[:, ::-1])
        return self._channels(pixels)

    @property
    def varies(self) -> bool:
        config = self.config
        return any((config.shift, config.scale, config.brightness, config.contrast, config.flip))

    def length(self, raw: str) -> int:
        height, width = self.sizes(raw)
        return math.ceil(height / SIDE) * math.ceil(width / SIDE)

    def sizes(self, raw: str) -> tuple[int, int]:
        """Return the height and width that the model will see, by the file's header."""
        try:
            header = self.probe(raw)
        except MediaError as error:
            raise UserError(f"{raw}: {error}") from None
        return self._scaled_size(header.height, header.width)

    def collate(self, arrays: Sequence[np.ndarray]) -> PaddedArrays:
        height, width = (max(array.shape[side] for array in arrays) for side in (0, 1))
        data = np.zeros((len(arrays), height, width, arrays[0].shape[2]), dtype=arrays[0].dtype)  # (B, H, W, C)
        mask = np.zeros(data.shape[:3], dtype=bool)
        for row, array in enumerate(arrays):
            data[row, : array.shape[0], : array.shape[1]] = array
            mask[row, : array.shape[0], : array.shape[1]] = True
        return data, mask

    def frontend_options(self) -> Mapping[str, Any]:
        return {"mean": self.mean, "deviation": self.deviation}

    def axis(self, array: np.ndarray, stride: int = 1) -> Axis:
        height, width = array.shape[:2]
        rows, columns = math.ceil(height / stride), math.ceil(width / stride)
        labels = (f"row {row + 1}, column {column + 1}" for row in range(rows) for column in range(columns))
        return Axis("image", tuple(labels), (rows, columns))

    def describe_reading(self) -> Mapping[str, Any]:
        config = self.config
        return {"size": config.size, "enlarge": config.enlarge, "grey": config.grey}

    def save(self, folder: Path, name: str) -> list[str]:
        path = _record_path(folder, name)
        write_json(path, {"mean": self.mean, "deviation": self.deviation})
        return [path.name]

    @classmethod
    def load(cls, config: Any, folder: Path, name: str) -> Image:
        path = _record_path(folder, name)
        record = read_json(path, "no such file; is this the folder of a run on pictures?")
        try:
            mean, deviation = ([float(value) for value in record[key]] for key in ("mean", "deviation"))
        except (ValueError, KeyError, TypeError) as error:
            raise damaged_file(path, repr(error)) from None
        return cls(config, mean, deviation)

    def _read_scaled(self, raw: str) -> np.ndarray:
        try:
            pixels = reader.read(raw)  # (H, W, 3)
        except MediaError as error:
            raise UserError(f"{raw}: {error}") from None
        return resize(pixels, *self._scaled_size(*pixels.shape[:2]))

    def _scaled_size(self, height: int, width: int) -> tuple[int, int]:
        longest = max(height, width)
        if longest == self.config.size or (longest < self.config.size and not self.config.enlarge):
            return height, width
        share = self.config.size / longest
        return max(1, round(height * share)), max(1, round(width * share))

    def _channels(self, pixels: np.ndarray) -> np.ndarray:
        if self.config.grey:
            pixels = (pixels @ LUMA).round().astype(np.uint8)[..., None]
        return pixels


def resize(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Scale (H, W, 3) to (height, width, 3); smaller pictures have means of the pixels."""
    if (height, width) == pixels.shape[:2]:
        return pixels
    from PIL import Image as Pillow

    return np.asarray(Pillow.fromarray(pixels).resize((width, height), Pillow.Resampling.BILINEAR))


def move(pixels: np.ndarray, down: float, right: float, larger: float) -> np.ndarray:
    """Move and enlarge a picture by shares of its sides; its edges are continued outwards."""
    from PIL import Image as Pillow

    height, width = pixels.shape[:2]
    high, wide = height / larger, width / larger  # size of the window that is seen
    top, left = (height - high) / 2 - down * height, (width - wide) / 2 - right * width
    margin = math.ceil(max(-top, -left, top + high - height, left + wide - width, 0.0))
    picture = Pillow.fromarray(np.pad(pixels, ((margin, margin), (margin, margin), (0, 0)), mode="edge"))
    window = (left + margin, top + margin, left + margin + wide, top + margin + high)
    return np.asarray(picture.resize((width, height), Pillow.Resampling.BILINEAR, box=window))


def _record_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.image.json"
