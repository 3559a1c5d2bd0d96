"""The section of costs per row: what right and wrong decisions about two classes cost."""

from __future__ import annotations

from typing import Any

import torch

from metricfit.decide.costs.row_costs import RowCosts, mean_cost
from metricfit.metrics import Metric
from metricfit.report.page import Section


def cost_table(
    decided: Any,
    target: Any,
    costs: RowCosts,
    *,
    metric: Metric,
    classes: tuple[str, str],
    weight: Any | None = None,
    lead: str = "",
) -> Section:
    """Make a table of the rows that were decided rightly and wrongly, and what the wrong decisions cost.

    Args:
        decided: 1 for rows that are called positive, otherwise 0.
        target: 1 for positive rows, otherwise 0.
        costs: The costs of the rows.
        metric: The metric.
        classes: Names of the negative and of the positive class.
        weight: One weight per row; rows are then sums of weights.
        lead: A sentence or two below the title.

    Returns:
        The section.

    Example:
        >>> from metricfit import metrics
        >>> costs = RowCosts(torch.tensor([5.0, 5.0, 5.0]), torch.tensor([9.0, 2.0, 7.0]))
        >>> metric = metrics.cost(fp=5, fn="amount")
        >>> section = cost_table([1, 0, 1], [0, 1, 1], costs, metric=metric, classes=("good", "fraud"))
        >>> section.context["total"], section.context["never"], section.context["always"]
        (7.0, 3.0, 1.6666666666666667)
    """
    called, truth = torch.as_tensor(decided).reshape(-1).double(), torch.as_tensor(target).reshape(-1)
    w = torch.ones(len(truth), dtype=torch.float64) if weight is None else torch.as_tensor(weight).double()
    paid, (negative, positive) = w * costs.of_decisions(called, truth), classes
    rows = []
    for label, name in ((1, positive), (0, negative)):
        for decision, called_name in ((1, positive), (0, negative)):
            part = (truth == label) & (called == decision)
            rows.append((name, called_name, float(w[part].sum()), float(paid[part].sum()), label == decision))
    context = {
        "metric": metric.name,
        "value": float(paid.sum() / w.sum()),
        "rows": rows,
        "total": float(paid.sum()),
        "n": float(w.sum()),
        "positive": positive,
        "never": mean_cost(costs.of_decisions(torch.zeros_like(called), truth), w),
        "always": mean_cost(costs.of_decisions(torch.ones_like(called), truth), w),
    }
    return Section("What the decisions cost", "costs.html", context, lead)
