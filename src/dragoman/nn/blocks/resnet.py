"""Residual convolutional networks over pictures of different sizes in one batch (He et al. 2016).

Padding is invisible: every convolution is followed by a norm that counts real positions only and
sets the others to zero. Position i of a layer of stride 2 is above position 2i of the layer below,
and real where that is. The parameters of ``ResNet`` have the names of the published weights; the
last layer, which scores the classes of ImageNet, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from dragoman.nn.lowering import Lowering, to_array

GROUPS = 8  # of channels in a group norm; fewer if 8 does not divide the channels
STEM = 64  # channels of the first layer of the published networks
LAYERS = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}  # table 1


class PictureNorm(nn.BatchNorm2d):
    """Batch norm (Ioffe & Szegedy 2015) over real positions only; padding becomes zero."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalise x (B, C, H, W); mask (B, H, W), or None if there is no padding."""
        averages = self.training and (x.numel() // x.shape[1] if mask is None else int(mask.sum())) > 1
        if not averages:  # a single position has no variance: use the running statistics
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

    def lower(self, program: Lowering, x: str, activation: str = "none") -> str:
        """Add the operation for a picture x (H, W, C)."""
        return program.batch_norm(self, x, activation)


class GroupPictureNorm(nn.GroupNorm):
    """Group norm (Wu & He 2018) over the real positions of each picture; padding becomes zero.

    A training batch holds captions of similar lengths, and pictures with similar captions are
    similar. So batch norm's statistics in training differ from its running averages. A norm of each
    picture alone is the same in training and inference.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(math.gcd(channels, GROUPS), channels)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalise x (B, C, H, W), zero on padding; mask (B, H, W), or None without padding."""
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

    def lower(self, program: Lowering, x: str, activation: str = "none") -> str:
        """Add the operations for a picture x (H, W, C)."""
        weights = [program.parameter(self.weight), program.parameter(self.bias)]
        y = program.add("group_norm", x, weights=weights, groups=self.num_groups, epsilon=self.eps)
        return y if activation == "none" else program.add("affine", y, activation=activation)


class ChannelBias(nn.Module):
    """A bias per channel in the place of a norm; padding becomes zero."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Add the bias to x (B, C, H, W)."""
        y = x + self.bias[:, None, None]
        return y if mask is None else y * mask[:, None]

    def lower(self, program: Lowering, x: str, activation: str = "none") -> str:
        """Add the operation for a picture x (H, W, C)."""
        return program.add("affine", x, weights=["", program.parameter(self.bias)], activation=activation)


NormClass = type[PictureNorm] | type[GroupPictureNorm] | type[ChannelBias]


def convolution(enter: int, leave: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Make a convolution from ``enter`` to ``leave`` channels, with zero padding and no bias."""
    layer = nn.Conv2d(enter, leave, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def lower_convolution(program: Lowering, layer: nn.Conv2d, x: str) -> str:
    """Add a convolution over a picture x (H, W, C), without a bias."""
    kernel = np.ascontiguousarray(to_array(layer.weight).transpose(0, 2, 3, 1))  # (O, C, k, k) → (O, k, k, C)
    weights = [program.parameter(layer.weight, ".pixels", kernel)]
    before = layer.padding[0]
    assert isinstance(before, int)
    return program.add("convolve_picture", x, weights=weights, stride=layer.stride[0], before=before)


def halve_mask(mask: Tensor | None, stride: int) -> Tensor | None:
    """Return the mask (B, H, W) after a layer of this stride."""
    return mask if mask is None or stride == 1 else mask[:, ::stride, ::stride]


class Block(nn.Module):
    """The residual block y = relu(F(x) + x), where F is two 3x3 convolutions (figure 2)."""

    expansion = 1

    def __init__(
        self,
        enter: int,
        width: int,
        stride: int,
        norm: NormClass = PictureNorm,
        aside: NormClass = PictureNorm,
    ) -> None:
        """Make a block with ``norm`` within F, and ``aside`` on the shortcut where sizes change."""
        super().__init__()
        leave = width * self.expansion
        self.stride = stride
        self._make(enter, width, leave, norm)
        self.downsample: nn.ModuleList | None = None
        if stride > 1 or enter != leave:
            self.downsample = nn.ModuleList([convolution(enter, leave, 1, stride), aside(leave)])

    def _make(self, enter: int, width: int, leave: int, norm: NormClass) -> None:
        self.conv1, self.bn1 = convolution(enter, width, 3, self.stride), norm(width)
        self.conv2, self.bn2 = convolution(width, leave, 3), norm(leave)

    def _residual(self, x: Tensor, before: Tensor | None, after: Tensor | None) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x), after))
        return self.bn2(self.conv2(y), after)

    def forward(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return y (B, leave, H', W') and its mask."""
        after = halve_mask(mask, self.stride)
        y = self._residual(x, mask, after)
        if self.downsample is not None:
            x = self.downsample[1](self.downsample[0](x), after)
        return torch.relu(y + x), after

    def lower(self, program: Lowering, x: str) -> str:
        """Add the operations for a picture x (H, W, C)."""
        y = self._lower_residual(program, x)
        if self.downsample is not None:
            aside, norm = self.downsample
            x = norm.lower(program, lower_convolution(program, aside, x))  # type: ignore[operator, arg-type]
        return program.add("add", y, x, activation="relu")

    def _lower_residual(self, program: Lowering, x: str) -> str:
        y = self.bn1.lower(program, lower_convolution(program, self.conv1, x), "relu")
        return self.bn2.lower(program, lower_convolution(program, self.conv2, y))


class Bottleneck(Block):
    """A block whose F is a 3x3 convolution, which has the stride, between two 1x1 ones (figure 5)."""

    expansion = 4

    def _make(self, enter: int, width: int, leave: int, norm: NormClass) -> None:
        self.conv1, self.bn1 = convolution(enter, width, 1), norm(width)
        self.conv2, self.bn2 = convolution(width, width, 3, self.stride), norm(width)
        self.conv3, self.bn3 = convolution(width, leave, 1), norm(leave)

    def _residual(self, x: Tensor, before: Tensor | None, after: Tensor | None) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x), before))
        y = torch.relu(self.bn2(self.conv2(y), after))
        return self.bn3(self.conv3(y), after)

    def _lower_residual(self, program: Lowering, x: str) -> str:
        y = self.bn1.lower(program, lower_convolution(program, self.conv1, x), "relu")
        y = self.bn2.lower(program, lower_convolution(program, self.conv2, y), "relu")
        return self.bn3.lower(program, lower_convolution(program, self.conv3, y))


