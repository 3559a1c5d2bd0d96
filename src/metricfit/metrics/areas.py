"""How well scores rank, and how far probabilities are off: of one column, of several labels, of several classes.

Several columns are yes-or-no questions: one per label, or for exclusive classes "is it this class, or another one?".
Values of several columns are averaged as in scikit-learn. All sums are float64.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from metricfit.core.arrays import (
    Array,
    arange,
    cast,
    exact,
    in_kind_of,
    is_floating,
    move_axis,
    namespace,
    pad_last,
    running_max,
    sort_falling,
    sum_at,
    take_along,
)
from metricfit.core.numerics import ratio, where
from metricfit.core.types import Average
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.sweep import area_under_precision_recall, area_under_roc, as_array, check_scores, checked

#: Whether each class is compared with all others together, or each pair of classes separately.
Versus = Literal["rest", "one"]

#: How many scores are sorted at once; the sums take several times their memory.
SORTED_AT_ONCE = 2**22

#: How many labels a warning names.
SHOWN = 8


class UndefinedRankingWarning(UserWarning):
    """A label or class lacks the positives or negatives that its AUROC or average precision is measured on.

    As in scikit-learn, its AUROC is NaN, and so is a macro average with it; its average precision is 0.

    Example:
        >>> import warnings
        >>> warnings.simplefilter("error", UndefinedRankingWarning)  # stop instead
    """


class Questions(NamedTuple):
    """Yes-or-no questions, one per row: scores, 0/1 labels in float64 and weights, all ``(c, n)``."""

    scores: Array
    positive: Array
    weight: Array | None
    #: The class of each sample ``(n,)`` if the classes exclude each other.
    classes: Array | None = None


def ask(samples: Any) -> Questions:
    """Return the questions of a batch in its final shape: log-odds of each label, or of each class against the rest.

    The batch is ``Columns`` or ``Classes`` of ``core.canonical_batch``.

    Raises:
        InvalidValueError: The targets are shares of classes.
    """
    if not hasattr(samples, "layout"):
        return Questions(samples.logits, exact(samples.target), samples.weight)
    if is_floating(samples.target):
        raise InvalidValueError("a ranking needs class numbers as labels; these targets are shares of classes")
    weight = None if samples.weight is None else samples.weight.reshape(-1)
    return ask_classes(class_log_odds(samples), samples.target.reshape(-1), weight)


def ask_classes(scores: Array, classes: Array, weight: Array | None) -> Questions:
    """Return the questions of exclusive classes from scores ``(c, n)``, class numbers ``(n,)`` and weights ``(n,)``."""
    positive = exact(classes == arange(scores, 0, len(scores))[:, None])
    weights = None if weight is None else namespace(weight).broadcast_to(weight, scores.shape)
    return Questions(scores, positive, weights, classes)


def class_log_odds(samples: Any) -> Array:
    """Return the log-odds of each class against the rest, ``(c, samples)``, in float64.

    They rank as probabilities do, but without ties where a probability is rounded to 1: the log-odds of the most
    probable class are its logit minus the logarithm of the sum of the other exponentials.
    """
    xp = namespace(samples.logits)
    logits = move_axis(exact(samples.logits), samples.layout.class_axis, 0)
    logits = logits.reshape(len(logits), -1)
    is_top = arange(logits, 0, len(logits))[:, None] == logits.argmax(0)
    below = logits - xp.amax(logits, 0)
    shares = where(is_top, 0.0, xp.exp(below))
    others = where(is_top, -math.inf, logits)
    second = xp.amax(others, 0)
    log_of_others = second + xp.log(xp.exp(others - second).sum(0))
    return where(is_top, logits - log_of_others, below - xp.log1p(shares.sum(0) - shares))


def auroc_of(questions: Questions, average: Average, versus: Versus = "rest", *, warn: bool = True) -> Array:
    """Compute the AUROC of several questions.

    Args:
        questions: The questions.
        average: The average over the questions, or None for one value each.
        versus: "rest", or "one" for Hand and Till's mean over pairs of classes.
        warn: Whether labels without positives or negatives are reported.

    Returns:
        The average, a scalar; for None ``(c,)``.

    Raises:
        InvalidValueError: There is no such average, or pairs of classes were asked for and there are no classes.
    """
    check_ranking_average(average, versus)
    single = len(questions.scores) == 1
    if versus == "one" and not single:
        if questions.classes is None:
            raise InvalidValueError(
                "pairs of classes (one versus one) need classes that exclude each other, with class numbers as labels; "
                "for several labels ask for the AUROC of each label against the rest"
            )
        return _hand_till(questions, average, warn=warn)
    if average == "micro":
        questions = _pooled(questions)
    values = _in_blocks(questions, area_under_roc)
    positives, negatives = _support(questions)
    lacking = (positives == 0) | (negatives == 0)
    if single and bool(lacking.any()):
        only = "positives" if bool((negatives == 0).any()) else "negatives"
        raise InvalidValueError(f"the AUROC needs positives and negatives, but target holds only {only}")
    values = where(lacking, math.nan, values)
    if warn:
        _report(questions, lacking, average, "positives or no negatives", "the AUROC is NaN")
    return _average(values, positives, average)


def average_precision_of(questions: Questions, average: Average, *, warn: bool = True) -> Array:
    """Compute the average precision of several questions; the arguments are as in ``auroc_of``."""
    check_ranking_average(average)
    single = len(questions.scores) == 1
    if average == "micro":
        questions = _pooled(questions)
    positives, _ = _support(questions)
    if single and not bool((positives > 0).any()):
        raise InvalidValueError("average precision needs positives, but target holds none")
    values = where(positives == 0, 0.0, _in_blocks(questions, area_under_precision_recall))
    if warn:
        _report(questions, positives == 0, average, "positives", "the average precision is 0")
    return _average(values, positives, average)


def check_ranking_average(average: str | None, versus: str = "rest") -> None:
    """Raise an error for an average or a comparison that does not exist."""
    if versus not in ("rest", "one"):
        raise InvalidValueError(f"versus is 'rest' or 'one', got {quote(versus)}")
    if average not in ("macro", "micro", "weighted", None):
        raise InvalidValueError(f"average must be 'macro', 'micro', 'weighted' or None, got {quote(average)}")
    if versus == "one" and average not in ("macro", "weighted"):
        raise InvalidValueError(f"the mean over pairs of classes is 'macro' or 'weighted', got average={average!r}")


def _pooled(questions: Questions) -> Questions:
    """Return all questions as one: every sample is asked every one of them."""
    scores, positive, weight, _ = questions
    return Questions(scores.reshape(1, -1), positive.reshape(1, -1), None if weight is None else weight.reshape(1, -1))


def _support(questions: Questions) -> tuple[Array, Array]:
    """Return the weight of the positives and of the negatives of each question."""
    positive, weight = questions.positive, questions.weight
    negative = 1 - positive
    if weight is not None:
        positive, negative = positive * weight, negative * weight
    return positive.sum(1), negative.sum(1)


def _in_blocks(questions: Questions, area: Callable[[Array, Array], Array]) -> Array:
    """Compute an area of each question, for as many at once as memory allows."""
    scores, positive, weight, _ = questions
    rows = max(1, SORTED_AT_ONCE // max(1, scores.shape[1]))
    parts = []
    for first in range(0, len(scores), rows):
        part = slice(first, first + rows)
        tp, fp, _ = _sums_above(scores[part], positive[part], None if weight is None else weight[part])
        parts.append(area(*(pad_last(sums, before=0.0) for sums in (tp, fp))))
    return namespace(scores).concatenate(parts)


def _sums_above(scores: Array, positive: Array, weight: Array | None) -> tuple[Array, Array, Array]:
    """Return the weight of positives and of negatives down to each score, by falling score, and the order.

    Equal scores become positive together: all but the last of them have the sums of the score above.
    """
    falling, order = sort_falling(scores)
    y = take_along(positive, order)
    w = None if weight is None else exact(take_along(weight, order))
    tp = (y if w is None else w * y).cumsum(1)
    fp = (1 - y if w is None else w * (1 - y)).cumsum(1)
    tied = falling[:, 1:] == falling[:, :-1]
    if bool(tied.any()):
        tied = pad_last(tied, after=False)
        tp, fp = (running_max(where(tied, 0.0, sums)) for sums in (tp, fp))
    return tp, fp, order


def _hand_till(questions: Questions, average: Average, *, warn: bool) -> Array:
    """Compute Hand and Till's M from the AUROC of every class a among the samples of a and b, by the scores of a.

    A sample of b adds the weight of the samples of a with a larger score, and half of that with an equal one. So one
    sort per class serves all of its pairs.
    """
    scores, positive, weight, classes = questions
    assert classes is not None
    count, xp = len(scores), namespace(scores)
    of_class, _ = _support(questions)
    wins = []
    rows = max(1, SORTED_AT_ONCE // max(1, scores.shape[1]))
    for first in range(0, count, rows):
        part = slice(first, first + rows)
        w = None if weight is None else weight[part]
        tp, _, order = _sums_above(scores[part], positive[part], w)
        above = pad_last(tp[:, :-1], before=0.0)  # by samples with a larger score
        falling = take_along(scores[part], order)
        last = pad_last(falling[:, 1:] != falling[:, :-1], after=True)
        to_end = -xp.flip(running_max(xp.flip(where(last, -tp, -math.inf), (1,))), (1,))
        gains = (above + to_end) / 2
        if w is not None:
            gains = gains * exact(take_along(w, order))
        for places, gain in zip(classes[order], gains, strict=True):
            wins.append(sum_at(places, gain, count))
    pairs = of_class[:, None] * of_class
    areas = ratio(xp.stack(wins), pairs)
    if warn:
        _report(questions, of_class == 0, None, "samples", "its pairs are left out of the mean")
    upper = xp.triu(pairs > 0, 1)
    values = ((areas + areas.T) / 2)[upper]
    if average == "macro":
        return values.mean()
    share = (of_class[:, None] + of_class)[upper]
    return (values * share).sum() / share.sum()


def _average(values: Array, positives: Array, average: Average) -> Array:
    """Average as scikit-learn does: a weighted average leaves out columns without positives."""
    if average is None:
        return values
    if average != "weighted":
        return values.mean()
    total = positives.sum()
    return ratio((where(positives == 0, 0.0, values) * positives).sum(), total)


def _report(questions: Questions, lacking: Array, average: Average, what: str, value: str) -> None:
    """Warn about labels or classes without the samples that their value needs."""
    if not bool(lacking.any()):
        return
    numbers = [place for place, lacks in enumerate(lacking.tolist()) if lacks]
    shown = ", ".join(map(str, numbers[:SHOWN])) + (f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else "")
    kind = "label" if questions.classes is None else "class"
    where = "all columns together" if average == "micro" else f"{kind} {shown}"
    remedy = {"macro": ". Leave these columns out, or use average='weighted' or 'micro'"}.get(average or "", "")
    message = f"{where}: there are no {what}, so {value}, as in scikit-learn{remedy}"
    warnings.warn(message, UndefinedRankingWarning, stacklevel=5)


#: How far probabilities of classes may be from a sum of 1, by the precision of their type.
ROUNDED_SUM = {"float64": 1e-6, "float32": 1e-4}
ROUNDED_HALF = 2e-2


def auroc(
    scores: Array,
    target: Array,
    weight: Array | None = None,
    *,
    average: Average = "macro",
    versus: Versus = "rest",
) -> Any:
    """The area under the ROC curve: the share of (positive, negative) pairs that are ranked correctly; ties count half.

    The shapes decide what is measured, and the averages are as in scikit-learn's ``roc_auc_score``:

    - scores ``(n,)`` or ``(n, 1)`` with targets 0 and 1 ``(n,)``: the area;
    - scores ``(n, c)`` with targets 0 and 1 ``(n, c)``: several labels, the average of the areas of the columns;
    - scores ``(n, c)`` with class numbers ``(n,)``: exclusive classes, each one against the rest, or in pairs.

    Args:
        scores: One score per sample, or one per sample and label: logits or probabilities. Scores of exclusive classes
            are probabilities that sum to 1, because logits of one class do not rank samples as its probabilities do.
        target: The labels.
        weight: One weight per sample, at least 0; by default all are 1. For several labels also one per score,
            ``(n, c)``; a weight of 0 leaves out an unknown label.
        average: For several labels or classes: "macro" is the mean of the areas, "weighted" their mean weighted by
            positives, and "micro" the area of all columns as one. None gives one area per column.
        versus: For exclusive classes: "rest" compares each class with all others together (scikit-learn's "ovr"),
            "one" takes the mean over all pairs of classes (Hand and Till 2001, "ovo"). "one" does not depend on how
            frequent classes are; it is for "macro" and "weighted" only.

    Returns:
        The area, from 0 to 1; for ``average=None`` one per column, as an array of the kind of ``scores``.

    Raises:
        InvalidValueError: The arrays do not fit each other, hold NaN, or lack a class of a single column; or the
            probabilities of exclusive classes do not sum to 1.

    Warns:
        UndefinedRankingWarning: One of several labels or classes lacks positives or negatives. Its area is NaN, and so
            is a macro average. A weighted average leaves out columns without positives.

    Example:
        >>> auroc([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0])
        0.875
        >>> auroc([[0.9, 0.2], [0.4, 0.3], [0.3, 0.8]], [[1, 0], [0, 1], [0, 1]])
        1.0
        >>> auroc([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.6, 0.1, 0.3]], [0, 1, 2], versus="one")
        1.0
    """
    check_ranking_average(average, versus)
    questions = read_questions(scores, target, weight)
    return _as_result(auroc_of(questions, average, versus), average)


def average_precision(scores: Array, target: Array, weight: Array | None = None, *, average: Average = "macro") -> Any:
    """The sum over thresholds of the gain in recall times the precision, not interpolated.

    Several labels and exclusive classes, each against the rest, are measured as by ``auroc``.

    Args:
        scores: One score per sample, or one per sample and label: logits or probabilities. Scores of exclusive classes
            are probabilities that sum to 1.
        target: 0 or 1 for each score; for exclusive classes the class number of each sample.
        weight: One weight per sample, at least 0; by default all are 1. For several labels also one per score.
        average: For several labels or classes: "macro", "weighted", "micro", or None for one value per column.

    Returns:
        The average precision, from 0 to 1; for ``average=None`` one per column.

    Raises:
        InvalidValueError: The arrays do not fit each other, hold NaN, or a single column lacks positives.

    Warns:
        UndefinedRankingWarning: One of several labels or classes has no positives; its average precision is 0.

    Example:
        >>> average_precision([0.9, 0.4, 0.4, 0.1], [1, 0, 1, 0])
        0.8333333333333333
        >>> average_precision([[0.9, 0.2], [0.4, 0.3], [0.3, 0.8]], [[1, 1], [0, 0], [1, 1]], average=None)
        array([0.83333333, 0.83333333])
    """
    check_ranking_average(average)
    questions = read_questions(scores, target, weight)
    return _as_result(average_precision_of(questions, average), average)


def read_questions(scores: Array, target: Array, weight: Array | None) -> Questions:
    """Read scores of a single column, of several labels or of classes.

    Raises:
        InvalidValueError: The arrays do not fit each other, or hold values that are not allowed.
    """
    s = as_array(scores, "scores")
    if s.ndim != 2 or s.shape[1] == 1:
        s, y, w = checked(s, target, weight)
        return Questions(s[None], exact(y[None]), None if w is None else w[None])
    y = in_kind_of(as_array(target, "target"), s)
    w = None if weight is None else exact(in_kind_of(as_array(weight, "weight"), s))
    s = check_scores(s)
    if w is not None and not bool(((w >= 0) & (w < math.inf)).all()):
        raise InvalidValueError("weights must be finite and at least 0")
    if y.shape == s.shape:
        return _read_labels(s, y, w)
    if y.shape in ((len(s),), (len(s), 1)):
        return _read_classes(s, y.reshape(-1), w)
    raise InvalidValueError(
        f"target has shape {tuple(y.shape)}; for scores {tuple(s.shape)} it is {tuple(s.shape)}, 0 or 1 for each "
        f"label, or ({len(s)},), the class of each sample"
    )


def _read_labels(s: Array, y: Array, w: Array | None) -> Questions:
    if not bool(((y == 0) | (y == 1)).all()):
        raise InvalidValueError(
            f"target must hold 0 and 1 only, got values from {float(y.min()):g} to {float(y.max()):g}; give unknown "
            "labels the weight 0, weight=(n, c)"
        )
    if w is not None:
        w = _check_weight(w, s, (tuple(s.shape), (len(s),), (len(s), 1)))
        w = namespace(s).broadcast_to(w.reshape(len(s), -1), s.shape).T
    return Questions(s.T, exact(y.T), w)


def _read_classes(s: Array, y: Array, w: Array | None) -> Questions:
    classes = s.shape[1]
    if is_floating(y) and not bool((y == y.round()).all()):
        raise InvalidValueError("target must hold class numbers, got fractions or NaN")
    if not bool(((y >= 0) & (y < classes)).all()):
        raise InvalidValueError(
            f"target must hold class numbers from 0 to {classes - 1}, got {float(y.min()):g} to {float(y.max()):g}"
        )
    sums = exact(s).sum(1)
    tolerance = ROUNDED_SUM.get(str(s.dtype).removeprefix("torch."), ROUNDED_HALF)
    if bool((s < 0).any()) or not bool((abs(sums - 1) <= tolerance).all()):
        raise InvalidValueError(
            f"scores of {classes} exclusive classes are probabilities that sum to 1: pass logits.softmax(1). Logits of "
            "one class do not rank samples as its probabilities do"
        )
    weight = None if w is None else _check_weight(w, s, ((len(s),), (len(s), 1))).reshape(-1)
    return ask_classes(s.T, cast(y, namespace(y).int64), weight)


def _check_weight(w: Array, s: Array, shapes: tuple[tuple[int, ...], ...]) -> Array:
    if tuple(w.shape) not in shapes:
        raise InvalidValueError(f"scores have shape {tuple(s.shape)}, but weight has {tuple(w.shape)}")
    if not bool((w > 0).any()):
        raise InvalidValueError("all weights are 0")
    return w


def _as_result(value: Array, average: Average) -> Any:
    return value.reshape(-1) if average is None else float(value)


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
    p, y, w, exclusive = _read_probabilities(probabilities, target, weight)
    return float(ratio(((p - y) ** 2 * w).sum(), w[0].sum() if exclusive else w.sum()))


def expected_calibration_error(
    probabilities: Array, target: Array, weight: Array | None = None, *, bins: int = 15
) -> float:
    """The mean difference between confidence and share of hits, over bins of equal width. Naeini et al. 2015.

    For one column, samples are binned by the probability of the positive class. The share of positives of a bin is
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
    p, y, w, exclusive = _read_probabilities(probabilities, target, weight)
    if exclusive:
        most_probable = p.argmax(0)[:, None]
        p, y, w = take_along(p.T, most_probable), take_along(y.T, most_probable), w[0]
    p, y, w = (values.reshape(-1) for values in (p, y, w))
    xp = namespace(p)
    bin_of = xp.clip(cast(xp.ceil(p * bins), xp.int64) - 1, 0, bins - 1)
    gaps = abs(sum_at(bin_of, (p - y) * w, bins))
    return float(ratio(gaps.sum(), w.sum()))


def _read_probabilities(probabilities: Array, target: Array, weight: Array | None) -> tuple[Any, Any, Any, bool]:
    """Return probabilities, labels and weights ``(c, n)`` in float64, and whether the classes exclude each other."""
    questions = read_questions(probabilities, target, weight)
    p = exact(questions.scores)
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise InvalidValueError(
            f"probabilities must lie in [0, 1], got {float(p.min()):g} to {float(p.max()):g}; convert logits first"
        )
    xp = namespace(p)
    w = xp.ones_like(p) if questions.weight is None else xp.broadcast_to(questions.weight, p.shape)
    return p, questions.positive, w, questions.classes is not None
