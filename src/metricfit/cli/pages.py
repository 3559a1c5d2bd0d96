"""The reports of the commands: what goes on each page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from metricfit import metrics, report
from metricfit.core.counts import Counts
from metricfit.estimators import MetricClassifier
from metricfit.experiments.compare import Comparison
from metricfit.experiments.methods import REFERENCE
from metricfit.metrics import get_metric, names


def plain_metrics() -> list[str]:
    """The names of metrics that need no parameters."""
    return [name for name in names() if isinstance(getattr(metrics, name, None), metrics.Metric)]


def counts_of(model: MetricClassifier, X: pd.DataFrame, y: pd.Series, threshold: float | None) -> Counts:
    """The counts of a model's decisions: of two classes at a threshold, its own by default."""
    if len(model.classes_) > 2:
        to_number = {label: number for number, label in enumerate(model.classes_)}
        predicted, truth = ([to_number[each] for each in given] for given in (model.predict(X), y))
        return Counts.from_labels(torch.tensor(predicted), torch.tensor(truth), num_classes=len(model.classes_))
    scores, labels = scores_of(model, X), labels_of(model, y)
    at = model.threshold_ if threshold is None else threshold
    return Counts.from_labels(torch.from_numpy((scores >= at).astype(int)), torch.from_numpy(labels))


def scores_of(model: MetricClassifier, X: pd.DataFrame) -> Any:
    """The positive class's probabilities."""
    return model.predict_proba(X)[:, _positive_column(model)]


def labels_of(model: MetricClassifier, y: pd.Series) -> Any:
    """1 for the positive class."""
    return (y.to_numpy() == model.classes_[_positive_column(model)]).astype(np.int64)


def of_comparison(found: Comparison, data: str, target: str, subject_to: Sequence[str], path: Path) -> Path:
    """The page of ``compare``."""
    methods = [
        report.Method(
            row.name,
            row.mean,
            difference=None if row.versus is None else row.versus.difference,
            difference_interval=None if row.versus is None else (row.versus.interval.low, row.versus.interval.high),
            p_value=None if row.versus is None else row.versus.p_value,
            seconds=row.seconds,
        )
        for row in found.rows
    ]
    best = found.rows[0]
    page = report.Report(
        f"{data}: {target}",
        f"{best.name} has the highest mean {found.metric}, {best.mean:.3f}.",
        found.verdict,
        [
            report.comparison(methods, found.metric, reference=REFERENCE),
            report.scores(
                found.scores,
                found.labels,
                threshold=found.threshold,
                metric=found.metric,
                requirements=list(subject_to) or None,
                lead="Of metricfit's default; each row scored by a model that had not seen it.",
            ),
        ],
    )
    return report.write(page, path)


def of_model(model: MetricClassifier, data: str, target: str, path: Path) -> Path:
    """The page of ``fit``: out-of-fold scores, and how training went."""
    metric = get_metric(model.metric)
    sections = [report.learning_curves(_by_member(model.history_))]
    if model.threshold_ is not None:
        held_out = model.held_out_
        scores = torch.sigmoid(held_out.logits.reshape(-1)).numpy()
        sections.insert(
            0,
            report.scores(
                scores,
                held_out.y.numpy(),
                threshold=model.threshold_,
                metric=metric,
                requirements=model.subject_to,
                classes=_names(model),
                lead="Out of fold: each row scored by the member that did not train on it.",
            ),
        )
    at = "" if model.threshold_ is None else f" at threshold {model.threshold_:.4g}"
    headline = f"{metric.name} is {model.value_:.3f}{at}, on rows each member had not seen."
    verdict = (
        "The threshold was chosen on the same rows: expect a little less on new ones. Compare before you rely on it."
    )
    return report.write(report.Report(f"{data}: {target}", headline, verdict, sections), path)


def of_evaluation(
    model: MetricClassifier, X: pd.DataFrame, y: pd.Series, data: str, threshold: float | None, path: Path
) -> Path:
    """The page of ``evaluate``."""
    metric = get_metric(model.metric)
    at = model.threshold_ if threshold is None else threshold
    if at is not None:
        section = report.scores(
            scores_of(model, X),
            labels_of(model, y),
            threshold=at,
            metric=metric,
            requirements=model.subject_to,
            classes=_names(model),
        )
    else:
        section = report.multiclass(model.predict(X), y.to_numpy(), classes=[str(each) for each in model.classes_])
    headline = f"{metric.name} is {model.score(X, y.to_numpy()):.3f} on {len(y)} rows."
    return report.write(report.Report(data, headline, "At the model's own threshold.", [section]), path)


def _positive_column(model: MetricClassifier) -> int:
    if model.pos_label is None:
        return 1
    return int(np.flatnonzero(model.classes_ == model.pos_label)[0])


def _names(model: MetricClassifier) -> tuple[str, str]:
    column = _positive_column(model)
    return str(model.classes_[1 - column]), str(model.classes_[column])


def _by_member(history: Any) -> list[list[dict[str, Any]]]:
    members: dict[int, list[dict[str, Any]]] = {}
    for row in history:
        members.setdefault(row.get("member", 0), []).append(row)
    return list(members.values())
