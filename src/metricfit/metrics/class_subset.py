"""Which classes an average is over: all of them, or those named by ``classes=``, for example without background."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from metricfit.core.arrays import Array, is_tensor, namespace
from metricfit.core.counts import Counts
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.metric import Metric


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


def class_mask(metric: Metric, counts: Counts, classes: tuple[int, ...]) -> Array:
    """Return 1 for the chosen classes and 0 for the others, ``(c,)``.

    Raises:
        InvalidValueError: There is only one class, one of those chosen does not exist, or the metric is one number for
            the whole confusion matrix.
    """
    number = counts.classes
    if number == 1:
        raise InvalidValueError(
            f"classes={list(classes)} chooses among several classes, but a binary problem has one, its positive class; "
            "leave classes out"
        )
    if max(classes) >= number:
        raise InvalidValueError(f"classes={list(classes)}: there are {number} classes, 0 to {number - 1}")
    if metric.whole_matrix and counts.exclusive:
        raise InvalidValueError(_whole_matrix_message(metric))
    if not is_tensor(counts.tp):
        return np.array([float(k in classes) for k in range(number)])
    if counts.tp.device.type == "cpu" or namespace(counts.tp).compiler.is_compiling():
        return _make_mask(classes, number, counts.tp.dtype, counts.tp.device)
    return _kept_mask(classes, number, counts.tp.dtype, counts.tp.device)


def _make_mask(classes: tuple[int, ...], number: int, dtype: Any, device: Any) -> Array:
    return sys.modules["torch"].tensor([float(k in classes) for k in range(number)], dtype=dtype, device=device)


@lru_cache(maxsize=64)
def _kept_mask(classes: tuple[int, ...], number: int, dtype: Any, device: Any) -> Array:
    """Return the mask on a GPU. It is kept, because copying it there in every step would wait for the GPU."""
    with sys.modules["torch"].inference_mode(False):
        return _make_mask(classes, number, dtype, device)


def _whole_matrix_message(metric: Metric) -> str:
    return (
        f"{metric.name} is one number for the whole confusion matrix of exclusive classes, so it cannot leave classes "
        "out; with classes= use a metric of each class: 'f1', 'jaccard' or 'recall', whose mean over all classes is "
        "balanced_accuracy"
    )
