"""The rows of a comparison with intervals and tests, and what they say in plain words.

All methods are compared with one reference on the same folds, which makes several tests. Their p-values are corrected
by Holm's method, and the intervals of the differences are simultaneous (Bonferroni). The test is a paired bootstrap of
the rows where the metric is of counts and rows are in no groups, and otherwise the corrected t-test of the folds.

The rule: use the method with the best mean, unless a simpler one has a mean within 1 % of it and is not clearly worse.
Of several such methods the simplest is used, and of equally simple ones the fastest. A difference is clear if its
p-value, with Holm's correction for all comparisons made with the same method, is below 0.05. Few rows can rarely prove
which of two good methods is better. A rule that took the simplest of all that cannot be told apart would recommend
logistic regression nearly always, also where others are well ahead of it on average.

Under requirements, methods are left out with which a requirement clearly fails: the 95 % interval of its value on the
test rows of all folds together is beyond the bound. A method that misses the bound by chance stays.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from metricfit import stats
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics import Metric, get_metric
from metricfit.metrics.spoken_names import name_metric
from metricfit.stats import SplitComparison
from metricfit.tabular.compare.judging import FoldResult, PooledRequirement
from metricfit.tabular.compare.methods import BASELINES, COMPLEXITY, DEFAULT, PLAIN, REFERENCE, YOURS
from metricfit.tabular.compare.paired_rows import FoldTest, PairTest

Pair = tuple[float, float]


@dataclass(frozen=True)
class ComparisonRow:
    """A method's mean value, how sure it is, and how it compares with the reference, LightGBM as it comes.

    Attributes:
        name: Name of the method, as `fit --method` takes it.
        mean: Mean of the metric over the folds.
        interval: 95 % interval of the mean; None if it is not known, for example because all folds have the same value.
        difference: This mean minus the mean of the reference; None for the reference itself, and for a method that
            equals it on every fold.
        difference_interval: Interval of the difference; in the rows of ``metricfit.compare`` it is simultaneous with
            the intervals of the other methods. None if the difference is the same on every fold.
        p_value: p-value of the paired test that the difference is 0; in the rows of ``metricfit.compare`` it is
            corrected by Holm's method. None where ``difference_interval`` is None.
        seconds: Training time of all folds; None if nothing was trained.
        held: Number of folds on which the requirements held; None if there are no requirements.
        values: The metric on each fold. Where no threshold met the requirements on a fold's training rows, this is the
            value at the nearest threshold.
        not_reachable: For each fold on whose training rows no threshold met the requirements, what was reachable.
        requirements: The requirements on the test rows of all folds together; empty for decisions without a model.
        complexity: Rank from simple to complex.
        plain: Whether its decisions were not chosen for the metric and the requirements. This is so for LightGBM and
            your models as they come, and for decisions without a model.

    Raises:
        InvalidValueError: If a number is not finite.

    Example:
        >>> ComparisonRow("mix", 0.7, (0.67, 0.73), seconds=12.5).mean
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
    complexity: int = max(COMPLEXITY.values())
    plain: bool = False

    @property
    def failed(self) -> tuple[PooledRequirement, ...]:
        """The requirements that clearly fail on the test rows of all folds together."""
        return tuple(requirement for requirement in self.requirements if requirement.clearly_fails)

    def __post_init__(self) -> None:
        numbers = [self.mean, self.difference, self.p_value, self.seconds, *self.values]
        numbers += [*(self.interval or ()), *(self.difference_interval or ())]
        if any(number is not None and not math.isfinite(number) for number in numbers):
            raise InvalidValueError(f"{self.name!r} has a number that is not finite; pass None for what is not known")


#: Values that differ by less are equal: the expected MCC of decisions at random is 0, computed as about 1e-17.
ROUNDING = 1e-12


