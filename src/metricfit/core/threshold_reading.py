"""The threshold that users pass, read for a batch in its final shape."""

from __future__ import annotations

import math
from numbers import Real

from torch import Tensor

from metricfit.core.canonical_batch import Batch, Classes, Columns
from metricfit.core.steps import check_threshold
from metricfit.core.threshold_vectors import PerLabel, ThresholdGrid, check_length, read_decision, refuse_two_readings
from metricfit.core.types import Thresholds
from metricfit.errors import InvalidValueError, quote


def read_thresholds(threshold: Thresholds, batch: Batch, *, soft: bool) -> float | Tensor | list[float | Tensor] | None:
    """Check the threshold and return one number, a column ``(c, 1)``, a list of several, or None for the default.

    Soft counts need a probability; hard counts can be made at any number.

    Raises:
        InvalidValueError: The threshold is something else.
    """
    threshold = read_decision(threshold)
    if isinstance(threshold, str):
        if threshold != "dynamic":
            raise InvalidValueError(
                f"a threshold is a number, several, or for multiclass 'dynamic', got {quote(threshold)}"
            )
        if isinstance(batch, Columns):
            raise InvalidValueError(
                "the dynamic threshold is for multiclass logits; a binary or multilabel one is a number"
            )
        return None
    if threshold is None or (isinstance(threshold, Tensor) and threshold.dim() == 0):
        return threshold
    if isinstance(threshold, PerLabel) or (isinstance(threshold, Tensor) and threshold.dim() == 2):
        return _read_column(threshold, batch, soft=soft)
    if isinstance(threshold, Real):
        return _check_number(float(threshold), soft=soft)
    several = list(threshold.numbers if isinstance(threshold, ThresholdGrid) else threshold)  # type: ignore[arg-type]
    if not several:
        raise InvalidValueError("threshold is empty; omit it to use the default")
    if isinstance(batch, Columns) and not isinstance(threshold, ThresholdGrid):
        labels = batch.logits.shape[-2]
        if len(several) == labels > 1:
            raise refuse_two_readings(threshold, labels)
    return [_check_number(number if isinstance(number, Tensor) else float(number), soft=soft) for number in several]


def _read_column(threshold: PerLabel | Tensor, batch: Batch, *, soft: bool) -> Tensor:
    """Return one threshold per label as a column ``(c, 1)``; losses keep them in a buffer of this shape."""
    if isinstance(batch, Classes):
        raise refuse_classes()
    labels = batch.logits.shape[-2]
    if isinstance(threshold, PerLabel):
        if soft:
            threshold.check_probabilities()
        return threshold.as_column(labels, batch.logits.device)
    return check_length(threshold, labels).to(batch.logits.device)


def refuse_classes() -> InvalidValueError:
    """Return the error for thresholds of labels where the classes exclude each other."""
    return InvalidValueError(
        "these classes exclude each other, so the largest logit decides, at no threshold; curves.best_offsets "
        "tunes such decisions, and for independent labels give task='multilabel'"
    )


def _check_number(number: float | Tensor, *, soft: bool) -> float | Tensor:
    if soft:
        check_threshold(number)
    elif not isinstance(number, Tensor) and math.isnan(number):
        raise InvalidValueError("a threshold is NaN")
    return number
