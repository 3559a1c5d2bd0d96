"""Values of a model by period, for rows in the order of time: whether it decides worse about later rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.core.counts import Counts
from metricfit.core.types import ScalarAverage
from metricfit.decide.costs import RowCosts, interval_of_costs
from metricfit.metrics.average import averaged
from metricfit.metrics.metric import Metric, get_metric
from metricfit.stats.resampling import percentile_interval
from metricfit.tabular.insight.judged_rows import held_out_costs, held_out_decisions, held_out_rows
from metricfit.tabular.insight.value_intervals import drawn_counts, weighted_values
from metricfit.tabular.row_folds import is_forward

Integers = NDArray[np.int64]

#: Periods of about equally many held-out rows, and the fewest rows of a period.
MOST_PERIODS, FEWEST_ROWS = 5, 50


@dataclass(frozen=True)
class Period:
    """The metric on the held-out rows of one period.

    Attributes:
        first: The time of the first row.
        last: The time of the last row.
        rows: Number of rows.
        value: The metric of the decisions about them.
        interval: Its 95 % interval; None if the rows are of one class.
    """

    first: str
    last: str
    rows: int
    value: float
    interval: tuple[float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """Return the period as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        """Name the period by its ends."""
        return f"{self.first} to {self.last}"


def values_by_period(model: Any, times: Sequence[Any] | None = None) -> list[Period]:
    """Measure a model that was fitted on rows in the order of time, on up to five periods of its held-out rows.

    Args:
        model: The fitted model, with ``cv="forward"``.
        times: The time of each row of the table that was passed to ``fit``; by default rows have their numbers.

    Returns:
        The periods, the earliest first; none if the rows have no order or are too few, and for a loaded model.
    """
    places = getattr(model, "_places", None)
    if places is None or not is_forward(getattr(model, "cv", None)) or len(places.rows) < 2 * FEWEST_ROWS:
        return []
    decided, y = held_out_decisions(model), model.held_out_.y
    weight, costs = held_out_rows(model).weight, held_out_costs(model)
    metric, classes = get_metric(model.metric), len(model.classes_)
    order = np.argsort(places.rows, kind="stable")
    number = min(MOST_PERIODS, len(order) // FEWEST_ROWS)
    periods = []
    for part in np.array_split(order, number):
        ends = (int(places.rows[part[0]]), int(places.rows[part[-1]]))
        value, interval = value_of_rows(
            decided[part],
            y[part],
            classes,
            metric,
            model.average,
            None if weight is None else weight[part],
            None if costs is None else costs.take(part),
        )
        first, last = (f"row {end + 1:,}" if times is None else _short_time(times[end]) for end in ends)
        periods.append(Period(first, last, len(part), value, interval))
    return periods


def describe_fall(periods: Sequence[Period], value: float, metric: Metric) -> str | None:
    """Say that a model decides worse about the last period than about all rows.

    Args:
        periods: The periods, the earliest first.
        value: The metric on all of their rows.
        metric: The metric.

    Returns:
        Two sentences; None if the last period is not worse, or if that may be chance.

    Example:
        >>> periods = [Period("1", "50", 50, 0.6, (0.5, 0.7)), Period("51", "100", 50, 0.2, (0.1, 0.3))]
        >>> print(describe_fall(periods, 0.4, get_metric("f1")))
        Later rows are decided worse: f1 is 0.200 (0.100 to 0.300) from 51 to 100, and 0.400 on all held-out rows. \
Expect the value of the last period on new rows, not the one of all rows.
    """
    if not periods or periods[-1].interval is None:
        return None
    last, (low, high) = periods[-1], periods[-1].interval
    if not (low > value if metric.minimize else high < value):
        return None
    return (
        f"Later rows are decided worse: {metric.name} is {last.value:.3f} ({low:.3f} to {high:.3f}) from {last}, and "
        f"{value:.3f} on all held-out rows. Expect the value of the last period on new rows, not the one of all rows."
    )


def value_of_rows(
    decided: Integers,
    y: Integers,
    classes: int,
    metric: Metric,
    average: ScalarAverage,
    weight: NDArray[np.float64] | None,
    costs: RowCosts | None,
) -> tuple[float, tuple[float, float] | None]:
    """Return the metric of decisions about some rows, and its 95 % interval.

    Args:
        decided: Decided class numbers, -1 for rows that are referred to a person, which do not count.
        y: True class numbers; of two classes, 1 is the positive one.
        classes: Number of classes.
        metric: The metric.
        average: Its average over several classes.
        weight: One weight per row, or None.
        costs: What wrong decisions cost, for a metric with costs from columns.

    Returns:
        The value, and the interval; the interval is None if all rows are of one class. Class shares vary in it, because
        it is compared with the value of rows whose class shares are others.
    """
    weights = np.ones((1, len(y))) if weight is None else weight[None]
    value = float(weighted_values(metric, average, classes, y, decided, weights, costs)[0])
    counted = decided >= 0
    if len(np.unique(y[counted])) < 2:
        return value, None
    if costs is not None:
        paid = costs.of_decisions(decided, y)
        return value, interval_of_costs(paid) if weight is None else None
    part_weight = None if weight is None else weight[counted]
    matrix = metric.needs_matrix and classes > 2
    part = (decided[counted], y[counted])
    counts = drawn_counts(*part, classes, part_weight, matrix=matrix, fixed_classes=False)
    if classes == 2:  # the positive class alone
        cells = (counts.tp, counts.fp, counts.fn, counts.tn)
        counts = Counts(*(cell[..., 1:] for cell in cells), exclusive=True)
    low, high = percentile_interval(averaged(metric, counts, average))
    return value, (min(low, value), max(high, value))


def _short_time(time: Any) -> str:
    return str(time).removesuffix(" 00:00:00")
