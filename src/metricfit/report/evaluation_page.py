"""The page of a model on labelled rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length, column_or_1d

from metricfit import report
from metricfit.decide.class_requirements import model_requirements
from metricfit.decide.decision import REFERRED
from metricfit.metrics import get_metric
from metricfit.report import formatting
from metricfit.report.findings import verdict_of_evaluation
from metricfit.report.model_decisions import (
    class_labels,
    class_names,
    class_numbers,
    costs_of,
    decision_counts,
    metric_intervals,
    metric_values,
    positive_decisions,
    positive_labels,
    positive_scores,
)
from metricfit.report.model_page import beside_explorer, group_title
from metricfit.report.model_screen import (
    THRESHOLD_INTERVAL,
    bracketed,
    name_model_metric,
    positive_class_of,
    refer_region,
    requirements_of,
    screen_of_evaluation,
)
from metricfit.report.page import PathLike
from metricfit.report.page_facts import data_fact, made_by, requirements_fact, title_page
from metricfit.report.tables import cost_table, group_values, referral_table, worst_decisions
from metricfit.tabular import MetricClassifier
from metricfit.tabular.insight.judged_rows import judged_rows
from metricfit.tabular.insight.worst_rows import find_worst_rows
from metricfit.tabular.scored_rows import ScoredRows

WORST = 30  # rows that are most wrong


def write_evaluation_page(
    model: MetricClassifier,
    X: Any,
    y: Any,
    path: PathLike,
    *,
    threshold: float | None = None,
    data: str | None = None,
    command: str | None = None,
    groups: Any = None,
    group: str | None = None,
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
        groups: One group per row, for the values by group; rows without one are a group of their own.
        group: Name of the column with the groups.

    Returns:
        The path of the page.
    """
    groups = None if groups is None else _group_names(groups, y)
    metric, counts = get_metric(model.metric), decision_counts(model, X, y, threshold)
    value = metric_values(model, X, y, counts, [metric])[metric.name]
    interval = metric_intervals(model, X, y, threshold, [metric])[metric.name]
    used = model.threshold_ if threshold is None else threshold
    at_threshold = "" if used is None or model.threshold_ is None else f" at threshold {formatting.threshold(used)}"
    if metric.columns:
        called, labels = positive_decisions(model, X), positive_labels(model, y)
        section = cost_table(called, labels, costs_of(model, X), metric=metric, classes=class_names(model))
    elif model.threshold_ is None:
        section = report.multiclass(
            class_numbers(model, model.predict(X)),
            class_numbers(model, y),
            classes=[str(label) for label in class_labels(model)],
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
            requirements=model_requirements(model),
            classes=class_names(model),
            interval=model.threshold_interval_ if threshold is None else None,
            interval_name=f"{THRESHOLD_INTERVAL} in training",
            groups=groups,
            group_name=group or "group",
        )
    target = getattr(y, "name", None)
    sections = [section, *_group_section(model, X, y, threshold, groups, group)]
    if threshold is None and model.refer_region_ is not None:
        called, labels = positive_decisions(model, X), positive_labels(model, y)
        sections.insert(0, referral_table(called, labels, metric=metric, classes=class_names(model)))
    if threshold is None and not isinstance(X, ScoredRows):
        sections.append(worst_decisions(find_worst_rows(judged_rows(model, X, y, warn=False), WORST)))
    facts = data_fact(data, target) | {"Rows": f"{len(y):,}"} | positive_class_of(model)
    if threshold is None and model.refer_region_ is not None:
        referred = int((positive_decisions(model, X) == REFERRED).sum())
        facts |= {
            "Referred to a person": f"{refer_region(model)}: {referred:,} of these rows, which the value leaves out"
        }
    name = name_model_metric(model)
    page = report.Report(
        title_page(name, data, None if target is None else str(target)),
        f"{name} is {formatting.value(value)}{bracketed(interval)}{at_threshold}, on {len(y):,} rows.",
        verdict_of_evaluation(model, counts, value, interval, threshold=threshold),
        sections,
        facts | requirements_fact(requirements_of(model)) | made_by(command),
        screen_of_evaluation(model, X, y, counts, value),
    )
    return report.write(page, path)


def _group_section(
    model: MetricClassifier, X: Any, y: Any, threshold: float | None, groups: Any, name: str | None
) -> list[report.Section]:
    """Show the metric in each group, if there are groups of some size."""
    if groups is None:
        return []
    metric, several = get_metric(model.metric), len(model.classes_) > 2
    section = group_values(
        class_numbers(model, model.predict(X)) if several else positive_decisions(model, X, threshold),
        class_numbers(model, y) if several else positive_labels(model, y),
        groups,
        classes=len(model.classes_),
        metric=metric,
        average=model.average,
        costs=costs_of(model, X) if metric.columns else None,
        title=group_title(name),
    )
    return beside_explorer(section, model, groups)


def _group_names(groups: Any, y: Any) -> NDArray[Any]:
    """Return the group of each row as text; rows without one are the group "missing"."""
    values = column_or_1d(np.asarray(groups))
    check_consistent_length(values, y)
    missing = np.asarray(pd.isna(values))
    return np.array(["missing" if absent else str(value) for value, absent in zip(values, missing, strict=True)])