def standings(
    results: Mapping[str, Sequence[FoldResult]],
    metric: Metric,
    *,
    required: bool = False,
    complexity: Mapping[str, int] = COMPLEXITY,
    plain: Collection[str] = PLAIN,
    test: PairTest | None = None,
) -> list[ComparisonRow]:
    """Make the rows of a comparison from the results of its folds.

    Decisions without a model are shown without tests: nobody asks whether they differ from the reference, and every
    test makes the correction of the others stricter.

    Args:
        results: For each row, the results of its folds.
        metric: The metric that the methods are judged by.
        required: Whether there are requirements.
        complexity: The rank of each row from simple to complex.
        plain: Names of the rows whose decisions were not chosen for the metric.
        test: The test of differences; by default the one of the folds.

    Returns:
        One row per method, best mean first; methods that could not meet the requirements on the training rows of some
        fold come last.
    """
    values = {name: [result.value for result in by_fold] for name, by_fold in results.items()}
    tested = [name for name in values if name not in {REFERENCE, *BASELINES}]
    versus = dict(zip(tested, compare_with(REFERENCE, tested, test or FoldTest(values, metric)), strict=True))
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
                seconds=_total([result.seconds for result in by_fold]),
                held=sum(result.held for result in by_fold) if required else None,
                values=tuple(values[name]),
                not_reachable=tuple(result.not_reachable for result in by_fold if result.not_reachable is not None),
                complexity=complexity.get(name, max(COMPLEXITY.values())),
                plain=name in plain,
            )
        )
    return sorted(rows, key=lambda row: (bool(row.not_reachable), row.mean if metric.minimize else -row.mean))


def _total(seconds: Sequence[float | None]) -> float | None:
    known = [each for each in seconds if each is not None]
    return sum(known) if len(known) == len(seconds) else None


def interval_of_mean(values: Sequence[float], metric: Metric) -> stats.Interval | None:
    """The 95 % interval of the mean over the folds of a cross-validation, one value per fold.

    The folds' training rows overlap, so Student's interval of the mean would be far too short: the variance is taken
    from Nadeau & Bengio (2003), with as many folds as values. The interval is cut at the metric's bounds, which the
    mean cannot pass. It is None where all values are equal, except for rounding.

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
    base: str, others: Sequence[str], test: PairTest
) -> list[tuple[stats.SplitComparison | None, float | None]]:
    """Compare several methods with one.

    Args:
        base: Name of the method that the others are compared with.
        others: Names of the others.
        test: The test.

    Returns:
        For each of the others the comparison (other - base), with an interval that is simultaneous over all of them,
        and its p-value after Holm's correction. Both are None for a method that is equal on every fold; the p-value
        alone is None where the difference is the same on every fold, because its variance is then not known.

    Example:
        >>> from metricfit.metrics import get_metric
        >>> values = {"base": [0.5, 0.52, 0.48], "first": [0.61, 0.61, 0.60], "second": [0.5, 0.53, 0.47]}
        >>> test = FoldTest(values, get_metric("f1"))
        >>> [round(p, 3) for _, p in compare_with("base", ["first", "second"], test)]
        [0.033, 1.0]
    """
    comparisons = [test(name, base, comparisons=len(others)) for name in others]
    p_values = [
        None if comparison is None or is_constant(comparison) else comparison.p_value for comparison in comparisons
    ]
    corrected = stats.holm([1.0 if p is None else p for p in p_values])
    triples = zip(comparisons, p_values, corrected, strict=True)
    return [(comparison, None if p is None else corrected_p) for comparison, p, corrected_p in triples]


def is_constant(comparison: stats.SplitComparison) -> bool:
    """Whether the difference is the same on every fold, so that its interval has no width."""
    return comparison.interval.low == comparison.interval.high


ON_ALL = "on the test rows of all folds together"
SURE = 0.95
CLEAR = 0.05
#: Methods that the verdict names.
LISTED = 4
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
        sure: Whether the folds prove that no other method is better, or that the difference is negligible.
        sentences: The verdict: which method to use, and how it compares with what one would do otherwise.
        details: The reasons in full, with the rule at the end.
        alarm: What the recommended method is not clearly better than, such as "calling every row positive"; None if it
            is clearly better than all decisions without a model.
    """

    row: ComparisonRow
    sure: bool
    sentences: tuple[str, str]
    details: tuple[str, ...]
    alarm: str | None = None

    @property
    def text(self) -> str:
        """The two sentences of the verdict."""
        return " ".join(self.sentences)


