"""Rows of the kind "classes": networks with one output per class, scored by the most probable class."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.metrics import get_metric
from metricfit_papers.datasets.trials import Trial
from metricfit_papers.rows.job import RowJob, TrialResult
from metricfit_papers.rows.trial_fitting import compute_logits, fit_trials
from metricfit_papers.specs import column_names


def train_classifiers(job: RowJob, trials: Sequence[Trial]) -> list[TrialResult]:
    """Train all trials as one population; there are no thresholds, so all views are the same."""
    results = fit_trials(job, trials, resumes=True)
    seconds = results[0].seconds / sum(len(result.history) for result in results)
    trained = []
    for trial, result in zip(trials, results, strict=True):
        inputs, labels = trial.test_rows()
        values = {
            column: by_class(compute_logits(result.model, inputs), labels, metric)
            for column, metric in job.metrics.items()
        }
        trained.append(TrialResult({view: dict(values) for view in job.views}, len(result.history), seconds))
    return trained


def by_class(logits: Tensor, labels: Tensor, metric: str) -> float:
    """Compute a metric of the most probable class: of one class ("precision of class 5"), or the mean ("macro f1").

    Example:
        >>> import torch
        >>> logits, labels = torch.eye(3)[[0, 1, 1, 2]], torch.tensor([0, 1, 2, 2])
        >>> by_class(logits, labels, "precision of class 1"), by_class(logits, labels, "recall of class 1")
        (0.5, 1.0)
    """
    counts = Counts.from_labels(logits.argmax(1), labels, num_classes=logits.shape[1])
    match = re.fullmatch(column_names.OF_CLASS, metric)
    if match is None:
        return get_metric(metric.removeprefix(column_names.MACRO))(counts).mean().item()
    return get_metric(match[1])(counts)[int(match[2])].item()
