"""The rows of a comparison with intervals and tests, and what they say in plain words.

All methods are compared with one reference on the same folds, which makes several tests. Their p-values are corrected
by Holm's method, and the intervals of the differences are simultaneous (Bonferroni).

The rule: use the method with the best mean, unless a simpler one has a mean within 1 % of it and is not clearly worse.
Of several such methods the simplest is used, and of equally simple ones the fastest. A difference is clear if its
p-value, by the corrected resampled t-test and Holm's correction for all comparisons made with the same method, is below
0.05. Five folds can rarely prove which of two good methods is better. A rule that took the simplest of all that cannot
be told apart would recommend logistic regression nearly always, also where others are well ahead of it on average.

Under requirements, methods are left out with which a requirement clearly fails: the 95 % interval of its value on the
test rows of all folds together is beyond the bound. A method that misses the bound by chance stays.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from metricfit import stats
from metricfit.errors import InvalidValueError
from metricfit.metrics import Metric, get_metric
from metricfit.metrics.spoken_names import name_metric
from metricfit.stats import SplitComparison
from metricfit.tabular.compare.judging import FoldResult, PooledRequirement
from metricfit.tabular.compare.methods import BASELINES, COMPLEXITY, DEFAULT, REFERENCE, UNTUNED

Pair = tuple[float, float]


@dataclass(frozen=True)
class ComparisonRow:
    """A method's mean value, how sure it is, and how it compares with the reference method.

    Args:
        name: Name of the method.
        mean: Mean of the metric over the folds.
        interval: 95 % interval of the mean; None if it is not known, for example because all folds have the same value.
        difference: This mean minus the mean of the reference; None for the reference itself, and for a method that
            equals it on every fold.
        difference_interval: Interval of the difference; in the rows of ``metricfit.compare`` it is simultaneous with
            the intervals of the other methods. None if the difference is the same on every fold.
        p_value: p-value of the paired test that the difference is 0; in the rows of ``metricfit.compare`` it is
            corrected by Holm's method. None where ``difference_interval`` is None.
        seconds: Training time of all folds.
        held: Number of folds on which the requirements held; None if there are no requirements.
        values: The metric on each fold. Where no threshold met the requirements on a fold's training rows, this is the
            value at the nearest threshold.
        not_reachable: For each fold on whose training rows no threshold met the requirements, what was reachable.
        requirements: The requirements on the test rows of all folds together.

    Raises:
        InvalidValueError: If a number is not finite.

    Example:
        >>> row = ComparisonRow("mix", 0.7, (0.67, 0.73), seconds=12.5)
        >>> row.to_dict()["mean"]
        0.7
    """

    name: str
    mean: float
    interval: Pair | None = None
    difference: float | None = None
    difference_interval: Pair | None = None
    p_value: float | None = None
    seconds: float | None = None
    held: int | None = None
    values: tuple[float, ...] = ()
    not_reachable: tuple[str, ...] = ()
    requirements: tuple[PooledRequirement, ...] = ()

    @property
    def failed(self) -> tuple[PooledRequirement, ...]:
        """The requirements that clearly fail on the test rows of all folds together."""
        return tuple(requirement for requirement in self.requirements if requirement.clearly_fails)

    def __post_init__(self) -> None:
        numbers = [self.mean, self.difference, self.p_value, self.seconds, *self.values]
        numbers += [*(self.interval or ()), *(self.difference_interval or ())]
        if any(number is not None and not math.isfinite(number) for number in numbers):
            raise InvalidValueError(f"{self.name!r} has a number that is not finite; pass None for what is not known")

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values, in the form that ``metricfit compare --json`` prints.

        Returns:
            The name, the mean with its interval, the values, the seconds, the comparison with the reference, and how
            the requirements held.

        Example:
            >>> ComparisonRow("mix", 0.7, difference=0.1).to_dict()["versus_reference"]
            {'difference': 0.1, 'interval': None, 'p_value': None}
        """
        result: dict[str, Any] = {
            "name": self.name,
            "mean": self.mean,
            "interval": self.interval,
            "values": self.values,
            "seconds": self.seconds,
            "versus_reference": None,
            "held": self.held,
            "not_reachable": self.not_reachable,
            "requirements": [requirement.to_dict() for requirement in self.requirements],
        }
        if self.difference is not None:
            result["versus_reference"] = {
                "difference": self.difference,
                "interval": self.difference_interval,
                "p_value": self.p_value,
            }
        return result


