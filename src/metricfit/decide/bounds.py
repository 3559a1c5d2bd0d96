r"""Exact binomial bounds of rates, and how many rows a guarantee needs.

A rate is the share of successes among trials of one kind: recall is the share of the positives that are called
positive, precision the share of the flagged rows that are positive. At a threshold that was fixed without the
rows, and if the rows are independent draws of one population, the number of successes k of m trials is binomial, given
m. The hypothesis "the rate is below b" is then rejected by the p-value

.. math:: P(\mathrm{Bin}(m, b) \ge k),

and the smallest b that is not rejected at the level alpha is the bound of Clopper and Pearson (1934).

The bounds take for granted that rows are independent draws and count once each. Rows in groups, such as the visits of a
patient, are not independent. One row of each group, drawn at random, is: groups are drawn from a population of groups.
So what is certified on these rows holds for a row that is drawn at random from a new group. Rates within one class,
such as recall, take one row of each class from each group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom

from metricfit.core.arrays import Array, Booleans, Floats, Integers
from metricfit.core.counts import Counts
from metricfit.core.numerics import ROUNDING
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.feasibility import InfeasibleError
from metricfit.metrics.requirements import Requirement

#: A requirement is easiest to meet at the lowest threshold, at the highest, or in general at neither.
End = Literal["lowest", "highest"]
Kind = Literal["positives", "negatives", "rows"]


class Rate(NamedTuple):
    """A metric that is a share of rows of one kind.

    Attributes:
        successes: The counts of the rows in the share.
        trials: The counts of the rows of which it is a share.
        successful: The true class of the rows in the share, or "rows" for both.
        other: The true class of the other trials.
        highest_at: The end of the thresholds at which the rate is highest; None if it is not monotone.
    """

    successes: Callable[[Counts], Array]
    trials: Callable[[Counts], Array]
    successful: Kind
    other: Kind
    highest_at: End | None


#: The metrics with an exact bound, by name.
RATES = {
    "recall": Rate(lambda c: c.tp, lambda c: c.positives, "positives", "positives", "lowest"),
    "fnr": Rate(lambda c: c.fn, lambda c: c.positives, "positives", "positives", "highest"),
    "specificity": Rate(lambda c: c.tn, lambda c: c.negatives, "negatives", "negatives", "highest"),
    "fpr": Rate(lambda c: c.fp, lambda c: c.negatives, "negatives", "negatives", "lowest"),
    "selection_rate": Rate(lambda c: c.predicted, lambda c: c.n, "rows", "rows", "lowest"),
    "precision": Rate(lambda c: c.tp, lambda c: c.predicted, "positives", "negatives", None),
    "npv": Rate(lambda c: c.tn, lambda c: c.tn + c.fn, "negatives", "positives", None),
    "accuracy": Rate(lambda c: c.tp + c.tn, lambda c: c.n, "rows", "rows", None),
}
_NO_ERROR = {
    "recall": "with no miss among them",
    "fnr": "with no miss among them",
    "specificity": "with no false alarm among them",
    "fpr": "with no false alarm among them",
    "precision": "with no false alarm beside them",
    "npv": "with no miss beside them",
    "accuracy": "with no error among them",
    "selection_rate": "with none of them flagged",
}


def check_confidence(confidence: Any) -> float:
    """Return the confidence as a number.

    Raises:
        InvalidTypeError: It is no number.
        InvalidValueError: It does not lie between 0 and 1.

    Example:
        >>> check_confidence(0.95)
        0.95
    """
    if isinstance(confidence, bool) or not isinstance(confidence, Real):
        raise InvalidTypeError(f"confidence is a number between 0 and 1, such as 0.95; got {quote(confidence)}")
    value = float(confidence)
    if not 0 < value < 1:
        hint = f"; did you mean {value / 100:g}?" if 1 < value < 100 else ""
        raise InvalidValueError(f"confidence is a number between 0 and 1, such as 0.95; got {value:g}{hint}")
    return value


def rate_of(requirement: Requirement) -> Rate:
    """Return the rate that a requirement bounds.

    Raises:
        InvalidValueError: Its metric is no share of rows of one kind, so that it has no exact bound, or it is an
            equality.

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> rate_of(parse_requirement("recall >= 0.9")).highest_at
        'lowest'
    """
    metric = requirement.metric
    if requirement.is_equality:
        raise InvalidValueError(
            f"{requirement} cannot be guaranteed: confidence= bounds a rate from one side. Write {metric.name} >= or "
            f"{metric.name} <= a bound, or leave confidence out"
        )
    if metric.user_defined or metric.parameters or metric.base_name not in RATES:
        raise InvalidValueError(
            f"{requirement} cannot be guaranteed: confidence= needs shares of rows of one kind, which have exact "
            f"bounds: {', '.join(RATES)}. Write the requirement on one of these, or leave confidence out"
        )
    return RATES[metric.base_name]


def easiest_end(requirement: Requirement) -> End | None:
    """Return the end of the thresholds at which a requirement is easiest to meet; None if its rate is not monotone.

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> easiest_end(parse_requirement("selection_rate <= 0.02"))
        'highest'
    """
    highest = rate_of(requirement).highest_at
    if highest is None or requirement.sense == ">=":
        return highest
    return "lowest" if highest == "highest" else "highest"


def p_values(requirement: Requirement, counts: Counts) -> Floats:
    r"""Compute p-values of the hypothesis that a requirement does not hold, one per threshold.

    For "at least b" it is P(Bin(m, b) >= k), for "at most b" P(Bin(m, b) <= k), with k successes of m trials; 1 without
    trials. A bound that every rate meets, such as "at least 0", has the p-value 0.

    Args:
        requirement: A requirement on a rate.
        counts: Counts ``(thresholds, 1)`` of rows that count once each.

    Returns:
        The p-values ``(thresholds,)``.

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> counts = Counts(tp=[[59.0]], fp=[[0.0]], fn=[[0.0]], tn=[[9.0]])
        >>> p_values(parse_requirement("recall >= 0.95"), counts).round(4)
        array([0.0485])
    """
    rate, at_least = rate_of(requirement), requirement.sense == ">="
    k, m = (np.rint(part(counts).squeeze(-1)) for part in (rate.successes, rate.trials))
    if _always_holds(requirement):
        return np.zeros(len(k))
    p = binom.sf(k - 1, m, requirement.bound) if at_least else binom.cdf(k, m, requirement.bound)
    return np.where(m > 0, p, 1.0)


def exact_bound(successes: float, trials: float, confidence: float, sense: str) -> float:
    """Compute the bound of Clopper and Pearson on a rate, from below for ">=" and from above for "<=".

    Args:
        successes: Number of successes.
        trials: Number of trials.
        confidence: The probability with which the rate is on the right side of the bound.
        sense: ">=" for the lower bound, "<=" for the upper one.

    Returns:
        The bound; without trials 0 or 1, which says nothing.

    Example:
        >>> round(exact_bound(23, 23, 0.95, ">="), 4)
        0.8779
    """
    if sense == ">=":
        return 0.0 if successes <= 0 else float(beta.ppf(1 - confidence, successes, trials - successes + 1))
    return 1.0 if successes >= trials else float(beta.ppf(confidence, successes + 1, trials - successes))


def bound_in_words(requirement: Requirement, counts: Counts, level: float, verb: str = "") -> str:
    """Say what the exact bound of a requirement's rate is, as in "recall is at least 0.88".

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> bound_in_words(parse_requirement("recall >= 0.9"), Counts(tp=23, fp=1, fn=0, tn=9), 0.05, "is ")
        'recall is at least 0.878'
    """
    rate = rate_of(requirement)
    bound = exact_bound(rate.successes(counts).item(), rate.trials(counts).item(), 1 - level, requirement.sense)
    return f"{requirement.metric.name} {verb}{'at least' if requirement.sense == '>=' else 'at most'} {bound:.3g}"


def rows_needed(requirement: Requirement, alpha: float) -> float:
    """Compute the smallest number of rows, of the kind that counts, with which a requirement can be guaranteed.

    It is the smallest m for which m successes of m trials are significant: b^m <= alpha for "at least b". Precision
    needs as many positives as that, because P(Bin(m, b) >= k) >= b^k.

    Args:
        requirement: A requirement on a rate.
        alpha: The probability of error that is allowed.

    Returns:
        The number; infinity where no number of rows is enough, as for "recall >= 1".

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> rows_needed(parse_requirement("recall >= 0.95"), 0.05)
        59
    """
    if _always_holds(requirement):
        return 0
    share = requirement.bound if requirement.sense == ">=" else 1 - requirement.bound
    if share >= 1:
        return math.inf
    return max(1, math.ceil(math.log(alpha) / math.log(share) - ROUNDING)) if share > 0 else 1


def check_enough_rows(
    requirement: Requirement, positives: int, negatives: int, alpha: float, *, share: float = 1.0
) -> None:
    """Raise an error if no outcome on these rows could guarantee a requirement.

    Args:
        requirement: A requirement on a rate.
        positives: Number of positives.
        negatives: Number of negatives.
        alpha: The probability of error that is allowed.
        share: The share of the rows on which the requirement is tested.

    Raises:
        InfeasibleError: There are too few rows. The message says how many are needed, and what could be promised.

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> check_enough_rows(parse_requirement("recall >= 0.9"), 40, 400, 0.05)
    """
    rate = rate_of(requirement)
    kind = rate.successful if requirement.sense == ">=" else rate.other
    rows = {"positives": positives, "negatives": negatives, "rows": positives + negatives}[kind]
    tested, needed = math.floor(share * rows), rows_needed(requirement, alpha)
    if tested >= needed:
        return
    claim = f"{requirement} at {format_percent(1 - alpha)} confidence"
    if math.isinf(needed):
        raise InfeasibleError(f"{claim} cannot be promised with any number of rows; lower the bound")
    of = "" if share == 1 else f" among the {format_percent(share)} of the rows on which it is tested"
    there = "is 1" if tested == 1 else f"are {tested or 'none'}"
    raise InfeasibleError(
        f"{claim} needs at least {needed} {kind}{of}; there {there}{_best_promise(requirement, tested, alpha)}"
    )


def _best_promise(requirement: Requirement, rows: int, alpha: float) -> str:
    """Say what could be promised if no row contradicted the requirement, rounded to the safe side."""
    if rows == 0:
        return ""
    gap = 1 - alpha ** (1 / rows)
    unit = 10.0 ** (math.floor(math.log10(gap)) - 1)
    gap = min(1.0, math.ceil(gap / unit - ROUNDING) * unit)
    name, at_least = requirement.metric.name, requirement.sense == ">="
    usual = at_least == (not requirement.metric.minimize)
    perfect = _NO_ERROR[requirement.metric.base_name] if usual else "at best"
    extreme, promise = ("highest", 1 - gap) if at_least else ("lowest", gap)
    return f"; the {extreme} {name} that can be promised, {perfect}, is {promise:.6g}"


def format_percent(share: float) -> str:
    """Write a share in percent.

    Example:
        >>> format_percent(0.95)
        '95 %'
    """
    return f"{100 * share:.6g} %"


def joined(requirements: Sequence[Requirement]) -> str:
    """Write requirements as one claim.

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> joined([parse_requirement("recall >= 0.9"), parse_requirement("fpr <= 0.1")])
        'recall >= 0.9 and fpr <= 0.1'
    """
    return " and ".join(map(str, requirements))


def _always_holds(requirement: Requirement) -> bool:
    return requirement.bound <= 0 if requirement.sense == ">=" else requirement.bound >= 1


#: Rates within one class, which stay what they are where only the class shares change: of two classes, and of several,
#: where the rows that are not of a class are a mixture of the others.
WITHIN_ONE_OF_TWO, WITHIN_ONE_OF_SEVERAL = ("recall", "fnr", "specificity", "fpr"), ("recall", "fnr")


#: Makes the draw of rows differ from others with the same seed.
DRAW = 5_772


def draw_one_per_group(
    groups: NDArray[Any] | None, y: Integers, requirements: Sequence[Requirement], seed: int
) -> Booleans:
    """Draw the rows on which requirements are tested: one of each group, or all rows without groups.

    Args:
        groups: The group of each row, or None.
        y: Class numbers ``(n,)``.
        requirements: The requirements. If all are rates within one class, one row of each class is drawn from a group.
        seed: Seed of the draw.

    Returns:
        One boolean per row.

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> groups, y = np.array([1, 1, 1, 2]), np.array([0, 0, 1, 1])
        >>> [
        ...     int(draw_one_per_group(groups, y, [parse_requirement(text)], 0).sum())
        ...     for text in ("recall >= 0.5", "precision >= 0.5")
        ... ]
        [3, 2]
    """
    if groups is None:
        return np.ones(len(y), dtype=bool)
    within = WITHIN_ONE_OF_TWO if int(y.max()) < 2 else WITHIN_ONE_OF_SEVERAL
    unit = np.unique(groups, return_inverse=True)[1].reshape(-1)
    if all(requirement.metric.base_name in within for requirement in requirements):
        unit = unit * (int(y.max()) + 1) + y
    order = np.random.default_rng((seed, DRAW)).permutation(len(y))
    drawn = np.zeros(len(y), dtype=bool)
    drawn[order[np.unique(unit[order], return_index=True)[1]]] = True
    return drawn


def draw_learning_rows(groups: NDArray[Any] | None, rows: int, share: float, seed: Sequence[int]) -> Booleans:
    """Draw rows to choose a path on, independent of the others: of rows in groups, whole groups.

    Args:
        groups: The group of each row, or None.
        rows: Number of rows.
        share: The share of the rows, or of the groups.
        seed: Seed of the draw.

    Returns:
        One boolean per row.
    """
    unit = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    units = int(unit.max()) + 1
    drawn = np.random.default_rng(seed).permutation(units)[: round(share * units)]
    is_drawn = np.zeros(units, dtype=bool)
    is_drawn[drawn] = True
    return np.asarray(is_drawn[unit])


def check_exact(requirements: Sequence[Requirement], y: Integers, weight: Floats | None) -> None:
    """Raise an error if weights void the exact bounds.

    Weights that are the same within each class leave the rates within a class as they are, so that these may be
    required still (``rethreshold(prevalence=...)``).

    Args:
        requirements: The requirements.
        y: Class numbers ``(n,)``; for several labels 0 and 1 ``(n, c)``.
        weight: One weight per row, or None.

    Raises:
        InvalidValueError: The rows have weights that void the exact bounds.

    Example:
        >>> from metricfit.metrics import parse_requirement
        >>> y, weight = np.array([0, 0, 1]), np.array([1.0, 1.0, 3.0])
        >>> check_exact([parse_requirement("recall >= 0.9")], y, weight)
    """
    if weight is None or _is_constant(weight):
        return
    if y.ndim == 1 and all(_is_constant(weight[y == label]) for label in set(y.tolist())):
        within = WITHIN_ONE_OF_TWO if int(y.max()) < 2 else WITHIN_ONE_OF_SEVERAL
        others = [requirement for requirement in requirements if requirement.metric.base_name not in within]
        if not others:
            return
        raise InvalidValueError(
            f"{joined(others)} depends on the class shares, and has no exact bound where they differ from the "
            f"rows (prevalence=, or weights of classes): require {', '.join(within[:-1])} or {within[-1]}, or leave "
            "the prevalence or the confidence out"
        )
    raise InvalidValueError(
        "weights void the exact bounds of confidence=, because weighted counts are not binomial: pass rows that count "
        "once each, or leave confidence out"
    )


def _is_constant(weight: Floats) -> bool:
    return len(weight) == 0 or float(weight.max()) <= float(weight.min()) * (1 + 1e-9)
