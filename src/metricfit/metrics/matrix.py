"""The whole confusion matrix of a multiclass problem, and the metrics of it: costs of each error, weighted kappa."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

from metricfit.core.arrays import Array, arange, namespace
from metricfit.core.numerics import constant, ratio, smallest_divisor, where, without_tiny
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics import registry
from metricfit.metrics.agreement import BOTH
from metricfit.metrics.matrix_metric import MatrixMetricFactory
from metricfit.metrics.metric import Bounds, Formula, Metric
from metricfit.metrics.metric_parameters import check_square

if TYPE_CHECKING:
    from metricfit.core.steps import Step

P = ParamSpec("P")


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
        logits: Outputs of the model, ``(n, c, ...)``.
        target: Class numbers ``(n, ...)``, or class shares of the shape of the logits.
        soft: Whether to sum the soft decisions that MetricLoss trains on, differentiably. By default the decision is
            the argmax.
        step: The soft decision; by default ``Linear(0.2)``.
        threshold: The threshold of soft decisions; by default "dynamic".
        weight: One weight per sample, at least 0.
        ignore_index: Samples with this label are not counted.

    Returns:
        A matrix ``(c, c)``: row i, column j holds the samples of class i that are predicted to be of class j. The
        diagonal and the margins are those of ``Counts.hard`` or ``Counts.soft``. Metrics of the whole matrix, such as
        ``metrics.weighted_kappa(power=2)``, are called on it.

    Raises:
        InvalidValueError: Shapes, labels, weights or the threshold do not fit.

    Example:
        >>> confusion_matrix(torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1, 1]))
        tensor([[1., 0.],
                [1., 1.]], dtype=torch.float64)
    """
    from metricfit.core.canonical_batch import Classes
    from metricfit.core.settings import CountSettings
    from metricfit.core.steps import CLASSES_STEP
    from metricfit.core.tasks import canonical
    from metricfit.core.tensor_numerics import full_precision

    batch = canonical(logits, target, CountSettings(task="multiclass", ignore_index=ignore_index), weight=weight)
    assert isinstance(batch, Classes)
    if isinstance(threshold, str) and threshold != "dynamic":
        raise InvalidValueError(f"a multiclass threshold is a number or 'dynamic', got {quote(threshold)}")
    fixed = None if isinstance(threshold, str) else threshold
    with full_precision(batch.logits.device):
        if soft:
            return batch.soft_matrix(step or CLASSES_STEP, fixed)
        return batch.hard_matrix()


def _builtin_factory(
    formula: Formula,
    *,
    minimize: bool,
    bounds: Callable[..., Bounds],
    needs: tuple[str, ...] = (),
    matrices: tuple[str, ...] = (),
) -> Callable[[Callable[P, None]], MatrixMetricFactory[P]]:
    """Make a factory of this library from a formula; the decorated function has its signature and documentation."""

    def build(signature: Callable[P, None]) -> MatrixMetricFactory[P]:
        entry: MatrixMetricFactory[P] = MatrixMetricFactory(
            signature.__name__, formula, bounds, minimize=minimize, needs=frozenset(needs), user_defined=False
        )
        entry.__doc__ = inspect.cleandoc(signature.__doc__ or "")
        entry.matrices = frozenset(matrices)
        parameters = inspect.signature(signature, eval_str=True)
        entry.__signature__ = parameters.replace(return_annotation=Metric)
        registry.add_builtin(entry.name, entry)
        return entry

    return build


def _cost_matrix(matrix: Array, costs: Array) -> Array:
    return ratio((matrix * costs).sum((-2, -1)), matrix.sum((-2, -1)))


def _bounds_of_cost(costs: Any) -> Bounds:
    numbers = [number for row in check_square("cost_matrix", "costs", costs) for number in row]
    return min(0.0, *numbers), max(0.0, *numbers)  # 0 is the value without samples


@_builtin_factory(_cost_matrix, minimize=True, bounds=_bounds_of_cost, matrices=("costs",))
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


@_builtin_factory(_weighted_kappa, minimize=False, bounds=_bounds_of_kappa, needs=BOTH)
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