TIE = 0.01
LEVEL = 0.95
#: Values that differ by less are equal: the expected MCC of decisions at random is 0, computed as about 1e-17.
ROUNDING = 1e-12


def standings(
    results: Mapping[str, Sequence[FoldResult]], metric: Metric, *, required: bool = False
) -> list[ComparisonRow]:
    """Make the rows of a comparison from the results of its folds.

    Decisions without a model are shown without tests: nobody asks whether they differ from the reference, and every
    test makes the correction of the others stricter.

    Args:
        results: For each row, the results of its folds.
        metric: The metric that the methods are judged by.
        required: Whether there are requirements.

    Returns:
        One row per method, best mean first; methods that could not meet the requirements on the training rows of some
        fold come last.
    """
    values = {name: [result.value for result in by_fold] for name, by_fold in results.items()}
    tested = {name: by_fold for name, by_fold in values.items() if name not in {REFERENCE, *BASELINES}}
    versus = dict(zip(tested, compare_with(values[REFERENCE], list(tested.values()), metric), strict=True))
    rows = []
    for name, by_fold in results.items():
        comparison, p_value = versus.get(name, (None, None))
        rows.append(
            ComparisonRow(
                name,
                mean=statistics.fmean(values[name]),
                interval=interval_of_mean(values[name], metric),
                difference=None if comparison is None else comparison.difference,
                difference_interval=None if comparison is None or is_constant(comparison) else comparison.interval,
                p_value=p_value,
                seconds=None if name in BASELINES else sum(result.seconds for result in by_fold),
                held=sum(result.held for result in by_fold) if required else None,
                values=tuple(values[name]),
                not_reachable=tuple(result.not_reachable for result in by_fold if result.not_reachable is not None),
            )
        )
    return sorted(rows, key=lambda row: (bool(row.not_reachable), row.mean if metric.minimize else -row.mean))


def interval_of_mean(values: Sequence[float], metric: Metric) -> stats.Interval | None:
    """The 95 % interval of the mean over the folds of a cross-validation, one value per fold.

    The folds' training rows overlap, so Student's interval of the mean would be far too short: the variance is that of
    Nadeau & Bengio (2003), with as many folds as values. The interval is cut at the metric's bounds, which the mean
    cannot pass. It is None where all values are equal, except for rounding.

    >>> from metricfit.metrics import get_metric
    >>> interval_of_mean([0.70, 0.74, 0.69, 0.72, 0.75], get_metric("f1"))
    (0.6725, 0.7675)
    """
    if max(values) - min(values) <= ROUNDING:
        return None
    from_zero = stats.compare_splits(values, [0.0] * len(values), test_fraction=1 / len(values))
    low, high = metric.bounds
    return stats.Interval(max(low, from_zero.interval.low), min(high, from_zero.interval.high))


