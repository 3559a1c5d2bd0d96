"""Counts of labels against labels, and counts that hold the whole confusion matrix of exclusive classes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from metricfit.core.arrays import (
    Array,
    arange,
    cast,
    exact_type,
    full,
    in_kind_of,
    is_array,
    is_floating,
    is_tensor,
    namespace,
    sum_at,
)
from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING
from metricfit.errors import InvalidValueError


class ConfusionMatrix(Counts):
    """Counts of exclusive classes that are read from a confusion matrix ``(..., c, c)``.

    Row i, column j holds the samples of class i that are predicted to be of class j. Metrics of counts work as on other
    Counts, and metrics of the whole matrix use ``matrix``. What adds up over batches and processes is the matrix.

    Args:
        matrix: The matrix, or several of them.

    Example:
        >>> counts = ConfusionMatrix(np.array([[3.0, 1.0], [2.0, 4.0]]))
        >>> counts.tp, counts.fp, (counts + counts).matrix[1]
        (array([3., 4.]), array([2., 1.]), array([4., 8.]))
    """

    matrix: Array

    def __init__(self, matrix: Array) -> None:
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "exclusive", True)

    @property
    def tensors(self) -> tuple[Array, ...]:
        """The array that adds up over batches and processes: the matrix alone."""
        return (self.matrix,)

    def with_tensors(self, tensors: Iterable[Array]) -> Counts:
        """Return a ConfusionMatrix of another matrix."""
        return ConfusionMatrix(*tensors)

    @property
    def tp(self) -> Array:
        """True positives of each class: the diagonal."""
        return self.matrix.diagonal(0, -2, -1)

    @property
    def fp(self) -> Array:
        """False positives of each class: the rest of its column."""
        return self._errors.sum(-2)

    @property
    def fn(self) -> Array:
        """False negatives of each class: the rest of its row."""
        return self._errors.sum(-1)

    @property
    def tn(self) -> Array:
        """True negatives of each class: everything outside its row and its column."""
        n = self.matrix.sum((-2, -1))[..., None]
        rest = n - self.tp - self.fp - self.fn
        return namespace(rest).where(rest > ROUNDING * n, rest, 0.0)

    @property
    def _errors(self) -> Array:
        """The matrix with 0 on its diagonal."""
        classes = arange(self.matrix, 0, self.matrix.shape[-1])
        return namespace(self.matrix).where(classes[:, None] == classes, 0.0, self.matrix)

    def __repr__(self) -> str:
        return f"ConfusionMatrix({self.matrix})"


def unstack(stacked: Array, *, exclusive: bool | None) -> Counts:
    """Return the counts whose ``tensors`` were stacked: four arrays, or one that is a confusion matrix.

    If ``exclusive`` is None, it follows from the numbers.
    """
    if len(stacked) == 1:
        return ConfusionMatrix(stacked[0])
    return Counts(*stacked) if exclusive is None else Counts(*stacked, exclusive=exclusive)


def two_by_two(counts: Counts) -> Array:
    """Return the matrix ``[[tn, fp], [fn, tp]]`` of each class of counts ``(..., c)``, as ``(..., c, 2, 2)``.

    Example:
        >>> two_by_two(Counts(tp=3, fp=1, fn=2, tn=4))
        array([[[4., 1.],
                [2., 3.]]])
    """
    xp = namespace(counts.tp)
    negative, positive = xp.stack([counts.tn, counts.fp], -1), xp.stack([counts.fn, counts.tp], -1)
    return xp.stack([negative, positive], -2)


def count_labels(
    predicted: Any,
    target: Any,
    *,
    num_classes: int | None = None,
    weight: Any = None,
    matrix: bool = False,
) -> Counts:
    """Count labels against labels.

    The arguments are those of ``Counts.from_labels``, and ``matrix`` says whether the counts must hold the whole
    confusion matrix.
    """
    like = next((labels for labels in (target, predicted) if is_tensor(labels)), None)
    predicted, target = (in_kind_of(_as_array(labels), like) for labels in (predicted, target))
    if predicted.ndim > 1 and math.prod(predicted.shape[1:]) != 1:
        raise InvalidValueError(
            f"labels must have shape (n,) or (n, 1), got {tuple(predicted.shape)}; flatten pixels first"
        )
    predicted, target = predicted.reshape(-1), target.reshape(-1)
    if predicted.shape != target.shape:
        raise InvalidValueError(f"{len(predicted)} predicted labels for {len(target)} targets")
    xp, exact = namespace(target), exact_type(target)
    if weight is None:
        weights = full(target, (len(target),), 1.0, exact)
    else:
        weights = cast(in_kind_of(_as_array(weight), target), exact).reshape(-1)
    if weights.shape != target.shape:
        raise InvalidValueError(f"{len(weights)} weights for {len(target)} targets")
    if not bool(((weights >= 0) & xp.isfinite(weights)).all()):
        raise InvalidValueError("weights must be finite and at least 0")
    classes = 2 if num_classes is None else num_classes
    predicted = _read_labels(predicted, "predicted", classes, num_classes is None)
    target = _read_labels(target, "target", classes, num_classes is None)
    if matrix and num_classes is not None:
        return ConfusionMatrix(sum_at(target * classes + predicted, weights, classes**2).reshape(classes, classes))
    right = predicted == target
    tp, fn, fp = (
        sum_at(labels, weights * chosen, classes)
        for labels, chosen in ((target, right), (target, ~right), (predicted, ~right))
    )
    rest = weights.sum() - tp - fn - fp
    counts = Counts(tp, fp, fn, xp.where(rest > ROUNDING * weights.sum(), rest, 0.0), exclusive=True)
    return counts.map(lambda cell: cell[1:]) if num_classes is None else counts


def _as_array(labels: Any) -> Array:
    return labels if is_array(labels) else np.asarray(labels)


def _read_labels(labels: Array, name: str, classes: int, binary: bool) -> Array:
    """Return labels as integers, after a check of their range."""
    if is_floating(labels) and bool((labels != labels.round()).any()):
        raise InvalidValueError(f"{name} must hold labels, got fractions; threshold scores first, or use Counts.hard")
    if len(labels) and bool((labels.min() < 0) | (labels.max() >= classes)):
        low, high = float(labels.min()), float(labels.max())
        hint = "; give num_classes= for more than two classes" if binary else ""
        raise InvalidValueError(f"{name} labels must lie in 0..{classes - 1}, got {low:g} to {high:g}{hint}")
    return cast(labels, namespace(labels).int64)
