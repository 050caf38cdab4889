"""Pictures in: files, made smaller where they are large, normalised by the statistics of the training pictures.

Changes at random are small and keep what a caption says: the picture is moved and scaled by a little, made brighter or
darker. Mirroring is off unless asked for, since captions name left and right.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from dragoman.config import Section
from dragoman.contracts import Frontend, Modality
from dragoman.data import media
from dragoman.data.media import MediaError, images
from dragoman.errors import UserError
from dragoman.files import write_json
from dragoman.types import Axis, Padded

LOOKED_AT = 200  # pictures that the statistics are taken of
SIDE = 8  # pixels along a side of what counts as one position of a batch
LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # of red, green and blue in grey (ITU-R BT.601)
# of red, green and blue over ImageNet: what published weights were trained with
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
NARROWEST = 0.02  # standard deviation that is taken for real; less is noise, which must not be blown up


class Image(Modality):
    is_file = True
    gives = "picture"

    class Config(Section):
        size: int = Field(128, gt=0)  # longest side in pixels; larger pictures are made smaller, their shape is kept
        enlarge: bool = False  # make smaller pictures as large
        grey: bool = False  # one channel in place of three
        normalise: Literal["data", "imagenet"] = "data"  # imagenet: for published weights
        shift: float = Field(0.05, ge=0.0, lt=0.5)  # training: moved by up to this share of a side
        scale: float = Field(0.1, ge=0.0, lt=0.5)  # training: larger or smaller by up to this share
        brightness: float = Field(0.1, ge=0.0, lt=1.0)  # training: up to this share of white more or less
        contrast: float = Field(0.1, ge=0.0, lt=1.0)  # training: up to this share more or less
        flip: bool = False  # training: every other one mirrored; off, since captions name left and right

    def __init__(self, config: Config, mean: Sequence[float], deviation: Sequence[float], note: str = "") -> None:
        self.config, self.mean, self.deviation, self.note = config, tuple(mean), tuple(deviation), note

    @classmethod
    def fit(cls, config: Any, raw: Sequence[str], name: str) -> Image:
        if not raw:
            raise UserError(f"{name}: there are no pictures to learn from")
        chosen = raw[:: math.ceil(len(raw) / LOOKED_AT)]
        raw_only = cls(config, (), ())
        pixels = [raw_only.tensor(path).flatten(0, 1).double() / 255 for path in chosen]  # of (H * W, C)
        mean = torch.stack([one.mean(0) for one in pixels]).mean(0)  # every picture counts the same, large or small
        square = torch.stack([(one - mean).square().mean(0) for one in pixels]).mean(0)
        deviation = square.sqrt().clamp_min(NARROWEST)
        sides = sorted({raw_only.sizes(path) for path in chosen}, key=lambda size: size[0] * size[1])
        told = " to ".join(dict.fromkeys(f"{width}×{height}" for height, width in (sides[0], sides[-1])))
        note = f"{name}: pictures of {told} pixels{' in grey' if config.grey else ''}"
        if config.normalise == "imagenet":
            mean, deviation = (torch.tensor(one).double() for one in IMAGENET)
            if config.grey:
                mean, deviation = mean.mean(0, keepdim=True), deviation.mean(0, keepdim=True)
        else:
            note += f", normalised by the statistics of {len(chosen):,} of them"
        return cls(config, mean.tolist(), deviation.tolist(), note)

    @property
    def notes(self) -> list[str]:
        return [self.note] if self.note else []

    def tensor(self, raw: str) -> Tensor:
        return self._tensor(self._sized(raw))

    def augmented(self, raw: str, chance: np.random.Generator) -> Tensor:
        config = self.config
        pixels = self._sized(raw)
        across, down, zoom, light, spread = chance.uniform(-1.0, 1.0, 5)
        mirrored = chance.random() < 0.5  # drawn always, so that one option does not change what others draw
        if config.shift or config.scale:
            pixels = moved(pixels, config.shift * down, config.shift * across, 1.0 + config.scale * zoom)
        if config.brightness or config.contrast:
            middle = pixels.mean()
            changed = (pixels - middle) * (1.0 + config.contrast * spread) + middle + 255 * config.brightness * light
            pixels = changed.round().clip(0, 255).astype(np.uint8)
        if config.flip and mirrored:
            pixels = np.ascontiguousarray(pixels[:, ::-1])
        return self._tensor(pixels)

    @property
    def varies(self) -> bool:
        config = self.config
        return any((config.shift, config.scale, config.brightness, config.contrast, config.flip))

    def length(self, raw: str) -> int:
        height, width = self.sizes(raw)
        return math.ceil(height / SIDE) * math.ceil(width / SIDE)

    def sizes(self, raw: str) -> tuple[int, int]:
        """Height and width as the model will see it, by the file's header."""
        try:
            found = media.probe(raw, "image")
        except MediaError as error:
            raise UserError(f"{raw}: {error}") from None
        return self._wanted(found.height, found.width)

    def collate(self, tensors: Sequence[Tensor]) -> Padded:
        height, width = (max(tensor.shape[side] for tensor in tensors) for side in (0, 1))
        data = tensors[0].new_zeros(len(tensors), height, width, tensors[0].shape[-1])  # (B, H, W, C)
        mask = torch.zeros(data.shape[:3], dtype=torch.bool)
        for row, tensor in enumerate(tensors):
            data[row, : tensor.shape[0], : tensor.shape[1]] = tensor
            mask[row, : tensor.shape[0], : tensor.shape[1]] = True
        return Padded(data, mask)

    def frontend(self) -> ImageFrontend:
        return ImageFrontend(torch.tensor(self.mean), torch.tensor(self.deviation))

    def axis(self, raw: str, stride: int = 1) -> Axis:
        height, width = self.sizes(raw)
        rows, columns = math.ceil(height / stride), math.ceil(width / stride)
        labels = (f"row {row + 1}, column {column + 1}" for row in range(rows) for column in range(columns))
        return Axis("image", tuple(labels), (rows, columns))

    def save(self, folder: Path, name: str) -> None:
        write_json(_record(folder, name), {"mean": self.mean, "deviation": self.deviation})

    @classmethod
    def load(cls, config: Any, folder: Path, name: str) -> Image:
        path = _record(folder, name)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            mean, deviation = ([float(one) for one in record[key]] for key in ("mean", "deviation"))
        except FileNotFoundError:
            raise UserError(f"{path}: no such file; is this the folder of a run on pictures?") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: damaged ({error!r}); train again, or restore the file") from None
        return cls(config, mean, deviation)

    def _sized(self, raw: str) -> np.ndarray:
        try:
            pixels = images.read(raw)  # (H, W, 3)
        except MediaError as error:
            raise UserError(f"{raw}: {error}") from None
        return resized(pixels, *self._wanted(*pixels.shape[:2]))

    def _wanted(self, height: int, width: int) -> tuple[int, int]:
        longest = max(height, width)
        if longest == self.config.size or (longest < self.config.size and not self.config.enlarge):
            return height, width
        share = self.config.size / longest
        return max(1, round(height * share)), max(1, round(width * share))

    def _tensor(self, pixels: np.ndarray) -> Tensor:
        if self.config.grey:
            pixels = (pixels @ LUMA).round().astype(np.uint8)[..., None]
        return torch.from_numpy(np.array(pixels))  # a copy: what was read may not be ours to write into


