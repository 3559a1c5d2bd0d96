"""The section of referred rows: how many rows of each class are decided, and how many are left to a person."""

from __future__ import annotations

from typing import Any

import torch

from metricfit.core.counts import Counts
from metricfit.decide.decision import REFERRED
from metricfit.metrics import Metric
from metricfit.metrics.sweep import one_class
from metricfit.report.page import Section


def referral_table(
    decided: Any,
    target: Any,
    *,
    metric: Metric,
    classes: tuple[str, str],
    weight: Any | None = None,
    lead: str = "",
) -> Section:
    """Make a table of the rows that are called positive, called negative, and referred to a person.

    Args:
        decided: 1 for rows that are called positive, 0 for rows that are called negative, -1 for referred rows.
        target: 1 for positive rows, otherwise 0.
        metric: The metric, which is that of the decided rows.
        classes: Names of the negative and of the positive class.
        weight: One weight per row; rows are then sums of weights.
        lead: A sentence or two below the title.

    Returns:
        The section.

    Example:
        >>> from metricfit import metrics
        >>> section = referral_table([1, 0, -1, 0], [1, 1, 0, 0], metric=metrics.recall, classes=("no", "yes"))
        >>> section.context["value"], section.context["rows"]
        (0.5, [('yes', [1.0, 1.0, 0.0]), ('no', [0.0, 1.0, 1.0])])
    """
    called, truth = torch.as_tensor(decided).reshape(-1), torch.as_tensor(target).reshape(-1)
    w = torch.ones(len(truth), dtype=torch.float64) if weight is None else torch.as_tensor(weight).double()
    negative, positive = classes
    rows = [
        (name, [float(w[(truth == label) & (called == decision)].sum()) for decision in (1, 0, REFERRED)])
        for label, name in ((1, positive), (0, negative))
    ]
    (tp, fn, _), (fp, tn, _) = (numbers for _, numbers in rows)
    cells = (torch.tensor([[cell]], dtype=torch.float64) for cell in (tp, fp, fn, tn))
    total, referred = float(w.sum()), float(w[called == REFERRED].sum())
    context = {
        "metric": metric.name,
        "value": float(one_class(metric, Counts(*cells))),
        "rows": rows,
        "positive": positive,
        "negative": negative,
        "n": total - referred,
        "referred": referred,
        "share": referred / total,
    }
    return Section("Decided and referred rows", "referral.html", context, lead)
