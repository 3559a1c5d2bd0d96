"""What a comparison says, in plain words: which method to use, how sure that is, and whether requirements held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from metricfit.experiments.methods import DEFAULT, REFERENCE, methods
from metricfit.experiments.standings import Row, beside, constant
from metricfit.metrics import Metric, get_metric
from metricfit.stats import SplitComparison

SURE = 0.95
SHOWN = 0.0005  # what three decimals show as more than 0
SIMPLER = "; use it, it is simpler."
CALLED = {DEFAULT: "metricfit's default", REFERENCE: "cross-entropy with a tuned threshold"}
SHORT = {DEFAULT: "metricfit's default", REFERENCE: "cross-entropy"}
#: Decisions at 0.5 ask for no threshold that meets requirements, so they always have values.
UNTUNED = {each.at_half for each in methods(True)} - {None}


@dataclass(frozen=True)
class Advice:
    """What to use, None if nothing is left; whether that is sure; why, and what to do, the end of that sentence."""

    use: Row | None
    firm: bool
    finding: str
    so: str

    @property
    def text(self) -> str:
        """In full."""
        return self.finding + self.so


def verdict(rows: Sequence[Row], metric: str, *, required: bool = False) -> str:
    """What the numbers say, in plain words; ``required`` if requirements were to hold. ``rows`` are best first."""
    return advised(rows, metric, required=required).text


def headline(rows: Sequence[Row], metric: str, *, required: bool = False) -> str:
    """The verdict's advice, as a line."""
    found = advised(rows, metric, required=required)
    if found.use is None:
        return "No method met the requirements on every fold's training rows."
    return f"{'Use' if found.firm else 'Start with'} {_called(found.use)}: mean {metric} {found.use.mean:.3f}."


def advised(rows: Sequence[Row], metric: str, *, required: bool = False) -> Advice:
    """Between the default and the reference first; then another method, if its mean is clearly better still."""
    judged, by_name = get_metric(metric), {row.name: row for row in rows}
    mine, reference = by_name[DEFAULT], by_name[REFERENCE]
    between_two = (
        _out_of_reach(mine, reference, [row for row in rows if row.mean is not None])
        if mine.mean is None or reference.mean is None
        else _of_two(mine, reference, judged, required)
    )
    best = rows[0]
    if between_two.use is None or best.name in (DEFAULT, REFERENCE, between_two.use.name):
        return between_two
    return _with_the_best(between_two, best, between_two.use, judged, required)


def _of_two(mine: Row, reference: Row, metric: Metric, required: bool) -> Advice:
    """Both have values on every fold."""
    found, folds = _by_value(mine, reference, metric), len(mine.values)
    if not required:
        return found
    if mine.held == reference.held:
        held = f"The requirements held on {mine.held} of {folds} folds with each of the two."
        return replace(found, finding=f"{held} {found.finding}")
    more, less = (mine, reference) if mine.held > reference.held else (reference, mine)
    held = f"The requirements held on {more.held} of {folds} folds with {_called(more)}"
    held += f", on {less.held} with {_called(less)}."
    if found.use is more:
        return replace(found, finding=f"{held} {found.finding}")
    return Advice(
        more, False, f"{held} {found.finding}", f". As the requirements are to hold, start with {_called(more)}."
    )


def _by_value(mine: Row, reference: Row, metric: Metric) -> Advice:
    """By the metric alone."""
    theirs, versus = "Cross-entropy with a tuned threshold", mine.versus
    if versus is None:
        return Advice(reference, True, f"{theirs} does exactly as well here ({metric.name} {mine.mean:.3f})", SIMPLER)
    if constant(versus):
        finding = f"The difference of metricfit's default to {CALLED[REFERENCE]} is {_amount(versus)}"
        so = ", too few values to say how sure that is; ask for other folds, or more of them."
        return Advice(reference, False, finding, so)
    outcome, between = _outcome(versus, metric), f"metricfit's default beside it: {_amount(versus)}"
    if outcome == "better":
        finding = f"metricfit's default is better than {CALLED[REFERENCE]} here ({_amount(versus)})"
        return Advice(mine, True, finding, "; use it.")
    if outcome == "worse":
        return Advice(reference, True, f"{theirs} is better here ({between})", "; use it.")
    if outcome == "undecided":
        favoured = mine if (versus.difference < 0) == metric.minimize else reference
        favour = f", in favour of {SHORT[favoured.name]}" if abs(versus.difference) >= SHOWN else ""
        finding = (
            f"{versus.splits} folds cannot tell metricfit's default from {CALLED[REFERENCE]}: the difference is "
            f"{_amount(versus)}{favour}"
        )
        return Advice(reference, False, finding, ". Cross-entropy is simpler, so start there.")
    least = "at least " if outcome == "no better" else ""
    return Advice(reference, True, f"{theirs} does {least}as well here ({between})", SIMPLER)


def _outcome(versus: SplitComparison, metric: Metric) -> str:
    """Of the first of the two: that an interval holds 0 does not make them equal, only a probability does."""
    low, high = versus.interval
    if versus.probabilities.rope >= SURE:
        return "the same"
    if not low <= 0 <= high:
        return "better" if (high < 0) == metric.minimize else "worse"
    return "no better" if versus.probabilities.a <= 1 - SURE else "undecided"


def _out_of_reach(mine: Row, reference: Row, left: Sequence[Row]) -> Advice:
    """One of the two, or both, met the requirements on no threshold of some fold."""
    said = " ".join(
        f"With {_called(row)} no threshold met the requirements on the training rows of {len(row.unreached)} of "
        f"{len(row.values)} folds."
        for row in (mine, reference)
        if row.mean is None
    )
    tuned = [row for row in left if row.name not in UNTUNED]
    if not tuned:
        return Advice(None, True, said, " No other method met them on every fold either; loosen the requirements.")
    use = next((row for row in tuned if row.name in (DEFAULT, REFERENCE)), tuned[0])
    held = f"; with it they held on {use.held} of {len(use.values)} folds."
    if use.name in (DEFAULT, REFERENCE):
        return Advice(use, True, said.removesuffix("."), f". Use {_called(use)}{held}")
    best = f". Of the methods that met them, {use.name} has the best mean, {use.mean:.3f}{held}"
    return Advice(use, True, said.removesuffix("."), best)


def _with_the_best(so_far: Advice, best: Row, use: Row, metric: Metric, required: bool) -> Advice:
    """Another method has the best mean: to be used where it is clearly better and meets requirements as often."""
    extreme, versus = "lowest" if metric.minimize else "highest", beside(best.values, use.values, metric)
    amount = "" if versus is None else f" (beside {_called(use)}: {_amount(versus)})"
    held = f"; with it the requirements held on {best.held} of {len(best.values)} folds" if required else ""
    clear = versus is not None and not constant(versus) and _outcome(versus, metric) == "better"
    unclear = "" if clear else ", not clearly better"
    told = f"The {extreme} mean is that of {best.name}: {best.mean:.3f}{amount}{unclear}{held}"
    if clear and not (required and best.held < use.held):
        return Advice(best, True, f"{so_far.finding}. {told}", "; that is clearly better, so use it.")
    return replace(so_far, so=f"{so_far.so} {told}.")


def _amount(versus: SplitComparison) -> str:
    if constant(versus):
        return f"{versus.difference:+.3f} on every fold"
    return f"{versus.difference:+.3f}, 95 % interval {versus.interval.low:+.3f} to {versus.interval.high:+.3f}"


def _called(row: Row) -> str:
    return CALLED.get(row.name, row.name)