def compare_with(
    base: Sequence[float], others: Sequence[Sequence[float]], metric: Metric
) -> list[tuple[stats.SplitComparison | None, float | None]]:
    """Compare several methods with one, on the folds of one cross-validation.

    Args:
        base: The values of the method that the others are compared with.
        others: The values of the others.
        metric: The metric; it says which direction is better.

    Returns:
        For each of the others the comparison (other - base), with an interval that is simultaneous over all of them,
        and its p-value after Holm's correction. Both are None for a method that is equal on every fold; the p-value
        alone is None where the difference is the same on every fold, because its variance is then not known.

    Example:
        >>> from metricfit.metrics import get_metric
        >>> base, first, second = [0.5, 0.52, 0.48], [0.61, 0.61, 0.60], [0.5, 0.53, 0.47]
        >>> [round(p, 3) for _, p in compare_with(base, [first, second], get_metric("f1"))]
        [0.033, 1.0]
    """
    comparisons = [compare_two(values, base, metric, comparisons=len(others)) for values in others]
    p_values = [
        None if comparison is None or is_constant(comparison) else comparison.p_value for comparison in comparisons
    ]
    corrected = stats.holm([1.0 if p is None else p for p in p_values])
    triples = zip(comparisons, p_values, corrected, strict=True)
    return [(comparison, None if p is None else corrected_p) for comparison, p, corrected_p in triples]


def compare_two(
    values: Sequence[float], base: Sequence[float], metric: Metric, comparisons: int = 1
) -> stats.SplitComparison | None:
    """Compare two methods on the folds of one cross-validation; None where they are equal on every fold.

    ``comparisons`` is the number of comparisons made together: the level of the interval is raised for it, from 95 %
    to 100 % - 5 % / comparisons (Bonferroni). With few folds it can be wider than the metric allows, so it is cut where
    no difference of two values can lie: at -1 and 1 for f1.

    >>> from metricfit.metrics import get_metric
    >>> compare_two([0.8, 0.7, 0.9], [0.7, 0.7, 0.8], get_metric("f1")).wins
    2
    """
    if list(values) == list(base):
        return None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the values differ by .* on every split")  # the verdict reports it
        comparison = stats.compare_splits(
            values,
            base,
            test_fraction=1 / len(values),
            rope=TIE,
            minimize=metric.minimize,
            level=1 - (1 - LEVEL) / comparisons,
        )
    lowest, highest = metric.bounds
    span = highest - lowest
    low, high = comparison.interval
    return replace(comparison, interval=stats.Interval(max(low, -span), min(high, span)))


def is_constant(comparison: stats.SplitComparison) -> bool:
    """Whether the difference is the same on every fold, so that its interval has no width."""
    return comparison.interval.low == comparison.interval.high


ON_ALL = "on the test rows of all folds together"
SURE = 0.95
CLEAR = 0.05
#: A simpler method may be worse by this share of the best mean.
MARGIN = 0.01
NAMES = {DEFAULT: "metricfit's default"}
RULE = (
    "The rule: use the method with the best mean, unless a simpler one is within 1 % of that mean and not clearly "
    "worse; a difference is clear if its p-value, corrected for the number of comparisons (Holm), is below 0.05."
)


@dataclass(frozen=True)
class Advice:
    """What to use.

    Attributes:
        row: The recommended method.
        has_best_mean: Whether its mean is the best; otherwise it is a simpler method within 1 % of the best mean.
        sure: Whether the folds prove that no other method is better, or that the difference is negligible.
        text: The reasons, in full sentences, with the rule at the end.
        alarm: What the recommended method is not clearly better than, such as "calling every row positive"; None if it
            is clearly better than all decisions without a model.
    """

    row: ComparisonRow
    has_best_mean: bool
    sure: bool
    text: str
    alarm: str | None = None


@dataclass(frozen=True)
class _Rival:
    """A method beside the best one: the difference to it, and whether the method is clearly worse."""

    row: ComparisonRow
    versus: SplitComparison | None
    clearly_worse: bool


def headline(rows: Sequence[ComparisonRow], metric: str, label: str | None = None) -> str:
    """Write the advice in one sentence; ``label`` is what to call the metric, if not by its name."""
    advice = advise(rows, metric)
    name, mean = _name(advice.row), f"mean {label or name_metric(metric)} {advice.row.mean:.3f}"
    if advice.row.not_reachable:
        return f"No method could meet the requirements everywhere. Nearest to them: {name}."
    if advice.alarm is not None:
        return f"No method is clearly better than {advice.alarm}. Best: {name}, {mean}."
    if advice.sure:
        return f"Use {name}: {mean}."
    if advice.has_best_mean:
        return f"Use {name}: {mean}, the best here, although the folds cannot prove it."
    return f"Use {name}: {mean}, within 1 % of the best here, and simpler."


