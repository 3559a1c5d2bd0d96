"""per_row: the labels of each row that are best for the metric of that row."""

from __future__ import annotations

from torch import Tensor

from metricfit.decide.units.label_sets import best_labels_of_sets
from metricfit.decide.units.ranked_units import Method, best_masks
from metricfit.decide.units.unit_checks import (
    as_double,
    check_metric,
    check_one_of,
    check_probabilities,
    check_sums,
    check_zero_division,
)
from metricfit.errors import InvalidTypeError, InvalidValueError
from metricfit.metrics.metric import Metric

#: Up to this many labels the exact method is the default.
EXACT_LABELS = 100


def per_row(
    probabilities: Tensor,
    metric: str | Metric = "f1",
    *,
    method: Method | None = None,
    zero_division: float = 0.0,
    label_sets: Tensor | None = None,
) -> Tensor:
    """Decide the labels of every row for the best expected metric of that row.

    This is for metrics that are averaged over rows, such as the "samples" F1 of several labels. Every row gets the
    labels with the highest expected metric under its own probabilities, so the probabilities should be calibrated.

    Args:
        probabilities: The probability of each label ``(n, c)``, taken as independent; with ``label_sets`` the
            probability of each set ``(n, sets)``.
        metric: A metric of counts, such as "f1", "jaccard" or "fbeta(beta=2)", or an own formula.
        method: "exact" or "approximate"; by default exact up to 100 labels.
        zero_division: The value of marking no label in a row that has none: 0, or 1 to reward it.
        label_sets: Sets of labels that a row can have, 0 and 1 ``(sets, c)``, for labels that depend on each other;
            for example the sets of the training rows. The result is exact, for F-beta only.

    Returns:
        The labels, bool ``(n, c)``.

    Raises:
        InvalidTypeError: The probabilities are not a tensor of floating point numbers, or the sets are no tensor.
        InvalidValueError: Shape, values, method or metric cannot be used.

    Example:
        >>> import torch
        >>> per_row(torch.tensor([[0.4, 0.3, 0.1], [0.9, 0.3, 0.1]])).int()
        tensor([[1, 1, 0],
                [1, 0, 0]], dtype=torch.int32)
        >>> sets = torch.tensor([[1, 0, 0], [0, 1, 1]])
        >>> per_row(torch.tensor([[0.2, 0.8]]), label_sets=sets).int()
        tensor([[0, 1, 1]], dtype=torch.int32)
    """
    found = check_metric(metric)
    check_one_of("method", method, ("approximate", "exact", None))
    zero_division = check_zero_division(zero_division, found)
    check_probabilities(probabilities, (2,), "(n, labels)" if label_sets is None else "(n, sets)")
    if probabilities.shape[1] == 0:
        raise InvalidValueError("there are no labels: probabilities have shape (n, 0)")
    if label_sets is None:
        chosen = method or ("exact" if probabilities.shape[1] <= EXACT_LABELS else "approximate")
        return best_masks(probabilities, found, chosen, zero_division)
    if method is not None:
        raise InvalidValueError("label_sets has one method, which is exact; leave method out")
    if not isinstance(label_sets, Tensor):
        raise InvalidTypeError(f"label_sets must be a tensor, got {type(label_sets).__name__}")
    if label_sets.dim() != 2 or len(label_sets) != probabilities.shape[1]:
        raise InvalidValueError(
            f"label_sets must have one row per column of probabilities, ({probabilities.shape[1]}, labels), got "
            f"{tuple(label_sets.shape)}"
        )
    sets = label_sets.to(probabilities.device, as_double(probabilities).dtype)
    if not bool(((sets == 0) | (sets == 1)).all()):
        raise InvalidValueError("label_sets must hold 0 and 1 only")
    check_sums(probabilities, "the sets of a row")
    return best_labels_of_sets(as_double(probabilities), sets, found, zero_division)