class ImageFrontend(Frontend):
    def __init__(self, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        self.width = len(mean)
        self.register_buffer("mean", mean * 255, persistent=False)  # the modality saves them
        self.register_buffer("deviation", deviation * 255, persistent=False)

    def forward(self, source: Padded) -> Padded:
        normal = (source.data.to(self.mean.dtype) - self.mean) / self.deviation  # type: ignore[operator, arg-type]
        return Padded(normal * source.mask[..., None], source.mask)


def resized(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """(H, W, 3) → (height, width, 3); where it gets smaller, each pixel is a mean of those it stands for."""
    if (height, width) == pixels.shape[:2]:
        return pixels
    from PIL import Image as Pillow

    return np.asarray(Pillow.fromarray(pixels).resize((width, height), Pillow.Resampling.BILINEAR))


def moved(pixels: np.ndarray, down: float, right: float, larger: float) -> np.ndarray:
    """Seen through a window of the same size, moved by shares of the sides; its edges go on beyond them."""
    from PIL import Image as Pillow

    height, width = pixels.shape[:2]
    high, wide = height / larger, width / larger  # of the window
    top, left = (height - high) / 2 - down * height, (width - wide) / 2 - right * width
    margin = math.ceil(max(-top, -left, top + high - height, left + wide - width, 0.0))
    picture = Pillow.fromarray(np.pad(pixels, ((margin, margin), (margin, margin), (0, 0)), mode="edge"))
    window = (left + margin, top + margin, left + margin + wide, top + margin + high)
    return np.asarray(picture.resize((width, height), Pillow.Resampling.BILINEAR, box=window))


def _record(folder: Path, name: str) -> Path:
    return folder / f"{name}.image.json"
