"""Metrics of decisions with many weightings of the rows at once, intervals from them, and values by period.

The shares of a class's rows that are called each class are drawn from their posterior distribution with a prior of one
row, half of it right (Jeffreys' prior, if there are two classes). Its intervals are as wide as the bootstrap's where
there are many errors, and do not have a width of 0 where there are none. With weights or groups rows are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import Floats, Integers
from metricfit.core.confusion import ConfusionMatrix
from metricfit.core.counts import Counts
from metricfit.core.types import ScalarAverage
from metricfit.decide.costs import RowCosts, interval_of_costs
from metricfit.decide.decision import REFERRED
from metricfit.metrics.average import averaged
from metricfit.metrics.metric import Metric, get_metric
from metricfit.stats.resampling import percentile_interval, resampled_counts
from metricfit.tabular.insight.judged_rows import held_out_costs, held_out_decisions, held_out_rows
from metricfit.tabular.row_folds import is_forward


def weighted_values(
    metric: Metric,
    average: ScalarAverage,
    classes: int,
    y: Integers,
    decided: Integers,
    weights: Floats,
    costs: RowCosts | None = None,
) -> Floats:
    """Return the metric for each weighting of the rows.

    Args:
        metric: The metric.
        average: Its average over several classes.
        classes: Number of classes.
        y: Class numbers; of two classes, 1 is the positive one.
        decided: Decided class numbers, -1 for rows that are referred, which do not count.
        weights: Weights ``(weightings, n)``.
        costs: The costs of the rows, for a metric with costs from columns.

    Returns:
        One value per weighting.

    Example:
        >>> from metricfit import metrics
        >>> y, decided = np.array([1, 1, 0]), np.array([1, 0, 0])
        >>> weighted_values(metrics.recall, "macro", 2, y, decided, np.array([[1.0, 1, 1], [3, 1, 1]]))
        array([0.5 , 0.75])
    """
    if costs is not None:
        paid = costs.of_decisions(decided, y)
        return np.asarray(weights @ paid / weights.sum(1))
    counted = decided != REFERRED
    counts = weighted_counts(classes, y[counted], decided[counted], weights[:, counted], matrix=metric.needs_matrix)
    if classes == 2:
        counts = counts.map(lambda cell: cell[..., 1:])
    return np.asarray(averaged(metric, counts, average))


def draw_multiplicities(
    strata: Integers | None, groups: NDArray[Any] | None, rows: int, resamples: int, rng: np.random.Generator
) -> Floats:
    """Draw bootstrap resamples of rows.

    Args:
        strata: The stratum of each row; every resample has as many rows of each. None for one stratum.
        groups: The group of each row; whole groups are drawn, of the stratum that is their largest. None draws rows.
        rows: Number of rows.
        resamples: Number of resamples.
        rng: Source of random numbers.

    Returns:
        How often each row is drawn, ``(resamples, rows)``.
    """
    unit = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    units = int(unit.max()) + 1
    stratum_of_unit = np.zeros(units, dtype=np.int64)
    if strata is not None:
        np.maximum.at(stratum_of_unit, unit, strata)
    drawn = np.zeros((resamples, units))
    for stratum in np.unique(stratum_of_unit):
        members = np.flatnonzero(stratum_of_unit == stratum)
        picks = rng.integers(len(members), size=(resamples, len(members)))
        picks += len(members) * np.arange(resamples)[:, None]
        counted = np.bincount(picks.reshape(-1), minlength=resamples * len(members))
        drawn[:, members] = counted.reshape(resamples, len(members))
    return drawn[:, unit]


def weighted_counts(classes: int, y: Integers, decided: Integers, weights: Floats, *, matrix: bool = False) -> Counts:
    """Count the decisions about each class for each weighting of the rows.

    Args:
        classes: Number of classes.
        y: True class numbers.
        decided: Decided class numbers.
        weights: Weights ``(weightings, n)``.
        matrix: Whether the counts of more than two classes must hold the whole confusion matrix.

    Returns:
        Counts ``(weightings, c)``.
    """
    pairs, place = np.unique(y * classes + decided, return_inverse=True)
    sums = np.zeros((len(weights), len(pairs)))
    if len(pairs):
        order = np.argsort(place, kind="stable")
        sums = np.add.reduceat(weights[:, order], np.searchsorted(place[order], np.arange(len(pairs))), axis=1)
    truth, called = np.divmod(pairs, classes)
    if matrix and classes > 2:
        cells = np.zeros((len(weights), classes, classes))
        cells[:, truth, called] = sums
        return ConfusionMatrix(cells)
    right, total = truth == called, sums.sum(1, keepdims=True)
    tp, fp, fn = np.zeros((3, classes, len(weights)))
    np.add.at(tp, truth[right], sums[:, right].T)
    np.add.at(fp, called[~right], sums[:, ~right].T)
    np.add.at(fn, truth[~right], sums[:, ~right].T)
    tn = np.maximum(total - (tp + fp + fn).T, 0.0).T
    return Counts(*(cell.T for cell in (tp, fp, fn, tn)), exclusive=True)


DRAWS = 1000
#: With more classes the draws would take long, and rows are resampled.
MOST_CLASSES = 50
ROWS_AT_A_TIME = 2_000_000
#: Of very many rows fewer resamples are drawn, so that it takes a few seconds at most.
ROWS_IN_ALL, FEWEST_DRAWS = 20_000_000, 50

Pair = tuple[float, float]


def class_intervals(
    predicted: NDArray[np.int64],
    target: NDArray[np.int64],
    classes: int,
    several: Sequence[Metric],
    weight: NDArray[np.float64] | None = None,
    groups: NDArray[Any] | None = None,
) -> list[list[Pair | None]]:
    """Compute 95 % intervals of metrics of each class.

    Args:
        predicted: Predicted class numbers.
        target: True class numbers.
        classes: Number of classes.
        several: Metrics that have a value for each class.
        weight: One weight per row, or None.
        groups: One group per row, or None; whole groups are drawn.

    Returns:
        For each metric the interval of each class; None for classes without a row.

    Example:
        >>> from metricfit.metrics import recall
        >>> none_wrong = np.repeat([0, 1], 10)
        >>> low, high = class_intervals(none_wrong, none_wrong, 2, [recall])[0][1]
        >>> round(low, 1), high
        (0.8, 1.0)
    """
    counts = drawn_counts(predicted, target, classes, weight, groups)
    present = np.bincount(target, minlength=classes) > 0
    ones = np.ones((1, len(target))) if weight is None else weight[None]
    exact = weighted_counts(classes, target, predicted, ones)
    found = []
    for metric in several:
        low, high = np.quantile(metric(counts), [0.025, 0.975], axis=0)
        value = metric(exact)[0]
        ends = zip(np.minimum(low, value).tolist(), np.maximum(high, value).tolist(), present, strict=True)
        found.append([(start, end) if there else None for start, end, there in ends])
    return found


def drawn_counts(
    predicted: NDArray[np.int64],
    target: NDArray[np.int64],
    classes: int,
    weight: NDArray[np.float64] | None = None,
    groups: NDArray[Any] | None = None,
    *,
    matrix: bool = False,
    fixed_classes: bool = True,
) -> Counts:
    """Draw counts of decisions as they could be on other rows of the same kind.

    Args:
        predicted: Predicted class numbers.
        target: True class numbers.
        classes: Number of classes.
        weight: One weight per row, or None.
        groups: One group per row, or None; whole groups are drawn.
        matrix: Whether the counts must hold the whole confusion matrix.
        fixed_classes: Whether every draw has as many rows of each class. With more than 50 classes they always vary.

    Returns:
        Counts ``(draws, classes)``.
    """
    if weight is not None or groups is not None:
        strata = target if fixed_classes else None
        return _resampled(predicted, target, classes, weight, groups, strata, matrix=matrix)
    if classes > MOST_CLASSES:
        return resampled_counts(predicted, target, classes, matrix=matrix)
    return _posterior(predicted, target, classes, fixed_classes)


def _posterior(predicted: NDArray[np.int64], target: NDArray[np.int64], classes: int, fixed_classes: bool) -> Counts:
    rows = np.bincount(target * classes + predicted, minlength=classes * classes).reshape(classes, classes)
    prior = np.full((classes, classes), 0.5 / (classes - 1))
    np.fill_diagonal(prior, 0.5)
    drawn = np.random.default_rng(0).gamma(rows + prior, size=(DRAWS, classes, classes))
    shares = drawn / drawn.sum(2, keepdims=True)
    of_class = rows.sum(1)
    if not fixed_classes:
        sizes = drawn.sum(2) * (of_class > 0)
        of_class = len(target) * sizes / sizes.sum(1, keepdims=True)
    return ConfusionMatrix(shares * of_class[..., None])


def _resampled(
    predicted: NDArray[np.int64],
    target: NDArray[np.int64],
    classes: int,
    weight: NDArray[np.float64] | None,
    groups: NDArray[Any] | None,
    strata: NDArray[np.int64] | None,
    *,
    matrix: bool,
) -> Counts:
    rng, rows = np.random.default_rng(0), len(target)
    draws = max(FEWEST_DRAWS, min(DRAWS, ROWS_IN_ALL // rows))
    size = max(1, min(draws, ROWS_AT_A_TIME // rows))
    parts = []
    for first in range(0, draws, size):
        drawn = draw_multiplicities(strata, groups, rows, min(size, draws - first), rng)
        weights = drawn if weight is None else drawn * weight
        parts.append(weighted_counts(classes, target, predicted, weights, matrix=matrix))
    return parts[0].with_tensors(np.concatenate(cells) for cells in zip(*(part.tensors for part in parts), strict=True))


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
    places = model.chosen_.basis.places
    if places is None or not is_forward(getattr(model, "cv", None)) or len(places.rows) < 2 * FEWEST_ROWS:
        return []
    rows, order = held_out_rows(model), np.argsort(places.rows, kind="stable")
    costs, numbers = held_out_costs(model), places.rows[order]

    def name(place: int) -> str:
        return f"row {numbers[place] + 1:,}" if times is None else short_time(times[numbers[place]])

    return measure_periods(
        model,
        held_out_decisions(model)[order],
        model.held_out_.y[order],
        name,
        None if rows.weight is None else rows.weight[order],
        None if costs is None else costs.take(order),
    )


def measure_periods(
    model: Any,
    decided: Integers,
    y: Integers,
    name: Callable[[int], str],
    weight: Floats | None = None,
    costs: RowCosts | None = None,
) -> list[Period]:
    """Measure decisions about rows in the order of time, on up to five periods of equally many rows.

    Args:
        model: The model, for its metric.
        decided: The decided class numbers.
        y: The true ones.
        name: Returns the time of a row by its place.
        weight: One weight per row, or None.
        costs: What wrong decisions cost, for a metric with costs from columns.

    Returns:
        The periods, the earliest first; none if there are too few rows.
    """
    if len(y) < 2 * FEWEST_ROWS:
        return []
    periods = []
    for part in np.array_split(np.arange(len(y)), min(MOST_PERIODS, len(y) // FEWEST_ROWS)):
        value, interval = value_of_rows(
            decided[part],
            y[part],
            len(model.classes_),
            get_metric(model.metric),
            model.average,
            None if weight is None else weight[part],
            None if costs is None else costs.take(part),
        )
        periods.append(Period(name(int(part[0])), name(int(part[-1])), len(part), value, interval))
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
        counts = counts.map(lambda cell: cell[..., 1:])
    low, high = percentile_interval(averaged(metric, counts, average))
    return value, (min(low, value), max(high, value))


def short_time(time: Any) -> str:
    """Write a time, without an hour if it is midnight."""
    return str(time).removesuffix(" 00:00:00")
