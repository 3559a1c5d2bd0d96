"""The first screen of the pages about one model: after training, and on other rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.decide.class_requirements import model_requirements
from metricfit.decide.costs import RowCosts, mean_cost
from metricfit.metrics import averaged, get_metric
from metricfit.metrics.curves import InfeasibleError, best_threshold
from metricfit.metrics.spoken_names import name_metric
from metricfit.report import formatting
from metricfit.report.findings import requirements_on
from metricfit.report.first_screen import (
    SEVERAL_CLASS_COLUMNS,
    TWO_CLASS_COLUMNS,
    Alternative,
    FirstScreen,
    RequirementState,
    Statement,
    always_largest_class,
    describe_several_classes,
    describe_two_classes,
    flagging_everybody,
    flagging_nobody,
    state_decisions,
    state_several_classes,
)
from metricfit.report.model_decisions import class_labels, class_names, costs_of, positive_labels
from metricfit.report.page_facts import name_rows, positive_class_fact
from metricfit.tabular import MetricClassifier
from metricfit.tabular.facts import model_facts
from metricfit.tabular.insight.judged_rows import held_out_costs, held_out_counts, held_out_rows, held_out_scores
from metricfit.tabular.selection import Selection


def refer_region(model: MetricClassifier) -> str:
    """Say which rows are referred to a person."""
    assert model.refer_region_ is not None
    low, high = model.refer_region_
    return f"rows with a probability of “{model.pos_label_}” from {low:.4g} to {high:.4g}"


def bracketed(ends: tuple[float, float] | None) -> str:
    """Write an interval in brackets; nothing if there is none."""
    return "" if ends is None else f" (95 % interval {formatting.between(ends)})"


def positive_class_of(model: MetricClassifier) -> dict[str, str]:
    """Say which class is the positive one; nothing for several classes."""
    return {} if model.pos_label_ is None else positive_class_fact(class_names(model))


def requirements_of(model: MetricClassifier) -> list[Any]:
    """Return the requirements of a model."""
    given: Any = model.subject_to
    if given is None:
        return []
    return list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]


SUBJECT = "This model"
THRESHOLD_INTERVAL = "95 % bootstrap interval of the threshold"


def screen_of_fit(model: MetricClassifier, target: str | None) -> FirstScreen:
    """Make the first screen of a fitted model's page, from the rows that were held out of training."""
    held_out, counts = held_out_rows(model), held_out_counts(model)
    costs = held_out_costs(model)
    without_model = _costs_of_all(costs, held_out.y, held_out.weight)
    single = _best_family(model)
    note = "Counts and values are those of the training rows, each decided by models that did not train on it."
    if held_out.weight is not None:
        note += " Rows count by their weights."
    return _screen(
        model,
        counts,
        model.decision_.evidence.value,
        _referred(model),
        target,
        without_model,
        [] if single is None else [single],
        _requirements_of_fit(model),
        note,
    )


def screen_of_evaluation(
    model: MetricClassifier,
    X: Any,
    y: Any,
    counts: Counts,
    value: float,
) -> FirstScreen:
    """Make the first screen of a model's page on labelled rows."""
    target = getattr(y, "name", None)
    costs = costs_of(model, X) if get_metric(model.metric).columns else None
    labels = torch.from_numpy(positive_labels(model, y)) if costs is not None else torch.empty(0)
    trained = Alternative(f"{SUBJECT}, as training expected it", ("",) * _width(model), model.value_)
    return _screen(
        model,
        counts,
        value,
        [],
        None if target is None else str(target),
        _costs_of_all(costs, labels, None),
        [trained],
        _requirements_of_evaluation(model, counts),
        f"Counts and values are those of these {len(y):,} rows.",
    )


