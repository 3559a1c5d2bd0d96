"""Decisions for the mean of a metric over units: the pixels of each image, the labels of each row.

A threshold is chosen for all rows together. Where the metric is measured on every image or row and then averaged, each
unit has a best decision, which follows from its probabilities and needs no labels (``decide.expected_values``).

Both functions are public. They take arrays and tensors, and return the kind that they get.
"""

from __future__ import annotations

import math
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import numpy as np

from metricfit.core.arrays import (
    Array,
    arange,
    cast,
    is_array,
    is_floating,
    is_tensor,
    namespace,
    sort_falling,
    take_along,
)
from metricfit.core.numerics import constant
from metricfit.decide.expected_values import RankedMoments, as_double, best_class_maps, exact_values
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Metric, get_metric
from metricfit.metrics.row_cost import check_of_counts


def per_image(
    probabilities: Array,
    metric: str | Metric = "dice",
    *,
    task: Literal["binary", "multiclass", "multilabel"] | None = None,
    zero_division: float = 0.0,
) -> Array:
    """Decide the pixels of every image for the best expected metric of that image.

    The mean Dice over images is not maximised by one threshold: a faint object needs a lower one than a clear object.
    Here every image gets the mask with the highest expected metric under its own probabilities, so the probabilities
    should be about right. The most probable pixels are marked; how many follows from a sort and cumulative sums. Pixels
    are taken as independent of each other.

    Args:
        probabilities: ``(n, h, w)`` or ``(n, 1, ...)`` for one mask per image; ``(n, c, ...)`` needs ``task``.
        metric: A metric of one class's counts, such as "dice", "jaccard" or "fbeta(beta=2)", or an own formula. It must
            not fall when a marked negative pixel is exchanged for a positive one, which is true of any sensible metric.
        task: "multiclass" if every pixel has one of ``c`` classes, "multilabel" if ``c`` masks may overlap; "binary" if
            there is one mask per image over all axes after the first, as for volumes ``(n, depth, height, width)``.
        zero_division: The value of leaving an image without positives empty: 0, or 1 to reward it.

    Returns:
        Masks, bool, of the kind and shape of the probabilities; for "multiclass" class numbers ``(n, ...)``. For
        several classes the mean over the classes is improved step by step, and the result need not be the best of all.

    Raises:
        InvalidTypeError: The probabilities are not an array or tensor of floating point numbers.
        InvalidValueError: Shape, values, task or metric cannot be used.

    Example:
        >>> faint_and_clear = np.array([[[0.4, 0.3], [0.3, 0.0]], [[0.9, 0.9], [0.3, 0.1]]])
        >>> per_image(faint_and_clear, "dice").astype(int)
        array([[[1, 1],
                [1, 0]],
        <BLANKLINE>
               [[1, 1],
                [0, 0]]])
    """
    found = check_metric(metric)
    if task not in ("binary", "multiclass", "multilabel", None):
        raise InvalidValueError(f"task must be 'binary', 'multiclass' or 'multilabel', got {quote(task)}")
    zero_division = check_zero_division(zero_division, found)
    one_mask = task in (None, "binary")
    check_probabilities(probabilities, (3, 4, 5), "(n, height, width)" if one_mask else "(n, c, ...)")
    if task is None:
        refuse_several_readings(probabilities)
    if 0 in probabilities.shape:
        raise InvalidValueError(f"there are no pixels in probabilities of shape {tuple(probabilities.shape)}")
    if task == "multiclass":
        check_sums(probabilities, "the classes of a pixel")
        pixels = at_least_single(probabilities).reshape(*probabilities.shape[:2], -1)
        with _without_gradients(pixels):
            maps = best_class_maps(pixels, found, zero_division)
        return maps.reshape(probabilities.shape[0], *probabilities.shape[2:])
    masks = probabilities.reshape(math.prod(probabilities.shape[: 1 if one_mask else 2]), -1)
    return best_masks(masks, found, zero_division).reshape(probabilities.shape)


