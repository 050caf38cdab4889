"""Residual convolutional networks over pictures of different sizes in one batch (He et al. 2016).

Padding is invisible: every convolution is followed by a norm that counts real positions only and leaves zeros behind,
and position i of a layer of stride 2 stands over position 2i below it, real where that is. The names of parameters in
``ResNet`` are those of the published weights; its last layer, which names ImageNet's classes, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

GROUPS = 8  # of channels, in a group norm: as many, or the largest number that divides both
STEM = 64  # channels of the first layer of the published networks
LAYERS = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}  # table 1


class PictureNorm(nn.BatchNorm2d):
    """Batch norm (Ioffe & Szegedy 2015) whose statistics count real positions only, with zeros elsewhere."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x (B, C, H, W), mask (B, H, W) or None where all is real."""
        averages = self.training and (x.numel() // x.shape[1] if mask is None else int(mask.sum())) > 1
        if not averages:  # one position alone has no variance: it is seen as in use
            y = nn.functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
            return y if mask is None else y * mask[:, None]
        if mask is None:
            return super().forward(x)
        last = x.permute(0, 2, 3, 1)  # (B, H, W, C)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        normal = nn.functional.batch_norm(
            last[mask],
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            True,
            self.momentum or 0.0,
            self.eps,
        )
        return torch.zeros_like(last).index_put((mask,), normal).permute(0, 3, 1, 2)


class GroupPictureNorm(nn.GroupNorm):
    """Group norm (Wu & He 2018) over the real positions of each picture alone, with zeros elsewhere.

    Batches hold captions of like lengths, and pictures of like captions are alike: what batch norm averages over them
    is not what a picture in use is seen by. A norm of each picture alone is the same in training and in use.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(math.gcd(channels, GROUPS), channels)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x (B, C, H, W), zero on padding; mask (B, H, W) or None where all is real."""
        if mask is None:
            return torch.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)
        real = mask[:, None, None].to(x.dtype)  # (B, 1, 1, H, W)
        parts = x.unflatten(1, (self.num_groups, -1))  # (B, G, C / G, H, W)
        count = real.sum((2, 3, 4), keepdim=True) * parts.shape[2]
        mean = (parts * real).sum((2, 3, 4), keepdim=True) / count
        away = (parts - mean) * real
        variance = away.square().sum((2, 3, 4), keepdim=True) / count
        normal = (away * (variance + self.eps).rsqrt()).flatten(1, 2)
        return (normal * self.weight[:, None, None] + self.bias[:, None, None]) * mask[:, None]


