"""A small convolutional network for a few hundred small images."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from metricfit.errors import InvalidValueError
from metricfit_papers.models.normalisation import Norm, normalisation


def small_cnn(
    in_channels: int = 3,
    out_features: int = 1,
    widths: Sequence[int] = (16, 32, 64),
    image_size: int = 32,
    dropout: float = 0.0,
    norm: Norm = "none",
) -> nn.Sequential:
    """Build a network of 3 x 3 convolutions, each with ReLU and 2 x 2 max-pooling, and one linear layer.

    It is for the tables of Sangalli et al. 2021, which have at most 800 training images. They publish "cascaded
    convolution, max-pooling and activation functions" and a fully connected layer, but no sizes and no normalisation.
    The sizes are a choice of this project: 24,609 parameters for 32 x 32 images in colour.

    Args:
        in_channels: Number of channels of the images.
        out_features: Number of logits.
        widths: Number of filters of each convolution.
        image_size: Width and height of the images in pixels.
        dropout: The dropout rate before the linear layer.
        norm: The normalisation; see `Norm`.

    Returns:
        The network.

    Raises:
        ValueError: There are no widths, or too many for the size of the images.

    Example:
        >>> model = small_cnn()
        >>> sum(p.numel() for p in model.parameters()), model(torch.zeros(2, 3, 32, 32)).shape
        (24609, torch.Size([2, 1]))
    """
    side = image_size // 2 ** len(widths)
    if not widths or side < 1:
        raise InvalidValueError(
            f"small_cnn halves the image once per width, so {len(widths)} widths do not fit images of "
            f"{image_size} x {image_size}; give between 1 and {max(image_size, 1).bit_length() - 1} widths"
        )
    layers: list[nn.Module] = []
    for channels_in, channels_out in zip((in_channels, *widths[:-1]), widths, strict=True):
        layers += [
            nn.Conv2d(channels_in, channels_out, 3, padding=1),
            normalisation(norm, channels_out),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    layers.append(nn.Flatten())
    if dropout:
        layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(widths[-1] * side * side, out_features))