#: Another method than the best one, and the difference to it; None where both are equal on every fold.
_Rival = tuple[ComparisonRow, SplitComparison | None]


class _Choice(NamedTuple):
    """The chosen method, whether the choice is sure, what the verdict says of it, and the reason in full."""

    row: ComparisonRow
    sure: bool
    standing: str
    reason: str


def advise(
    rows: Sequence[ComparisonRow], metric: str, label: str | None = None, test: PairTest | None = None
) -> Advice:
    """Choose a method by the rule of this module.

    Args:
        rows: The rows of a comparison, as ``standings`` returns them. Methods with which a requirement clearly fails on
            the test rows of all folds together are not considered; under requirements, plain rows are not either.
        metric: The name of the metric.
        label: What to call the metric, if not by its name.
        test: The test of differences; by default the one of the folds.

    Returns:
        The recommended method and the reasons.
    """
    judged, label = get_metric(metric), label or name_metric(metric)
    test = test or FoldTest({row.name: row.values for row in rows}, judged)
    considered, details = [row for row in rows if row.name not in BASELINES], list[str]()
    met_by, count = _met_by(considered), len(considered)
    if any(row.held is not None for row in considered):
        considered, details = _by_requirements([row for row in considered if not row.plain] or considered)
    others_are = "other method" if len(considered) == count else "other one considered"
    choice = _choose(considered, judged, label, others_are, test)
    alarm, about_floor = _floor(choice.row, rows, judged, test)
    details += [choice.reason, *_about_requirements(choice.row), *about_floor, RULE]
    mean = f"{_name(choice.row)}, mean {label} {choice.row.mean:.3f}"
    second = about_floor[0] if alarm else _contrast(choice.row, rows, judged, test)
    if choice.row.not_reachable:
        first, second = "No method could meet the requirements everywhere.", f"Nearest to them: {_name(choice.row)}."
    elif alarm is not None:
        first = f"No method is clearly better than {alarm}; the best is {mean}."
    else:
        use = f"{met_by}: use" if met_by else "Use"
        first = f"{use} {mean}{choice.standing}{_met(choice.row)}."
    sure = choice.sure and alarm is None and not choice.row.not_reachable
    return Advice(choice.row, sure, (first, second), tuple(details), alarm)


def _choose(
    considered: Sequence[ComparisonRow], metric: Metric, label: str, others_are: str, test: PairTest
) -> _Choice:
    sign = 1 if metric.minimize else -1
    best = min(considered, key=lambda row: (round(sign * row.mean, 12), _simplicity(row)))
    others = [row for row in considered if row is not best]
    compared = compare_with(best.name, [row.name for row in others], test)
    pairs = zip(others, compared, strict=True)
    equals: list[_Rival] = [(row, versus) for row, (versus, p) in pairs if p is None or p >= CLEAR]
    close = [rival for rival in equals if _simpler_and_close(rival[0], best)]
    extreme = "lowest" if metric.minimize else "highest"
    best_mean = f"{_capital(_name(best))} has the {extreme} mean {label}, {best.mean:.3f}"
    if close:
        return _prefer_simpler(*min(close, key=lambda rival: _simplicity(rival[0])), best, best_mean)
    if not others:
        return _Choice(best, True, "", f"{best_mean}.")
    if not equals:
        standing = f"clearly better than every {others_are}"
        return _Choice(best, True, f", {standing}", f"{best_mean}, and is {standing}.")
    nearest = min(equals, key=lambda rival: abs(rival[0].mean - best.mean))
    standing = f", the best here, although the {test.evidence.split()[-1]} cannot prove it"
    return _Choice(best, False, standing, f"{best_mean}. {_lead(*nearest, test.evidence)}")


def _simpler_and_close(row: ComparisonRow, best: ComparisonRow) -> bool:
    return row.complexity < best.complexity and abs(row.mean - best.mean) <= MARGIN * abs(best.mean)


