"""The best labels of a row for F-beta, given the probabilities of whole sets of labels.

Labels that depend on each other need more than one probability per label. For F-beta it is enough to know how probable
it is that label i is there and s labels are there in all: for every number k of marked labels the value is then a sum
over the marked labels, and its k largest terms are the best choice (Dembczynski et al. 2011).
"""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.decide.units.expected_values import value_of
from metricfit.errors import InvalidValueError
from metricfit.metrics.metric import Metric


def best_labels_of_sets(probabilities: Tensor, label_sets: Tensor, metric: Metric, zero_division: float) -> Tensor:
    """Find the labels with the highest expected F-beta.

    Args:
        probabilities: The probability of each set ``(rows, sets)``, float64.
        label_sets: The sets, 0 and 1 ``(sets, labels)``, float64.
        metric: The metric, F-beta.
        zero_division: The value of marking no label where there is none.

    Returns:
        The labels, bool ``(rows, labels)``.

    Raises:
        InvalidValueError: The metric is not proportional to the true positives.
    """
    _check_proportional(metric)
    labels = label_sets.shape[1]
    set_sizes = label_sets.sum(1)
    # joint[r, s, i]: the probability that row r has label i and s labels in all.
    joint = torch.stack([(probabilities * (set_sizes == size)) @ label_sets for size in range(1, labels + 1)], dim=1)
    best = probabilities.new_zeros((len(probabilities), labels), dtype=torch.bool)
    best_value = zero_division * (probabilities * (set_sizes == 0)).sum(1)
    present = torch.arange(1, labels + 1, dtype=probabilities.dtype, device=probabilities.device)
    one = torch.ones_like(present)
    for size in range(1, labels + 1):
        worth = value_of(metric, one, present - 1, size, 2 * labels)  # of one hit, by the number of labels present
        terms = torch.einsum("rsi,s->ri", joint, worth)
        largest = terms.topk(size, dim=1)
        value = largest.values.sum(1)
        better = value > best_value
        chosen = torch.zeros_like(best).scatter_(1, largest.indices, True)
        best = torch.where(better.unsqueeze(1), chosen, best)
        best_value = torch.where(better, value, best_value)
    return best


def _check_proportional(metric: Metric) -> None:
    hits = torch.arange(1.0, 4.0, dtype=torch.float64)
    values = value_of(metric, hits, 5 - hits, 4, 20)
    if metric.minimize or not torch.allclose(values, hits * values[0], rtol=1e-9, atol=0):
        raise InvalidValueError(
            f"label_sets works for f1, dice and fbeta(beta=...), not for {metric.name}; leave label_sets out to take "
            "the labels as independent"
        )
