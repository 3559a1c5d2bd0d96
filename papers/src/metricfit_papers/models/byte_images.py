"""The networks of image tables, which take images as bytes and convert them to numbers themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from metricfit_papers import models
from metricfit_papers.models.augmentation import Centred, CropAndFlip
from metricfit_papers.models.normalisation import Norm

#: The means of CIFAR-10's channels, published.
CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR10_DEVIATION = (0.2023, 0.1994, 0.2010)
#: Number of images whose sum is computed at a time.
ROWS_AT_ONCE = 4096
CHANNELS = 3
SIDE = 32


def small_cnn(in_features: int, **settings: Any) -> nn.Sequential:
    """Build `models.small_cnn` for bytes, with each pixel as (p/255 - 0.5)/0.25; ``in_features`` counts channels.

    >>> small_cnn(3, widths=[4, 8])(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape
    torch.Size([2, 1])
    """
    return nn.Sequential(Centred(0.5, 0.25), models.small_cnn(in_features, **settings))


def tiny_darknet(in_features: int, out_features: int = 1, norm: Norm = "batch") -> nn.Sequential:
    """Build `models.TinyDarknet` for bytes, with each pixel as (p/255 - 0.5)/0.25.

    >>> tiny_darknet(3).eval()(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape
    torch.Size([2, 1])
    """
    return nn.Sequential(Centred(0.5, 0.25), models.TinyDarknet(in_features, out_features, norm))


def resnet10(in_features: int, **settings: Any) -> nn.Sequential:
    """Build the network of the code of Sangalli et al.: one block per stage, augmentation, channels standardised.

    >>> resnet10(3).eval()(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape
    torch.Size([2, 1])
    """
    build = partial(models.ResNet, (1, 1, 1, 1))
    return augmented(build, scale=CIFAR10_DEVIATION, **settings)


def resnet18(in_features: int, **settings: Any) -> nn.Sequential:
    """Build ResNet-18 for bytes, with augmentation in training; see `augmented`."""
    return augmented(models.resnet18, **settings)


def resnet34(in_features: int, **settings: Any) -> nn.Sequential:
    """Build ResNet-34 for bytes, with augmentation in training; see `augmented`."""
    return augmented(models.resnet34, **settings)


def augmented(
    build: Callable[..., nn.Module],
    mean: Sequence[float] = CIFAR10_MEAN,
    scale: float | Sequence[float] = 1.0,
    norm: Norm = "batch",
    image_size: int = SIDE,
    padding: int = 4,
    pixel_mean: bool = False,
    two_logits: bool = False,
) -> nn.Sequential:
    """Build a network with one output and the input layers of Lee et al. 2021.

    Inputs are 32 x 32 crops from images with 4 zeros on each side, half of them mirrored, minus the mean of each
    channel and divided by ``scale``; grey images are repeated in three channels. A 28 x 28 image is first padded to
    32 x 32 and shifted by 2 pixels less, so that the crops are those from 36 x 36.

    With ``pixel_mean`` the mean image of the training images is subtracted instead; `MeanImage.learn` gets it. With
    ``two_logits`` the network has two outputs, and its logit is their difference, as under softmax.

    >>> grey = torch.zeros(2, 1, 28, 28, dtype=torch.uint8)
    >>> small = lambda **settings: models.ResNet((1, 1, 1, 1), **settings)
    >>> augmented(small, mean=[0.286], image_size=28).eval()(grey).shape
    torch.Size([2, 1])
    """
    border = (SIDE - image_size) // 2
    centred = MeanImage(border) if pixel_mean else Centred(mean, scale)
    front = [nn.ZeroPad2d(border), CropAndFlip(padding - border), centred, InColour()]
    if two_logits:
        return nn.Sequential(*front, build(in_channels=CHANNELS, norm=norm, out_features=2), Difference())
    return nn.Sequential(*front, build(in_channels=CHANNELS, norm=norm))


class MeanImage(nn.Module):
    """Convert bytes to numbers, minus the mean image of the training images, which ``learn`` computes.

    >>> layer = MeanImage(border=0)
    >>> layer.learn(torch.tensor([[[[0, 255]]], [[[0, 0]]]], dtype=torch.uint8))
    >>> layer(torch.tensor([[[[0, 255]]]], dtype=torch.uint8))
    tensor([[[[0.0000, 0.5000]]]])
    """

    mean: Tensor

    def __init__(self, border: int) -> None:
        super().__init__()
        self.border = border
        self.register_buffer("mean", torch.zeros(1, SIDE, SIDE))

    def learn(self, images: Tensor) -> None:
        """Take the mean of these images, with a border of zeros."""
        total = sum(part.double().sum(0) for part in torch.split(images, ROWS_AT_ONCE))
        mean = torch.as_tensor(total / (255.0 * len(images))).to(self.mean.dtype)
        self.mean = nn.functional.pad(mean, [self.border] * 4)

    def forward(self, images: Tensor) -> Tensor:
        """Convert bytes ``(n, channels, height, width)`` to numbers."""
        return images.to(self.mean.dtype) / 255.0 - self.mean


class Difference(nn.Module):
    """The second logit minus the first, whose sigmoid is their softmax."""

    def forward(self, logits: Tensor) -> Tensor:
        """Return ``(n, 1)`` of ``(n, 2)``."""
        return logits[:, 1:] - logits[:, :1]


class InColour(nn.Module):
    """Repeat grey images in three channels; leave coloured images unchanged."""

    def forward(self, images: Tensor) -> Tensor:
        """Return images ``(n, 3, height, width)`` from images with 1 or 3 channels."""
        return images.expand(-1, CHANNELS, -1, -1)


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "small_cnn": small_cnn,
    "tiny_darknet": tiny_darknet,
    "resnet10": resnet10,
    "resnet18": resnet18,
    "resnet34": resnet34,
}
