"""The section of an ensemble's models: what each one is worth, its weight, and which were left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from metricfit.errors import InvalidValueError
from metricfit.metrics import Metric, get_metric
from metricfit.report.page import Section

if TYPE_CHECKING:  # the families need packages that pages do not
    from metricfit.tabular.ensemble import ModelRow

#: What the families are called in textbooks.
DESCRIPTIONS = {
    "linear": "logistic regression",
    "kernel": "support vectors with an RBF kernel",
    "boosting": "boosted trees",
    "boosting_small": "small boosted trees",
    "boosting_metric": "boosted trees trained for the metric",
    "extra_trees": "extremely randomised trees",
    "network": "neural networks",
}


def models(
    rows: Sequence[ModelRow], metric: str | Metric, *, label: str | None = None, title: str = "Models", lead: str = ""
) -> Section:
    """Make a table of the models of an ensemble, and name those that were left out.

    Args:
        rows: One row per model, such as ``models_`` of a MetricClassifier.
        metric: The metric that the models are judged by.
        label: What to call the metric's values, such as "macro f1"; by default the name of the metric.
        title: Title of the section.
        lead: A sentence or two below the title.

    Returns:
        The section.

    Raises:
        InvalidValueError: If there are no rows.

    Example:
        >>> from metricfit.tabular.ensemble import ModelRow
        >>> rows = [ModelRow("boosting", 1.0, 0.7, 0.4, 2.5), ModelRow("kernel", left_out="more than 10,000 rows")]
        >>> models(rows, "f1").context["left_out"]
        [('kernel', 'more than 10,000 rows')]
    """
    if not rows:
        raise InvalidValueError("there is no model to show; pass models_ of a fitted classifier")
    judged = get_metric(metric)
    fitted = [row for row in rows if row.left_out is None]
    context = {
        "rows": sorted(fitted, key=lambda row: -row.weight),
        "left_out": [(row.name, row.left_out) for row in rows if row.left_out is not None],
        "descriptions": DESCRIPTIONS,
        "label": label or judged.name,
        "better": "lower" if judged.minimize else "higher",
    }
    return Section(title, "models.html", context, lead)
