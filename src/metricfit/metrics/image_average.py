"""The mean of the values of images, by their weights; counts of images joined over batches."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.numerics import ratio
from metricfit.errors import InvalidValueError


def has_pixels(counts: Counts) -> Tensor:
    """Return which images of counts ``(..., images, c)`` have counted pixels; all others are left out of a mean.

    Example:
        >>> has_pixels(Counts(tp=[[3], [0]], fp=[[1], [0]], fn=[[2], [0]], tn=[[4], [0]]))
        tensor([ True, False])
    """
    present = (counts.n.detach() != 0).any(-1)  # NaN, of logits that diverged, is not left out
    return present if present.dim() == 1 else present.any(0)  # several thresholds


def weigh_images(present: Tensor, weight: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return how much each image counts in a mean over images.

    One weight per image weighs the image in the mean, so that weight 2 is the image twice. Weights of pixels have
    weighed the pixels within their images already, and images count alike.

    Args:
        present: Which images have counted pixels, ``(images,)``; the others count nothing.
        weight: The weights that the user passed: ``(images,)``, ``(images, 1)``, of pixels, or None.
        dtype: The type of the result.

    Returns:
        One number per image.

    Example:
        >>> weigh_images(torch.tensor([True, True, False]), torch.tensor([1.0, 2.0, 3.0]), torch.float32)
        tensor([1., 2., 0.])
    """
    shares = present.to(dtype)
    n = len(present)
    if weight is None or tuple(weight.shape) not in ((n,), (n, 1)):
        return shares
    return shares * weight.reshape(n).to(dtype)


def sum_images(values: Tensor, shares: Tensor | None = None, *, skips: bool = True) -> Tensor:
    """Return the weighted sum of the values of images and the sum of the weights, which add over batches and ranks.

    Args:
        values: ``(images,)`` or ``(images, c)``; NaN for an image that is left out.
        shares: How much each image counts, ``(images,)``; None if they count alike.
        skips: Whether NaN stands for an image that is left out. Otherwise it is a fault, such as logits that diverged,
            and the sum is NaN too.

    Returns:
        Both, stacked along a new first axis. The gradient of a NaN that is left out is 0.

    Example:
        >>> sum_images(torch.tensor([0.5, float("nan"), 1.0]))
        tensor([1.5000, 2.0000])
        >>> sum_images(torch.tensor([0.5, float("nan"), 1.0]), torch.tensor([3.0, 1.0, 1.0]))
        tensor([2.5000, 4.0000])
    """
    if shares is None:
        shares = values.new_ones(len(values))
    shares = shares.reshape(-1, *(1,) * (values.dim() - 1)).to(values.dtype)
    counted = (shares > 0).expand_as(values)
    if skips:
        counted = counted & ~values.isnan()
    return torch.stack([(torch.where(counted, values, 0.0) * shares).sum(0), (counted * shares).sum(0)])


def mean_of_images(values: Tensor, shares: Tensor | None = None) -> Tensor:
    """Return the weighted mean of the values of images that are not NaN; NaN if there are none.

    Example:
        >>> mean_of_images(torch.tensor([0.5, float("nan"), 1.0]))
        tensor(0.7500)
    """
    total, number = sum_images(values, shares)
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
