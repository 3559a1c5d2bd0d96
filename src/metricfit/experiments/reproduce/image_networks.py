"""The networks of image tables: they take bytes, and know what to do with them."""

from __future__ import annotations

from typing import Any

from torch import nn

from metricfit import models
from metricfit.models.pictures import Centred


def small_cnn(in_features: int, **settings: Any) -> nn.Sequential:
    """`models.small_cnn` of bytes, each pixel as (p/255 - 0.5)/0.25; ``in_features`` is the number of channels.

    >>> small_cnn(3, widths=[4, 8])(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape
    torch.Size([2, 1])
    """
    return nn.Sequential(Centred(0.5, 0.25), models.small_cnn(in_features, **settings))
