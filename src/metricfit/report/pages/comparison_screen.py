"""The first screen of a comparison's page: what the recommended method does, beside a simple rival and no model."""

from __future__ import annotations

import torch

from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counting import count_labels
from metricfit.core.counts import Counts
from metricfit.metrics import get_metric
from metricfit.metrics.spoken_names import name_metric
from metricfit.report.first_screen import (
    SEVERAL_CLASS_COLUMNS,
    TWO_CLASS_COLUMNS,
    Alternative,
    FirstScreen,
    RequirementState,
    always_largest_class,
    describe_several_classes,
    describe_two_classes,
    flagging_everybody,
    flagging_nobody,
    state_decisions,
    state_several_classes,
)
from metricfit.report.titles import name_rows
from metricfit.tabular import Comparison, ComparisonRow
from metricfit.tabular.compare.judging import MethodDecisions
from metricfit.tabular.compare.methods import COMPLEXITY, DEFAULT

#: Methods of at most this complexity are simple: a linear model, or one kind of trees or kernels.
SIMPLE = 1


def decisions_by_method(comparison: Comparison) -> dict[str, MethodDecisions]:
    """Return the decisions of each method, the recommended one first and the others by their means."""
    kept = dict(comparison.decisions)
    if not kept:
        thresholds = [] if comparison.threshold is None else [comparison.threshold]
        kept = {DEFAULT: MethodDecisions(comparison.scores, comparison.decided, thresholds)}
    names = [str(comparison.recommended), *(row.name for row in comparison.rows)]
    return {name: kept[name] for name in dict.fromkeys(names) if name in kept}


def screen_of_comparison(comparison: Comparison) -> FirstScreen:
    """Make the first screen of a comparison's page."""
    rows = {row.name: row for row in comparison.rows}
    decisions = decisions_by_method(comparison)
    shown = next(iter(decisions))
    rival = _simple_rival(comparison, shown)
    counted = {name: _count(comparison, decisions[name]) for name in (shown, rival) if name is not None}
    metric = name_metric(comparison.metric, None if len(comparison.classes) == 2 else comparison.average)
    row = rows[shown]
    note = (
        f"Counts are those of all rows, each decided by models that did not train on it. {metric} is the mean of the "
        f"{len(row.values)} folds."
    )
    counts = counted[shown]
    described: list[Alternative] = []
    if isinstance(counts, ConfusionMatrix):
        for name, matrix in counted.items():
            assert isinstance(matrix, ConfusionMatrix)
            described.append(
                describe_several_classes(_label(name, rival), matrix, rows[name].mean, is_subject=name == shown)
            )
        largest = comparison.classes[int(counts.positives.argmax())]
        mean = rows["largest class"].mean if "largest class" in rows else None
        described.append(describe_several_classes(f"Always “{largest}”", always_largest_class(counts), mean))
        statements = state_several_classes(counts, comparison.classes)
        return FirstScreen(statements, described, SEVERAL_CLASS_COLUMNS, metric, _requirements(comparison, row), note)
    for name, of_method in counted.items():
        described.append(
            describe_two_classes(_label(name, rival), of_method, rows[name].mean, is_subject=name == shown)
        )
    for name, words, all_alike in (
        ("none positive", "Flagging nobody", flagging_nobody(counts)),
        ("all positive", "Flagging everybody", flagging_everybody(counts)),
    ):
        described.append(describe_two_classes(words, all_alike, rows[name].mean if name in rows else None))
    statements = state_decisions(counts, name_rows(comparison.classes[1], comparison.target))
    return FirstScreen(statements, described, TWO_CLASS_COLUMNS, metric, _requirements(comparison, row), note)


def _label(name: str, rival: str | None) -> str:
    shown = "metricfit's default" if name == DEFAULT else name
    words = shown if shown.startswith("metricfit") else shown[:1].upper() + shown[1:]
    return f"{words}, the best simple rival" if name == rival else words


def _simple_rival(comparison: Comparison, shown: str) -> str | None:
    """Return the best method of one simple model beside the one that is shown."""
    simple = [
        row
        for row in comparison.rows
        if row.name in comparison.decisions and COMPLEXITY.get(row.name, SIMPLE + 1) <= SIMPLE and row.name != shown
    ]
    minimize = get_metric(comparison.metric).minimize
    return min(simple, key=lambda row: row.mean if minimize else -row.mean).name if simple else None


def _count(comparison: Comparison, decisions: MethodDecisions) -> Counts:
    several = len(comparison.classes) > 2
    return count_labels(
        torch.from_numpy(decisions.decided),
        torch.from_numpy(comparison.labels),
        num_classes=len(comparison.classes) if several else None,
        matrix=several,
    )


def _requirements(comparison: Comparison, row: ComparisonRow) -> list[RequirementState]:
    """Say how the requirements held on the test rows, together and by fold."""
    if not comparison.subject_to or row.held is None:
        return []
    folds = f"held on {row.held} of {len(row.values)} folds, on rows that had no part in choosing the threshold"
    if not row.requirements:
        met = row.held == len(row.values)
        return [
            RequirementState(" and ".join(comparison.subject_to), "met" if met else "unmet", f"{folds}; not guaranteed")
        ]
    states = []
    for requirement in row.requirements:
        low, high = requirement.interval
        value = f"{requirement.value:.3f} (95 % interval {low:.3f} to {high:.3f}) on all folds together"
        states.append(
            RequirementState(
                requirement.text, "met" if requirement.held else "unmet", f"{value}; {folds}; not guaranteed"
            )
        )
    return states
