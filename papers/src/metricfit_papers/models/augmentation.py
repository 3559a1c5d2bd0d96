"""Layers in front of a network for images: bytes to numbers, and random crops and flips in training.

Because both are layers, images are stored as bytes, each member of a population draws separately, a network in eval
mode sees the original images, and `fit` seeds, saves and resumes the random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from metricfit.errors import InvalidValueError


def cropped_and_flipped(images: Tensor, down: Tensor, right: Tensor, flipped: Tensor) -> Tensor:
    """Shift images ``(n, channels, height, width)``, fill with 0, and mirror those that are ``flipped``.

    Pixel (i, j) of the result is pixel (i + ``down``, j + ``right``) of the image. This is a crop of the image's size
    from the image with a border of zeros. It takes one gather for the rows and one for the columns.

    Example:
        >>> image = torch.tensor([[[[1, 2], [3, 4]]]])
        >>> one, zero = torch.tensor([1]), torch.tensor([0])
        >>> cropped_and_flipped(image, zero, one, torch.tensor([False])).tolist()
        [[[[2, 0], [4, 0]]]]
        >>> cropped_and_flipped(image, zero, one, torch.tensor([True])).tolist()
        [[[[0, 2], [0, 4]]]]
    """
    n, channels, height, width = images.shape
    rows = torch.arange(height, device=images.device) + down.unsqueeze(-1)
    forwards = torch.arange(width, device=images.device)
    columns = torch.where(flipped.unsqueeze(-1), width - 1 - forwards, forwards) + right.unsqueeze(-1)
    is_pixel = _is_within(rows, height).reshape(n, 1, height, 1) & _is_within(columns, width).reshape(n, 1, 1, width)
    row = rows.clamp(0, height - 1).reshape(n, 1, height, 1).expand(n, channels, height, width)
    column = columns.clamp(0, width - 1).reshape(n, 1, 1, width).expand(n, channels, height, width)
    return images.gather(2, row).gather(3, column) * is_pixel.to(images.dtype)


def _is_within(position: Tensor, size: int) -> Tensor:
    return (position >= 0) & (position < size)


class CropAndFlip(nn.Module):
    """In training, replace each image by a random crop from the padded image, and mirror half of the images.

    This is the usual augmentation for CIFAR-10: He et al. 2016, Section 4.2, with ``padding=4``; Lee et al. 2021 train
    with it. In eval mode images are not changed. Put this layer first, before bytes are converted to numbers around 0:
    the border is then black, as with torchvision's ``RandomCrop(32, padding=4)`` before ``ToTensor`` and ``Normalize``.

    Args:
        padding: Number of zeros on each side of the image from which the crop is taken.
        flip: Whether to mirror half of the images.

    Raises:
        ValueError: ``padding`` is negative.

    Example:
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
        """Crop and flip images in training; return them unchanged in eval mode.

        Args:
            images: Bytes or fractions ``(n, channels, height, width)``.

        Returns:
            Images of the same shape.

        Raises:
            ValueError: The images do not have four axes.
        """
        if not self.training:
            return images
        if images.dim() != 4:
            raise InvalidValueError(f"CropAndFlip takes images (n, channels, height, width), got {tuple(images.shape)}")
        # Uniform numbers, because under vmap they are drawn for each member, on any device.
        drawn = torch.rand(3, len(images), device=images.device)
        moves = (drawn[:2] * (2 * self.padding + 1)).long().clamp(max=2 * self.padding) - self.padding
        return cropped_and_flipped(images, moves[0], moves[1], (drawn[2] < 0.5) & self.flip)

    def extra_repr(self) -> str:
        """Return the arguments of the constructor."""
        return f"padding={self.padding}, flip={self.flip}"


class Centred(nn.Module):
    """Convert bytes to numbers: (pixel / 255 - mean) / scale.

    ``scale=1`` only subtracts the mean, as in Lee et al. 2021. `Centred.on` computes both from training images.

    Args:
        mean: The mean of the pixels, from 0 to 1; one number, or one per channel.
        scale: What the pixels are divided by; one number, or one per channel.

    Raises:
        ValueError: A scale is not above 0.

    Example:
        >>> Centred(mean=0.5, scale=0.25)(torch.tensor([[[[0, 255]]]], dtype=torch.uint8))
        tensor([[[[-2.,  2.]]]])
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: float | Sequence[float] = 0.5, scale: float | Sequence[float] = 1.0) -> None:
        super().__init__()
        for name, values in (("mean", mean), ("scale", scale)):
            self.register_buffer(name, torch.as_tensor(values, dtype=torch.get_default_dtype()).reshape(-1, 1, 1))
        if not bool((self.scale > 0).all()):
            raise InvalidValueError(f"scale divides the pixels and must be above 0, got {scale}")

    @classmethod
    def on(cls, images: Tensor, *, scaled: bool = True) -> Centred:
        """Make the layer from the mean and standard deviation of each channel of these images.

        Args:
            images: Bytes ``(n, channels, height, width)``.
            scaled: Whether to divide by the standard deviation.

        Returns:
            The layer.

        Example:
            >>> Centred.on(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), scaled=False).mean
            tensor([[[0.5000]]])
        """
        channels = images.unbind(1)
        histogram = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in channels]).double()
        share = histogram / histogram.sum(1, keepdim=True)
        values = torch.arange(256, device=images.device) / 255.0
        mean = share @ values.double()
        deviation = ((share * (values - mean.unsqueeze(1)) ** 2).sum(1)).sqrt()
        return cls(mean.tolist(), deviation.clamp(min=1 / 255).tolist() if scaled else 1.0)

    def forward(self, images: Tensor) -> Tensor:
        """Convert images to numbers.

        Args:
            images: Bytes ``(n, channels, height, width)``.

        Returns:
            Numbers of the same shape.
        """
        return (images.to(self.mean.dtype) / 255.0 - self.mean) / self.scale
