"""What people call metrics: F2 for ``fbeta(beta=2)``."""

from __future__ import annotations

import re

from metricfit.metrics.metric import Metric, get_metric

NAMES = {
    "f1": "F1",
    "p4": "P4",
    "mcc": "Matthews correlation",
    "kappa": "Cohen's kappa",
    "gmean": "G-mean",
    "fpr": "false positive rate",
    "fnr": "false negative rate",
    "npv": "negative predictive value",
    "jaccard": "Jaccard index",
    "fowlkes_mallows": "Fowlkes-Mallows index",
}


def name_metric(metric: str | Metric, average: str | None = None) -> str:
    """Return what people call a metric.

    Args:
        metric: The metric.
        average: The average over several classes; None for two classes.

    Returns:
        The name, with the average if there is one and the metric is not one of the whole matrix.

    Example:
        >>> name_metric("fbeta(beta=2)"), name_metric("balanced_accuracy"), name_metric("f1", "macro")
        ('F2', 'balanced accuracy', 'macro F1')
    """
    judged = get_metric(metric)
    beta = re.fullmatch(r"fbeta\(beta=([\d.]+)\)", judged.name)
    if beta:
        name = f"F{float(beta[1]):g}"
    elif judged.user_defined:
        name = judged.name
    else:
        name = NAMES.get(judged.name, judged.name.replace("_", " ") if judged.name.isidentifier() else judged.name)
    return name if average is None or judged.whole_matrix else f"{average} {name}"
