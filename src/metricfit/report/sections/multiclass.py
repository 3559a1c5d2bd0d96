"""Several classes: the confusion matrix, and the metrics of each class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.types import ScalarAverage
from metricfit.errors import InvalidValueError
from metricfit.metrics import Metric, averaged, f1, get_metric, precision, recall, specificity
from metricfit.report.page import Section

MOST_CLASSES = 20
MOST_CONFUSIONS = 20


def multiclass(
    predicted: Any,
    target: Any,
    *,
    classes: Sequence[str],
    metric: str | Metric = "f1",
    average: ScalarAverage = "macro",
    weight: Any | None = None,
    title: str = "Decisions by class",
    lead: str = "",
) -> Section:
    """The confusion matrix and a table of each class's metrics, from predicted and true class numbers.

    With more than 20 classes the matrix would not be readable: the most frequent confusions are listed instead.

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
    counts = Counts.from_labels(guess, truth, num_classes=len(classes), weight=w)
    matrix = _matrix(guess.reshape(-1).long(), truth.reshape(-1).long(), w, len(classes))
    judged = get_metric(metric)
    columns = list(dict.fromkeys([*([] if judged.whole_matrix else [judged]), precision, recall, specificity, f1]))
    values = [each(counts).tolist() for each in columns]
    context = {
        "classes": [str(each) for each in classes],
        "matrix": matrix.tolist() if len(classes) <= MOST_CLASSES else None,
        "support": counts.positives.tolist(),
        "confusions": _confusions(matrix, classes) if len(classes) > MOST_CLASSES else [],
        "columns": [each.name for each in columns],
        "values": list(zip(*values, strict=True)),
        "metric": judged.name if judged.whole_matrix else f"{average} {judged.name}",
        "value": float(averaged(judged, counts, average)),
        "n": float(matrix.sum()),
    }
    return Section(title, "multiclass.html", context, lead)


def _matrix(guess: Tensor, truth: Tensor, weight: Tensor | None, classes: int) -> Tensor:
    """Row i, column j: samples of class i called j."""
    ones = torch.ones(len(truth), dtype=torch.float64) if weight is None else weight.reshape(-1).double()
    flat = torch.zeros(classes * classes, dtype=torch.float64).index_add_(0, truth * classes + guess, ones)
    return flat.reshape(classes, classes)


def _confusions(matrix: Tensor, classes: Sequence[str]) -> list[tuple[str, str, float]]:
    wrong = matrix.clone().fill_diagonal_(0)
    order = wrong.flatten().argsort(descending=True, stable=True)[:MOST_CONFUSIONS].tolist()
    pairs = [divmod(at, len(classes)) for at in order]
    return [(str(classes[i]), str(classes[j]), float(wrong[i, j])) for i, j in pairs if float(wrong[i, j]) > 0]
