"""The three pages: a fitted model, a model on other rows, and a comparison of methods."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from metricfit import report
from metricfit.decide.costs.row_costs import row_costs
from metricfit.decide.refer.refer_label import REFERRED
from metricfit.metrics import get_metric
from metricfit.report import formatting
from metricfit.report.facts import data_fact, made_by, positive_class_fact, requirements_fact
from metricfit.report.findings import verdict_of_evaluation, verdict_of_fit
from metricfit.report.model_decisions import (
    class_names,
    class_numbers,
    costs_of,
    decision_counts,
    metric_intervals,
    metric_label,
    metric_values,
    positive_decisions,
    positive_labels,
    positive_scores,
)
from metricfit.report.sections.cost_table import cost_table
from metricfit.tabular import Comparison, ComparisonRow, MetricClassifier
from metricfit.tabular.compare.baselines import BASELINES
from metricfit.tabular.compare.methods import DEFAULT, METHODS, REFERENCE
from metricfit.tabular.compare.verdict import headline

PathLike = str | os.PathLike[str]

NETWORK_LEAD = "The losses of the networks: one line per fold."


def write_comparison_page(comparison: Comparison, path: PathLike, *, command: str | None = None) -> Path:
    """Write the page of a comparison.

    Args:
        comparison: The result of ``metricfit.compare``.
        path: The file to write.
        command: The command line that made it, if there was one.

    Returns:
        The path of the page.
    """
    rows, subject_to, classes = comparison.rows, comparison.subject_to, comparison.classes
    folds, total = len(rows[0].values), len(comparison.labels)
    compared = sum(row.name not in BASELINES for row in rows) - 1
    not_reached = "".join(
        f" With {row.name} no threshold met the requirements on the training rows of {len(row.not_reachable)} of "
        f"{folds} folds; there the nearest threshold decided ({row.not_reachable[0]})."
        for row in rows
        if row.not_reachable
    )
    sections = [
        report.comparison(
            rows,
            comparison.metric,
            reference=REFERENCE,
            folds=folds,
            simultaneous=True,
            lead=f"Every method was trained on the same rows and judged on the same {folds} folds, on rows it had not "
            "seen. Each chose its decision on its training rows, except the one that is called untuned."
            + _about_baselines(rows)
            + not_reached,
        )
    ]
    sections.append(_comparison_decisions(comparison))
    together = "" if comparison.group is None else f", and so do rows of one “{comparison.group}”"
    facts = data_fact(comparison.name, comparison.target) | {
        **_described_methods(rows),
        "Rows": f"{total:,}: {_class_shares(comparison)}",
        **(positive_class_fact((classes[0], classes[1])) if len(classes) == 2 else {}),
        "Folds": f"{folds}, each with the same shares of the classes; copies of a row stay together{together}",
        "Differences": "paired by fold; Nadeau and Bengio's corrected t-test, because the folds' training rows "
        f"overlap; corrected for {compared} comparisons: p-values by Holm's method, intervals by Bonferroni's",
    }
    if comparison.notes:
        facts["Left out"] = "; ".join(comparison.notes)
    page = report.Report(
        f"{comparison.name}: {comparison.target}",
        headline(rows, comparison.metric),
        comparison.verdict,
        sections,
        facts | requirements_fact(subject_to) | made_by(command),
    )
    return report.write(page, path)


def write_model_page(
    model: MetricClassifier,
    path: PathLike,
    *,
    data: str | None = None,
    target: str | None = None,
    command: str | None = None,
) -> Path:
    """Write the page of a fitted model: its decisions on rows held out of training, and the models it consists of.

    Args:
        model: The fitted model.
        path: The file to write.
        data: Name of the table.
        target: Name of the column that was predicted.
        command: The command line that made it, if there was one.

    Returns:
        The path of the page.
    """
    threshold = "" if model.threshold_ is None else f" at threshold {model.threshold_:.4g}"
    facts = data_fact(data, target) | {
        "Rows": f"{len(model.held_out_.y):,}, each scored by models that did not train on it or on a copy of it",
        **_positive_class_of(model),
        "Models": ", ".join(f"{row.name} ({formatting.percent(row.weight)})" for row in model.models_ if row.weight),
        **_value_fact(model),
    }
    if model.threshold_interval_ is not None:
        ends = formatting.between(model.threshold_interval_)
        facts["Threshold"] = f"{model.threshold_:.4g}, with a 95 % bootstrap interval of {ends}"
    facts |= _referral_fact(model)
    sections = [_held_out_section(model), _models_section(model)]
    if model.history_:
        sections.append(report.learning_curves(_histories_by_member(model.history_), lead=NETWORK_LEAD))
    page = report.Report(
        ": ".join(name for name in (data, target) if name is not None) or f"A classifier for {metric_label(model)}",
        f"{metric_label(model)} is {formatting.value(model.value_)}{_interval(model.value_interval_)}{threshold}, "
        "estimated for new rows.",
        verdict_of_fit(model),
        sections,
        facts | requirements_fact(_as_list(model.subject_to)) | made_by(command),
    )
    return report.write(page, path)


def write_evaluation_page(
    model: MetricClassifier,
    X: Any,
    y: Any,
    path: PathLike,
    *,
    threshold: float | None = None,
    data: str | None = None,
    command: str | None = None,
) -> Path:
    """Write the page of a model on labelled rows.

    Args:
        model: The fitted model.
        X: The rows.
        y: Their labels.
        path: The file to write.
        threshold: A threshold in place of the model's; for two classes.
        data: Name of the table.
        command: The command line that made it, if there was one.

    Returns:
        The path of the page.
    """
    metric, counts = get_metric(model.metric), decision_counts(model, X, y, threshold)
    value = metric_values(model, X, y, counts, [metric])[metric.name]
    interval = metric_intervals(model, X, y, threshold, [metric])[metric.name]
    used = model.threshold_ if threshold is None else threshold
    at_threshold = "" if model.threshold_ is None else f" at threshold {used:.4g}"
    if metric.columns:
        called, labels = positive_decisions(model, X), positive_labels(model, y)
        section = cost_table(called, labels, costs_of(model, X), metric=metric, classes=class_names(model))
    elif model.threshold_ is None:
        section = report.multiclass(
            class_numbers(model, model.predict(X)),
            class_numbers(model, y),
            classes=[str(label) for label in model.classes_],
            metric=metric,
            average=model.average,
        )
    else:
        assert used is not None
        section = report.scores(
            positive_scores(model, X),
            positive_labels(model, y),
            threshold=used,
            metric=metric,
            requirements=model.subject_to,
            classes=class_names(model),
        )
    facts = data_fact(data, getattr(y, "name", None)) | {"Rows": f"{len(y):,}"} | _positive_class_of(model)
    if threshold is None and model.refer_region_ is not None:
        referred = int((positive_decisions(model, X) == REFERRED).sum())
        facts |= {"Referred to a person": f"{_region(model)}: {referred:,} of these rows, which the value leaves out"}
    page = report.Report(
        data or f"{metric_label(model)} on {len(y):,} rows",
        f"{metric_label(model)} is {formatting.value(value)}{_interval(interval)}{at_threshold}, on {len(y):,} rows.",
        verdict_of_evaluation(model, counts, value, interval, threshold=threshold),
        [section],
        facts | requirements_fact(_as_list(model.subject_to)) | made_by(command),
    )
    return report.write(page, path)


def _comparison_decisions(comparison: Comparison) -> report.Section:
    """Show how the default method decided each row."""
    lead = f"The decisions of “{DEFAULT}”, each row's by models that did not train on it."
    if comparison.costs is not None:
        metric, names = get_metric(comparison.metric), (comparison.classes[0], comparison.classes[1])
        return cost_table(
            comparison.decided, comparison.labels, comparison.costs, metric=metric, classes=names, lead=lead
        )
    if len(comparison.classes) > 2 or comparison.threshold is None:
        return report.multiclass(
            comparison.decided,
            comparison.labels,
            classes=comparison.classes,
            metric=comparison.metric,
            average=comparison.average,
            lead=lead,
        )
    return report.scores(
        comparison.scores,
        comparison.labels,
        threshold=comparison.threshold,
        metric=comparison.metric,
        requirements=list(comparison.subject_to) or None,
        classes=(comparison.classes[0], comparison.classes[1]),
        lead=f"{lead} The threshold is the mean of the folds' thresholds, so the value here differs slightly from the "
        "mean in the table.",
    )


def _class_shares(comparison: Comparison) -> str:
    """List the classes with their numbers of rows; of two, the positive one alone."""
    total, names = len(comparison.labels), list(enumerate(comparison.classes))
    shown = names[1:] if len(names) == 2 else names
    rows = [(name, int((comparison.labels == number).sum())) for number, name in shown]
    return ", ".join(f"{count:,} “{name}” ({formatting.percent(count / total)})" for name, count in rows)


def _about_baselines(rows: Sequence[ComparisonRow]) -> str:
    names = ", ".join(f"“{row.name}”" for row in rows if row.name in BASELINES)
    return f" Decisions without a model ({names}) are what every method has to beat." if names else ""


def _described_methods(rows: Sequence[ComparisonRow]) -> dict[str, str]:
    """Say what each method of the table is."""
    names = {row.name for row in rows}
    described = [f"{method.name}: {method.description}" for method in METHODS if method.name in names]
    return {"Methods": "; ".join(described)}


def _held_out_section(model: MetricClassifier) -> report.Section:
    """Show the decisions on the rows that were held out of training."""
    held_out, metric = model.held_out_, get_metric(model.metric)
    lead = (
        "Out of fold: each row is scored by models that did not train on it. The values here are not corrected for "
        "having chosen weights and decision on the same rows, so they are usually slightly better than the estimate "
        "for new rows at the top of the page."
    )
    if metric.columns:
        costs = row_costs(metric, held_out.columns, len(held_out.y))
        decided = model.decision_.decide(costs.margins(held_out.logits))
        names = class_names(model)
        return cost_table(decided, held_out.y, costs, metric=metric, classes=names, weight=held_out.weight, lead=lead)
    if model.threshold_ is None:
        return report.multiclass(
            model.decision_.margins(held_out.logits).argmax(1),
            held_out.y,
            classes=[str(label) for label in model.classes_],
            metric=metric,
            average=model.average,
            weight=held_out.weight,
            lead=lead,
        )
    return report.scores(
        torch.sigmoid(held_out.logits.reshape(-1)).numpy(),
        held_out.y.numpy(),
        threshold=model.threshold_,
        metric=metric,
        requirements=model.subject_to,
        weight=held_out.weight,
        classes=class_names(model),
        lead=lead,
    )


def _models_section(model: MetricClassifier) -> report.Section:
    """Show the families with their weights."""
    used = sum(row.weight > 0 for row in model.models_)
    mixed = "" if used == 1 else " Their calibrated predictions are averaged with weights."
    return report.models(
        model.models_,
        get_metric(model.metric),
        label=metric_label(model),
        lead=f"The classifier consists of {used} kind{'s' * (used > 1)} of model.{mixed} Weights are chosen for the "
        "metric, on rows held out of training.",
    )


def _value_fact(model: MetricClassifier) -> dict[str, str]:
    """Say how the value was estimated."""
    before, after = (formatting.value(value) for value in (model.decision_.value, model.value_))
    return {
        f"Estimate of {metric_label(model)}": f"{before} on held-out rows, {after} corrected for having been chosen on "
        "them"
    }


def _referral_fact(model: MetricClassifier) -> dict[str, str]:
    """Say which rows are referred to a person."""
    if model.refer_region_ is None:
        return {}
    share = formatting.percent(model.referred_share_)
    return {"Referred to a person": f"{_region(model)}: {share} of the held-out rows, which the value leaves out"}


def _region(model: MetricClassifier) -> str:
    assert model.refer_region_ is not None
    low, high = model.refer_region_
    return f"rows with a probability of “{model.pos_label_}” from {low:.4g} to {high:.4g}"


def _interval(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f" (95 % interval {formatting.between(ends)})"


def _positive_class_of(model: MetricClassifier) -> dict[str, str]:
    return {} if model.pos_label_ is None else positive_class_fact(class_names(model))


def _as_list(subject_to: Any) -> list[Any]:
    if subject_to is None:
        return []
    return list(subject_to) if isinstance(subject_to, Sequence) and not isinstance(subject_to, str) else [subject_to]


def _histories_by_member(history: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    members: dict[int, list[Mapping[str, Any]]] = {}
    for epoch in history:
        members.setdefault(epoch.get("member", 0), []).append(epoch)
    return list(members.values())
