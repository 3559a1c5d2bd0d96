"""Exact curves and the best threshold, for any metric, from one sort.

Sorting the scores once and summing labels along the order gives the counts at every threshold; a metric is then its
ordinary formula over them, so all n + 1 thresholds cost O(n log n). Inside everything is float64. Scores may be logits
or probabilities, torch or anything torch.as_tensor takes; curves come back as the kind of array that was given.
A sample is positive where its score is at least the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING, exact_dtype, ratio
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.metrics.feasibility import ChosenThreshold, RequirementValue, what_is_reachable
from metricfit.metrics.feasibility import InfeasibleError as InfeasibleError
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.requirements import Requirement, parse_requirement

Array = Any
LARGEST = torch.finfo(torch.float64).max
Requirements = str | Requirement | Sequence[str | Requirement]


class RocCurve(NamedTuple):
    """Points of the ROC curve, thresholds falling from infinity, as scikit-learn's with ``drop_intermediate=False``."""

    fpr: Array
    tpr: Array
    thresholds: Array


class PrecisionRecallCurve(NamedTuple):
    """Points of the precision-recall curve, thresholds rising; the last point, (1, 0), has none, as in scikit-learn."""

    precision: Array
    recall: Array
    thresholds: Array


class BestThreshold(NamedTuple):
    """The chosen threshold and the metric's value there."""

    threshold: float
    value: float


class Sweep(NamedTuple):
    """Thresholds, falling from infinity, and the counts at each."""

    thresholds: Tensor
    counts: Counts


def roc(scores: Array, target: Array, weight: Array | None = None) -> RocCurve:
    """The ROC curve.

    >>> roc([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0]).tpr
    array([0. , 0.5, 1. , 1. ])
    """
    thresholds, counts = sweep(scores, target, weight, both_classes_for="the ROC curve")
    points = (ratio(counts.fp, counts.fp[-1]), ratio(counts.tp, counts.tp[-1]))
    fpr, tpr = (_like(scores, given.squeeze(-1)) for given in points)
    return RocCurve(fpr, tpr, _like(scores, thresholds))


def auroc(scores: Array, target: Array, weight: Array | None = None) -> float:
    """The area under the ROC curve: the share of (positive, negative) pairs in the right order, ties by half.

    >>> auroc([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0])
    0.875
    """
    _, counts = sweep(scores, target, weight, both_classes_for="the AUROC")
    tp, fp = counts.tp.squeeze(-1), counts.fp.squeeze(-1)
    return float(torch.trapezoid(tp, fp) / (tp[-1] * fp[-1]))


def precision_recall(scores: Array, target: Array, weight: Array | None = None) -> PrecisionRecallCurve:
    """The precision-recall curve.

    >>> precision_recall([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0]).recall
    array([1. , 1. , 0.5, 0. ])
    """
    thresholds, counts = sweep(scores, target, weight, positives_for="the precision-recall curve")
    precision = ratio(counts.tp, counts.predicted).squeeze(-1)
    precision[0] = 1.0
    recall = ratio(counts.tp, counts.tp[-1]).squeeze(-1)
    return PrecisionRecallCurve(*(_like(scores, given.flip(0)) for given in (precision, recall, thresholds[1:])))


def average_precision(scores: Array, target: Array, weight: Array | None = None) -> float:
    """The sum over thresholds of the gain in recall times the precision; not interpolated.

    >>> average_precision([0.9, 0.4, 0.4, 0.1], [1, 0, 1, 0])
    0.8333333333333333
    """
    _, counts = sweep(scores, target, weight, positives_for="average precision")
    precision = ratio(counts.tp, counts.predicted)[1:]
    return float((counts.tp.diff(dim=0) * precision).sum() / counts.tp[-1])


