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
    """Convolution 3 x 3, ReLU, max-pool 2, once for each of ``widths``; then one linear layer over all that is left.

    For the tables of Sangalli et al. 2021, at most 800 training images. They publish "cascaded convolution,
    max-pooling and activation functions" and a fully connected layer, no sizes and no normalisation: the sizes are a
    choice made here, 24,609 parameters for 32 x 32 images in colour.

    >>> model = small_cnn()
    >>> sum(p.numel() for p in model.parameters()), model(torch.zeros(2, 3, 32, 32)).shape
    (24609, torch.Size([2, 1]))
    """
    side = image_size // 2 ** len(widths)
    if not widths or side < 1:
        raise InvalidValueError(
            f"small_cnn halves the image once for each width: {len(widths)} widths do not suit images of "
            f"{image_size} x {image_size}; give between 1 and {max(image_size, 1).bit_length() - 1} widths"
        )
    layers: list[nn.Module] = []
    for inside, outside in zip((in_channels, *widths[:-1]), widths, strict=True):
        layers += [nn.Conv2d(inside, outside, 3, padding=1), normalisation(norm, outside), nn.ReLU(), nn.MaxPool2d(2)]
    layers.append(nn.Flatten())
    if dropout:
        layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(widths[-1] * side * side, out_features))
