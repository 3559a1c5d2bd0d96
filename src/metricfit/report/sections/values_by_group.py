"""The section of groups: the metric of the decisions about each group of rows, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metricfit.core.counting import count_labels
from metricfit.core.types import ScalarAverage
from metricfit.decide.costs.row_costs import RowCosts
from metricfit.metrics import Metric
from metricfit.metrics.presence import is_undefined
from metricfit.report import formatting
from metricfit.report.page import Section
from metricfit.tabular.insight.periods import Period, value_of_rows

SHOWN, LISTED = 12, 200
#: Groups of fewer rows say nothing on their own.
MIN_ROWS = 10
LEAD = "The same decisions, group by group."

Integers = NDArray[np.int64]


def group_values(
    decided: Integers,
    y: Integers,
    groups: Any,
    *,
    classes: int,
    metric: Metric,
    average: ScalarAverage = "macro",
    weight: NDArray[np.float64] | None = None,
    costs: RowCosts | None = None,
    title: str = "Values by group",
    lead: str = LEAD,
) -> Section | None:
    """Make a table of the metric in each group, the largest groups first.

    Args:
        decided: Decided class numbers, -1 for rows that are referred to a person, which do not count.
        y: True class numbers; of two classes, 1 is the positive one.
        groups: The group of each row.
        classes: Number of classes.
        metric: The metric.
        average: Its average over several classes.
        weight: One weight per row, or None.
        costs: What wrong decisions cost, for a metric with costs from columns.
        title: Title of the section.
        lead: A sentence or two below the title.

    Returns:
        The section; None if there are not two groups of at least 10 rows.

    Example:
        >>> from metricfit.metrics import recall
        >>> y, groups = np.tile([1, 0], 20), np.repeat(["a", "b"], 20)
        >>> section = group_values(y, y, groups, classes=2, metric=recall)
        >>> [(row["name"], row["rows"], row["value"]) for row in section.context["shown"]]
        [('a', 20, 1.0), ('b', 20, 1.0)]
    """
    names, number, sizes = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    large = np.flatnonzero(sizes >= MIN_ROWS)
    if len(large) < 2:
        return None
    rows = []
    for place in large[np.argsort(-sizes[large], kind="stable")][:LISTED]:
        part = np.flatnonzero(number.reshape(-1) == place)
        part_costs = None if costs is None else costs.take(torch.from_numpy(part))
        part_weight = None if weight is None else weight[part]
        value: float | None
        value, interval = value_of_rows(decided[part], y[part], classes, metric, average, part_weight, part_costs)
        if interval is None and classes == 2 and costs is None and _is_undefined(metric, decided[part], y[part]):
            value = None
        positives = int((y[part] == 1).sum()) if classes == 2 else None
        row = {"name": str(names[place]), "rows": len(part), "positives": positives, "value": value}
        rows.append(row | {"interval": interval})
    context = {
        "what": "Group",
        "metric": metric.name if classes == 2 or metric.whole_matrix else f"{average} {metric.name}",
        "shown": rows[:SHOWN],
        "folded": rows[SHOWN:],
        "positives": classes == 2,
        "groups": len(names),
        "unlisted": len(names) - len(rows),
        "min_rows": MIN_ROWS,
        "sentence": _sentence(rows, minimize=metric.minimize),
    }
    return Section(title, "group_values.html", context, lead)


def period_values(periods: Sequence[Period], label: str, sentence: str | None) -> Section:
    """Make a table of the metric in each period, the earliest first.

    Args:
        periods: The periods.
        label: What the metric is called.
        sentence: What the table shows, or None.

    Returns:
        The section.
    """
    rows = [{"name": str(each), "rows": each.rows, "value": each.value, "interval": each.interval} for each in periods]
    context = {
        "what": "Period",
        "metric": label,
        "shown": rows,
        "folded": [],
        "positives": False,
        "unlisted": 0,
        "sentence": sentence or "The last period is not clearly worse than all rows together.",
    }
    lead = "Held-out rows in the order of time, each decided by models of earlier rows, in parts of equal size."
    return Section("Values over time", "group_values.html", context, lead)


def _is_undefined(metric: Metric, decided: Integers, y: Integers) -> bool:
    """Check whether the metric is 0/0 on these rows, as recall is without positives."""
    counts = count_labels(*(torch.from_numpy(part[decided >= 0]) for part in (decided, y)))
    return bool(is_undefined(metric, counts).all())


def _sentence(rows: list[dict[str, Any]], *, minimize: bool) -> str:
    """Say between which groups the difference is largest."""
    judged = [row for row in rows if row["interval"] is not None]
    if len(judged) < 2:
        return ""
    ordered = sorted(judged, key=lambda row: row["value"], reverse=not minimize)
    best, worst = ordered[0], ordered[-1]
    apart = worst["interval"][1] < best["interval"][0] or best["interval"][1] < worst["interval"][0]
    said = (
        f"Best in “{best['name']}” ({formatting.value(best['value'])}), worst in “{worst['name']}” "
        f"({formatting.value(worst['value'])})"
    )
    return f"{said}." if apart else f"{said}; their intervals overlap, so that may be chance."
