"""Networks with an output a class, judged by the class they say."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.metrics import get_metric
from metricfit_papers.datasets.trials import Trial
from metricfit_papers.rows.network_row import Job, Trained, fitted, logits_of
from metricfit_papers.specs import column_names


def of_classes(job: Job, trials: Sequence[Trial]) -> list[Trained]:
    """All trials as one population; thresholds play no part, so all views are the same."""
    results = fitted(job, trials, resumes=True)
    each = results[0].seconds / sum(len(result.history) for result in results)
    found = []
    for trial, result in zip(trials, results, strict=True):
        inputs, labels = trial.test_rows()
        values = {
            column: by_class(logits_of(result.model, inputs), labels, metric) for column, metric in job.metrics.items()
        }
        found.append(Trained({view: dict(values) for view in job.views}, len(result.history), each))
    return found


def by_class(logits: Tensor, labels: Tensor, metric: str) -> float:
    """A metric of the most probable class: "precision of class 5" against the others, or "macro f1", the mean.

    >>> import torch
    >>> logits, labels = torch.eye(3)[[0, 1, 1, 2]], torch.tensor([0, 1, 2, 2])
    >>> by_class(logits, labels, "precision of class 1"), by_class(logits, labels, "recall of class 1")
    (0.5, 1.0)
    """
    counts = Counts.from_labels(logits.argmax(1), labels, num_classes=logits.shape[1])
    found = re.fullmatch(column_names.OF_CLASS, metric)
    if found is None:
        return get_metric(metric.removeprefix(column_names.MACRO))(counts).mean().item()
    return get_metric(found[1])(counts)[int(found[2])].item()
