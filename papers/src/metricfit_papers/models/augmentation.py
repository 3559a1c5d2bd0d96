"""Layers before a network for images: bytes to numbers, and random crops and flips while training.

Both are layers, so that images stay bytes where they lie, each member of a population draws for itself, a network in
eval mode sees the images as they are, and the random numbers are those that `fit` seeds, keeps and resumes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from metricfit.errors import InvalidValueError


def cropped_and_flipped(images: Tensor, down: Tensor, right: Tensor, flipped: Tensor) -> Tensor:
    """Each image ``(n, channels, height, width)`` moved, 0 where nothing was, then mirrored where ``flipped``.

    Pixel (i, j) of the result is pixel (i + ``down``, j + ``right``) of the image, which is a crop of the image's own
    size out of one with a border of zeros. One gather for the rows and one for the columns.

    >>> image = torch.tensor([[[[1, 2], [3, 4]]]])
    >>> one, none = torch.tensor([1]), torch.tensor([0])
    >>> cropped_and_flipped(image, none, one, torch.tensor([False])).tolist()
    [[[[2, 0], [4, 0]]]]
    >>> cropped_and_flipped(image, none, one, torch.tensor([True])).tolist()
    [[[[0, 2], [0, 4]]]]
    """
    n, channels, height, width = images.shape
    rows = torch.arange(height, device=images.device) + down.unsqueeze(-1)
    forwards = torch.arange(width, device=images.device)
    columns = torch.where(flipped.unsqueeze(-1), width - 1 - forwards, forwards) + right.unsqueeze(-1)
    there = _inside(rows, height).reshape(n, 1, height, 1) & _inside(columns, width).reshape(n, 1, 1, width)
    row = rows.clamp(0, height - 1).reshape(n, 1, height, 1).expand(n, channels, height, width)
    column = columns.clamp(0, width - 1).reshape(n, 1, 1, width).expand(n, channels, height, width)
    return images.gather(2, row).gather(3, column) * there.to(images.dtype)


def _inside(position: Tensor, size: int) -> Tensor:
    return (position >= 0) & (position < size)


class CropAndFlip(nn.Module):
    """While training, each image a random crop out of one with ``padding`` zeros around it, half of them mirrored.

    The usual augmentation of CIFAR-10: He et al. 2016, Section 4.2, with ``padding=4``; Lee et al. 2021 train with it.
    In eval mode images are left as they are. Put it first, before bytes become numbers centred on 0: the border is
    black then, as with torchvision's ``RandomCrop(32, padding=4)`` before ``ToTensor`` and ``Normalize``.

    >>> layer = CropAndFlip(padding=4)
    >>> images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    >>> layer(images).shape, bool((layer.eval()(images) == images).all())
    (torch.Size([2, 3, 32, 32]), True)
    """

    def __init__(self, padding: int = 4, flip: bool = True) -> None:
        super().__init__()
        if padding < 0:
            raise InvalidValueError(f"padding is a number of pixels, at least 0, got {padding}")
        self.padding, self.flip = padding, flip

    def forward(self, images: Tensor) -> Tensor:
        """Images ``(n, channels, height, width)``, of bytes or of fractions."""
        if not self.training:
            return images
        if images.dim() != 4:
            raise InvalidValueError(f"CropAndFlip takes images (n, channels, height, width), got {tuple(images.shape)}")
        # Uniform numbers, since under vmap these are drawn for each member, whatever the device.
        drawn = torch.rand(3, len(images), device=images.device)
        moves = (drawn[:2] * (2 * self.padding + 1)).long().clamp(max=2 * self.padding) - self.padding
        return cropped_and_flipped(images, moves[0], moves[1], (drawn[2] < 0.5) & self.flip)

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        return f"padding={self.padding}, flip={self.flip}"


class Centred(nn.Module):
    """Bytes as numbers: (pixel / 255 - mean) / scale, with one mean and scale per channel or one for all.

    ``scale=1`` only subtracts the mean, as in Lee et al. 2021. `Centred.on` takes both from training images.

    >>> Centred(mean=0.5, scale=0.25)(torch.tensor([[[[0, 255]]]], dtype=torch.uint8))
    tensor([[[[-2.,  2.]]]])
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: float | Sequence[float] = 0.5, scale: float | Sequence[float] = 1.0) -> None:
        super().__init__()
        for name, given in (("mean", mean), ("scale", scale)):
            self.register_buffer(name, torch.as_tensor(given, dtype=torch.get_default_dtype()).reshape(-1, 1, 1))
        if not bool((self.scale > 0).all()):
            raise InvalidValueError(f"scale divides the pixels and must be above 0, got {scale}")

    @classmethod
    def on(cls, images: Tensor, *, scaled: bool = True) -> Centred:
        """With the mean of each channel of these images, bytes, and with their standard deviation if ``scaled``.

        >>> Centred.on(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), scaled=False).mean
        tensor([[[0.5000]]])
        """
        by_value = torch.stack([torch.bincount(each.flatten(), minlength=256) for each in images.unbind(1)]).double()
        share = by_value / by_value.sum(1, keepdim=True)
        values = torch.arange(256, device=images.device) / 255.0
        mean = share @ values.double()
        deviation = ((share * (values - mean.unsqueeze(1)) ** 2).sum(1)).sqrt()
        return cls(mean.tolist(), deviation.clamp(min=1 / 255).tolist() if scaled else 1.0)

    def forward(self, images: Tensor) -> Tensor:
        """Images ``(n, channels, height, width)``, of bytes."""
        return (images.to(self.mean.dtype) / 255.0 - self.mean) / self.scale