def advise(rows: Sequence[ComparisonRow], metric: str) -> Advice:
    """Choose a method by the rule of this module.

    Args:
        rows: The rows of a comparison, as ``standings`` returns them. Methods with which a requirement clearly fails on
            the test rows of all folds together are not considered.
        metric: The name of the metric.

    Returns:
        The recommended method and the reasons.
    """
    judged = get_metric(metric)
    considered = [row for row in rows if row.name not in {*UNTUNED, *BASELINES}]
    sentences = []
    if any(row.held is not None for row in considered):
        considered, about_others = _by_requirements(considered)
        sentences += [about_others] if about_others else []
    chosen, sure, reason, compared = _choose(considered, judged)
    alarm, about_floor = _floor(chosen, rows, judged)
    sentences += [reason, *_about_requirements(chosen), *about_floor]
    by_name = {row.name: row for row in considered}
    if DEFAULT in by_name and DEFAULT not in compared:
        sentences.append(_why_not_default(by_name[DEFAULT], chosen, judged))
    by_name = {row.name: row for row in rows}
    if DEFAULT in by_name and REFERENCE in by_name and not {DEFAULT, REFERENCE} <= compared:
        sentences.append(_default_and_reference(by_name, judged))
    sure = sure and alarm is None and not chosen.not_reachable
    best = (min if judged.minimize else max)(row.mean for row in considered)
    return Advice(chosen, chosen.mean == best, sure, " ".join([*sentences, RULE]), alarm)


def _choose(considered: Sequence[ComparisonRow], metric: Metric) -> tuple[ComparisonRow, bool, str, set[str]]:
    """The recommended method, whether that is sure, why, and the methods that the reason compares."""
    best = min(considered, key=lambda row: (row.mean if metric.minimize else -row.mean, _simplicity(row)))
    others = [row for row in considered if row is not best]
    compared = compare_with(best.values, [row.values for row in others], metric)
    rivals = [
        _Rival(row, versus, p is not None and p < CLEAR) for row, (versus, p) in zip(others, compared, strict=True)
    ]
    equals = [rival for rival in rivals if not rival.clearly_worse]
    close = [rival for rival in equals if _simpler_and_close(rival.row, best)]
    extreme = "lowest" if metric.minimize else "highest"
    has_best_mean = f"{_capital(_name(best))} has the {extreme} mean {name_metric(metric)}, {best.mean:.3f}"
    if close:
        chosen = min(close, key=lambda rival: _simplicity(rival.row))
        return chosen.row, *_prefer_simpler(chosen, best, has_best_mean), {best.name, chosen.row.name}
    if not rivals:
        return best, True, f"{has_best_mean}; use it.", {best.name}
    if not equals:
        everyone = {row.name for row in considered} if len(rivals) == 1 else {best.name}
        return best, True, f"{has_best_mean}, and is clearly better than every other method; use it.", everyone
    nearest = min(equals, key=lambda rival: abs(rival.row.mean - best.mean))
    any_simpler = any(_simplicity(row)[0] < _simplicity(best)[0] for row in others)
    no_simpler = "no simpler method comes within 1 % of it" if any_simpler else "no other method is simpler"
    return best, False, f"{has_best_mean}. {_lead(nearest, best, no_simpler)}", {best.name, nearest.row.name}


def _simpler_and_close(row: ComparisonRow, best: ComparisonRow) -> bool:
    return _simplicity(row)[0] < _simplicity(best)[0] and abs(row.mean - best.mean) <= MARGIN * abs(best.mean)


