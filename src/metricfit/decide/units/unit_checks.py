"""What can be wrong with the arguments of per_image and per_row."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Metric, get_metric
from metricfit.metrics.row_cost import check_of_counts

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


def check_probabilities(probabilities: Tensor, dimensions: tuple[int, ...], shapes: str) -> None:
    """Check that probabilities are a tensor of numbers from 0 to 1, with one of these numbers of dimensions.

    Raises:
        InvalidTypeError: It is no tensor of floating point numbers.
        InvalidValueError: It has another shape or other numbers.
    """
    if not isinstance(probabilities, Tensor) or not probabilities.is_floating_point():
        kind = probabilities.dtype if isinstance(probabilities, Tensor) else type(probabilities).__name__
        raise InvalidTypeError(f"probabilities must be a tensor of floating point numbers, got {kind}")
    if probabilities.dim() not in dimensions:
        raise InvalidValueError(f"probabilities must have shape {shapes}, got {tuple(probabilities.shape)}")
    if probabilities.numel() and not bool(((probabilities >= 0) & (probabilities <= 1)).all()):
        raise InvalidValueError(
            "probabilities must be between 0 and 1, without NaN; apply torch.sigmoid to logits of masks and labels, "
            "torch.softmax(logits, 1) to logits of classes"
        )


def check_sums(probabilities: Tensor, what: str) -> None:
    """Check that probabilities ``(units, parts, ...)`` add up to 1 over the parts.

    Raises:
        InvalidValueError: They do not.
    """
    sums = probabilities.sum(1)
    if bool(((sums - 1).abs() > SUM_TOLERANCE).any()):
        raise InvalidValueError(
            f"the probabilities of {what} must add up to 1, got sums from {float(sums.min()):.3g} to "
            f"{float(sums.max()):.3g}"
        )


def refuse_several_readings(probabilities: Tensor) -> None:
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


def check_one_of(name: str, value: object, choices: tuple[str | None, ...]) -> None:
    """Refuse a value that is not one of the choices.

    Raises:
        InvalidValueError: It is none of them.
    """
    if value not in choices:
        allowed = ", ".join(quote(choice) for choice in choices if choice is not None)
        raise InvalidValueError(f"{name} must be one of {allowed}, got {quote(value)}")


def as_double(probabilities: Tensor) -> Tensor:
    """Return the probabilities detached and in float64, in which sums over a million pixels keep their digits."""
    return probabilities.detach().to(torch.float64)


def at_least_single(probabilities: Tensor) -> Tensor:
    """Return the probabilities detached, half precision as float32."""
    return probabilities.detach().to(torch.promote_types(probabilities.dtype, torch.float32))