def _prefer_simpler(
    chosen: ComparisonRow, versus: SplitComparison | None, best: ComparisonRow, best_mean: str
) -> _Choice:
    """Choose a method that is simpler than the best one and as good, or nearly."""
    faster = (best.seconds or 0.0) >= 2 * (chosen.seconds or 0.0)
    times = f" and trains faster ({_seconds(chosen)} instead of {_seconds(best)})" if faster else ""
    sure = versus is None or (versus.probabilities.rope >= SURE and not is_constant(versus))
    amount = "" if versus is None else f" ({_amount(versus)})"
    does = "does exactly as well" if versus is None else "does as well" if sure else "comes within 1 % of it"
    reason = f"{best_mean}. {_capital(_name(chosen))} {does}{amount} and is simpler{times}."
    return _Choice(chosen, sure, ", within 1 % of the best here, and simpler", reason)


def _lead(nearest: ComparisonRow, versus: SplitComparison | None, evidence: str) -> str:
    """Say how far the best method is ahead of the next one."""
    name = _name(nearest)
    if versus is None:
        return f"{_capital(name)} does exactly as well and is not simpler."
    ahead = f"It is {_size(versus.difference)} ahead of {name}"
    if is_constant(versus):
        return f"{ahead} on every fold, which leaves open how sure that is."
    low, high = sorted((-versus.interval.low, -versus.interval.high))
    interval = f"simultaneous 95 % interval of the difference {low:+.3f} to {high:+.3f}"
    return f"{ahead}, which {evidence} cannot prove ({interval})."


def _contrast(chosen: ComparisonRow, rows: Sequence[ComparisonRow], metric: Metric, test: PairTest) -> str:
    """Compare the chosen method with the reference and with the user's own models as they are."""
    others = [row for row in rows if row is not chosen and row.name not in BASELINES]
    others.sort(key=lambda row: row.name == REFERENCE)  # the user's own models come first
    compared = zip(others, compare_with(chosen.name, [row.name for row in others], test), strict=True)
    states: dict[str, list[str]] = {}
    for row, (versus, p) in compared:
        if not (row.plain or chosen.plain):
            continue
        missed = [f"{each.text} ({each.value:.3f})" for each in row.requirements if not each.held]
        if missed and all(each.held for each in chosen.requirements):
            states.setdefault(f"{_name(row)} missed", []).extend(missed)
            continue
        if versus is None:
            states.setdefault("it does exactly as well as", []).append(_name(row))
            continue
        better, amount = (versus.difference > 0) == metric.minimize, _size(versus.difference)
        if p is not None and p < CLEAR:
            verb, amount = f"it is clearly {'better' if better else 'worse'} than", f"by {amount}"
        elif better:
            verb = f"{test.evidence} cannot prove its lead over"
        else:
            verb, amount = f"{test.evidence} cannot tell it from", f"{amount} better"
        states.setdefault(verb, []).append(f"{_name(row)} ({amount})")
    text = "; ".join(f"{verb} {_listed(names)}" for verb, names in states.items())
    return f"{_capital(text)}." if states else "Nothing else was compared with it."


def _floor(
    chosen: ComparisonRow, rows: Sequence[ComparisonRow], metric: Metric, test: PairTest
) -> tuple[str | None, list[str]]:
    """Compare the recommended method with the best decisions without a model that meet the requirements as often."""
    floors = [row for row in rows if row.name in BASELINES and (row.held or 0) >= (chosen.held or 0)]
    if not floors or chosen.not_reachable:
        return None, []
    floor = min(floors, key=lambda row: row.mean if metric.minimize else -row.mean)
    name, does = _capital(_name(chosen)), BASELINES[floor.name]
    if (chosen.mean >= floor.mean) if metric.minimize else (chosen.mean <= floor.mean):
        return does, [
            f"{name} is no better than {does}, which has {floor.mean:.3f}: the columns say little about the target."
        ]
    versus = test(chosen.name, floor.name)
    if versus is not None and not is_constant(versus) and versus.p_value >= CLEAR:
        cannot = f"{test.evidence} cannot tell it from {does} ({floor.mean:.3f}): the difference is"
        return does, [f"{cannot} {_amount(versus, '95 % interval')}."]
    return None, []


