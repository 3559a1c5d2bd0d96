"""AUROC and average precision of several labels or classes: one value per column from one sort, and their averages.

The columns are yes-or-no questions: one per label, or for exclusive classes "is it this class, or another one?". Values
of several columns are averaged as in scikit-learn. All sums are float64.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from metricfit.core.canonical_batch import Classes, Columns
from metricfit.core.tensor_numerics import exact_dtype
from metricfit.core.types import Average
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.sweep import area_under_precision_recall, area_under_roc

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

    scores: Tensor
    positive: Tensor
    weight: Tensor | None
    #: The class of each sample ``(n,)`` if the classes exclude each other.
    classes: Tensor | None = None


def ask(samples: Columns | Classes) -> Questions:
    """Return the questions of a batch in its final shape: log-odds of each label, or of each class against the rest.

    Raises:
        InvalidValueError: The targets are shares of classes.
    """
    if not isinstance(samples, Classes):
        return Questions(samples.logits, samples.target.to(exact_dtype(samples.logits.device)), samples.weight)
    if samples.target.is_floating_point():
        raise InvalidValueError("a ranking needs class numbers as labels; these targets are shares of classes")
    weight = None if samples.weight is None else samples.weight.reshape(-1)
    return ask_classes(class_log_odds(samples), samples.target.reshape(-1), weight)


def ask_classes(scores: Tensor, classes: Tensor, weight: Tensor | None) -> Questions:
    """Return the questions of exclusive classes from scores ``(c, n)``, class numbers ``(n,)`` and weights ``(n,)``."""
    numbers = torch.arange(len(scores), device=scores.device).unsqueeze(1)
    positive = (classes.unsqueeze(0) == numbers).to(exact_dtype(scores.device))
    return Questions(scores, positive, None if weight is None else weight.expand_as(scores), classes)


def class_log_odds(samples: Classes) -> Tensor:
    """Return the log-odds of each class against the rest, ``(c, samples)``, in float64.

    They rank as probabilities do, but without ties where a probability is rounded to 1: the log-odds of the most
    probable class are its logit minus the logarithm of the sum of the other exponentials.
    """
    axis = samples.layout.class_axis
    logits = samples.logits.to(exact_dtype(samples.logits.device)).movedim(axis, 0).flatten(1)
    log_probability = logits.log_softmax(0)
    log_odds = log_probability - (-log_probability.expm1()).log()
    top = logits.argmax(0, keepdim=True)
    others = logits.scatter(0, top, -torch.inf).logsumexp(0, keepdim=True)
    return log_odds.scatter(0, top, logits.gather(0, top) - others)


def auroc_of(questions: Questions, average: Average, versus: Versus = "rest", *, warn: bool = True) -> Tensor:
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
    if versus == "one":
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
    values = values.masked_fill((positives == 0) | (negatives == 0), torch.nan)
    if warn:
        _report(
            questions, (positives == 0) | (negatives == 0), average, "positives or no negatives", "the AUROC is NaN"
        )
    return _average(values, positives, average)


def average_precision_of(questions: Questions, average: Average, *, warn: bool = True) -> Tensor:
    """Compute the average precision of several questions; the arguments are those of ``auroc_of``."""
    check_ranking_average(average)
    if average == "micro":
        questions = _pooled(questions)
    positives, _ = _support(questions)
    values = _in_blocks(questions, area_under_precision_recall).masked_fill(positives == 0, 0.0)
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


def _support(questions: Questions) -> tuple[Tensor, Tensor]:
    """Return the weight of the positives and of the negatives of each question."""
    positive, weight = questions.positive, questions.weight
    negative = 1 - positive
    if weight is not None:
        positive, negative = positive * weight, negative * weight
    return positive.sum(1), negative.sum(1)


def _in_blocks(questions: Questions, area: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Compute an area of each question, for as many at once as memory allows."""
    scores, positive, weight, _ = questions
    rows = max(1, SORTED_AT_ONCE // max(1, scores.shape[1]))
    parts = []
    for first in range(0, len(scores), rows):
        part = slice(first, first + rows)
        tp, fp, _ = _sums_above(scores[part], positive[part], None if weight is None else weight[part])
        parts.append(area(*(torch.nn.functional.pad(sums, (1, 0)) for sums in (tp, fp))))
    return torch.cat(parts)


def _sums_above(scores: Tensor, positive: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weight of positives and of negatives down to each score, by falling score, and the order.

    Equal scores become positive together: all but the last of them have the sums of the score above.
    """
    falling, order = scores.sort(dim=1, descending=True)
    y = positive.gather(1, order)
    w = None if weight is None else weight.gather(1, order).to(y.dtype)
    tp = (y if w is None else w * y).cumsum(1)
    fp = (1 - y if w is None else w * (1 - y)).cumsum(1)
    tied = falling[:, 1:] == falling[:, :-1]
    if bool(tied.any()):
        tied = torch.nn.functional.pad(tied, (0, 1))
        tp, fp = (sums.masked_fill(tied, 0.0).cummax(1).values for sums in (tp, fp))
    return tp, fp, order


def _hand_till(questions: Questions, average: Average, *, warn: bool) -> Tensor:
    """Compute Hand and Till's M from the AUROC of every class a among the samples of a and b, by the scores of a.

    A sample of b adds the weight of the samples of a with a larger score, and half of that with an equal one. So one
    sort per class serves all of its pairs.
    """
    scores, positive, weight, classes = questions
    assert classes is not None
    count, labels = len(scores), classes.long()
    of_class, _ = _support(questions)
    wins = of_class.new_zeros(count, count)
    rows = max(1, SORTED_AT_ONCE // max(1, scores.shape[1]))
    for first in range(0, count, rows):
        part = slice(first, first + rows)
        w = None if weight is None else weight[part]
        tp, _, order = _sums_above(scores[part], positive[part], w)
        above = torch.nn.functional.pad(tp[:, :-1], (1, 0))  # by samples with a larger score
        falling = scores[part].gather(1, order)
        last = torch.nn.functional.pad(falling[:, 1:] != falling[:, :-1], (0, 1), value=True)
        to_end = tp.masked_fill(~last, torch.inf).flip(1).cummin(1).values.flip(1)
        gains = (above + to_end) / 2
        if w is not None:
            gains = gains * w.gather(1, order).to(gains.dtype)
        wins[part] = wins[part].scatter_add(1, labels[order], gains)
    pairs = of_class.unsqueeze(1) * of_class.unsqueeze(0)
    areas = wins / pairs
    if warn:
        _report(questions, of_class == 0, None, "samples", "its pairs are left out of the mean")
    upper = torch.triu(pairs > 0, 1)
    values = ((areas + areas.T) / 2)[upper]
    if average == "macro":
        return values.mean()
    share = (of_class.unsqueeze(1) + of_class.unsqueeze(0))[upper]
    return (values * share).sum() / share.sum()


def _average(values: Tensor, positives: Tensor, average: Average) -> Tensor:
    """Average as scikit-learn does: a weighted average leaves out columns without positives."""
    if average is None:
        return values
    if average != "weighted":
        return values.mean()
    total = positives.sum()
    weighted = (values.masked_fill(positives == 0, 0.0) * positives).sum()
    return torch.where(total > 0, weighted / total, 0.0)


def _report(questions: Questions, lacking: Tensor, average: Average, what: str, value: str) -> None:
    """Warn about labels or classes without the samples that their value needs."""
    if not bool(lacking.any()):
        return
    numbers = lacking.nonzero().flatten().tolist()
    shown = ", ".join(map(str, numbers[:SHOWN])) + (f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else "")
    kind = "label" if questions.classes is None else "class"
    where = "all columns together" if average == "micro" else f"{kind} {shown}"
    remedy = {"macro": ". Leave these columns out, or use average='weighted' or 'micro'"}.get(average or "", "")
    message = f"{where}: there are no {what}, so {value}, as in scikit-learn{remedy}"
    warnings.warn(message, UndefinedRankingWarning, stacklevel=5)
