"""What a fitted model decided about the rows that were held out of training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricfit.core.counting import count_labels
from metricfit.core.counts import Counts
from metricfit.decide.costs.row_costs import RowCosts
from metricfit.decide.held_out import HeldOut
from metricfit.decide.refer.refer_label import REFERRED


def held_out_rows(model: Any) -> HeldOut:
    """Return the held-out rows with the class balance that the model decides for."""
    rows: HeldOut = model.held_out_.with_logits_shifted(model.shift_)
    return rows


def held_out_scores(model: Any) -> Tensor:
    """Return the probability of the positive class of two for each held-out row."""
    return torch.sigmoid(held_out_rows(model).logits.reshape(-1))


def held_out_costs(model: Any) -> RowCosts | None:
    """Return the costs of each held-out row; None unless the metric takes costs from columns."""
    costs: RowCosts | None = model._costs_of(dict(model.held_out_.columns), len(model.held_out_.y))
    return costs


def held_out_decisions(model: Any) -> Tensor:
    """Return the class number that is decided for each held-out row, -1 for rows that are referred to a person.

    Args:
        model: The fitted model of two or several classes; of two, 1 is the positive class.
    """
    costs, logits = held_out_costs(model), held_out_rows(model).logits
    decided: Tensor = model._decide_margins(model.decision_.margins(logits if costs is None else costs.margins(logits)))
    return decided


def held_out_counts(model: Any) -> Counts:
    """Count the decisions about the held-out rows; rows that are referred to a person do not count."""
    held_out, decided = held_out_rows(model), held_out_decisions(model)
    several = len(model.classes_) > 2
    kept = decided != REFERRED
    return count_labels(
        decided[kept],
        held_out.y[kept],
        num_classes=len(model.classes_) if several else None,
        weight=None if held_out.weight is None else held_out.weight[kept],
        matrix=several,
    )
