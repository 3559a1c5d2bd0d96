"""The mean of the values of images, without those that have no value, and counts of images joined over batches."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.numerics import ratio
from metricfit.errors import InvalidValueError


def sum_images(values: Tensor) -> Tensor:
    """Return the sum of the values of images and their number, which add over batches and processes.

    Args:
        values: ``(images,)`` or ``(images, c)``; NaN for an image that is left out.

    Returns:
        Both, stacked along a new first axis. The gradient of a NaN is 0.

    Example:
        >>> sum_images(torch.tensor([0.5, float("nan"), 1.0]))
        tensor([1.5000, 2.0000])
    """
    left_out = values.isnan()
    return torch.stack([torch.where(left_out, 0.0, values).sum(0), (~left_out).sum(0).to(values.dtype)])


def mean_of_images(values: Tensor) -> Tensor:
    """Return the mean of the values of images that are not NaN; NaN if there are none.

    Example:
        >>> mean_of_images(torch.tensor([0.5, float("nan"), 1.0]))
        tensor(0.7500)
    """
    total, number = sum_images(values)
    return torch.where(number > 0, ratio(total, number), math.nan)


def join_images(parts: Iterable[Counts]) -> Counts:
    """Join counts ``(images, c)`` of several batches to those of all their images.

    Raises:
        InvalidValueError: There are none, or they have different numbers of classes.

    Example:
        >>> batch = Counts(tp=[[3], [1]], fp=[[1], [0]], fn=[[2], [0]], tn=[[4], [9]])
        >>> join_images([batch, batch]).tp.shape
        torch.Size([4, 1])
    """
    batches = list(parts)
    if not batches or len({tuple(counts.tp.shape[1:]) for counts in batches}) > 1:
        shapes = ", ".join(str(tuple(counts.tp.shape)) for counts in batches)
        raise InvalidValueError(f"counts of images of one number of classes are joined, got {shapes or 'none'}")
    columns = zip(*(counts.tensors for counts in batches), strict=True)
    return next((part for part in batches if not part.exclusive), batches[0]).with_tensors(map(torch.cat, columns))
