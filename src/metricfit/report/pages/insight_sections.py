"""The sections about the rows of ``fit``: columns that matter, rows that are most wrong, and values by group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from metricfit.data.parquet_table import ParquetTable
from metricfit.metrics import get_metric
from metricfit.report.group_stops import are_few_groups
from metricfit.report.model_decisions import metric_label
from metricfit.report.page import Section
from metricfit.report.sections.column_importance import column_importance
from metricfit.report.sections.values_by_group import group_values
from metricfit.report.sections.worst_decisions import worst_decisions
from metricfit.tabular import MetricClassifier
from metricfit.tabular.insight.importance import MIN_ROWS, measure_importance
from metricfit.tabular.insight.judged_rows import (
    held_out_costs,
    held_out_decisions,
    held_out_rows,
    judged_file_rows,
    judged_rows,
    read_sample,
)
from metricfit.tabular.insight.worst_rows import find_worst_rows

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