def _prefer_simpler(rival: _Rival, best: ComparisonRow, has_best_mean: str) -> tuple[bool, str]:
    """Whether it is sure that the simpler method does as well, and the reason for it."""
    name, simpler = _capital(_name(rival.row)), _why_simpler(rival.row, best)
    if rival.versus is None:
        return True, f"{has_best_mean}. {name} does exactly as well and {simpler}; use it."
    sure = rival.versus.probabilities.rope >= SURE and not is_constant(rival.versus)
    does = "does as well" if sure else "comes within 1 % of it"
    return sure, f"{has_best_mean}. {name} {does} ({_amount(rival.versus)}) and {simpler}; use it."


def _lead(nearest: _Rival, best: ComparisonRow, no_simpler: str) -> str:
    """Say how far the best method is ahead of the next one, and why it is recommended although that is not proven."""
    name, folds = _name(nearest.row), len(best.values)
    recommended = f"It is recommended because its mean is the best and {no_simpler}"
    if nearest.versus is None:
        return f"{_capital(name)} does exactly as well and is not simpler; use the former."
    ahead = f"It is {_size(nearest.versus.difference)} ahead of {name}"
    if is_constant(nearest.versus):
        unknown = "on every fold, which leaves open how sure that is"
        return f"{ahead} {unknown}. {recommended}."
    low, high = sorted((-nearest.versus.interval.low, -nearest.versus.interval.high))
    interval = f"simultaneous 95 % interval of the difference {low:+.3f} to {high:+.3f}"
    return f"{ahead}, which {folds} folds cannot prove ({interval}). {recommended}."


def _floor(chosen: ComparisonRow, rows: Sequence[ComparisonRow], metric: Metric) -> tuple[str | None, list[str]]:
    """Compare the recommended method with the best decisions without a model that meet the requirements as often."""
    floors = [row for row in rows if row.name in BASELINES and (row.held or 0) >= (chosen.held or 0)]
    if not floors or chosen.not_reachable:
        return None, []
    floor = min(floors, key=lambda row: row.mean if metric.minimize else -row.mean)
    name, does = _capital(_name(chosen)), BASELINES[floor.name]
    if (chosen.mean >= floor.mean) if metric.minimize else (chosen.mean <= floor.mean):
        advice = "Either the columns say nothing about the target, or the metric does not need a model."
        return does, [f"{name} is no better than {does}, which has {floor.mean:.3f}. {advice}"]
    versus = compare_two(chosen.values, floor.values, metric)
    if versus is not None and not is_constant(versus) and versus.p_value >= CLEAR:
        cannot = f"{len(chosen.values)} folds cannot tell it from {does} ({floor.mean:.3f}): the difference is"
        return does, [f"{cannot} {_amount(versus, '95 % interval')}."]
    return None, []


def _by_requirements(rows: Sequence[ComparisonRow]) -> tuple[list[ComparisonRow], str]:
    """The methods with which no requirement clearly failed, and a sentence about the others."""
    reached = [row for row in rows if not row.not_reachable]
    excluded = ""
    if not reached:
        fewest = min(len(row.not_reachable) for row in rows)
        rows = [row for row in rows if len(row.not_reachable) == fewest]
        excluded = (
            f"No method could meet the requirements on the training rows of every fold; decisions there are at the "
            f"nearest threshold ({rows[0].not_reachable[0]}). Loosen the requirements, or take what comes nearest. "
        )
    elif len(reached) < len(rows):
        names = ", ".join(_name(row) for row in rows if row.not_reachable)
        excluded = f"Not considered, because on some folds' training rows no threshold met the requirements: {names}. "
        rows = reached
    kept = [row for row in rows if not row.failed]
    if not kept:
        kept = [min(rows, key=_violation)]
        return kept, f"{excluded}With every method a requirement clearly failed {ON_ALL}; this comes nearest to them."
    if len(kept) < len(rows):
        names = ", ".join(f"{_name(row)} ({row.failed[0]})" for row in rows if row.failed)
        excluded += f"Not considered, because a requirement clearly failed {ON_ALL}: {names}. "
    return kept, excluded.strip()