#: Up to this many labels expected values are computed exactly.
EXACT_LABELS = 100


def per_row(probabilities: Array, metric: str | Metric = "f1", *, zero_division: float = 0.0) -> Array:
    """Decide the labels of every row for the best expected metric of that row.

    This is for metrics that are averaged over rows, such as the "samples" F1 of several labels. Every row gets the
    labels with the highest expected metric under its own probabilities, so the probabilities should be calibrated.
    Expected values are exact up to 100 labels, and approximate for more.

    Args:
        probabilities: The probability of each label ``(n, c)``, taken as independent.
        metric: A metric of counts, such as "f1", "jaccard" or "fbeta(beta=2)", or an own formula.
        zero_division: The value of marking no label in a row that has none: 0, or 1 to reward it.

    Returns:
        The labels, bool ``(n, c)``, of the kind of the probabilities.

    Raises:
        InvalidTypeError: The probabilities are not an array or tensor of floating point numbers.
        InvalidValueError: Shape, values or metric cannot be used.

    Example:
        >>> per_row(np.array([[0.4, 0.3, 0.1], [0.9, 0.3, 0.1]])).astype(int)
        array([[1, 1, 0],
               [1, 0, 0]])
    """
    found = check_metric(metric)
    zero_division = check_zero_division(zero_division, found)
    check_probabilities(probabilities, (2,), "(n, labels)")
    if probabilities.shape[1] == 0:
        raise InvalidValueError("there are no labels: probabilities have shape (n, 0)")
    return best_masks(probabilities, found, zero_division, exact=probabilities.shape[1] <= EXACT_LABELS)


#: About how many sizes are tried before those between the best one and its neighbours.
SPREAD_SIZES = 512


def best_masks(probabilities: Array, metric: Metric, zero_division: float, *, exact: bool = False) -> Array:
    """Find the pixels of every unit with the best expected metric.

    Args:
        probabilities: Probabilities ``(units, pixels)``.
        metric: The metric.
        zero_division: The value of marking nothing where there are no positives.
        exact: Whether expected values sum over all outcomes, in a time that grows with the cube of the pixels.

    Returns:
        The marked pixels, bool ``(units, pixels)``.
    """
    ranked, order = sort_falling(constant(probabilities))
    ranked = as_double(ranked) if exact else at_least_single(ranked)
    empty, xp = None, namespace(ranked)
    if zero_division:
        empty = zero_division * xp.exp(xp.log1p(-ranked).sum(1, dtype=xp.float64))
    with _without_gradients(ranked):
        sizes = (_exact_sizes if exact else _approximate_sizes)(ranked, metric, empty)
    return _put(order, arange(order, 0, order.shape[1]) < sizes)


def _without_gradients(values: Array) -> AbstractContextManager[None]:
    return sys.modules["torch"].no_grad() if is_tensor(values) else nullcontext()


def _put(places: Array, values: Array) -> Array:
    """Return an array with the values at these places of the last axis."""
    if is_tensor(places):
        return values.new_empty(places.shape).scatter_(1, places, values)
    result = np.empty(places.shape, values.dtype)
    np.put_along_axis(result, places, values, 1)
    return result


def _exact_sizes(ranked: Array, metric: Metric, empty: Array | None) -> Array:
    values = exact_values(ranked, metric)
    if empty is not None:
        values[:, 0] += empty
    return _best(values, metric)


