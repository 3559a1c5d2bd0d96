"""The normalisation layers of the image networks, and why BatchNorm is not the default."""

from __future__ import annotations

import math
from typing import Literal

from torch import nn

from metricfit.errors import InvalidValueError

Norm = Literal["group", "batch", "none"]
"""``"group"``, the default: GroupNorm with at least eight channels per group. It has no state and treats each image
separately, so that k stacked models equal k separate ones for any batch, and a model that has stopped does not change.
``"batch"``: BatchNorm, as in the published networks. Its running means change in every forward pass of training. In a
stacked population they must be passed through ``vmap`` together with the parameters (a population whose buffers are
shared fails), they keep changing in members that have stopped, and they depend on the classes in the batch.
``"none"``: no normalisation. "group" and "batch" have the same number of parameters.
"""


def normalisation(norm: Norm, channels: int) -> nn.Module:
    """Build the layer for this number of channels.

    >>> normalisation("group", 64).num_groups
    8
    """
    if norm == "group":
        return nn.GroupNorm(math.gcd(channels, max(1, min(32, channels // 8))), channels)
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "none":
        return nn.Identity()
    raise InvalidValueError(f'norm must be "group", "batch" or "none", got {norm!r}')
