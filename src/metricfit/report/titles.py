"""Names and titles in people's words."""

from __future__ import annotations

import re

from metricfit.metrics import Metric, get_metric

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
#: Labels that only say yes; the name of the column says to what.
YES = {"1", "1.0", "True", "true", "TRUE", "yes", "Yes", "YES"}


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


def title_page(metric: str, data: str | None, target: str | None) -> str:
    """Return the title of a page: what is predicted, where, and what it is judged by.

    Args:
        metric: What people call the metric.
        data: Name of the table, if it is known.
        target: Name of the column that is predicted, if it is known.

    Returns:
        The title.

    Example:
        >>> title_page("F1", "transactions.csv", "fraud")
        'Predicting “fraud” in transactions.csv, judged by F1'
        >>> title_page("F1", None, None)
        'A classifier judged by F1'
    """
    if data is None and target is None:
        return f"A classifier judged by {metric}"
    what = "Predictions" if target is None else f"Predicting “{target}”"
    return f"{what}{'' if data is None else f' in {data}'}, judged by {metric}"


def name_rows(label: str, target: str | None) -> str:
    """Return what to call the rows of a class.

    Args:
        label: The label of the class.
        target: Name of the column with the labels, if it is known.

    Returns:
        The words.

    Example:
        >>> name_rows("1", "fraud"), name_rows("leaves", "churn"), name_rows("1", None)
        ('rows with fraud = 1', '“leaves” rows', '“1” rows')
    """
    return f"rows with {target} = {label}" if label in YES and target is not None else f"“{label}” rows"
