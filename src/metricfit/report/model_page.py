"""The page of a fitted model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from metricfit import report
from metricfit.data.reading import ParquetTable
from metricfit.decide.class_requirements import model_requirements
from metricfit.metrics import get_metric
from metricfit.report import formatting
from metricfit.report.findings import verdict_of_fit
from metricfit.report.model_decisions import class_labels, class_names, metric_label
from metricfit.report.model_screen import (
    THRESHOLD_INTERVAL,
    bracketed,
    name_model_metric,
    positive_class_of,
    refer_region,
    requirements_of,
    screen_of_fit,
)
from metricfit.report.page import PathLike, Section
from metricfit.report.page_facts import data_fact, made_by, requirements_fact, title_page
from metricfit.report.stops import are_few_groups
from metricfit.report.tables import (
    column_importance,
    cost_table,
    group_values,
    period_values,
    referral_table,
    worst_decisions,
)
from metricfit.tabular import MetricClassifier
from metricfit.tabular.insight.importance import MIN_ROWS, measure_importance
from metricfit.tabular.insight.judged_rows import (
    held_out_costs,
    held_out_decisions,
    held_out_rows,
    held_out_scores,
    judged_file_rows,
    judged_rows,
    read_sample,
)
from metricfit.tabular.insight.periods import describe_fall, values_by_period
from metricfit.tabular.insight.worst_rows import find_worst_rows

NETWORK_LEAD = "The losses of the networks: one line per fold."


def write_model_page(
    model: MetricClassifier,
    path: PathLike,
    *,
    data: str | None = None,
    target: str | None = None,
    command: str | None = None,
    rows: tuple[Any, Any] | None = None,
    group: str | None = None,
    times: Sequence[Any] | None = None,
) -> Path:
    """Write the page of a fitted model: its decisions on rows held out of training, and the models it consists of.

    Args:
        model: The fitted model.
        path: The file to write.
        data: Name of the table.
        target: Name of the column that was predicted.
        command: The command line that made it, if there was one.
        rows: The table and the labels that were passed to ``fit``. With them the page shows which columns matter, and
            the rows that are most wrong with their values. Not for a model that was loaded.
        group: Name of the column with the groups, if groups were passed to ``fit``.
        times: The time of each row, if the rows were passed to ``fit`` in the order of time.

    Returns:
        The path of the page.
    """
    threshold = "" if model.threshold_ is None else f" at threshold {formatting.threshold(model.threshold_)}"
    facts = data_fact(data, target) | {
        "Rows": f"{len(model.held_out_.y):,}, each scored by models that did not train on it or on a copy of it",
        **positive_class_of(model),
        "Models": ", ".join(f"{row.name} ({formatting.percent(row.weight)})" for row in model.models_ if row.weight),
        **_value_fact(model),
    }
    if model.threshold_ is not None and model.threshold_interval_ is not None:
        ends = formatting.between(model.threshold_interval_)
        facts["Threshold"] = f"{formatting.threshold(model.threshold_)}, with a 95 % bootstrap interval of {ends}"
    facts |= _referral_fact(model)
    insights = [] if rows is None else insight_sections(model, *rows)
    held_out = [*_referral_section(model), _held_out_section(model, group), *held_out_groups(model, group)]
    periods, value = values_by_period(model, times), model.decision_.evidence.value
    fall = describe_fall(periods, value, get_metric(model.metric))
    over_time = [period_values(periods, metric_label(model), fall)] if periods else []
    sections = [*over_time, *held_out, *insights, _models_section(model)]
    if model.history_:
        curves = report.learning_curves(_histories_by_member(model.history_), lead=NETWORK_LEAD)
        sections.append(replace(curves, folded=True))
    page = report.Report(
        title_page(name_model_metric(model), data, target),
        f"{name_model_metric(model)} is {formatting.value(model.value_)}{bracketed(model.value_interval_)}{threshold}, "
        "estimated for new rows.",
        verdict_of_fit(model) if fall is None else f"{fall} {verdict_of_fit(model)}",
        sections,
        facts | requirements_fact(requirements_of(model)) | made_by(command),
        screen_of_fit(model, target),
    )
    return report.write(page, path)


def _referral_section(model: MetricClassifier) -> list[report.Section]:
    """Show how many held-out rows of each class are referred; nothing if every row is decided."""
    if model.refer_region_ is None:
        return []
    held_out = held_out_rows(model)
    decided = held_out_decisions(model)
    lead = "Out of fold: each row is scored by models that did not train on it."
    names, metric = class_names(model), get_metric(model.metric)
    return [referral_table(decided, held_out.y, metric=metric, classes=names, weight=held_out.weight, lead=lead)]


def _held_out_section(model: MetricClassifier, group: str | None) -> report.Section:
    """Show the decisions on the rows that were held out of training."""
    held_out, metric = held_out_rows(model), get_metric(model.metric)
    lead = (
        "Out of fold: each row is scored by models that did not train on it. The values here are not corrected for "
        "having chosen weights and decision on the same rows, so they are usually slightly better than the estimate "
        "for new rows at the top of the page."
    )
    costs, decided = held_out_costs(model), held_out_decisions(model)
    if costs is not None:
        names = class_names(model)
        return cost_table(decided, held_out.y, costs, metric=metric, classes=names, weight=held_out.weight, lead=lead)
    if model.threshold_ is None:
        return report.multiclass(
            decided,
            held_out.y,
            classes=[str(label) for label in class_labels(model)],
            metric=metric,
            average=model.average,
            weight=held_out.weight,
            groups=held_out.groups,
            lead=lead,
        )
    return report.scores(
        held_out_scores(model).numpy(),
        held_out.y.numpy(),
        threshold=model.threshold_,
        metric=metric,
        requirements=model_requirements(model),
        weight=held_out.weight,
        classes=class_names(model),
        interval=model.threshold_interval_,
        interval_name=THRESHOLD_INTERVAL,
        groups=held_out.groups,
        group_name=group or "group",
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
    before, after = (formatting.value(value) for value in (model.decision_.evidence.value, model.value_))
    if model.requirements_:
        return {f"Estimate of {metric_label(model)}": f"{after} on held-out rows, on which the decision was chosen"}
    return {
        f"Estimate of {metric_label(model)}": f"{before} on held-out rows, {after} corrected for having been chosen on "
        "them"
    }


def _referral_fact(model: MetricClassifier) -> dict[str, str]:
    """Say which rows are referred to a person."""
    if model.refer_region_ is None:
        return {}
    share = formatting.percent(model.referred_share_)
    return {"Referred to a person": f"{refer_region(model)}: {share} of the held-out rows, which the value leaves out"}


def _histories_by_member(history: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    members: dict[int, list[Mapping[str, Any]]] = {}
    for epoch in history:
        members.setdefault(epoch.get("member", 0), []).append(epoch)
    return list(members.values())


MAX_ROWS, REPEATS, WORST = 2000, 3, 30
#: Importance may take this share of the training time, and this many seconds in any case.
SHARE_OF_TRAINING, ALWAYS = 0.2, 4.0


def insight_sections(model: MetricClassifier, X: Any, y: Any) -> list[Section]:
    """Return the sections about the rows of ``fit``, each decided by models that were not trained on it.

    Args:
        model: The fitted model, not a loaded one.
        X: The table that was passed to ``fit``. Of Parquet files, the importance of columns is that on a sample of
            the held-out rows; the rows that are most wrong are found among all held-out rows.
        y: The labels that were passed to ``fit``.

    Returns:
        The columns that matter, if there are rows enough, and the rows that are most wrong.

    Raises:
        ValueError: These are not the rows of ``fit``, or the model was loaded.
    """
    in_files = isinstance(X, ParquetTable)
    rows = judged_file_rows(model, X) if in_files else judged_rows(model, X, y, out_of_fold=True)
    sections: list[Section] = []
    important: list[Any] = []
    if len(rows) >= MIN_ROWS:
        training = sum(row.seconds or 0.0 for row in model.models_)
        importance = measure_importance(
            read_sample(rows) if in_files else rows,
            repeats=REPEATS,
            max_rows=MAX_ROWS,
            max_seconds=max(ALWAYS, SHARE_OF_TRAINING * training),
        )
        important = importance.table["column"].tolist()
        if important:
            sections.append(column_importance(importance, lead=_importance_lead(model, important[0])))
    return [*sections, worst_decisions(find_worst_rows(rows, WORST), first=important)]


def held_out_groups(model: MetricClassifier, name: str | None = None) -> list[Section]:
    """Return the section of the groups that were passed to ``fit``; none if there were none, or only small ones.

    Args:
        model: The fitted model.
        name: What the groups are called.
    """
    if model.held_out_.groups is None:
        return []
    weight = held_out_rows(model).weight
    section = group_values(
        held_out_decisions(model).numpy(),
        model.held_out_.y.numpy(),
        model.held_out_.groups,
        classes=len(model.classes_),
        metric=get_metric(model.metric),
        average=model.average,
        weight=None if weight is None else weight.double().numpy(),
        costs=held_out_costs(model),
        title=group_title(name),
    )
    return beside_explorer(section, model, model.held_out_.groups)


def beside_explorer(section: Section | None, model: MetricClassifier, groups: Any) -> list[Section]:
    """Return the section of groups, folded if the explorer above it has a table of the same groups."""
    if section is None:
        return []
    return [replace(section, folded=model.threshold_ is not None and are_few_groups(groups))]


def group_title(name: str | None) -> str:
    """Return the title of the section of groups."""
    return "Values by group" if name is None else f"Values by “{name}”"


def _importance_lead(model: MetricClassifier, first: Any) -> str:
    return f"{metric_label(model)} depends most on “{first}”."
