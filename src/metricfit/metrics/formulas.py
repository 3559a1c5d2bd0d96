"""F-scores, overlap, rates, costs and agreement, each one formula over counts. 0/0 is 0, with gradient 0.

Formulas that multiply counts with each other first divide them by their sum (``_shares``), so that the products neither
overflow nor vanish, for any sum of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from metricfit.core.arrays import Array
from metricfit.core.counts import Counts
from metricfit.core.numerics import clip, constant, maximum, minimum, ratio, root, share, where, without_tiny
from metricfit.metrics.decorators import builtin, builtin_factory
from metricfit.metrics.row_cost import CostFactory

__all__ = [
    "accuracy",
    "balanced_accuracy",
    "cost",
    "f1",
    "fbeta",
    "fnr",
    "fowlkes_mallows",
    "fpr",
    "gmean",
    "informedness",
    "jaccard",
    "kappa",
    "markedness",
    "mcc",
    "npv",
    "p4",
    "precision",
    "recall",
    "selection_rate",
    "specificity",
    "tversky",
]

#: A parameter as users give it, and as a formula gets it: one number, or one number per class.
PerClass = float | Sequence[float]
Parameter = float | Array

POSITIVES, NEGATIVES = ("positives",), ("negatives",)


def _fbeta(c: Counts, beta: Parameter) -> Array:
    of_misses, of_false_alarms = _shares_of_errors(beta)
    return share(c.tp, of_misses * c.fn + of_false_alarms * c.fp)


def _shares_of_errors(beta: Parameter) -> tuple[Parameter, Parameter]:
    """Return b² / (1 + b²) and 1 / (1 + b²), computed from the smaller of b and 1/b: its square cannot overflow."""
    if not isinstance(beta, (int, float)):
        small = minimum(beta, 1 / where(beta > 0, beta, 1.0)) ** 2
        more, less = 1 / (1 + small), small / (1 + small)
        return where(beta > 1, more, less), where(beta > 1, less, more)
    square = min(beta, 1 / beta if beta else math.inf) ** 2
    larger, smaller = 1 / (1 + square), square / (1 + square)
    return (larger, smaller) if beta > 1 else (smaller, larger)


@builtin_factory(_fbeta, needs=POSITIVES)
def fbeta(beta: PerClass) -> None:
    """(1 + beta²) tp / ((1 + beta²) tp + beta² fn + fp), the F-beta score; beta > 1 favours recall.

    It is precision at beta = 0 and recall at beta = inf.

    Args:
        beta: How much more important recall is than precision: a number of at least 0, or one number per class.

    Returns:
        The metric. Its value is 0, with gradient 0, where there are neither positives nor predicted positives.

    Raises:
        InvalidTypeError: ``beta`` is missing or is not a number.
        InvalidValueError: ``beta`` is negative.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.fbeta(beta=2)(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.625])
    """


@builtin(needs=POSITIVES)
def f1(c: Counts) -> Array:
    """2 tp / (2 tp + fn + fp), the F1 score: the harmonic mean of precision and recall; also the Dice coefficient.

    0/0, without positives and predicted positives, is 0; scikit-learn warns there and gives 0 too.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.f1(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.66666667])
    """
    return share(c.tp, 0.5 * (c.fn + c.fp))


def _tversky(c: Counts, alpha: Parameter, beta: Parameter) -> Array:
    of_tp, of_fp, of_fn = _scaled_weights(alpha, beta)
    return share(of_tp * c.tp, of_fp * c.fp + of_fn * c.fn)


def _scaled_weights(alpha: Parameter, beta: Parameter) -> tuple[Parameter, ...]:
    """Return 1, alpha and beta divided by the largest of them, so that their products with counts are moderate."""
    largest = maximum(maximum(alpha, beta), 1.0)
    return 1 / largest, alpha / largest, beta / largest


@builtin_factory(_tversky, needs=POSITIVES)
def tversky(alpha: PerClass, beta: PerClass) -> None:
    """tp / (tp + alpha fp + beta fn), the Tversky index; f1 is alpha = beta = 1/2, jaccard alpha = beta = 1.

    Args:
        alpha: The weight of false positives, or one weight per class; from 0 to 1e20.
        beta: The weight of false negatives, or one weight per class; from 0 to 1e20.

    Returns:
        The metric. Its value is 0, with gradient 0, where there are neither positives nor predicted positives.

    Raises:
        InvalidTypeError: A weight is missing or is not a number.
        InvalidValueError: A weight is negative or too large.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.tversky(alpha=0.3, beta=0.7)(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.63829787])
    """


@builtin(needs=POSITIVES)
def jaccard(c: Counts) -> Array:
    """tp / (tp + fp + fn), the intersection over union.

    It is 0 where there are neither positives nor predicted positives.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.jaccard(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.5])
    """
    return share(c.tp, c.fp + c.fn)


@builtin(whole_matrix=True)
def accuracy(c: Counts) -> Array:
    """(tp + tn) / n, the share of right decisions; over several classes, sum tp / n.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.accuracy(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.7])
    """
    if c.classes == 1:
        return share(c.tp + c.tn, c.fp + c.fn)
    return ratio(c.tp.sum(-1), c.n[..., 0])


@builtin(needs=POSITIVES)
def precision(c: Counts) -> Array:
    """tp / (tp + fp), the share of predicted positives that are positive.

    It is 0 where nothing is predicted positive.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.precision(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.75])
    """
    return share(c.tp, c.fp)


@builtin(needs=POSITIVES)
def recall(c: Counts) -> Array:
    """tp / (tp + fn), the true positive rate.

    It is 0 where there are no positives.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.recall(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.6])
    """
    return share(c.tp, c.fn)


@builtin(needs=NEGATIVES)
def specificity(c: Counts) -> Array:
    """tn / (tn + fp), the true negative rate.

    It is 0 where there are no negatives.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.specificity(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.8])
    """
    return share(c.tn, c.fp)


@builtin(needs=NEGATIVES, minimize=True)
def fpr(c: Counts) -> Array:
    """fp / (fp + tn), the false positive rate; lower is better.

    It is 0 where there are no negatives.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.fpr(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.2])
    """
    return share(c.fp, c.tn)


@builtin(needs=POSITIVES, minimize=True)
def fnr(c: Counts) -> Array:
    """fn / (fn + tp), the false negative rate; lower is better.

    It is 0 where there are no positives.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.fnr(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.4])
    """
    return share(c.fn, c.tp)


@builtin(needs=NEGATIVES)
def npv(c: Counts) -> Array:
    """tn / (tn + fn), the negative predictive value.

    It is 0 where nothing is predicted negative.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.npv(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.66666667])
    """
    return share(c.tn, c.fn)


@builtin(minimize=True)
def selection_rate(c: Counts) -> Array:
    """(tp + fp) / n, the share of rows that are flagged; lower is better.

    The labels do not matter: use it in a requirement, such as ``"selection_rate <= 0.02"`` where at most 2 % of all
    rows can be looked at.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.selection_rate(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.4])
    """
    return share(c.tp + c.fp, c.fn + c.tn)


def _cost(c: Counts, fp: Parameter, fn: Parameter) -> Array:
    return ratio(fp * c.fp + fn * c.fn, c.n)


def _largest(*costs: float | tuple[float, ...]) -> float:
    return max(max(cost) if isinstance(cost, tuple) else cost for cost in costs)


@builtin_factory(_cost, minimize=True, bounds=lambda fp, fn: (0.0, _largest(fp, fn)), factory=CostFactory)
def cost(fp: PerClass | str, fn: PerClass | str) -> None:
    """(fp_cost fp + fn_cost fn) / n, the expected cost of a decision; lower is better.

    ``cost(fp=5, fn="amount")`` takes the cost of each row's false negative from the column "amount" of the table: the
    mean cost per row is what MetricClassifier, TunedDecisionClassifier and ``compare`` then minimise.

    Args:
        fp: The cost of a false positive, or one cost per class; from 0 to 1e20. Or the name of a column with one cost
            per row.
        fn: The cost of a false negative, or one cost per class; from 0 to 1e20. Or the name of a column.

    Returns:
        The metric. Its value is 0 for counts without samples.

    Raises:
        InvalidTypeError: A cost is missing, or is neither a number nor the name of a column.
        InvalidValueError: A cost is negative or too large.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.cost(fp=1, fn=10)(Counts(tp=3, fp=1, fn=2, tn=4))
        array([2.1])
        >>> metrics.cost(fp=5, fn="amount").columns
        ('amount',)
    """


BOTH = (*POSITIVES, *NEGATIVES)


@builtin(needs=BOTH)
def gmean(c: Counts) -> Array:
    """sqrt(tpr tnr), the geometric mean of the recalls of both classes.

    It is 0 where one of the classes is missing.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.gmean(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.69282032])
    """
    return root(share(c.tp, c.fn) * share(c.tn, c.fp))


@builtin(needs=BOTH, whole_matrix=True)
def balanced_accuracy(c: Counts) -> Array:
    """(tpr + tnr) / 2, the mean recall of the classes; classes without samples are left out.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.balanced_accuracy(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.7])
    """
    if c.classes == 1:
        classes = (c.positives > 0) + 0.0 + (c.negatives > 0)
        return ratio(share(c.tp, c.fn) + share(c.tn, c.fp), classes)
    return ratio(share(c.tp, c.fn).sum(-1), (c.positives > 0).sum(-1))


@builtin(needs=BOTH, bounds=(-1.0, 1.0), whole_matrix=True)
def mcc(c: Counts) -> Array:
    """(tp tn - fp fn) / sqrt((tp+fp)(tp+fn)(tn+fp)(tn+fn)), Matthews' correlation; over several classes, R_K.

    It is 0 where one of the four sums is 0. R_K: Gorodkin 2004.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.mcc(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.40824829])
    """
    c = _shares(c)
    if c.classes == 1:
        spread = root(c.positives * c.negatives) * root(c.predicted * (c.fn + c.tn))
        return clip(ratio(c.tp * c.tn - c.fp * c.fn, spread), -1.0, 1.0)  # two roots can round past it
    unlike = root((c.predicted * (c.fn + c.tn)).sum(-1)) * root((c.positives * c.negatives).sum(-1))
    return clip(ratio(_covariance(c), unlike), -1.0, 1.0)


@builtin(needs=BOTH, bounds=(-1.0, 1.0), whole_matrix=True)
def kappa(c: Counts) -> Array:
    """(p_o - p_e) / (1 - p_e), Cohen's kappa: agreement beyond chance.

    p_o is the share of agreement, p_e the share that chance would give. It is 0 where p_e is 1.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.kappa(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.4])
    """
    c = _shares(c)
    if c.classes == 1:
        unlike = c.predicted * c.negatives + c.positives * (c.fn + c.tn)
        return ratio(2 * (c.tp * c.tn - c.fp * c.fn), unlike)
    return ratio(_covariance(c), (c.positives * (c.fn + c.tn)).sum(-1))


@builtin(needs=BOTH, bounds=(-1.0, 1.0))
def informedness(c: Counts) -> Array:
    """tpr + tnr - 1, Youden's J.

    Computed as (tp tn - fp fn) / (positives negatives), which is 0 where one of the classes is missing.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.informedness(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.4])
    """
    c = _shares(c)
    return ratio(c.tp * c.tn - c.fp * c.fn, c.positives * c.negatives)


@builtin(needs=BOTH, bounds=(-1.0, 1.0))
def markedness(c: Counts) -> Array:
    """precision + npv - 1.

    Computed as (tp tn - fp fn) / (predicted (n - predicted)), which is 0 where all predictions are the same.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.markedness(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.41666667])
    """
    c = _shares(c)
    return ratio(c.tp * c.tn - c.fp * c.fn, c.predicted * (c.fn + c.tn))


@builtin(needs=POSITIVES)
def fowlkes_mallows(c: Counts) -> Array:
    """sqrt(precision recall), the Fowlkes-Mallows index.

    It is 0 where there are no positives or no predicted positives.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.fowlkes_mallows(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.67082039])
    """
    return root(share(c.tp, c.fp) * share(c.tp, c.fn))


@builtin(needs=BOTH)
def p4(c: Counts) -> Array:
    """4 tp tn / (4 tp tn + (tp + tn)(fp + fn)), the harmonic mean of precision, recall, specificity and npv.

    It is 0 where tp or tn is 0.

    Example:
        >>> from metricfit import Counts, metrics
        >>> metrics.p4(Counts(tp=3, fp=1, fn=2, tn=4))
        array([0.69565217])
    """
    c = _shares(c)
    return share(4 * c.tp * c.tn, (c.tp + c.tn) * (c.fp + c.fn))


def _shares(c: Counts) -> Counts:
    """Return the counts divided by their sum, for formulas that do not change with the scale of the counts.

    The sum is held constant: the gradient of such a formula is the same. Counts that are too small to be divided by
    become 0 first, because dividing them by a small sum would hide how small they are.
    """
    scale = ratio(1.0, constant(c.n))
    return c.map(lambda cell: without_tiny(cell) * scale)


def _covariance(c: Counts) -> Array:
    """Return the numerator of R_K and kappa as a sum over the classes, in which nothing cancels."""
    return (c.tp * c.tn - c.fp * c.fn).sum(-1)
