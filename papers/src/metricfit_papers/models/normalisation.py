"""Which normalisation the image networks use, and why it is not BatchNorm unless asked for."""

from __future__ import annotations

import math
from typing import Literal

from torch import nn

from metricfit.errors import InvalidValueError

Norm = Literal["group", "batch", "none"]
"""``"group"``, the default: GroupNorm with at least eight channels a group. It keeps no state and treats each image
alone, so k stacked models equal k separate ones whatever the batch, and a model that has stopped stays as it is.
``"batch"``: BatchNorm, as the papers publish their networks. Its running means move at every training forward; in a
stacked population they must be passed through ``vmap`` beside the parameters (a population whose buffers are shared
fails), they keep moving in members that have stopped, and the statistics of a batch depend on its class mix.
``"none"``: no normalisation. "group" and "batch" have the same number of parameters.
"""


def normalisation(norm: Norm, channels: int) -> nn.Module:
    """The layer for this many channels.

    >>> normalisation("group", 64).num_groups
    8
    """
    if norm == "group":
        return nn.GroupNorm(math.gcd(channels, max(1, min(32, channels // 8))), channels)
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "none":
        return nn.Identity()
    raise InvalidValueError(f'norm is "group", "batch" or "none", got {norm!r}')
