"""Metrics that combine the rates of both classes, or compare decisions with chance. 0/0 is 0, with gradient 0.

Formulas that multiply counts with each other first divide them by their sum (``_shares``), so that the products neither
overflow nor vanish, for any sum of the weights.
"""

from __future__ import annotations

from metricfit.core.arrays import Array
from metricfit.core.counts import Counts
from metricfit.core.numerics import clip, constant, ratio, root, share, without_tiny
from metricfit.metrics.decorators import builtin
from metricfit.metrics.formulas import NEGATIVES, POSITIVES
from metricfit.metrics.registry import alias

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


youden = alias("youden", informedness)