class Downsampling(nn.Module):
    """Turns 2x2 positions into one: position i is centred on 2i and 2i + 1 and sees nothing else.

    A 3x3 convolution of stride 2, as in ResNet, is centred on 2i. After three of them a region
    would be shown half a region beside what it saw.
    """

    def __init__(self, enter: int, leave: int, norm: NormClass) -> None:
        super().__init__()
        self.conv = nn.Conv2d(enter, leave, 2, 2, bias=False)
        nn.init.kaiming_normal_(self.conv.weight, nonlinearity="relu")
        self.norm = norm(leave)

    def forward(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return x (B, leave, ceil(H / 2), ceil(W / 2)) and its mask."""
        height, width = x.shape[2:]
        if height % 2 or width % 2:
            x = nn.functional.pad(x, (0, width % 2, 0, height % 2))
        mask = halve_mask(mask, 2)
        return torch.relu(self.norm(self.conv(x), mask)), mask

    def lower(self, program: Lowering, x: str) -> str:
        """Add the operations for a picture x (H, W, C)."""
        return self.norm.lower(program, lower_convolution(program, self.conv, x), "relu")


class CompactNetwork(nn.Module):
    """A small network for small pictures on a CPU: one residual block per stage.

    As many stages halve the picture as the stride needs. The first convolution sees every pixel: in
    small pictures edges and corners are a few pixels large. Group norm removes how light or how
    colourful a picture is, so it is used only within blocks; the shortcuts around them keep both.
    """

    def __init__(self, enter: int, channels: Sequence[int], stride: int, norm: NormClass) -> None:
        super().__init__()
        aside = ChannelBias if norm is GroupPictureNorm else norm
        self.width = channels[-1]
        self.conv1, self.bn1 = convolution(enter, channels[0], 3), aside(channels[0])
        enter = channels[0]
        layers: list[nn.Module] = []
        for index, width in enumerate(channels):
            if index < stride.bit_length() - 1:
                layers.append(Downsampling(enter, width, aside))
                enter = width
            layers.append(Block(enter, width, 1, norm, aside))
            enter = width
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Turn pictures x (B, C, H, W), zero on padding, into (B, width, H', W') and its mask."""
        x = torch.relu(self.bn1(self.conv1(x), mask))
        for layer in self.layers:
            x, mask = layer(x, mask)
        return x, mask

    def lower(self, program: Lowering, x: str) -> str:
        """Add the operations for a picture x (H, W, C)."""
        x = self.bn1.lower(program, lower_convolution(program, self.conv1, x), "relu")
        for layer in self.layers:
            x = layer.lower(program, x)  # type: ignore[operator]
        return x


class ResNet(nn.Module):
    """ResNet-18 or ResNet-50 up to the layer of a stride: 4, 8, 16 or 32 pixels per position."""

    def __init__(self, kind: str, enter: int, stride: int) -> None:
        super().__init__()
        block = Bottleneck if kind == "resnet50" else Block
        depth = stride.bit_length() - 2  # of the four layers
        self.conv1, self.bn1 = convolution(enter, STEM, 7, 2), PictureNorm(STEM)
        below = STEM
        for index, count in enumerate(LAYERS[kind][:depth]):
            width = STEM * 2**index
            blocks = []
            for first in (True, *(False,) * (count - 1)):
                blocks.append(block(below, width, 2 if first and index else 1))
                below = width * block.expansion
            self.add_module(f"layer{index + 1}", nn.ModuleList(blocks))
        self.width = below

    def forward(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Turn pictures x (B, C, H, W), zero on padding, into (B, width, H', W') and its mask."""
        mask = halve_mask(mask, 2)
        x = torch.relu(self.bn1(self.conv1(x), mask))
        x = nn.functional.max_pool2d(x, 3, 2, 1)  # nothing is negative here, so zeros on padding never win
        mask = halve_mask(mask, 2)
        x = x if mask is None else x * mask[:, None]
        for name, blocks in self.named_children():
            if name.startswith("layer"):
                for block in blocks.children():
                    x, mask = block(x, mask)
        return x, mask

    def lower(self, program: Lowering, x: str) -> str:
        """Add the operations for a picture x (H, W, C)."""
        x = self.bn1.lower(program, lower_convolution(program, self.conv1, x), "relu")
        x = program.add("max_pool", x, size=3, stride=2, before=1)
        for name, blocks in self.named_children():
            if name.startswith("layer"):
                for block in blocks.children():
                    x = block.lower(program, x)  # type: ignore[operator]
        return x
