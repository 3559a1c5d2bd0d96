"""What a comparison says, in plain words: which method to use, how sure that is, and whether requirements held.

The rule: of the methods that are not clearly worse than the one with the best mean, take the simplest, and of equally
simple ones the fastest. A difference is clear if its p-value, by the corrected resampled t-test and Holm's correction
for all comparisons made with the same method, is below 0.05. The best of several rows is therefore not called better
because it is the best of several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metricfit.metrics import Metric, get_metric
from metricfit.stats import SplitComparison
from metricfit.tabular.compare.comparison_row import ComparisonRow
from metricfit.tabular.compare.methods import DEFAULT, REFERENCE, methods
from metricfit.tabular.compare.standings import compare_two, compare_with, is_constant

SURE = 0.95
CLEAR = 0.05
NAMES = {DEFAULT: "metricfit's default", REFERENCE: "cross-entropy with a tuned threshold"}
#: Decisions at 0.5 show what tuning the threshold is worth. They are not a method to recommend: tuning is free.
UNTUNED = {method.at_half for method in methods(True)} - {None}
COMPLEXITY = {method.name: method.complexity for method in methods(True)}
RULE = (
    "The rule: use the simplest, then the fastest, of the methods that are not clearly worse than the best one; a "
    "difference is clear if its p-value, corrected for the number of comparisons (Holm), is below 0.05."
)


@dataclass(frozen=True)
class Advice:
    """What to use.

    Attributes:
        row: The recommended method.
        sure: Whether the folds support it. If not, it is recommended because it is simple.
        text: The reasons, in full sentences, with the rule at the end.
    """

    row: ComparisonRow
    sure: bool
    text: str


@dataclass(frozen=True)
class _Rival:
    """A method beside the best one: the difference to it, and whether the method is clearly worse."""

    row: ComparisonRow
    versus: SplitComparison | None
    clearly_worse: bool


def headline(rows: Sequence[ComparisonRow], metric: str) -> str:
    """Write the advice in one sentence."""
    advice = advise(rows, metric)
    line = f"{'Use' if advice.sure else 'Start with'} {_name(advice.row)}: mean {metric} {advice.row.mean:.3f}."
    if advice.row.not_reachable:
        return f"No method could meet the requirements everywhere. Nearest to them: {_name(advice.row)}."
    return line


def advise(rows: Sequence[ComparisonRow], metric: str) -> Advice:
    """Choose a method by the rule of this module.

    Args:
        rows: The rows of a comparison, as ``standings`` returns them. If they say on how many folds the requirements
            held, only the methods that met them most often are considered.
        metric: The name of the metric.

    Returns:
        The recommended method and the reasons.
    """
    judged = get_metric(metric)
    considered = [row for row in rows if row.name not in UNTUNED]
    sentences = []
    if any(row.held is not None for row in considered):
        considered, about_requirements = _by_requirements(considered)
        sentences.append(about_requirements)
    chosen, sure, reason = _choose(considered, judged)
    sentences.append(reason)
    by_name = {row.name: row for row in rows}
    if DEFAULT in by_name and REFERENCE in by_name and not {NAMES[DEFAULT], NAMES[REFERENCE]} <= _named(reason):
        sentences.append(_default_and_reference(by_name, judged))
    return Advice(chosen, sure and not chosen.not_reachable, " ".join([*sentences, RULE]))


def _choose(considered: Sequence[ComparisonRow], metric: Metric) -> tuple[ComparisonRow, bool, str]:
    """The recommended method, whether that is sure, and why."""
    best = min(considered, key=lambda row: (row.mean if metric.minimize else -row.mean, _simplicity(row)))
    others = [row for row in considered if row is not best]
    compared = compare_with(best.values, [row.values for row in others], metric)
    rivals = [
        _Rival(row, versus, p is not None and p < CLEAR) for row, (versus, p) in zip(others, compared, strict=True)
    ]
    equals = [rival for rival in rivals if not rival.clearly_worse]
    chosen = min([best, *(rival.row for rival in equals)], key=_simplicity)
    extreme = "lowest" if metric.minimize else "highest"
    has_best_mean = f"{_capital(_name(best))} has the {extreme} mean {metric.name}, {best.mean:.3f}"
    if chosen is best:
        if not rivals:
            return best, True, f"{has_best_mean}; use it."
        if not equals:
            return best, True, f"{has_best_mean}, and is clearly better than every other method; use it."
        alike = (
            "the one method that is not clearly worse is not"
            if len(equals) == 1
            else (f"none of the {len(equals)} methods that are not clearly worse is")
        )
        return best, True, f"{has_best_mean}, and {alike} simpler; use it."
    versus = next(rival.versus for rival in equals if rival.row is chosen)
    name, folds = _name(chosen), len(best.values)
    simpler = _why_simpler(chosen, best)
    if versus is None:
        return chosen, True, f"{has_best_mean}. {_capital(name)} does exactly as well and {simpler}; use it."
    if versus.probabilities.rope >= SURE and not is_constant(versus):
        does = f"{_capital(name)} does as well ({_amount(versus)}) and {simpler}; use it."
        return chosen, True, f"{has_best_mean}. {does}"
    if is_constant(versus):
        unknown = f"The difference of {name} to it is {_amount(versus)}, too few values to say how sure that is"
        return (
            chosen,
            False,
            f"{has_best_mean}. {unknown}; ask for other folds. {_capital(name)} {simpler}; start there.",
        )
    cannot_tell = f"{folds} folds cannot tell {name} from it: the difference is {_amount(versus)}"
    return chosen, False, f"{has_best_mean}. {cannot_tell}. {_capital(name)} {simpler}, so start there."


def _by_requirements(rows: Sequence[ComparisonRow]) -> tuple[list[ComparisonRow], str]:
    """The methods that met the requirements most often, and a sentence about it."""
    folds = len(rows[0].values)
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
    most = max(row.held or 0 for row in rows)
    kept = [row for row in rows if (row.held or 0) == most]
    with_them = "with every method" if len(kept) == len(rows) else f"with {_listed(kept)}, on fewer with the others"
    only = (
        "" if len(kept) == len(rows) else "; only these are considered" if len(kept) > 1 else "; only it is considered"
    )
    return kept, f"{excluded}On the test rows the requirements held on {most} of {folds} folds {with_them}{only}."


def _default_and_reference(rows: Mapping[str, ComparisonRow], metric: Metric) -> str:
    """Compare metricfit's default with what one would do without this library."""
    default, reference = NAMES[DEFAULT], NAMES[REFERENCE]
    row = rows[DEFAULT]
    versus = compare_two(row.values, rows[REFERENCE].values, metric, comparisons=len(rows) - 1)
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
    as_simple = _simplicity(chosen)[0] == _simplicity(best)[0]
    faster = (best.seconds or 0.0) >= 2 * (chosen.seconds or 0.0)
    times = f"{_seconds(chosen)} instead of {_seconds(best)}"
    if as_simple:
        return f"is as simple and trains faster ({times})"
    return f"is simpler and trains faster ({times})" if faster else "is simpler"


def _seconds(row: ComparisonRow) -> str:
    seconds = row.seconds or 0.0
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _amount(versus: SplitComparison) -> str:
    if is_constant(versus):
        return f"{versus.difference:+.3f} on every fold"
    low, high = versus.interval
    return f"{versus.difference:+.3f}, simultaneous 95 % interval {low:+.3f} to {high:+.3f}"


def _name(row: ComparisonRow) -> str:
    return NAMES.get(row.name, row.name)


def _named(text: str) -> set[str]:
    return {name for name in NAMES.values() if name.lower() in text.lower()}


def _listed(rows: Sequence[ComparisonRow]) -> str:
    names = [_name(row) for row in rows]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _capital(text: str) -> str:
    return text if text.startswith("metricfit") else text[:1].upper() + text[1:]