def _approximate_sizes(ranked: Array, metric: Metric, empty: Array | None) -> Array:
    """Find the best sizes ``(units, 1)``: first among a few hundred spread over all, then between the neighbours."""
    spacing = max(1, ranked.shape[1] // SPREAD_SIZES)
    moments = RankedMoments(ranked, spacing)
    sizes = moments.known_sizes()
    best = take_along(sizes, _best(_reward(moments.expected_values(metric, sizes), sizes, empty), metric))
    if spacing == 1:
        return best
    sizes, values = moments.expected_values_around(metric, best)
    return take_along(sizes, _best(_reward(values, sizes, empty), metric))


def _reward(values: Array, sizes: Array, empty: Array | None) -> Array:
    """Add what marking nothing is worth because a unit may have no positives."""
    return values if empty is None else values + (sizes == 0) * empty[:, None]


def _best(values: Array, metric: Metric) -> Array:
    return (values.argmin if metric.minimize else values.argmax)(1)[:, None]


#: How far a sum of probabilities may be from 1, which covers half precision.
SUM_TOLERANCE = 1e-2


def check_metric(metric: str | Metric) -> Metric:
    """Return the metric, which must be one of the counts of one class.

    Raises:
        InvalidValueError: The metric is of groups or of the whole confusion matrix.
    """
    found = check_of_counts(get_metric(metric))
    if isinstance(found, GroupGap) or found.needs_matrix or found.of_one_class:
        raise InvalidValueError(f"units are decided for a metric of one class's counts, such as dice, not {found.name}")
    return found


def check_probabilities(probabilities: Array, dimensions: tuple[int, ...], shapes: str) -> None:
    """Check that probabilities are floating point numbers from 0 to 1, with one of these numbers of dimensions.

    Raises:
        InvalidTypeError: They are no array or tensor of floating point numbers.
        InvalidValueError: They have another shape, or are other numbers.
    """
    if not is_array(probabilities) or not is_floating(probabilities):
        kind = probabilities.dtype if is_array(probabilities) else type(probabilities).__name__
        raise InvalidTypeError(f"probabilities must be an array or tensor of floating point numbers, got {kind}")
    if probabilities.ndim not in dimensions:
        raise InvalidValueError(f"probabilities must have shape {shapes}, got {tuple(probabilities.shape)}")
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise InvalidValueError(
            "probabilities must be between 0 and 1, without NaN; apply the sigmoid to logits of masks and labels, the "
            "softmax over axis 1 to logits of classes"
        )


def check_sums(probabilities: Array, what: str) -> None:
    """Check that probabilities ``(units, parts, ...)`` add up to 1 over the parts.

    Raises:
        InvalidValueError: They do not.
    """
    sums = probabilities.sum(1)
    if (abs(sums - 1) > SUM_TOLERANCE).any():
        raise InvalidValueError(f"the probabilities of {what} must add up to 1, got sums up to {float(sums.max()):.3g}")


def refuse_several_readings(probabilities: Array) -> None:
    """Refuse ``(n, k, height, width)`` without a task: it can be k masks, k classes, or a volume of depth k.

    Raises:
        InvalidValueError: There are several channels.
    """
    shape = tuple(probabilities.shape)
    if len(shape) > 3 and shape[1] > 1:
        raise InvalidValueError(
            f"probabilities {shape} can be read as {shape[1]} masks per image that may overlap, task='multilabel', as "
            f"{shape[1]} classes that exclude each other, task='multiclass', or as one volume per image, "
            "task='binary'; say which"
        )


def check_zero_division(zero_division: float, metric: Metric) -> float:
    """Return the value of leaving an empty unit empty, a number from 0 to 1.

    Raises:
        InvalidValueError: It is another value, or the metric is defined there.
    """
    if zero_division not in (0, 1) and not (isinstance(zero_division, float) and 0 <= zero_division <= 1):
        raise InvalidValueError(f"zero_division is a number from 0 to 1, got {quote(zero_division)}")
    if zero_division and "positives" not in metric.needs:
        raise InvalidValueError(f"{metric.name} is defined for a unit without positives; leave zero_division out")
    return float(zero_division)


def at_least_single(probabilities: Array) -> Array:
    """Return the probabilities without gradient, half precision as float32."""
    xp = namespace(probabilities)
    return cast(constant(probabilities), xp.promote_types(probabilities.dtype, xp.float32))