class Shift(nn.Module):
    """Where a norm might stand: a bias alone, with zeros on padding."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = x + self.bias[:, None, None]
        return y if mask is None else y * mask[:, None]


PicturesNorm = type[PictureNorm] | type[GroupPictureNorm] | type[Shift]


def convolution(enter: int, leave: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(enter, leave, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def halved(mask: Tensor | None, stride: int) -> Tensor | None:
    return mask if mask is None or stride == 1 else mask[:, ::stride, ::stride]


class Block(nn.Module):
    """y = relu(F(x) + x), where F is two 3x3 convolutions (figure 2)."""

    expansion = 1

    def __init__(
        self,
        enter: int,
        width: int,
        stride: int,
        norm: PicturesNorm = PictureNorm,
        aside: PicturesNorm = PictureNorm,
    ) -> None:
        """``norm`` is that of F, ``aside`` that of x where its size must change."""
        super().__init__()
        leave = width * self.expansion
        self.stride = stride
        self._make(enter, width, leave, norm)
        self.downsample: nn.ModuleList | None = None
        if stride > 1 or enter != leave:
            self.downsample = nn.ModuleList([convolution(enter, leave, 1, stride), aside(leave)])

    def _make(self, enter: int, width: int, leave: int, norm: PicturesNorm) -> None:
        self.conv1, self.bn1 = convolution(enter, width, 3, self.stride), norm(width)
        self.conv2, self.bn2 = convolution(width, leave, 3), norm(leave)

    def _residual(self, x: Tensor, before: Tensor | None, after: Tensor | None) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x), after))
        return self.bn2(self.conv2(y), after)

    def forward(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        after = halved(mask, self.stride)
        y = self._residual(x, mask, after)
        if self.downsample is not None:
            x = self.downsample[1](self.downsample[0](x), after)
        return torch.relu(y + x), after


class Bottleneck(Block):
    """F is a 3x3 convolution between two that narrow and widen (figure 5); the 3x3 one has the stride."""

    expansion = 4

    def _make(self, enter: int, width: int, leave: int, norm: PicturesNorm) -> None:
        self.conv1, self.bn1 = convolution(enter, width, 1), norm(width)
        self.conv2, self.bn2 = convolution(width, width, 3, self.stride), norm(width)
        self.conv3, self.bn3 = convolution(width, leave, 1), norm(leave)

    def _residual(self, x: Tensor, before: Tensor | None, after: Tensor | None) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x), before))
        y = torch.relu(self.bn2(self.conv2(y), after))
        return self.bn3(self.conv3(y), after)


class Halving(nn.Module):
    """Four positions become one: position i stands over 2i and 2i + 1 below it and over nothing else.

    A 3x3 convolution of stride 2, as in ResNet, stands over 2i alone; after three of them a region would be drawn half
    a region beside what it saw.
    """

    def __init__(self, enter: int, leave: int, norm: PicturesNorm) -> None:
        super().__init__()
        self.conv = nn.Conv2d(enter, leave, 2, 2, bias=False)
        nn.init.kaiming_normal_(self.conv.weight, nonlinearity="relu")
        self.norm = norm(leave)

    def forward(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        height, width = x.shape[2:]
        if height % 2 or width % 2:
            x = nn.functional.pad(x, (0, width % 2, 0, height % 2))
        mask = halved(mask, 2)
        return torch.relu(self.norm(self.conv(x), mask)), mask


class Compact(nn.Module):
    """For small pictures and a CPU: a residual block a stage; as many stages halve the picture as the stride needs.

    The first convolution sees every pixel: in small pictures edges and corners are a few pixels large. A norm of each
    picture alone takes away how light or how colourful the picture is. So it stands only inside of blocks, and what
    goes around them keeps that.
    """

    def __init__(self, enter: int, channels: Sequence[int], stride: int, norm: PicturesNorm) -> None:
        super().__init__()
        aside = Shift if norm is GroupPictureNorm else norm
        self.width = channels[-1]
        self.conv1, self.bn1 = convolution(enter, channels[0], 3), aside(channels[0])
        enter = channels[0]
        layers: list[nn.Module] = []
        for index, width in enumerate(channels):
            if index < stride.bit_length() - 1:
                layers.append(Halving(enter, width, aside))
                enter = width
            layers.append(Block(enter, width, 1, norm, aside))
            enter = width
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """x (B, C, H, W), zero on padding → (B, width, H', W') and its mask."""
        x = torch.relu(self.bn1(self.conv1(x), mask))
        for layer in self.layers:
            x, mask = layer(x, mask)
        return x, mask


class ResNet(nn.Module):
    """ResNet-18 or ResNet-50 as far as the layer of the given stride: 4, 8, 16 or 32 pixels a position."""

    def __init__(self, kind: str, enter: int, stride: int) -> None:
        super().__init__()
        block = Bottleneck if kind == "resnet50" else Block
        self.depth = stride.bit_length() - 2  # of the four layers
        self.conv1, self.bn1 = convolution(enter, STEM, 7, 2), PictureNorm(STEM)
        below = STEM
        for index, count in enumerate(LAYERS[kind][: self.depth]):
            width = STEM * 2**index
            blocks = []
            for first in (True, *(False,) * (count - 1)):
                blocks.append(block(below, width, 2 if first and index else 1))
                below = width * block.expansion
            self.add_module(f"layer{index + 1}", nn.ModuleList(blocks))
        self.width = below

    def forward(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """x (B, C, H, W), zero on padding → (B, width, H', W') and its mask."""
        mask = halved(mask, 2)
        x = torch.relu(self.bn1(self.conv1(x), mask))
        x = nn.functional.max_pool2d(x, 3, 2, 1)  # nothing is below 0 here, so that zeros of padding never win
        mask = halved(mask, 2)
        x = x if mask is None else x * mask[:, None]
        for index in range(self.depth):
            for block in getattr(self, f"layer{index + 1}"):
                x, mask = block(x, mask)
        return x, mask