def _violation(row: ComparisonRow) -> float:
    return max(requirement.violation for requirement in row.requirements)


def _about_requirements(row: ComparisonRow) -> list[str]:
    """Say how the requirements held with the recommended method."""
    if row.held is None:
        return []
    by_fold = f"On single folds the requirements held {row.held} of {len(row.values)} times."
    if not row.requirements:
        return [by_fold]
    states = [f"{requirement.text} is {_state(requirement)}" for requirement in row.requirements]
    return [f"With it, {ON_ALL}, {' and '.join(states)}. {by_fold}"]


def _state(requirement: PooledRequirement) -> str:
    """Say whether a requirement is met, and its value."""
    low, high = requirement.interval
    met = "met" if requirement.held else "missed" if requirement.clearly_fails else "missed by no more than chance"
    return f"{met} ({requirement.value:.3f}, 95 % interval {low:.3f} to {high:.3f})"


def _why_not_default(default: ComparisonRow, chosen: ComparisonRow, metric: Metric) -> str:
    """Say why another method is recommended in place of metricfit's default."""
    name, mean = _name(chosen), f"{_capital(NAMES[DEFAULT])} has a mean of {default.mean:.3f}"
    lead = (default.mean - chosen.mean) if metric.minimize else (chosen.mean - default.mean)
    simpler = " and it is simpler" if _simplicity(chosen)[0] < _simplicity(default)[0] else ""
    if lead > 0:
        return f"{mean}; {name} is preferred because its mean is {_size(lead)} better{simpler}."
    return f"{mean}; {name} is preferred because it is simpler and within 1 % of the best."


def _default_and_reference(rows: Mapping[str, ComparisonRow], metric: Metric) -> str:
    """Compare metricfit's default with what one would do without this library."""
    default, reference = NAMES[DEFAULT], REFERENCE
    row = rows[DEFAULT]
    compared = sum(name not in BASELINES for name in rows) - 1
    versus = compare_two(row.values, rows[REFERENCE].values, metric, comparisons=compared)
    if versus is None:
        return f"{_capital(default)} does exactly as well as {reference}."
    if row.p_value is not None and row.p_value < CLEAR:
        better = (versus.difference < 0) == metric.minimize
        return f"{_capital(default)} is clearly {'better' if better else 'worse'} than {reference} ({_amount(versus)})."
    if versus.probabilities.rope >= SURE and not is_constant(versus):
        return f"{_capital(default)} does as well as {reference} ({_amount(versus)})."
    return f"{versus.splits} folds cannot tell {default} from {reference}: the difference is {_amount(versus)}."


def _simplicity(row: ComparisonRow) -> tuple[int, float]:
    return COMPLEXITY.get(row.name, max(COMPLEXITY.values())), row.seconds or 0.0


def _why_simpler(chosen: ComparisonRow, best: ComparisonRow) -> str:
    """The end of a sentence that begins with the chosen method."""
    faster = (best.seconds or 0.0) >= 2 * (chosen.seconds or 0.0)
    times = f"{_seconds(chosen)} instead of {_seconds(best)}"
    return f"is simpler and trains faster ({times})" if faster else "is simpler"


def _seconds(row: ComparisonRow) -> str:
    seconds = row.seconds or 0.0
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _size(difference: float) -> str:
    return f"{abs(difference):.3f}" if abs(difference) >= 0.0005 else "less than 0.001"


def _amount(versus: SplitComparison, interval: str = "simultaneous 95 % interval") -> str:
    if is_constant(versus):
        return f"{versus.difference:+.3f} on every fold"
    low, high = versus.interval
    return f"{versus.difference:+.3f}, {interval} {low:+.3f} to {high:+.3f}"


def _name(row: ComparisonRow) -> str:
    return NAMES.get(row.name, row.name)


def _listed(rows: Sequence[ComparisonRow]) -> str:
    names = [_name(row) for row in rows]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _capital(text: str) -> str:
    return text if text.startswith("metricfit") else text[:1].upper() + text[1:]