def fpr_at_tpr(scores: Array, target: Array, tpr: float, weight: Array | None = None) -> float:
    """The smallest false positive rate at which the true positive rate is at least ``tpr``; not interpolated.

    >>> fpr_at_tpr([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0], tpr=0.9)
    0.5
    """
    if not 0 < tpr <= 1:
        hint = f"; did you mean {tpr / 100:g}?" if 2 <= tpr <= 100 else ""
        raise InvalidValueError(f"tpr must lie in (0, 1], got {tpr}{hint}")
    _, counts = sweep(scores, target, weight, both_classes_for="FPR at a TPR")
    return _fpr_where(counts, ratio(counts.tp, counts.tp[-1]) >= tpr - ROUNDING)


def fpr_at_fn(scores: Array, target: Array, fn: float = 0, weight: Array | None = None) -> float:
    """The smallest false positive rate with at most ``fn`` false negatives.

    >>> fpr_at_fn([0.9, 0.4, 0.4, 0.1], [1, 1, 0, 0], fn=1)
    0.0
    """
    if not fn >= 0:
        raise InvalidValueError(f"fn is a number of false negatives, at least 0, got {fn}")
    _, counts = sweep(scores, target, weight, both_classes_for="FPR at false negatives")
    return _fpr_where(counts, counts.fn <= fn + ROUNDING * counts.tp[-1])


def best_threshold(
    scores: Array,
    target: Array,
    metric: str | Metric | Formula,
    subject_to: Requirements | None = None,
    *,
    weight: Array | None = None,
) -> BestThreshold:
    """The threshold with the best value of a metric, among those that meet all requirements. Exact, in one sort.

    Candidates are the distinct scores and infinity (nothing positive); ties go to the largest threshold. Best is
    lowest for a metric to be minimised. If no threshold meets the requirements, InfeasibleError is raised; it says
    what is reachable, and holds the nearest threshold.

    A score of type bfloat16 or float16 stands for all the numbers that are rounded to it, and the threshold is then the
    smallest of these, a float32 number. It makes the same decisions on the scores as on the scores before rounding; so
    ``Counts.hard(logits, target, threshold=best_threshold(logits.sigmoid(), target, "f1").threshold)`` gives the
    promised value for logits of any floating type.

    >>> best_threshold([0.9, 0.6, 0.4, 0.1], [1, 0, 1, 0], "f1")
    BestThreshold(threshold=0.4, value=0.8)
    >>> best_threshold([0.9, 0.6, 0.4, 0.1], [1, 0, 1, 0], "recall", subject_to="precision >= 0.9")
    BestThreshold(threshold=0.9, value=0.5)
    """
    best = best_of_sweep(sweep(scores, target, weight), get_metric(metric), as_requirements(subject_to))
    dtype = scores.dtype if isinstance(scores, Tensor) else None
    if dtype not in (torch.bfloat16, torch.float16):
        return best
    return best._replace(threshold=_smallest_rounded_to(best.threshold, dtype))


def best_of_sweep(candidates: Sweep, metric: Metric, requirements: list[Requirement]) -> BestThreshold:
    """The best of these thresholds, as described in ``best_threshold``."""
    chosen = best_or_nearest(candidates, metric, requirements)
    nearest = BestThreshold(chosen.threshold, chosen.value)
    if not chosen.feasible:
        message = what_is_reachable(requirements, chosen.requirements, chosen.threshold)
        raise InfeasibleError(message, nearest, chosen.requirements)
    return nearest


