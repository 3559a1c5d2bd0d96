"""Metrics that are functions of the whole confusion matrix, because they weigh each kind of error."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Concatenate, ParamSpec, Protocol, overload

import numpy as np

from metricfit.core.arrays import Array, exact, is_array, is_floating, is_tensor, namespace
from metricfit.core.confusion import ConfusionMatrix, two_by_two
from metricfit.core.counts import Counts
from metricfit.core.numerics import where
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.metrics import registry
from metricfit.metrics.metric import Bounds, Formula, Metric, MetricFactory, make_metric, of_arrays
from metricfit.metrics.metric_parameters import Square, check_parameters, check_square
from metricfit.metrics.pickling import reduce_by_name

P = ParamSpec("P")


class MatrixMetric(Metric):
    """A formula over the confusion matrix ``(..., c, c)``: row i, column j, samples of class i predicted to be of j.

    It is used as any other metric: by MetricLoss, ``evaluate``, requirements and decisions. ``metrics.cost_matrix``,
    ``metrics.weighted_kappa`` and ``@metrics.matrix_metric`` make one. It is one number for all classes, so that
    ``average`` does not apply to it. Two classes are a 2 x 2 matrix; the negative class comes first. Independent labels
    (multilabel) have no matrix of labels, and are refused.

    Args:
        name: The name, without parameters.
        formula: A function of a matrix ``(..., c, c)`` and the parameters, which returns one value per matrix.
        **settings: The other arguments of Metric.

    Example:
        >>> import numpy as np
        >>> from metricfit import metrics
        >>> matrix = np.array([[5.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 2.0, 7.0]])
        >>> round(float(metrics.weighted_kappa(power=2)(matrix)), 4)
        0.8239
    """

    needs_matrix: bool = True

    def __init__(self, name: str, formula: Formula, **settings: Any) -> None:
        super().__init__(name, formula, **{**settings, "whole_matrix": True})

    def _measure(self, counts: Counts | Array) -> Array:
        matrix = self._read_matrix(counts)
        if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2] or matrix.shape[-1] < 2:
            raise InvalidValueError(
                f"{self.name} needs a square matrix of two or more classes, got {tuple(matrix.shape)}"
            )
        parameters = {key: self._expand(key, value, matrix) for key, value in self.parameters.items()}
        return self._compute_matrix(matrix, parameters)

    def _read_matrix(self, counts: Counts | Array) -> Array:
        if is_array(counts):
            return counts if is_floating(counts) else exact(counts)
        if isinstance(counts, ConfusionMatrix):
            return counts.matrix
        if not isinstance(counts, Counts):
            raise InvalidTypeError(
                f"{self.name} is called on a confusion matrix, such as metrics.confusion_matrix returns, got "
                f"{type(counts).__name__}"
            )
        if counts.tp.shape[-1] == 1:
            return two_by_two(counts)
        if not counts.exclusive:
            raise InvalidValueError(
                f"{self.name} is for classes that exclude each other, but these are independent labels (multilabel). "
                "If the target holds class shares, say task='multiclass'; for labels use 'kappa' or 'cost(fp=1, fn=10)'"
            )
        raise InvalidValueError(
            f"{self.name} needs the whole confusion matrix, and Counts of {counts.tp.shape[-1]} classes hold only its "
            "diagonal and margins; call it on what metrics.confusion_matrix(logits, target) returns"
        )

    def _expand(self, key: str, value: Any, matrix: Array) -> float | Array:
        """Return a parameter as a number or as a tensor like the matrix."""
        if not isinstance(value, tuple):
            return float(value)
        classes = matrix.shape[-1]
        if len(value) != classes:
            raise InvalidValueError(
                f"{self.name}: {key} is for {len(value)} classes, but the confusion matrix has {classes}"
            )
        if not is_tensor(matrix):
            return np.array(value, matrix.dtype)
        torch = namespace(matrix)
        if torch.compiler.is_compiling():
            return torch.tensor(value, dtype=matrix.dtype, device=matrix.device)
        return _constant(value, matrix.dtype, matrix.device)

    def _compute_matrix(self, matrix: Array, parameters: Mapping[str, float | Array]) -> Array:
        """Compute the formula. Where a user's formula gives NaN, the value and the gradient are 0."""
        if not self.user_defined:
            return self.formula(matrix, **parameters)
        if is_tensor(matrix):
            return self._compute_safely(matrix, parameters)
        return of_arrays(
            lambda *cells: self._compute_safely(cells[0], dict(zip(parameters, cells[1:], strict=True))),
            matrix,
            *parameters.values(),
        )

    def _compute_safely(self, matrix: Array, parameters: Mapping[str, float | Array]) -> Array:
        value = self.formula(matrix, **parameters)
        if not is_array(value) or value.shape != matrix.shape[:-2]:
            got = tuple(value.shape) if is_array(value) else type(value).__name__
            raise InvalidValueError(
                f"the formula of {self.name} must give one number per matrix, shape {tuple(matrix.shape[:-2])} for "
                f"matrices of shape {tuple(matrix.shape)}, got {got}; sum over the last two axes, as in x.sum((-2, -1))"
            )
        undefined = value != value
        # Evaluated again with harmless matrices in those places, because a gradient through NaN would be NaN.
        safe = where(undefined[..., None, None], 1.0, matrix)
        return where(undefined, 0.0, self.formula(safe, **parameters))

    def __reduce__(self) -> str | tuple[object, ...]:
        if type(self) is not MatrixMetric:
            return object.__reduce__(self)
        return reduce_by_name(self) or object.__reduce__(self)


