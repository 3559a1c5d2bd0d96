"""The section of several classes: the confusion matrix and the metrics of each class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counting import count_labels
from metricfit.core.types import ScalarAverage
from metricfit.errors import InvalidValueError
from metricfit.metrics import Metric, averaged, f1, get_metric, precision, recall, specificity
from metricfit.metrics.matrix_metric import MatrixMetric
from metricfit.report.page import Section
from metricfit.tabular.insight.value_intervals import class_intervals

MAX_CLASSES = 20
MAX_CONFUSIONS = 20
MAX_PAIRS = 6


def multiclass(
    predicted: Any,
    target: Any,
    *,
    classes: Sequence[str],
    metric: str | Metric = "f1",
    average: ScalarAverage = "macro",
    weight: Any | None = None,
    groups: Any | None = None,
    title: str = "Decisions by class",
    lead: str = "",
) -> Section:
    """Make the confusion matrix, the pairs of classes most often confused, and the metrics of each class.

    With more than 20 classes the matrix would not be readable, so the most frequent confusions are listed instead.

    Args:
        predicted: Predicted class numbers.
        target: True class numbers.
        classes: Names of the classes.
        metric: The metric that the model is judged by.
        average: Average over the classes: "macro", "micro" or "weighted".
        weight: One weight per sample; counts are then sums of weights.
        groups: One group per sample; intervals are then those of drawn groups.
        title: Title of the section.
        lead: A sentence or two below the title.

    Returns:
        The section.

    Raises:
        InvalidValueError: If there are fewer than two classes or no labels.

    Example:
        >>> section = multiclass([0, 1, 1], [0, 1, 0], classes=["cat", "dog"])
        >>> section.context["matrix"]
        [[1.0, 1.0], [0.0, 1.0]]
    """
    if len(classes) < 2:
        raise InvalidValueError(f"there must be two classes or more, got {len(classes)} names")
    guess, truth = torch.as_tensor(predicted), torch.as_tensor(target)
    if truth.numel() == 0:
        raise InvalidValueError("no labels given")
    w = None if weight is None else torch.as_tensor(weight)
    counts = count_labels(guess, truth, num_classes=len(classes), weight=w, matrix=True)
    assert isinstance(counts, ConfusionMatrix)
    matrix = counts.matrix
    judged = get_metric(metric)
    of_each_class = not judged.whole_matrix and judged.class_index is None
    columns = list(dict.fromkeys([*([judged] if of_each_class else []), precision, recall, specificity, f1]))
    values = [column(counts).tolist() for column in columns]
    intervals = class_intervals(
        guess.reshape(-1).long().numpy(),
        truth.reshape(-1).long().numpy(),
        len(classes),
        columns,
        None if w is None else w.double().numpy(),
        None if groups is None else np.asarray(groups),
    )
    context = {
        "classes": [str(name) for name in classes],
        "matrix": matrix.tolist() if len(classes) <= MAX_CLASSES else None,
        "costs": judged.parameters.get("costs") if isinstance(judged, MatrixMetric) else None,
        "support": counts.positives.tolist(),
        "confusions": _confusions(matrix, classes) if len(classes) > MAX_CLASSES else [],
        "columns": [column.name for column in columns],
        "values": list(zip(*values, strict=True)),
        "intervals": list(zip(*intervals, strict=True)),
        "pairs": _pairs(matrix, classes),
        "metric": judged.name if judged.whole_matrix else f"{average} {judged.name}",
        "value": float(averaged(judged, counts, average)),
        "n": float(matrix.sum()),
    }
    return Section(title, "multiclass.html", context, lead)


def _pairs(matrix: Tensor, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the pairs of classes that are most often taken for each other, with their shares of all errors."""
    wrong = matrix.clone().fill_diagonal_(0)
    both, total = (wrong + wrong.T).triu(1), float(wrong.sum())
    order = both.flatten().argsort(descending=True, stable=True)[:MAX_PAIRS].tolist()
    found = [divmod(index, len(classes)) for index in order]
    return [
        {
            "classes": (str(classes[i]), str(classes[j])),
            "rows": float(both[i, j]),
            "share": float(both[i, j]) / total,
            "called": (float(wrong[i, j]), float(wrong[j, i])),
        }
        for i, j in found
        if float(both[i, j]) > 0
    ]


def _confusions(matrix: Tensor, classes: Sequence[str]) -> list[tuple[str, str, float]]:
    wrong = matrix.clone().fill_diagonal_(0)
    order = wrong.flatten().argsort(descending=True, stable=True)[:MAX_CONFUSIONS].tolist()
    pairs = [divmod(index, len(classes)) for index in order]
    return [(str(classes[i]), str(classes[j]), float(wrong[i, j])) for i, j in pairs if float(wrong[i, j]) > 0]