def best_or_nearest(candidates: Sweep, metric: Metric, requirements: Sequence[Requirement]) -> ChosenThreshold:
    """The best threshold that meets all requirements, or if none does, the one that comes nearest.

    Args:
        candidates: The thresholds to choose from, falling, and the counts at each.
        metric: The metric.
        requirements: The requirements.

    Returns:
        The threshold and the results of the requirements there. Nearest is where the largest violation of a
        requirement is smallest; of equally near thresholds the best for the metric is taken.
    """
    thresholds, counts = candidates
    value = one_class(metric, counts)
    better = -value if metric.minimize else value
    allowed, feasible = torch.ones_like(better, dtype=torch.bool), True
    if requirements:
        violations = [one_class(each, counts) for each in requirements]
        pairs = zip(requirements, violations, strict=True)
        allowed = torch.stack([each.forgives(violation) for each, violation in pairs]).all(0)
        feasible = bool(allowed.any())
        if not feasible:
            largest = torch.stack(violations).amax(0)
            allowed = largest <= largest.min() + ROUNDING
    chosen = _best_allowed(thresholds, value, better, allowed)
    return ChosenThreshold(*chosen, feasible, judge_requirements(requirements, candidates, chosen.threshold))


def _best_allowed(thresholds: Tensor, value: Tensor, better: Tensor, allowed: Tensor) -> BestThreshold:
    """The best of the allowed thresholds; of equally good ones the largest."""
    thresholds, value, better = thresholds[allowed], value[allowed], better[allowed]
    highest = better.max()
    # Equal values that were rounded differently are ties, and thresholds fall: the first is the largest.
    at = int((better >= highest - ROUNDING * highest.abs().clamp(max=LARGEST)).int().argmax())
    return BestThreshold(float(thresholds[at]), float(value[at]))


def _smallest_rounded_to(number: float, dtype: torch.dtype) -> float:
    """The smallest float32 number, at least 0 if the number is, that is rounded to a half-precision number."""
    if number == 0 or math.isinf(number):
        return number
    this = torch.tensor(number, dtype=dtype)
    below = (this.view(torch.int16) + (-1 if number > 0 else 1)).view(dtype)  # the next lower number of the type
    middle = (this.float() + below.float()) / 2
    if middle.to(dtype) != this:  # ties are rounded to the number with an even last bit
        middle = torch.nextafter(middle, this.float())
    return float(middle)


def sweep(
    scores: Array,
    target: Array,
    weight: Array | None,
    *,
    positives_for: str | None = None,
    both_classes_for: str | None = None,
) -> Sweep:
    """Counts ``(m + 1, 1)`` at infinity and at each of the m distinct scores, falling."""
    s, y, w = checked(scores, target, weight)
    exact = exact_dtype(s.device)
    falling, order = torch.sort(s, descending=True)
    y = y[order].to(exact)
    tp = y.cumsum(0) if w is None else (w[order] * y).cumsum(0)
    fp = torch.arange(1, len(y) + 1, dtype=exact, device=y.device) - tp if w is None else (w[order] * (1 - y)).cumsum(0)
    last_of_ties = falling[1:] != falling[:-1]
    if not bool(last_of_ties.all()):
        kept = torch.cat([last_of_ties, last_of_ties.new_ones(1)])
        falling, tp, fp = falling[kept], tp[kept], fp[kept]
    tp, fp = (torch.cat([given.new_zeros(1), given]).unsqueeze(-1) for given in (tp, fp))
    positives, negatives = tp[-1], fp[-1]
    if both_classes_for and (float(positives) == 0 or float(negatives) == 0):
        only = "positives" if float(negatives) == 0 else "negatives"
        raise InvalidValueError(f"{both_classes_for} needs positives and negatives, but target holds only {only}")
    if positives_for and float(positives) == 0:
        raise InvalidValueError(f"{positives_for} needs positives, but target holds none")
    thresholds = torch.cat([falling.new_full((1,), math.inf, dtype=exact), falling.to(exact)])
    return Sweep(thresholds, Counts(tp, fp, positives - tp, negatives - fp))


