"""What a model card says about the decision, its values and its limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from metricfit.core.counts import Counts
from metricfit.decide.bounds import format_percent
from metricfit.metrics import accuracy, averaged, f1, precision, recall, specificity
from metricfit.metrics.feasibility import RequirementValue
from metricfit.metrics.metric import get_metric
from metricfit.stats.multinomial import percentile_interval
from metricfit.tabular.insight.judged_rows import held_out_decisions, held_out_rows
from metricfit.tabular.insight.value_intervals import drawn_counts, weighted_counts
from metricfit.tabular.row_folds import is_forward

Escape = Callable[[Any], str]

FEW_ROWS = 100
SHOWN = (precision, recall, specificity, f1, accuracy)
LISTED = 20


def decision_lines(model: Any, escaped: Escape) -> list[str]:
    """Say for which metric and requirements the model decides, and how."""
    metric = get_metric(model.metric)
    better = "lower" if metric.minimize else "higher"
    of_several = len(model.classes_) > 2 and not metric.whole_matrix
    average = f", {model.average} average over the {'labels' if model._has_labels else 'classes'}" if of_several else ""
    lines = [f"- Metric: {escaped(metric.name)}{average}; {better} is better"]
    if model.pos_label_ is not None:
        lines.append(f"- Positive class: {escaped(model.pos_label_)}")
    for text, result in model.requirements_.items():
        lines.append(f"- Requirement {escaped(text)}: {describe_requirement(model, result)}")
    names = [escaped(name) for name in model.classes_[model._order].tolist()]
    lines.append(f"- Decision: {model.decision_.describe(names)}")
    if model.refer_region_ is not None:
        low, high = model.refer_region_
        lines.append(
            f"- Referred to a person: probabilities from {low:.4g} to {high:.4g}, {model.referred_share_:.1%} of the "
            "held-out rows"
        )
    if bool(model.shift_.any()):
        lines.append(f"- Class balance that it decides for: {_balance(model, escaped)}; that of training was another")
    return lines


def basis_of_estimate(model: Any) -> str:
    """Say what the estimate of the metric is made from. Under requirements it is not corrected."""
    if model.requirements_:
        return "the value on held-out rows, on which the decision was chosen"
    return f"{model.decision_.evidence.value:.3f} on held-out rows, corrected for having been chosen on them"


def value_lines(model: Any, escaped: Escape) -> list[str]:
    """Say what the metric is expected to be, and what other metrics are on the held-out rows."""
    metric = get_metric(model.metric)
    lines = [
        f"{escaped(metric.name)} is {model.value_:.4g}{_ends(model.value_interval_)}, estimated for new rows: "
        f"{basis_of_estimate(model)}."
    ]
    if model._has_labels:
        return lines
    held_out = held_out_rows(model)
    decided, y = held_out_decisions(model).numpy(), held_out.y.numpy()
    weight = None if held_out.weight is None else held_out.weight.double().numpy()
    classes, counted = len(model.classes_), decided >= 0
    part = (decided[counted], y[counted])
    ones = np.ones((1, int(counted.sum()))) if weight is None else weight[counted][None]
    exact = weighted_counts(classes, part[1], part[0], ones)
    drawn = drawn_counts(*part, classes, None if weight is None else weight[counted])
    table = []
    for shown in SHOWN:
        if classes > 2 and shown is specificity:
            continue
        value = float(averaged(shown, _of_positive(exact, classes), "macro")[0])
        low, high = percentile_interval(averaged(shown, _of_positive(drawn, classes), "macro"))
        name = shown.name if classes == 2 or shown.whole_matrix else f"macro {shown.name}"
        table.append(f"| {name} | {value:.4g} | {min(low, value):.4g} to {max(high, value):.4g} |")
    return [*lines, "", "| On held-out rows | Value | 95 % interval |", "|---|---:|---:|", *table]


def limit_lines(model: Any, escaped: Escape) -> list[str]:
    """Say what the values do not cover."""
    lines = []
    held_out = model.held_out_
    if not model._has_labels:
        counts = np.bincount(held_out.y.numpy(), minlength=len(model.classes_))
        names = model.classes_[model._order].tolist()
        few = [(names[at], int(counts[at])) for at in np.argsort(counts, kind="stable") if counts[at] < FEW_ROWS]
        if few:
            listed = ", ".join(f"{escaped(name)} has {rows}" for name, rows in few[:LISTED])
            lines.append(f"- Few rows: {listed}. Values that depend on these rows are uncertain.")
    if model.requirements_ and model.confidence_ is None:
        lines.append("- The requirements were checked on held-out rows, and nothing is guaranteed on new rows.")
    elif model.decision_.evidence.out_of_fold and model.confidence_ is not None:
        lines.append(
            "- The requirements were certified on cross-validated scores. New rows are scored by other models, so the "
            "confidence is approximate. Rows that are kept apart (`calibration=0.3`) make it exact."
        )
    if not model.requirements_met_:
        lines.append(f"- The requirements are not met: {escaped(model.decision_.evidence.not_reachable)}.")
    lines.append(
        "- The values are for rows of the same kind as those of training. Rows of another time, place or source were "
        "not checked: compare values with `metricfit evaluate` on labelled rows, and the class balance with "
        '`rethreshold(prevalence="estimate", X=new_rows)`.'
    )
    if not is_forward(getattr(model, "cv", None)):
        lines.append("- The rows were not split by time. If new rows are later ones, the values can be worse.")
    if held_out.groups is None:
        lines.append(
            "- No groups were given: rows of one person or thing may be both in training and among the held-out rows, "
            "and the values of groups were not compared."
        )
    lines.append(
        "- What the columns mean, how the labels came about, and what wrong decisions do to people were not checked."
    )
    return lines


def describe_requirement(model: Any, result: RequirementValue) -> str:
    """Say what is known about a requirement of a fitted model; the commands, the card and the page say it alike."""
    value = f"{result.value:.4g} on held-out rows"
    if model.confidence_ is not None:
        return f"{model.certificate_} at {format_percent(model.confidence_)} confidence ({value})"
    if not result.met:
        return f"NOT {'met' if model.confidence is None else 'certified'} ({value})"
    return f"met on held-out rows only ({result.value:.4g})"


def _balance(model: Any, escaped: Escape) -> str:
    balance = model.prevalence_
    if isinstance(balance, dict):
        return ", ".join(f"{escaped(name)} {share:.3g}" for name, share in balance.items())
    return f"{balance:.3g} of the positive class"


def _of_positive(counts: Counts, classes: int) -> Counts:
    cells = (counts.tp, counts.fp, counts.fn, counts.tn)
    return Counts(*(cell[..., 1:] for cell in cells), exclusive=True) if classes == 2 else counts


def _ends(ends: Any) -> str:
    return "" if ends is None else f" (95 % interval {ends[0]:.4g} to {ends[1]:.4g})"
