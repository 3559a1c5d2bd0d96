"""The sections about the rows of ``fit``: columns that matter, rows that are most wrong, and values by group."""

from __future__ import annotations

from typing import Any

from metricfit.metrics import get_metric
from metricfit.report.model_decisions import metric_label
from metricfit.report.page import Section
from metricfit.report.sections.column_importance import column_importance
from metricfit.report.sections.values_by_group import group_values
from metricfit.report.sections.worst_decisions import worst_decisions
from metricfit.tabular import MetricClassifier
from metricfit.tabular.insight.importance import MIN_ROWS
from metricfit.tabular.insight.judged_rows import held_out_decisions

MAX_ROWS, REPEATS, WORST = 2000, 3, 30
#: Importance may take this share of the training time, and this many seconds in any case.
SHARE_OF_TRAINING, ALWAYS = 0.2, 4.0


def insight_sections(model: MetricClassifier, X: Any, y: Any) -> list[Section]:
    """Return the sections about the rows of ``fit``, each decided by models that were not trained on it.

    Args:
        model: The fitted model, not a loaded one.
        X: The table that was passed to ``fit``.
        y: The labels that were passed to ``fit``.

    Returns:
        The columns that matter, if there are rows enough, and the rows that are most wrong.

    Raises:
        ValueError: These are not the rows of ``fit``, or the model was loaded.
    """
    sections: list[Section] = []
    important: list[Any] = []
    if len(model.held_out_.y) >= MIN_ROWS:
        training = sum(row.seconds or 0.0 for row in model.models_)
        importance = model.importance(
            X,
            y,
            out_of_fold=True,
            repeats=REPEATS,
            max_rows=MAX_ROWS,
            max_seconds=max(ALWAYS, SHARE_OF_TRAINING * training),
        )
        important = importance.table["column"].tolist()
        if important:
            sections.append(column_importance(importance, lead=_importance_lead(model, important[0])))
    worst = model.worst(X, y, out_of_fold=True, n=WORST)
    return [*sections, worst_decisions(worst, first=important)]


def held_out_groups(model: MetricClassifier, name: str | None = None) -> list[Section]:
    """Return the section of the groups that were passed to ``fit``; none if there were none, or only small ones.

    Args:
        model: The fitted model.
        name: What the groups are called.
    """
    if model.held_out_.groups is None:
        return []
    decided, y, weight, costs = held_out_decisions(model)
    section = group_values(
        decided,
        y,
        model.held_out_.groups,
        classes=len(model.classes_),
        metric=get_metric(model.metric),
        average=model.average,
        weight=weight,
        costs=costs,
        title=group_title(name),
    )
    return [] if section is None else [section]


def group_title(name: str | None) -> str:
    """Return the title of the section of groups."""
    return "Values by group" if name is None else f"Values by “{name}”"


def _importance_lead(model: MetricClassifier, first: Any) -> str:
    return f"{metric_label(model)} depends most on “{first}”."