class MatrixMetricFactory(MetricFactory[P]):
    """A formula over the confusion matrix with parameters. Call it with their values to get the MatrixMetric.

    ``metrics.cost_matrix`` and ``metrics.weighted_kappa`` are factories; ``@metrics.matrix_metric`` makes one from a
    function with parameters. A parameter is a number, a list with one number per class, or a square matrix.

    Args:
        name: The name of the metrics.
        formula: A function of a matrix and the parameters.
        bounds: The smallest and the largest value, or a function of the parameters that returns them.
        settings: The other arguments of MatrixMetric.

    Example:
        >>> from metricfit import metrics
        >>> metrics.weighted_kappa
        weighted_kappa(power)
    """

    metric_class: ClassVar[type[Metric]] = MatrixMetric
    #: The parameters that must be matrices.
    matrices: frozenset[str] = frozenset()

    def _check_parameters(self, values: Mapping[str, object]) -> dict[str, Any]:
        checked: dict[str, Any] = {}
        for key, value in values.items():
            if key in self.matrices or _is_nested(value):
                checked[key] = check_square(self.name, key, value)
            else:
                checked |= check_parameters(self.name, {key: value}, user_defined=self.settings["user_defined"])
        return checked


class MatrixMetricDecorator(Protocol):
    """What ``matrix_metric(...)`` returns: it makes a MatrixMetric, or a factory where the function has parameters."""

    @overload
    def __call__(self, formula: Callable[[Array], Array], /) -> MatrixMetric: ...
    @overload
    def __call__(  # type: ignore[overload-cannot-match]  # mypy erases P
        self, formula: Callable[Concatenate[Array, P], Array], /
    ) -> MatrixMetricFactory[P]: ...


@overload
def matrix_metric(formula: Callable[[Array], Array]) -> MatrixMetric: ...
@overload
def matrix_metric(  # type: ignore[overload-cannot-match]  # mypy erases P
    formula: Callable[Concatenate[Array, P], Array],
) -> MatrixMetricFactory[P]: ...
@overload
def matrix_metric(*, minimize: bool = ..., bounds: Bounds | Callable[..., Bounds] = ...) -> MatrixMetricDecorator: ...
def matrix_metric(
    formula: Formula | None = None,
    *,
    minimize: bool = False,
    bounds: Bounds | Callable[..., Bounds] = (-math.inf, math.inf),
) -> Any:
    """Make a metric from a function of the confusion matrix, and register it under the function's name.

    The matrix is a tensor ``(..., c, c)``; row i, column j holds the samples of class i that are predicted to be of
    class j. The formula reduces the last two axes, and works for any leading axes. It may divide by 0: where it gives
    0/0, the value and the gradient are 0.

    Args:
        formula: A function of the matrix. With further parameters it makes a MatrixMetricFactory.
        minimize: Whether lower is better.
        bounds: The smallest and the largest value; for a factory also a function of the parameters.

    Returns:
        A MatrixMetric, or a MatrixMetricFactory if the function has further parameters. Without ``formula``, a
        decorator.

    Raises:
        InvalidTypeError: ``formula`` is not a function, or ``bounds`` is one although there are no parameters.
        InvalidValueError: The name belongs to a metric of this library.

    Example:
        >>> @matrix_metric(minimize=True)
        ... def mean_distance(matrix):
        ...     place = np.arange(matrix.shape[-1])
        ...     distance = abs(place[:, None] - place)
        ...     return (matrix * distance).sum((-2, -1)) / matrix.sum((-2, -1))
        >>> mean_distance(np.array([[3.0, 0.0, 1.0], [0.0, 2.0, 0.0], [0.0, 1.0, 3.0]])).tolist()
        0.3
    """

    def build(formula: Formula) -> MatrixMetric | MatrixMetricFactory[...]:
        entry = as_matrix_metric(make_metric(formula, minimize, bounds, (), True, user_defined=True))
        name = entry.base_name if isinstance(entry, Metric) else entry.name
        if name.isidentifier():  # a lambda has no name to be found by
            registry.add_user_defined(name, entry)
        return entry

    return build if formula is None else build(formula)


def as_matrix_metric(entry: Metric | MetricFactory[...]) -> MatrixMetric | MatrixMetricFactory[...]:
    """Return a metric, or factory, of the matrix with the settings of one that was made for counts."""
    if isinstance(entry, MetricFactory):
        return MatrixMetricFactory(entry.name, entry.formula, entry.bounds, **entry.settings)
    return MatrixMetric(
        entry.base_name,
        entry.formula,
        minimize=entry.minimize,
        bounds=entry.bounds,
        user_defined=entry.user_defined,
    )


def _is_nested(value: object) -> bool:
    """Return whether a parameter is a matrix: a list that holds a list, or an array with two axes."""
    if isinstance(value, (list, tuple)):
        return any(isinstance(row, (list, tuple)) for row in value)
    return (hasattr(value, "tolist") or hasattr(value, "to_numpy")) and getattr(value, "ndim", 0) > 0


@lru_cache(maxsize=64)
def _constant(rows: Square | tuple[float, ...], dtype: Any, device: Any) -> Array:
    """Return a parameter as a tensor. It is kept, because copying it to a GPU in every step would wait for the GPU."""
    torch = sys.modules["torch"]
    with torch.inference_mode(False):
        return torch.tensor(rows, dtype=dtype, device=device)
