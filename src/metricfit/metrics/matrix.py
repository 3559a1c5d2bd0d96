"""The whole confusion matrix, and the metrics of it: your own, costs of each error, weighted kappa."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, ParamSpec

from metricfit.core.arrays import Array, arange, exact, is_array, is_floating, is_tensor, namespace
from metricfit.core.confusion import ConfusionMatrix, two_by_two
from metricfit.core.counts import Counts
from metricfit.core.decisions import count_hard
from metricfit.core.numerics import constant, numbers_like, ratio, smallest_divisor, where, without_tiny
from metricfit.core.settings import CountSettings
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.decorators import builtin_factory, define
from metricfit.metrics.formulas import BOTH
from metricfit.metrics.metric import Bounds, Formula, Metric, MetricFactory, of_arrays, reduce_by_name
from metricfit.metrics.metric_parameters import check_parameters, check_square

if TYPE_CHECKING:
    from metricfit.core.steps import Step


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
        return numbers_like(value, matrix)

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
    settings: dict[str, Any] = {"minimize": minimize, "bounds": bounds, "whole_matrix": True}
    settings["factory"] = MatrixMetricFactory
    return define(formula, **settings) if formula is not None else partial(define, **settings)


class CostMatrixFactory(MatrixMetricFactory[P]):
    """The factory of ``metrics.cost_matrix``, whose costs must be a matrix."""

    matrices = frozenset({"costs"})


def _is_nested(value: object) -> bool:
    """Return whether a parameter is a matrix: a list that holds a list, or an array with two axes."""
    if isinstance(value, (list, tuple)):
        return any(isinstance(row, (list, tuple)) for row in value)
    return (hasattr(value, "tolist") or hasattr(value, "to_numpy")) and getattr(value, "ndim", 0) > 0


def confusion_matrix(
    logits: Array,
    target: Array,
    *,
    soft: bool = False,
    step: Step | None = None,
    threshold: float | Literal["dynamic"] | None = None,
    weight: Array | None = None,
    ignore_index: int | None = None,
) -> Array:
    """Count multiclass decisions by true class.

    Args:
        logits: Outputs of the model, ``(n, c, ...)``; arrays only if ``soft`` is false.
        target: Class numbers ``(n, ...)``, or class shares of the shape of the logits.
        soft: Whether to sum the soft decisions that MetricLoss trains on, differentiably. By default the decision is
            the argmax.
        step: The soft decision; by default ``Linear(0.2)``.
        threshold: The threshold of soft decisions; by default "dynamic".
        weight: One weight per sample, at least 0.
        ignore_index: Samples with this label are not counted.

    Returns:
        A matrix ``(c, c)``: row i, column j holds the samples of class i that are predicted to be of class j. The
        diagonal and the margins agree with ``Counts.hard`` or ``Counts.soft``. Metrics of the whole matrix, such as
        ``metrics.weighted_kappa(power=2)``, are called on it.

    Raises:
        InvalidValueError: Shapes, labels, weights or the threshold do not fit.

    Example:
        >>> confusion_matrix(np.array([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([0, 1, 1]))
        array([[1., 0.],
               [1., 1.]])
    """
    settings = CountSettings("multiclass", step, threshold if soft else None, ignore_index)
    if not soft:
        counts: Counts = count_hard(logits, target, settings, weight=weight, matrix=True)
    else:
        from metricfit.core.counting import count_soft  # imports torch, which soft counts need

        counts = count_soft(logits, target, settings, weight=weight, matrix=True)
    return counts.tensors[0]


def _cost_matrix(matrix: Array, costs: Array) -> Array:
    return ratio((matrix * costs).sum((-2, -1)), matrix.sum((-2, -1)))


def _bounds_of_cost(costs: Any) -> Bounds:
    numbers = [number for row in check_square("cost_matrix", "costs", costs) for number in row]
    return min(0.0, *numbers), max(0.0, *numbers)  # 0 is the value without samples


@builtin_factory(_cost_matrix, minimize=True, bounds=_bounds_of_cost, factory=CostMatrixFactory)
def cost_matrix(costs: Any) -> None:
    """sum_ij costs_ij matrix_ij / n, the mean cost of a decision; lower is better.

    ``costs[i][j]`` is the cost of predicting class j for a sample of class i. The diagonal is usually 0, and negative
    costs are gains. Classes are in the order of their numbers. For ``MetricClassifier`` that is the order of
    numbers, or the order that an ordered Categorical declares; of two classes the positive one is the second. Costs of
    1 off the diagonal give 1 - accuracy.

    Args:
        costs: A square matrix with one row per true class and one column per predicted class.

    Returns:
        The metric. Its value is 0 for a matrix without samples.

    Raises:
        InvalidTypeError: The costs are not a matrix of numbers.
        InvalidValueError: The matrix is not square, or a cost is not finite or above 1e20 in size.

    Example:
        >>> import numpy as np
        >>> from metricfit import metrics
        >>> matrix = np.array([[6.0, 2.0], [1.0, 1.0]])
        >>> metrics.cost_matrix([[0, 1], [10, 0]])(matrix).tolist()
        1.2
    """


def _weighted_kappa(matrix: Array, power: float) -> Array:
    """Return the kappa as sum_ij d_ij (r_i c_j - n m_ij) / sum_ij d_ij r_i c_j, for row sums r and column sums c.

    The difference is formed from what lies outside of row i and column j, so that it is exactly 0 where all decisions
    are the same. The matrix is divided by a power of 2 near its sum, so that products of counts neither overflow nor
    vanish, and whole numbers stay exact.
    """
    xp = namespace(matrix)
    n = constant(matrix).sum((-2, -1))[..., None, None]
    empty = n < smallest_divisor(matrix)
    scale = where(empty, 0.0, xp.exp2(-xp.round(xp.log2(where(empty, 1.0, n)))))
    cells = without_tiny(matrix) * scale
    rows, columns = cells.sum(-1)[..., None], cells.sum(-2)[..., None, :]
    rest_of_row, rest_of_column = rows - cells, columns - cells
    outside = (columns.sum(-1)[..., None] - columns) - rest_of_row
    place = arange(matrix, 0, matrix.shape[-1], matrix.dtype)
    distance = (abs(place[:, None] - place) / (len(place) - 1)) ** power
    beyond_chance = rest_of_row * rest_of_column - cells * outside
    return ratio((beyond_chance * distance).sum((-2, -1)), (rows * columns * distance).sum((-2, -1)))


def _bounds_of_kappa(power: Any) -> Bounds:
    """Return the bounds; up to power 2, distances are squared distances of a Hilbert space, and -1 is a bound."""
    if isinstance(power, tuple) or not power > 0:
        raise InvalidValueError(f"weighted_kappa: power must be one number above 0, such as 1 or 2; got {quote(power)}")
    return -1.0 if power <= 2 else -math.inf, 1.0


@builtin_factory(_weighted_kappa, bounds=_bounds_of_kappa, needs=BOTH, factory=MatrixMetricFactory)
def weighted_kappa(power: float = 2) -> None:
    """1 - sum_ij |i-j|^power matrix_ij / sum_ij |i-j|^power expected_ij, Cohen's kappa for ordered classes.

    ``expected`` is the matrix that decisions independent of the truth with the same margins would have. An error costs
    more the further the predicted class is from the true one, so that the order of the class numbers matters. Cohen
    1968. The value is 1 for perfect decisions and about 0 for decisions by chance. Two classes have Cohen's kappa.

    Args:
        power: 1 for linear and 2 for quadratic weights, or any other number above 0.

    Returns:
        The metric. Its value is 0 where all samples are of one class and predicted to be of that class.

    Raises:
        InvalidTypeError: The power is not a number.
        InvalidValueError: The power is not above 0.

    Example:
        >>> import numpy as np
        >>> from metricfit import metrics
        >>> matrix = np.array([[5.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 2.0, 7.0]])
        >>> round(float(metrics.weighted_kappa(power=1)(matrix)), 4)
        0.7253
    """
