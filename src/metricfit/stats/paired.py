"""Two methods compared: over several datasets, or over repeated splits of one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import baycomp
import numpy as np
from scipy import stats

from metricfit.core.numerics import ROUNDING
from metricfit.errors import InvalidValueError
from metricfit.stats.resampling import Floats, Integers
from metricfit.stats.results import Interval, Readable, check_level, short, warn_of_no_variance

Array = Any
SURE = 0.95


class Probabilities(NamedTuple):
    """That a is better by more than the rope, that they are practically equal, that b is better."""

    a: float
    rope: float
    b: float

    def __repr__(self) -> str:
        return short(tuple(self))


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
        """In words: what has a probability of at least 0.95, if anything has."""
        sentences = "a is better", "practically equal", "b is better"
        for sentence, probability in zip(sentences, self.probabilities, strict=True):
            if probability >= SURE:
                return sentence
        return "undecided"


@dataclass(frozen=True, repr=False)
class Comparison(_Verdict):
    """Two methods over datasets. ``wins`` are a's; ties are equal values, whatever the rope.

    ``difference`` is the mean of a - b with Student's interval over datasets; ``p_value`` is Wilcoxon's, which cannot
    be below ``smallest_p_value`` with so few datasets.
    """

    datasets: int
    smallest_p_value: float


@dataclass(frozen=True, repr=False)
class SplitComparison(_Verdict):
    """Two methods over repeated splits of one dataset; difference, interval and p-value by the corrected t-test."""

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
    """Two methods' values on the same datasets, ``(datasets,)`` or ``(datasets, repeats)``; repeats are averaged.

    The p-value is that of Wilcoxon's signed-rank test, two-sided, equal pairs left out (Demšar 2006); with all pairs
    equal it is 1. With n unequal pairs it cannot be below 2^(1 - n): five datasets never reach 0.05.

    The probabilities are those of the Bayesian signed-rank test (Benavoli et al. 2017; by baycomp). On a new dataset a
    may be better by more than ``rope``, the difference may lie within it, or b may be better; each is given the
    posterior probability that it is the most likely of the three. The prior is half a dataset without a difference.
    Methods equal on all datasets are practically equal, with a rope of 0 too. A difference that is the same on all
    datasets gives Student's interval no width: a limit of the method, not certainty, and a warning says so.

    ``minimize``: lower values are better; the difference stays a - b.

    >>> found = compare([0.81, 0.75, 0.90, 0.66, 0.72, 0.88], [0.78, 0.70, 0.88, 0.61, 0.69, 0.84], samples=2000)
    >>> found.wins, found.p_value, found.smallest_p_value, found.verdict
    (6, 0.03125, 0.03125, 'a is better')
    """
    check_level(level)
    _check_rope(rope)
    if samples < 1:
        raise InvalidValueError(f"samples is the number of draws from the posterior, 1 or more, got {samples}")
    a, b = _per_dataset(a, "a"), _per_dataset(b, "b")
    if a.shape != b.shape or len(a) < 2:
        raise InvalidValueError(
            f"a and b need a value for each of the same 2 or more datasets, got {len(a)} and {len(b)}"
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
    """Two methods' values on the same repeated splits of one dataset, ``(splits,)``, by the corrected t-test.

    Splits share samples, so their differences are not independent and the plain t-test is far too sure. Nadeau & Bengio
    (2003) take the variance of the mean of J differences as ``s² (1/J + test/train)``, here with
    ``test_fraction / (1 - test_fraction)``: 0.2 for test sets of a fifth, or 5-fold cross-validation. The probabilities
    are those of the Bayesian correlated t-test with the same variance (Corani & Benavoli 2015). Equal values on all
    splits: difference 0, p_value 1, practically equal. The same difference on all splits has an estimated variance of
    0 and a p_value of 0: a limit of the method, not certainty, and a warning says so.

    It says which method is better on this dataset, not on others: for that, ``compare``.

    >>> found = compare_splits([0.80, 0.82, 0.79, 0.81, 0.83], [0.77, 0.78, 0.77, 0.79, 0.78], test_fraction=0.2)
    >>> round(found.difference, 3), found.interval
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
            f"a and b need a value for each of the same 2 or more splits, got shapes {a.shape}, {b.shape}"
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
    given = np.asarray(values.detach().cpu().double() if hasattr(values, "detach") else values, dtype=np.float64)
    if not np.isfinite(given).all():
        raise InvalidValueError(
            f"{name} holds {int((~np.isfinite(given)).sum())} values that are not finite; leave them out"
        )
    return given


def _per_dataset(values: Array, name: str) -> Floats:
    given = _numbers(values, name)
    if given.ndim not in (1, 2) or given.size == 0:
        raise InvalidValueError(f"{name} must have shape (datasets,) or (datasets, repeats), got {given.shape}")
    return given if given.ndim == 1 else given.mean(1)


def _check_rope(rope: float) -> None:
    if not 0 <= rope < math.inf:
        raise InvalidValueError(f"rope is the largest difference that does not matter, 0 or more, got {rope}")


def _whole_steps(a: Floats, b: Floats) -> Integers:
    """The differences in steps of what rounds off: 0.3 - 0.2 and 0.2 - 0.1 are one number, and must share a rank."""
    step = ROUNDING * max(float(np.abs(a).max()), float(np.abs(b).max()))
    return np.rint((a - b) / step if step else a - b).astype(np.int64)


def _better_and_worse(steps: Integers, minimize: bool) -> tuple[int, int]:
    above, below = int((steps > 0).sum()), int((steps < 0).sum())
    return (below, above) if minimize else (above, below)


def _student(mean: float, error: float, degrees: int, level: float) -> Interval:
    reach = float(stats.t.ppf((1 + level) / 2, degrees)) * error
    return Interval(mean - reach, mean + reach)


def _signed_rank(gain: Floats, rope: float, samples: int, seed: int) -> Probabilities:
    """Where two of the three are equally likely in a draw, each gets half."""
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
