"""The mean of the values of images, by their weights; counts of images joined over batches."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from metricfit.core.arrays import Array, cast, full, namespace
from metricfit.core.counts import Counts
from metricfit.core.numerics import constant, ratio, where
from metricfit.errors import InvalidValueError


def has_pixels(counts: Counts) -> Array:
    """Return which images of counts ``(..., images, c)`` have counted pixels; all others are left out of a mean.

    Example:
        >>> has_pixels(Counts(tp=[[3], [0]], fp=[[1], [0]], fn=[[2], [0]], tn=[[4], [0]]))
        array([ True, False])
    """
    present = (constant(counts.n) != 0).any(-1)  # NaN, of logits that diverged, is not left out
    return present if present.ndim == 1 else present.any(0)  # several thresholds


def weigh_images(present: Array, weight: Array | None, dtype: Any) -> Array:
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
        >>> weigh_images(np.array([True, True, False]), np.array([1.0, 2.0, 3.0]), float)
        array([1., 2., 0.])
    """
    shares = cast(present, dtype)
    n = len(present)
    if weight is None or tuple(weight.shape) not in ((n,), (n, 1)):
        return shares
    return shares * cast(weight.reshape(n), dtype)


def sum_images(values: Array, shares: Array | None = None, *, skips: bool = True) -> Array:
    """Return the weighted sum of the values of images and the sum of the weights, which add over batches and ranks.

    Args:
        values: ``(images,)`` or ``(images, c)``; NaN for an image that is left out.
        shares: How much each image counts, ``(images,)``; None if they count alike.
        skips: Whether NaN stands for an image that is left out. Otherwise it is a fault, such as logits that diverged,
            and the sum is NaN too.

    Returns:
        Both, stacked along a new first axis. The gradient of a NaN that is left out is 0.

    Example:
        >>> sum_images(np.array([0.5, np.nan, 1.0]))
        array([1.5, 2. ])
        >>> sum_images(np.array([0.5, np.nan, 1.0]), np.array([3.0, 1.0, 1.0]))
        array([2.5, 4. ])
    """
    if shares is None:
        shares = full(values, (len(values),), 1.0)
    shares = cast(shares.reshape(-1, *(1,) * (values.ndim - 1)), values.dtype)
    xp = namespace(values)
    counted = xp.broadcast_to(shares > 0, values.shape)
    if skips:
        counted = counted & (values == values)
    return xp.stack([(where(counted, values, 0.0) * shares).sum(0), (counted * shares).sum(0)])


def mean_of_images(values: Array, shares: Array | None = None) -> Array:
    """Return the weighted mean of the values of images that are not NaN; NaN if there are none.

    Example:
        >>> float(mean_of_images(np.array([0.5, np.nan, 1.0])))
        0.75
    """
    total, number = sum_images(values, shares)
    return where(number > 0, ratio(total, number), math.nan)


def join_images(parts: Iterable[Counts]) -> Counts:
    """Join counts ``(images, c)`` of several batches to those of all their images.

    Raises:
        InvalidValueError: There are none, or they have different numbers of classes.

    Example:
        >>> batch = Counts(tp=[[3], [1]], fp=[[1], [0]], fn=[[2], [0]], tn=[[4], [9]])
        >>> join_images([batch, batch]).tp.shape
        (4, 1)
    """
    batches = list(parts)
    if not batches or len({tuple(counts.tp.shape[1:]) for counts in batches}) > 1:
        shapes = ", ".join(str(tuple(counts.tp.shape)) for counts in batches)
        raise InvalidValueError(f"counts of images of one number of classes are joined, got {shapes or 'none'}")
    columns = zip(*(counts.tensors for counts in batches), strict=True)
    return next((part for part in batches if not part.exclusive), batches[0]).with_tensors(
        namespace(*column).concatenate(column) for column in columns
    )