def _by_requirements(rows: Sequence[ComparisonRow]) -> tuple[list[ComparisonRow], list[str]]:
    """Return the methods with which no requirement clearly failed, and sentences about the others."""
    reached, excluded = [row for row in rows if not row.not_reachable], list[str]()
    if not reached:
        fewest = min(len(row.not_reachable) for row in rows)
        rows = [row for row in rows if len(row.not_reachable) == fewest]
        excluded.append(
            "No method could meet the requirements on the training rows of every fold; decisions there are at the "
            f"nearest threshold ({rows[0].not_reachable[0]}). Loosen the requirements, or take what comes nearest."
        )
    elif len(reached) < len(rows):
        names = ", ".join(_name(row) for row in rows if row.not_reachable)
        excluded.append(
            f"Not considered, because on some folds' training rows no threshold met the requirements: {names}."
        )
        rows = reached
    kept = [row for row in rows if not row.failed]
    if not kept:
        excluded.append(f"With every method a requirement clearly failed {ON_ALL}; this comes nearest to them.")
        return [min(rows, key=lambda row: max(each.violation for each in row.requirements))], excluded
    if len(kept) < len(rows):
        names = ", ".join(f"{_name(row)} ({row.failed[0]})" for row in rows if row.failed)
        excluded.append(f"Not considered, because a requirement clearly failed {ON_ALL}: {names}.")
    return kept, excluded


def _met_by(rows: Sequence[ComparisonRow]) -> str:
    """Say which methods met the requirements on all test rows together; nothing without requirements."""
    judged = [row for row in rows if row.requirements]
    if not judged:
        return ""
    met = [row for row in judged if all(each.held for each in row.requirements)]
    chance = [row for row in judged if row not in met and not row.failed]
    several = "requirement" if len(judged[0].requirements) == 1 else "requirements"
    if len(met) == len(judged):
        return f"All {len(judged)} methods met the {several}"
    said = f"{_capital(_some(met))} met the {several}" if met else f"No method met the {several}"
    by_chance = f", {_some(chance)} missed by no more than chance" if chance else ""
    return f"{said}{by_chance}, of {len(judged)} methods"


def _some(rows: Sequence[ComparisonRow]) -> str:
    """Name a few methods, and count the others."""
    names = [_name(row) for row in rows[:LISTED]]
    return _listed(names) if len(rows) <= LISTED else f"{', '.join(names)} and {len(rows) - LISTED} more"


def _met(row: ComparisonRow) -> str:
    """Say in the verdict whether the requirements are met."""
    states = [f"{each.text} {'met' if each.held else 'missed'} ({each.value:.3f})" for each in row.requirements]
    return f", with {' and '.join(states)}" if states else ""


def _about_requirements(row: ComparisonRow) -> list[str]:
    """Say how the requirements held with the recommended method."""
    if row.held is None:
        return []
    by_fold = f"On single folds the requirements held {row.held} of {len(row.values)} times."
    states = [f"{requirement.text} is {_state(requirement)}" for requirement in row.requirements]
    return [f"With it, {ON_ALL}, {' and '.join(states)}. {by_fold}" if states else by_fold]


def _state(requirement: PooledRequirement) -> str:
    """Say whether a requirement is met, and its value."""
    low, high = requirement.interval
    met = "met" if requirement.held else "missed" if requirement.clearly_fails else "missed by no more than chance"
    return f"{met} ({requirement.value:.3f}, 95 % interval {low:.3f} to {high:.3f})"


def _simplicity(row: ComparisonRow) -> tuple[int, float]:
    return row.complexity, row.seconds or 0.0


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
    return quote(row.name) if row.complexity <= YOURS + 1 else NAMES.get(row.name, row.name)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _capital(text: str) -> str:
    return text if text.startswith("metricfit") else text[:1].upper() + text[1:]
