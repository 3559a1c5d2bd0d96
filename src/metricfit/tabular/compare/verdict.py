"""What a comparison says, in plain words: which method to use, how sure that is, and whether requirements held.

The rule: use the method with the best mean, unless a simpler one has a mean within 1 % of it and is not clearly worse.
Of several such methods the simplest is used, and of equally simple ones the fastest. A difference is clear if its
p-value, by the corrected resampled t-test and Holm's correction for all comparisons made with the same method, is below
0.05. Five folds can rarely prove which of two good methods is better. A rule that took the simplest of all that cannot
be told apart would recommend logistic regression nearly always, also where others are well ahead of it on average.

Under requirements, methods are left out with which a requirement clearly fails: the 95 % interval of its value on the
test rows of all folds together is beyond the bound. A method that misses the bound by chance stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metricfit.metrics import Metric, get_metric
from metricfit.metrics.spoken_names import name_metric
from metricfit.stats import SplitComparison
from metricfit.tabular.compare.baselines import BASELINES
from metricfit.tabular.compare.comparison_row import ComparisonRow
from metricfit.tabular.compare.methods import COMPLEXITY, DEFAULT, REFERENCE, UNTUNED
from metricfit.tabular.compare.pooled_requirements import PooledRequirement
from metricfit.tabular.compare.standings import compare_two, compare_with, is_constant

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
