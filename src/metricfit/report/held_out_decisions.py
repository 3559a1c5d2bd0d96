"""What a fitted model decided about the rows that were held out of training."""

from __future__ import annotations

import torch
from torch import Tensor

from metricfit.core.counting import count_labels
from metricfit.core.counts import Counts
from metricfit.decide.costs.row_costs import RowCosts, row_costs
from metricfit.decide.held_out import HeldOut
from metricfit.metrics import get_metric
from metricfit.tabular import MetricClassifier


def held_out_rows(model: MetricClassifier) -> HeldOut:
    """Return the held-out rows with the class balance that the model decides for."""
    return model.held_out_.with_logits_shifted(model.shift_)


def held_out_scores(model: MetricClassifier) -> Tensor:
    """Return the probability of the positive class of two for each held-out row."""
    return torch.sigmoid(held_out_rows(model).logits.reshape(-1))


def held_out_costs(model: MetricClassifier) -> RowCosts | None:
    """Return the costs of each held-out row; None unless the metric takes costs from columns."""
    metric, held_out = get_metric(model.metric), model.held_out_
    return row_costs(metric, held_out.columns, len(held_out.y)) if metric.columns else None


def held_out_decisions(model: MetricClassifier) -> Tensor:
    """Return the class number that is decided for each held-out row; of two, 1 is the positive class."""
    costs, logits = held_out_costs(model), held_out_rows(model).logits
    if costs is not None:
        return model.decision_.decide(costs.margins(logits))
    if model.threshold_ is None:
        return model.decision_.margins(logits).argmax(1)
    return (held_out_scores(model) >= model.threshold_).long()


def held_out_counts(model: MetricClassifier) -> Counts:
    """Count the decisions about the held-out rows; rows that are referred to a person do not count."""
    held_out, decided = held_out_rows(model), held_out_decisions(model)
    several = len(model.classes_) > 2
    keep = torch.ones(len(held_out.y), dtype=torch.bool)
    if model.refer_region_ is not None:
        low, high = model.refer_region_
        scores = held_out_scores(model)
        keep = ~((scores >= low) & (scores < high))
    return count_labels(
        decided[keep],
        held_out.y[keep],
        num_classes=len(model.classes_) if several else None,
        weight=None if held_out.weight is None else held_out.weight[keep],
        matrix=several,
    )
