"""How far probabilities are from the labels: the Brier score and the expected calibration error."""

from __future__ import annotations

from typing import Any

from metricfit.core.arrays import Array, cast, exact, namespace, sum_at, take_along
from metricfit.core.numerics import ratio
from metricfit.errors import InvalidValueError
from metricfit.metrics.areas import Questions, read_questions
from metricfit.metrics.sweep import checked


def brier_score(probabilities: Array, target: Array, weight: Array | None = None) -> float:
    """The mean squared difference between probabilities and labels. Brier 1950.

    Args:
        probabilities: One per sample, ``(n,)``; of exclusive classes ``(n, c)``, which sum to 1; of several labels
            ``(n, c)``.
        target: 0 or 1 for each probability; for exclusive classes the class number of each sample.
        weight: One weight per sample, at least 0; by default all are 1.

    Returns:
        For one column and for several labels the mean over all probabilities, from 0 to 1. For exclusive classes the
        sum over classes, averaged over samples, from 0 to 2, as scikit-learn has it.

    Raises:
        InvalidValueError: The arrays do not fit each other, or the probabilities are not between 0 and 1.

    Example:
        >>> round(brier_score([0.9, 0.4, 0.1], [1, 1, 0]), 4)
        0.1267
        >>> round(brier_score([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]], [0, 1]), 4)
        0.1
    """
    p, y, w, exclusive = _read(probabilities, target, weight)
    return float(ratio(((p - y) ** 2 * w).sum(), w[0].sum() if exclusive else w.sum()))


def expected_calibration_error(
    probabilities: Array, target: Array, weight: Array | None = None, *, bins: int = 15
) -> float:
    """The mean difference between confidence and share of hits, over bins of equal width. Naeini et al. 2015.

    For one column, samples are binned by the probability of the positive class, and the share of positives of a bin is
    compared with its mean probability. For exclusive classes it is the largest probability of a sample, and how often
    this class is right (Guo et al. 2017). Several labels are measured together.

    Args:
        probabilities: As in ``brier_score``.
        target: As in ``brier_score``.
        weight: One weight per sample, at least 0; by default all are 1.
        bins: Number of bins from 0 to 1; a value on the border of two is in the lower one.

    Returns:
        The error, from 0 to 1.

    Raises:
        InvalidValueError: The arrays do not fit each other, the probabilities are not between 0 and 1, or there is no
            bin.

    Example:
        >>> round(expected_calibration_error([0.9, 0.9, 0.2, 0.2], [1, 0, 0, 0], bins=5), 4)
        0.3
    """
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise InvalidValueError(f"bins is a number of bins, at least 1, got {bins!r}")
    p, y, w, exclusive = _read(probabilities, target, weight)
    if exclusive:
        most_probable = p.argmax(0)[:, None]
        p, y, w = take_along(p.T, most_probable), take_along(y.T, most_probable), w[0]
    p, y, w = (values.reshape(-1) for values in (p, y, w))
    xp = namespace(p)
    bin_of = xp.clip(cast(xp.ceil(p * bins), xp.int64) - 1, 0, bins - 1)
    gaps = abs(sum_at(bin_of, (p - y) * w, bins))
    return float(ratio(gaps.sum(), w.sum()))


def _read(probabilities: Array, target: Array, weight: Array | None) -> tuple[Any, Any, Any, bool]:
    """Return probabilities, labels and weights ``(c, n)`` in float64, and whether the classes exclude each other."""
    questions = read_questions(probabilities, target, weight)
    if questions is None:
        p, y, w = checked(probabilities, target, weight)
        questions = Questions(p[None], exact(y[None]), w)
    p = exact(questions.scores)
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise InvalidValueError(
            f"probabilities must lie in [0, 1], got {float(p.min()):g} to {float(p.max()):g}; convert logits first"
        )
    xp = namespace(p)
    w = xp.ones_like(p) if questions.weight is None else xp.broadcast_to(questions.weight, p.shape)
    return p, questions.positive, w, questions.classes is not None
