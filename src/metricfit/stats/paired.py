"""Comparison of two methods over several datasets, or over repeated splits of one dataset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from metricfit._extras import explain_missing
from metricfit.core.numerics import ROUNDING
from metricfit.errors import InvalidValueError
from metricfit.stats.resampling import Floats, Integers
from metricfit.stats.results import Interval, Readable, check_level, shorten_numbers, warn_of_no_variance

Array = Any
DECIDED = 0.95


class Probabilities(NamedTuple):
    """Probabilities of the three outcomes of a comparison.

    Args:
        a: Probability that a is better by more than the rope.
        rope: Probability that the two are practically equal.
        b: Probability that b is better by more than the rope.

    Example:
        >>> Probabilities(0.97, 0.02, 0.01).a
        0.97
    """

    a: float
    rope: float
    b: float

    def __repr__(self) -> str:
        return shorten_numbers(tuple(self))


@dataclass(frozen=True, repr=False)
class _Verdict(Readable):
    wins: int
    losses: int
    ties: int
    difference: float
    interval: Interval
    level: float
    p_value: float
    probabilities: Probabilities
    rope: float

    @property
    def verdict(self) -> str:
        """The outcome with a probability of at least 0.95, or "undecided"."""
        sentences = "a is better", "practically equal", "b is better"
        for sentence, probability in zip(sentences, self.probabilities, strict=True):
            if probability >= DECIDED:
                return sentence
        return "undecided"


@dataclass(frozen=True, repr=False)
class Comparison(_Verdict):
    """Comparison of two methods over datasets.

    Attributes:
        wins: Number of datasets on which a is better.
        losses: Number of datasets on which b is better.
        ties: Number of datasets with equal values, for any rope.
        difference: Mean of a - b.
        interval: Student's interval of the difference over datasets.
        level: Level of the interval.
        p_value: p-value of Wilcoxon's signed-rank test.
        probabilities: Probabilities of the Bayesian signed-rank test.
        rope: Largest difference that does not matter.
        datasets: Number of datasets.
        smallest_p_value: The smallest p-value that is possible with this number of datasets.

    Example:
        >>> compare([0.81, 0.75, 0.90], [0.78, 0.70, 0.88], samples=2000).wins
        3
    """

    datasets: int
    smallest_p_value: float


@dataclass(frozen=True, repr=False)
class SplitComparison(_Verdict):
    """Comparison of two methods over repeated splits of one dataset by the corrected t-test.

    Attributes:
        wins: Number of splits on which a is better.
        losses: Number of splits on which b is better.
        ties: Number of splits with equal values, for any rope.
        difference: Mean of a - b.
        interval: Interval of the difference.
        level: Level of the interval.
        p_value: Two-sided p-value.
        probabilities: Probabilities of the Bayesian correlated t-test.
        rope: Largest difference that does not matter.
        splits: Number of splits.
        statistic: The t statistic.

    Example:
        >>> compare_splits([0.80, 0.82, 0.79], [0.77, 0.78, 0.77], test_fraction=0.2).wins
        3
    """

    splits: int
    statistic: float


def compare(
    a: Array,
    b: Array,
    *,
    rope: float = 0.01,
    minimize: bool = False,
    level: float = 0.95,
    samples: int = 50_000,
    seed: int = 0,
) -> Comparison:
    """Compare the values of two methods on the same datasets.

    The p-value comes from the two-sided Wilcoxon signed-rank test without equal pairs (Demšar 2006); it is 1 if all
    pairs are equal. With n unequal pairs it is at least 2^(1 - n), so five datasets never reach 0.05.

    The probabilities come from the Bayesian signed-rank test (Benavoli et al. 2017; computed by baycomp). On a new
    dataset a is better by more than ``rope``, or the difference is within ``rope``, or b is better. Each outcome has
    the posterior probability that it is the most likely one. The prior is half a dataset without a difference. Methods
    that are equal on all datasets are practically equal, also with a rope of 0. If the difference is the same on all
    datasets, Student's interval has no width. This is a limit of the method, not certainty, and a warning says so.

    Args:
        a: Values of the first method, ``(datasets,)`` or ``(datasets, repeats)``. Repeats are averaged.
        b: Values of the second method, in the same order.
        rope: Largest difference that does not matter.
        minimize: Whether lower values are better. The difference remains a - b.
        level: Level of the interval.
        samples: Number of draws from the posterior.
        seed: Seed of the draws.

    Returns:
        Wins, mean difference, interval, p-value, probabilities and a verdict in words.

    Raises:
        ValueError: The values are not finite, do not match, or are of fewer than two datasets; or an argument is not
            valid.

    Example:
        >>> result = compare([0.81, 0.75, 0.90, 0.66, 0.72, 0.88], [0.78, 0.70, 0.88, 0.61, 0.69, 0.84], samples=2000)
        >>> result.wins, result.p_value, result.smallest_p_value, result.verdict
        (6, 0.03125, 0.03125, 'a is better')
    """
    check_level(level)
    _check_rope(rope)
    if samples < 1:
        raise InvalidValueError(f"samples is the number of draws from the posterior, 1 or more; got {samples}")
    a, b = _per_dataset(a, "a"), _per_dataset(b, "b")
    if a.shape != b.shape or len(a) < 2:
        raise InvalidValueError(
            f"a and b need one value for each of the same 2 or more datasets, got {len(a)} and {len(b)}"
        )
    steps = _whole_steps(a, b)
    better, worse = _better_and_worse(steps, minimize)
    unequal = steps[steps != 0]
    difference = np.where(steps == 0, 0.0, a - b)
    mean = float(difference.mean())
    constant = bool((steps == steps[0]).all())
    error = 0.0 if constant else float(difference.std(ddof=1)) / math.sqrt(len(a))
    if constant and len(unequal):
        warn_of_no_variance(f"the values differ by {mean:g} on every dataset", "the interval is")
    gain = -difference if minimize else difference
    return Comparison(
        wins=better,
        losses=worse,
        ties=len(a) - len(unequal),
        difference=mean,
        interval=_student(mean, error, len(a) - 1, level),
        level=level,
        p_value=float(stats.wilcoxon(unequal.astype(np.float64)).pvalue) if len(unequal) else 1.0,
        probabilities=_signed_rank(gain, rope, samples, seed) if len(unequal) else Probabilities(0.0, 1.0, 0.0),
        rope=rope,
        datasets=len(a),
        smallest_p_value=2.0 ** (1 - max(len(unequal), 1)),
    )


def compare_splits(
    a: Array, b: Array, *, test_fraction: float, rope: float = 0.01, minimize: bool = False, level: float = 0.95
) -> SplitComparison:
    """Compare the values of two methods on the same repeated splits of one dataset by the corrected t-test.

    Splits share samples, so their differences are not independent, and the plain t-test is far too confident. Nadeau &
    Bengio (2003) estimate the variance of the mean of J differences as ``s² (1/J + test/train)``, here with
    ``test_fraction / (1 - test_fraction)``. The probabilities come from the Bayesian correlated t-test with the same
    variance (Corani & Benavoli 2015). Equal values on all splits give the difference 0 and the p-value 1. If the
    difference is the same on all splits, the estimated variance and the p-value are 0. This is a limit of the method,
    not certainty, and a warning says so.

    The result says which method is better on this dataset, not on others; for that, use `compare`.

    Args:
        a: Values of the first method, ``(splits,)``.
        b: Values of the second method, in the same order.
        test_fraction: Fraction of the samples in each test set: 0.2 for 5-fold cross-validation.
        rope: Largest difference that does not matter.
        minimize: Whether lower values are better. The difference remains a - b.
        level: Level of the interval.

    Returns:
        Wins, mean difference, interval, p-value, probabilities and a verdict in words.

    Raises:
        ValueError: The values are not finite, do not match, or are of fewer than two splits; or an argument is not
            valid.

    Example:
        >>> result = compare_splits([0.80, 0.82, 0.79, 0.81, 0.83], [0.77, 0.78, 0.77, 0.79, 0.78], test_fraction=0.2)
        >>> round(result.difference, 3), result.interval
        (0.032, (0.007716, 0.05628))
    """
    check_level(level)
    _check_rope(rope)
    if not 0 < test_fraction < 1:
        raise InvalidValueError(
            f"test_fraction is the share of samples in each test set, between 0 and 1, got {test_fraction}"
        )
    a, b = _numbers(a, "a"), _numbers(b, "b")
    if a.ndim != 1 or a.shape != b.shape or len(a) < 2:
        raise InvalidValueError(
            f"a and b need one value for each of the same 2 or more splits, got shapes {a.shape}, {b.shape}"
        )
    steps = _whole_steps(a, b)
    better, worse = _better_and_worse(steps, minimize)
    constant = bool((steps == steps[0]).all())
    mean = 0.0 if constant and steps[0] == 0 else float((a - b).mean())
    variance = 0.0 if constant else float((a - b).var(ddof=1))
    error = math.sqrt(variance * (1 / len(a) + test_fraction / (1 - test_fraction)))
    if mean and error == 0:
        warn_of_no_variance(f"the values differ by {mean:g} on every split")
    statistic = mean / error if error > 0 else math.copysign(math.inf, mean) if mean else 0.0
    degrees = len(a) - 1
    gain = -mean if minimize else mean
    return SplitComparison(
        wins=better,
        losses=worse,
        ties=len(a) - better - worse,
        difference=mean,
        interval=_student(mean, error, degrees, level),
        level=level,
        p_value=float(2 * stats.t.sf(abs(statistic), degrees)),
        probabilities=_student_probabilities(gain, error, degrees, rope),
        rope=rope,
        splits=len(a),
        statistic=statistic,
    )


def _numbers(values: Array, name: str) -> Floats:
    numbers = np.asarray(values.detach().cpu().double() if hasattr(values, "detach") else values, dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise InvalidValueError(
            f"{name} holds {int((~np.isfinite(numbers)).sum())} values that are not finite; leave them out"
        )
    return numbers


def _per_dataset(values: Array, name: str) -> Floats:
    numbers = _numbers(values, name)
    if numbers.ndim not in (1, 2) or numbers.size == 0:
        raise InvalidValueError(f"{name} must have shape (datasets,) or (datasets, repeats), got {numbers.shape}")
    return numbers if numbers.ndim == 1 else numbers.mean(1)


def _check_rope(rope: float) -> None:
    if not 0 <= rope < math.inf:
        raise InvalidValueError(f"rope is the largest difference that does not matter, 0 or more, got {rope}")


def _whole_steps(a: Floats, b: Floats) -> Integers:
    """Round the differences to multiples of the rounding error, because 0.3 - 0.2 and 0.2 - 0.1 must share a rank."""
    step = ROUNDING * max(float(np.abs(a).max()), float(np.abs(b).max()))
    return np.rint((a - b) / step if step else a - b).astype(np.int64)


def _better_and_worse(steps: Integers, minimize: bool) -> tuple[int, int]:
    above, below = int((steps > 0).sum()), int((steps < 0).sum())
    return (below, above) if minimize else (above, below)


def _student(mean: float, error: float, degrees: int, level: float) -> Interval:
    half_width = float(stats.t.ppf((1 + level) / 2, degrees)) * error
    return Interval(mean - half_width, mean + half_width)


def _signed_rank(gain: Floats, rope: float, samples: int, seed: int) -> Probabilities:
    """Compute the probabilities; if two outcomes are equally likely in a draw, each counts half."""
    with explain_missing("the signed-rank test", ("baycomp",), "metricfit[tabular]"):
        import baycomp  # which few need, and which loads much
    drawn = baycomp.SignedRankTest.sample(gain, np.zeros_like(gain), rope, nsamples=samples, random_state=seed)
    likeliest = np.isclose(drawn, drawn.max(1, keepdims=True), rtol=0, atol=ROUNDING)
    shares = (likeliest / likeliest.sum(1, keepdims=True)).mean(0)
    return Probabilities(*map(float, shares))


def _student_probabilities(gain: float, error: float, degrees: int, rope: float) -> Probabilities:
    if error == 0:
        beyond = [float(side > rope) for side in (gain, -gain)]
    else:
        beyond = [float(stats.t.sf((rope - side) / error, degrees)) for side in (gain, -gain)]
    return Probabilities(beyond[0], 1 - sum(beyond), beyond[1])


def holm(p_values: Sequence[float]) -> list[float]:
    r"""Correct p-values for the number of tests, by Holm's (1979) step-down method.

    With the p-values sorted, :math:`p_{(1)} \le \dots \le p_{(m)}`, the corrected ones are

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min\{1, (m - j + 1)\, p_{(j)}\}

    If differences with a corrected p-value of at most 0.05 are reported, at most 5 % of such families of tests
    contain a mistake. This holds however the tests depend on each other. It is never less powerful than Bonferroni's m
    p.

    Args:
        p_values: One p-value per test.

    Returns:
        The corrected p-values, in the same order.

    Raises:
        ValueError: A value does not lie between 0 and 1.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise InvalidValueError(f"p-values lie between 0 and 1, got {list(p_values)}")
    corrected, highest = [1.0] * len(p_values), 0.0
    for position, index in enumerate(sorted(range(len(p_values)), key=lambda number: p_values[number])):
        highest = max(highest, min(1.0, (len(p_values) - position) * float(p_values[index])))
        corrected[index] = highest
    return corrected