def checked(scores: Array, target: Array, weight: Array | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Scores, targets and weights as tensors, without the samples of weight 0; an error where they are none."""
    s = column(scores, "scores").detach()
    y = column(target, "target").detach().to(s.device)
    w = None if weight is None else column(weight, "weight").detach().to(s.device).to(exact_dtype(s.device))
    for name, given in (("target", y), ("weight", w)):
        if given is not None and given.shape != s.shape:
            raise InvalidValueError(f"{s.numel()} scores, but {given.numel()} values of {name}")
    if s.numel() == 0:
        raise InvalidValueError("no scores given")
    if not s.is_floating_point():
        s = s.to(exact_dtype(s.device))
    if not bool(s.isfinite().all()):
        what, bad = ("NaN", s.isnan()) if bool(s.isnan().any()) else ("infinite", s.isinf())
        raise InvalidValueError(f"{int(bad.sum())} of {s.numel()} scores are {what}")
    if not bool(((y == 0) | (y == 1)).all()):
        raise InvalidValueError(
            f"target must hold 0 and 1 only, got values from {float(y.min()):g} to {float(y.max()):g}"
        )
    if w is not None and not bool(((w >= 0) & (w < math.inf)).all()):
        raise InvalidValueError("weights must be finite and at least 0")
    if w is not None and not bool((w > 0).all()):
        s, y, w = s[w > 0], y[w > 0], w[w > 0]  # no point of a curve is theirs
        if len(s) == 0:
            raise InvalidValueError("all weights are 0")
    return s, y, w


def column(given: Array, name: str) -> Tensor:
    """One number a sample, as a tensor ``(n,)``."""
    try:
        if not isinstance(given, Tensor) and hasattr(given, "__array__"):
            given = given.__array__().copy()  # torch takes neither read-only nor reversed arrays
        tensor = torch.as_tensor(given, dtype=torch.float64 if isinstance(given, (list, tuple)) else None)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidTypeError(f"{name} must be an array of numbers, got {type(given).__name__}: {error}") from None
    if tensor.dim() == 2 and tensor.shape[1] == 1:
        tensor = tensor.squeeze(1)
    if tensor.dim() != 1:
        hint = "; pass the positive class's column" if name == "scores" and tensor.dim() == 2 else ""
        raise InvalidValueError(f"{name} must have shape (n,) or (n, 1), got {tuple(tensor.shape)}{hint}")
    return tensor


def _like(given: Array, result: Tensor) -> Array:
    return result if isinstance(given, Tensor) else result.numpy()


def one_class(formula: Metric | Requirement, counts: Counts) -> Tensor:
    """The metric's values, or the requirement's violations, at every threshold of a binary sweep."""
    value = formula(counts) if isinstance(formula, Metric) else formula.violation(counts)
    if value.shape != counts.tp.shape:
        raise InvalidValueError(
            f"{formula} must give one value a threshold, shape {tuple(counts.tp.shape)}; got {tuple(value.shape)}"
        )
    return value.squeeze(-1)


def as_requirements(subject_to: Requirements | None) -> list[Requirement]:
    """One, several or none, as a list."""
    if subject_to is None:
        return []
    if isinstance(subject_to, (str, Requirement)):
        return [parse_requirement(subject_to)]
    return [parse_requirement(given) for given in subject_to]


def _fpr_where(counts: Counts, allowed: Tensor) -> float:
    rates = torch.where(allowed, ratio(counts.fp, counts.fp[-1]), math.inf)
    return float(rates.min())


def judge_requirements(
    requirements: Sequence[Requirement], candidates: Sweep, threshold: float
) -> dict[str, RequirementValue]:
    """Whether requirements hold at a threshold, and the best value that each can have.

    Args:
        requirements: The requirements.
        candidates: All thresholds, falling, and the counts at each.
        threshold: Any threshold; it decides as the smallest of the candidates that is at least as large.

    Returns:
        The results by the requirement as text.
    """
    at = max(int((candidates.thresholds >= threshold).sum()) - 1, 0)
    results = {}
    for requirement in requirements:
        values, violation = one_class(requirement.metric, candidates.counts), one_class(requirement, candidates.counts)
        met = bool(requirement.forgives(violation[at]))
        results[str(requirement)] = RequirementValue(float(values[at]), met, float(values[int(violation.argmin())]))
    return results
