"""Averages of a metric over classes, over some of them, and over images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from metricfit.core.arrays import Array, cast, full, namespace
from metricfit.core.counts import Counts
from metricfit.core.numerics import Dual, constant, numbers_like, ratio, value_of, where
from metricfit.core.types import Average, ZeroDivision
from metricfit.core.validation import per_class
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.group_gap import GroupGap, has_samples, is_undefined
from metricfit.metrics.metric import Metric

SKIP = "skip"


def check_zero_division(metric: Metric, zero_division: object) -> ZeroDivision:
    """Return a valid ``zero_division``.

    Raises:
        InvalidValueError: It is not None, 0, 1 or "skip", or the metric has no values of classes.
    """
    if zero_division is None:
        return None
    if isinstance(zero_division, bool) or zero_division not in (0, 1, SKIP):
        raise InvalidValueError(f"zero_division is 0, 1 or 'skip', got {quote(zero_division)}")
    if isinstance(metric, GroupGap):
        raise InvalidValueError(f"{metric.name} leaves out groups without samples already; leave zero_division out")
    if metric.whole_matrix and zero_division != SKIP:
        raise InvalidValueError(
            f"zero_division={zero_division!r} is the value of a class where its metric is 0/0, and {metric.name} is a "
            "metric of all decisions; use zero_division='skip' to leave out images without labelled pixels"
        )
    return "skip" if zero_division == SKIP else 1 if zero_division == 1 else 0


def check_classes(metric: Metric, classes: Sequence[int] | None) -> tuple[int, ...] | None:
    """Return the class numbers of ``classes=``, or None for all classes.

    Args:
        metric: The metric that is averaged over them.
        classes: Class numbers from 0 on, each once.

    Raises:
        InvalidTypeError: They are no sequence of integers.
        InvalidValueError: There are none, one is negative or there twice, or the metric is not averaged over classes.

    Example:
        >>> from metricfit import metrics
        >>> check_classes(metrics.f1, range(1, 4))
        (1, 2, 3)
    """
    if classes is None:
        return None
    numbers = classes.tolist() if hasattr(classes, "tolist") else classes
    is_sequence = isinstance(numbers, Sequence) and not isinstance(numbers, (str, bytes))
    if not is_sequence or any(isinstance(number, bool) or not isinstance(number, int) for number in numbers):
        raise InvalidTypeError(f"classes is a list of class numbers, such as [1, 2, 3], got {quote(classes)}")
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise InvalidValueError(
            f"classes needs one or more class numbers from 0 on, each once, got {quote(list(numbers))}"
        )
    if metric.of_one_class:
        raise InvalidValueError(f"{metric.name} is of one class already; leave classes out")
    if metric.needs_matrix:
        raise InvalidValueError(_whole_matrix_message(metric))
    return tuple(numbers)


def check_class_weights(
    metric: Metric, average: Average, class_weights: Sequence[float] | None
) -> tuple[float, ...] | None:
    """Return the weights of the classes in an average, or None if they count alike.

    Raises:
        InvalidTypeError: They are no sequence of numbers.
        InvalidValueError: One is negative or not finite, all are 0, or there is no average over classes.
    """
    if class_weights is None:
        return None
    weights = per_class(class_weights, "class_weights is one number per class, such as [1.0, 1.0, 5.0]")
    if not any(weights) or not all(0 <= weight < math.inf for weight in weights):
        raise InvalidValueError(f"class_weights are finite, at least 0 and not all 0, got {list(weights)}")
    if average is None or metric.of_one_class or metric.needs_matrix:
        raise InvalidValueError(f"class_weights weigh an average over classes; {metric.name} has none here")
    return weights


def class_mask(
    metric: Metric, counts: Counts, classes: tuple[int, ...] | None, class_weights: tuple[float, ...] | None = None
) -> Array:
    """Return how much each class counts, ``(c,)``: its weight, or 1, and 0 if it was not chosen.

    Raises:
        InvalidValueError: There is only one class, one of those chosen does not exist, the number of weights is
            another, or the metric is one number for the whole confusion matrix.
    """
    number = counts.classes
    if number == 1:
        setting = f"classes={list(classes)}" if classes else "class_weights"
        raise InvalidValueError(
            f"{setting} is for several classes, but a binary problem has one, its positive class; leave it out"
        )
    if classes and max(classes) >= number:
        raise InvalidValueError(f"classes={list(classes)}: there are {number} classes, 0 to {number - 1}")
    if class_weights and len(class_weights) != number:
        raise InvalidValueError(f"class_weights has {len(class_weights)} numbers, and there are {number} classes")
    if metric.whole_matrix and counts.exclusive:
        raise InvalidValueError(_whole_matrix_message(metric))
    chosen = range(number) if classes is None else classes
    numbers = tuple((class_weights[k] if class_weights else 1.0) if k in chosen else 0.0 for k in range(number))
    return numbers_like(numbers, value_of(counts.tp))


def _whole_matrix_message(metric: Metric) -> str:
    return (
        f"{metric.name} is one number for the whole confusion matrix of exclusive classes, so it cannot leave classes "
        "out; with classes= use a metric of each class: 'f1', 'jaccard' or 'recall', whose mean over all classes is "
        "balanced_accuracy"
    )


AVERAGES: tuple[Average, ...] = ("macro", "micro", "weighted", None)

#: How scikit-learn's average over rows is computed: the labels of a row are the pixels of an image.
SAMPLES = (
    "; for the mean over rows of the metric of each row's labels, use per_image=True with logits.unsqueeze(1) and "
    "target.unsqueeze(1), (n, 1, c), or for evaluate the model nn.Sequential(model, nn.Unflatten(1, (1, -1)))"
)


def averaged(
    metric: Metric,
    counts: Counts,
    average: Average = "macro",
    classes: Sequence[int] | None = None,
    zero_division: ZeroDivision = None,
    *,
    class_weights: tuple[float, ...] | None = None,
    training: bool = False,
) -> Array:
    """Average a metric over the classes.

    The macro average has the same classes as in scikit-learn: those with a true or a predicted sample, and for
    multilabel counts all. In training every class has some soft prediction; classes without a true sample are then left
    out if the metric needs positives. The average does not change a binary metric, nor a metric of the whole confusion
    matrix of exclusive classes. The average of a gap between groups is the gap of the groups' averages.

    Args:
        metric: The metric.
        counts: Counts of shape ``(..., c)``; for a gap ``(..., groups, c)``.
        average: "macro" is the mean over classes, "micro" the metric of the summed counts, "weighted" the mean weighted
            by true samples, None one value per class.
        classes: The classes to average over, for example ``[1, 2, 3]`` without background; by default all. Samples of
            other classes still count as false positives and false negatives of these. "micro" sums the counts of these
            classes, and None gives one value for each of them.
        zero_division: What a class counts for where its metric is 0/0, as F1 without true and predicted samples is: 0
            or 1 as in scikit-learn, or "skip". "skip" leaves out every class without the samples that the metric needs:
            for F1 and Jaccard, classes without true samples (MONAI's ``ignore_empty=True``). By default 0/0 is 0, and
            the macro average is over the classes described above. "micro" sums the counts first, and then asks this of
            the
            sum: a class without true samples adds its false positives.
        class_weights: How much each class counts; "micro" multiplies its counts.
        training: Whether the counts are soft counts of a training batch.

    Returns:
        The average, ``(...)``; for None ``(..., c)``. With "skip" it is NaN where no class is left.

    Raises:
        InvalidValueError: There is no such average, class or zero_division, or it makes no sense for the metric.

    Example:
        >>> from metricfit.metrics import f1
        >>> averaged(f1, Counts.from_labels([0, 1, 1], [0, 1, 0], num_classes=3))
        np.float64(0.6666666666666666)
    """
    check_average(metric, average)
    chosen, zero_division = check_classes(metric, classes), check_zero_division(metric, zero_division)
    if isinstance(metric, GroupGap):
        settings: dict[str, Any] = {"training": training, "classes": classes, "class_weights": class_weights}
        return metric.difference(averaged(metric.metric, counts, average, **settings), counts)
    alike = chosen is None and class_weights is None
    mask = None if alike else class_mask(metric, counts, chosen, class_weights)
    if metric.whole_matrix and counts.exclusive:
        value = metric(counts)
        value = value if zero_division is None else _skip(value, has_samples(metric, counts, value))
        return value if average is None else _without_class_axis(value, counts)
    if average == "micro" and counts.classes > 1:
        counts = counts.map(lambda cell: _sum_classes(cell if mask is None else cell * mask))
        mask, chosen = None, None
    value = metric(counts)
    if zero_division == 1:
        value = where(is_undefined(metric, counts), 1.0, value)
    present = has_samples(metric, counts, value) if zero_division == SKIP else None
    if average is None or counts.classes == 1 or metric.of_one_class:
        value = value if present is None else _skip(value, present)
        if average is not None:
            return _without_class_axis(value, counts)
        return value if chosen is None else value[..., list(chosen)]
    share = _shares(metric, counts, value, average, training, zero_division, present)
    share = share if mask is None else share * mask
    if average == "weighted" and zero_division == 1:  # without weights, the classes count alike
        share = where(share.sum(-1)[..., None] > 0, share, 1.0 if mask is None else mask)
    total = share.sum(-1)
    if isinstance(value, Dual):
        return (value * ratio(share, total)).sum()
    mean = ratio((share * value).sum(-1), total)
    return mean if present is None else _skip(mean, share.sum(-1) > 0)


def _sum_classes(cell: Any) -> Any:
    return cell.sum(-1) if isinstance(cell, Dual) else cell.sum(-1)[..., None]


def _without_class_axis(value: Any, counts: Counts) -> Any:
    """Return values ``(..., 1)`` as ``(...)``, and values of the whole matrix, or dual numbers, as they are."""
    return value if isinstance(value, Dual) or value.ndim < counts.tp.ndim else value[..., 0]


def _ones(value: Any) -> Any:
    like = value_of(value)
    return namespace(like).ones_like(like)


def _skip(value: Array, present: Array) -> Array:
    return namespace(value).where(present, value, math.nan)


def _shares(
    metric: Metric,
    counts: Counts,
    value: Array,
    average: Average,
    training: bool,
    zero_division: ZeroDivision,
    present: Array | None,
) -> Array:
    """Return how much each class counts in an average that is a mean over the classes."""
    if average == "weighted":
        return constant(counts.positives)
    if present is not None:
        return cast(present, value.dtype)
    if zero_division is not None:
        return _ones(value)
    if not training and counts.exclusive:
        return cast(~((counts.positives <= 0) & (counts.predicted <= 0)), value.dtype)
    if training and "positives" in metric.needs:
        is_left_out = constant(counts.positives) <= 0  # NaN is not left out: it shows that logits diverged
        return cast(where(is_left_out, 0.0, 1.0), value_of(value).dtype)
    return _ones(value)


def loss_of_counts(
    metric: Metric,
    counts: Counts,
    average: Average,
    classes: Sequence[int] | None = None,
    zero_division: ZeroDivision = None,
    class_weights: tuple[float, ...] | None = None,
) -> Array:
    """Compute the loss of a training batch: 1 minus the average of a metric, or the average if lower is better.

    Args:
        metric: The metric.
        counts: Soft counts ``(c,)``, or ``(thresholds, c)`` for the mean over several thresholds; for a gap between
            groups ``(..., groups, c)``.
        average: The average over the classes.
        classes: The classes to average over, as in ``averaged``.
        zero_division: What a class counts for where its metric is 0/0, as in ``averaged``.
        class_weights: How much each class counts, as in ``averaged``.

    Returns:
        The loss, a scalar; without an average one loss per class.
    """
    alike = classes is None and class_weights is None and zero_division in (None, 0)
    single_value = alike and counts.exclusive and (metric.whole_matrix or counts.classes == 1)
    if isinstance(counts.tp, Dual) and single_value:
        single: Any = metric(counts)  # what ``averaged`` returns, without its checks
        return single if metric.minimize else 1.0 - single
    value = averaged(metric, counts, average, classes, zero_division, class_weights=class_weights, training=True)
    if isinstance(value, Dual):
        return value if metric.minimize else 1.0 - value
    if zero_division == SKIP:
        value = where(value != value, 0.0, value)  # no class has samples
    if counts.tp.ndim > 1 + isinstance(metric, GroupGap):  # several thresholds
        value = value.mean(0)
    return value if metric.minimize else 1 - value


def check_average(metric: Metric, average: str | None) -> None:
    """Raise an error for an average that does not exist or makes no sense for the metric."""
    if average not in AVERAGES:
        remedy = SAMPLES if isinstance(average, str) and average == "samples" else ""
        raise InvalidValueError(f"average must be 'macro', 'micro', 'weighted' or None, got {quote(average)}{remedy}")
    if average == "micro" and metric.of_one_class:
        raise InvalidValueError(f"{metric.name} is of one class, which average='micro' sums with the others")
    if (
        average == "micro"
        and not metric.whole_matrix
        and any(isinstance(value, tuple) for value in metric.parameters.values())
    ):
        raise InvalidValueError(f"{metric.name} has a parameter per class, which average='micro' has no classes for")


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
    """Join counts ``(images, c)`` of several batches to counts of all their images.

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