def _screen(
    model: MetricClassifier,
    counts: Counts,
    value: float,
    more: list[Statement],
    target: str | None,
    without_model: Callable[[float], float] | None,
    others: list[Alternative],
    requirements: list[RequirementState],
    note: str,
) -> FirstScreen:
    def value_of(other: Counts, called: float) -> float:
        if without_model is not None:
            return without_model(called)
        return float(averaged(get_metric(model.metric), other, model.average))

    metric = name_model_metric(model)
    if isinstance(counts, ConfusionMatrix):
        classes = [str(label) for label in class_labels(model)]
        largest = always_largest_class(counts)
        name = f"Always “{classes[int(counts.positives.argmax())]}”"
        alternatives = [
            describe_several_classes(SUBJECT, counts, value, is_subject=True),
            describe_several_classes(name, largest, value_of(largest, 0.0)),
            *others,
        ]
        statements = [*state_several_classes(counts, classes), *more]
        return FirstScreen(statements, alternatives, SEVERAL_CLASS_COLUMNS, metric, requirements, note)
    nobody, everybody = flagging_nobody(counts), flagging_everybody(counts)
    alternatives = [
        describe_two_classes(SUBJECT, counts, value, is_subject=True),
        describe_two_classes("Flagging nobody", nobody, value_of(nobody, 0.0)),
        describe_two_classes("Flagging everybody", everybody, value_of(everybody, 1.0)),
        *others,
    ]
    statements = [*state_decisions(counts, name_rows(class_names(model)[1], target)), *more]
    return FirstScreen(statements, alternatives, TWO_CLASS_COLUMNS, metric, requirements, note)


def _costs_of_all(costs: RowCosts | None, labels: Tensor, weight: Tensor | None) -> Callable[[float], float] | None:
    """Return a function that gives the mean cost if every row is called positive (1) or none (0)."""
    if costs is None:
        return None

    def mean(called: float) -> float:
        decided = torch.full((len(labels),), called, dtype=torch.float64)
        return mean_cost(costs.of_decisions(decided, labels), weight)

    return mean


def name_model_metric(model: MetricClassifier) -> str:
    """Return what people call the model's metric, with its average if there are several classes."""
    return name_metric(get_metric(model.metric), None if len(model.classes_) == 2 else model.average)


def _width(model: MetricClassifier) -> int:
    return len(TWO_CLASS_COLUMNS if len(model.classes_) == 2 else SEVERAL_CLASS_COLUMNS)


def _referred(model: MetricClassifier) -> list[Statement]:
    if model.refer_region_ is None:
        return []
    share = formatting.rough_percent(model.referred_share_)
    return [Statement("Refers ", share, " of the rows to a person; these are not counted here.", model.referred_share_)]


def _best_family(model: MetricClassifier) -> Alternative | None:
    """Return the best kind of model by itself; None if the classifier is nothing else.

    Its value is that of its best decision in hindsight, which flatters. It is therefore not in the column of values,
    but beside the value of the whole model that was found in the same way.
    """
    fitted = [row for row in model.models_ if row.value is not None]
    if len(fitted) < 2:
        return None
    minimize = get_metric(model.metric).minimize
    best = min(fitted, key=lambda row: (row.value or 0.0) if minimize else -(row.value or 0.0))
    hindsight = _value_in_hindsight(model)
    if hindsight is None or best.value is None:
        return None
    name = (
        f"“{best.name}” alone, the best single kind of model: {formatting.value(best.value)} at its best decision in "
        f"hindsight, where this model has {formatting.value(hindsight)}"
    )
    return Alternative(name, ("",) * _width(model), None)


def _value_in_hindsight(model: MetricClassifier) -> float | None:
    """Return the value at the best decision on the held-out rows; None for costs of rows and if none is feasible."""
    held_out = held_out_rows(model)
    if len(model.classes_) > 2:
        metric = get_metric(model.metric)
        return Selection(held_out.y, held_out.weight, metric, model.average).value(held_out.logits)
    if model.threshold_ is None:
        return None
    try:
        return best_threshold(
            held_out_scores(model),
            held_out.y,
            get_metric(model.metric),
            model_requirements(model),
            weight=held_out.weight,
        ).value
    except InfeasibleError:
        return None


def _requirements_of_fit(model: MetricClassifier) -> list[RequirementState]:
    unsure = ", not guaranteed on new rows"
    return [
        RequirementState(each.text, each.state, each.description + (unsure if each.state in ("met", "unmet") else ""))
        for each in model_facts(model).requirements
    ]


def _requirements_of_evaluation(model: MetricClassifier, counts: Counts) -> list[RequirementState]:
    return [
        RequirementState(
            text,
            "met" if result.met else "unmet",
            f"{'holds' if result.met else 'does not hold'} on these rows ({formatting.value(result.value)})",
        )
        for text, result in requirements_on(model, counts).items()
    ]
