"""What ``evaluate`` measures on labelled rows, as plain values: every metric with its interval, and the classes."""

from __future__ import annotations

import math
import warnings
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import norm

from metricfit.core.arrays import to_numpy
from metricfit.core.confusion import ConfusionMatrix
from metricfit.decide.decision import REFERRED
from metricfit.metrics import Metric, curves, get_metric, names
from metricfit.metrics.group_gap import is_undefined
from metricfit.metrics.registry import find
from metricfit.report.evaluation import DecidedRows, Pair, TrainingComparison, compare_with_training
from metricfit.report.todays_rule import Today
from metricfit.stats.delong import delong_interval
from metricfit.tabular.insight.value_intervals import Period, class_intervals

#: More rows are sampled: sorting them takes gigabytes, and changes nothing that the interval would show.
MOST_ROWS = 2_000_000
Z = float(norm.isf(0.025))


class Measured(TypedDict):
    """A value with its 95 % interval.

    Attributes:
        value: The value; None if the rows do not say.
        interval: Its 95 % interval; None if it is not known.
    """

    value: float | None
    interval: Pair | None


def ranked_rows(rows: int) -> int:
    """Return how many of this many rows are ranked: all of them, or the size of the sample."""
    return min(rows, MOST_ROWS)


def ranking_values(
    scores: NDArray[np.float64], labels: NDArray[np.int64], weight: NDArray[np.float64] | None = None
) -> dict[str, Measured]:
    """Measure how well scores rank positives above negatives.

    Args:
        scores: One score per row.
        labels: 1 for positives, 0 for negatives.
        weight: One weight per row; the values then have no interval.

    Returns:
        "auroc" and "average_precision" with their intervals; without values if one class has no row.

    Example:
        >>> found = ranking_values(np.array([0.9, 0.8, 0.4, 0.6, 0.3, 0.1]), np.array([1, 1, 1, 0, 0, 0]))
        >>> round(found["auroc"]["value"], 3), round(found["average_precision"]["value"], 3)
        (0.889, 0.917)
    """
    if len(scores) > MOST_ROWS:
        chosen = np.random.default_rng(0).choice(len(scores), MOST_ROWS, replace=False)
        scores, labels, weight = scores[chosen], labels[chosen], None if weight is None else weight[chosen]
    positives = int(labels.sum())
    rarer = min(positives, len(labels) - positives)
    if rarer == 0:
        return dict.fromkeys(("auroc", "average_precision"), Measured(value=None, interval=None))
    auroc = float(curves.auroc(scores, labels, weight))
    precision = float(curves.average_precision(scores, labels, weight))
    if weight is not None:
        return {
            "auroc": Measured(value=auroc, interval=None),
            "average_precision": Measured(value=precision, interval=None),
        }
    return {
        "auroc": Measured(value=auroc, interval=_auroc_interval(scores, labels, auroc, rarer)),
        "average_precision": Measured(value=precision, interval=average_precision_interval(precision, positives)),
    }


def average_precision_interval(value: float, positives: int) -> Pair:
    """Compute the 95 % interval of an average precision.

    Args:
        value: The average precision.
        positives: Number of positives.

    Returns:
        The interval.

    Example:
        >>> low, high = average_precision_interval(0.8, 100)
        >>> round(low, 3), round(high, 3)
        (0.71, 0.867)
    """
    if value <= 0 or value >= 1:
        return _extreme(value, positives)
    centre, half = logit(value), Z / math.sqrt(positives * value * (1 - value))
    return float(expit(centre - half)), float(expit(centre + half))


def _auroc_interval(scores: NDArray[np.float64], labels: NDArray[np.int64], value: float, rarer: int) -> Pair | None:
    if rarer < 2:
        return None
    if value <= 0 or value >= 1:
        return _extreme(value, rarer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of no variance, which happens at 0 and 1 only
        low, high = delong_interval(scores, labels).interval
    return float(low), float(high)


def _extreme(value: float, trials: int) -> Pair:
    width = Z * Z / (trials + Z * Z)
    return (1 - width, 1.0) if value >= 1 else (0.0, width)


class RequirementOnRows(TypedDict):
    """Whether a requirement held on some rows.

    Attributes:
        value: The value on these rows; null if the rows do not say.
        interval: Its 95 % interval.
        held: Whether it held; null if the rows do not say.
        readiness: Whether the rows prove it at 95 % confidence, or about how many more would; null if not known.
    """

    value: float | None
    interval: Pair | None
    held: bool | None
    readiness: str | None


class DecidedToday(TypedDict):
    """How today's rule decides.

    Attributes:
        name: What it is called.
        value: The model's metric of its decisions about the same rows.
    """

    name: str
    value: float


class ClassOnRows(TypedDict):
    """The decisions about one of several classes.

    Attributes:
        rows: Rows of the class.
        predicted: Rows that are predicted as the class.
        metrics: Metrics of the class against the others.
    """

    rows: float
    predicted: float
    metrics: dict[str, Measured]


class EvaluationResult(TypedDict):
    """What ``evaluate --json`` prints.

    Attributes:
        rows: Number of rows.
        metric: Name of the model's metric, with its average if there are several classes.
        value: The metric on these rows; null where it is 0/0, as recall is without positives.
        value_interval: 95 % interval of the value.
        training: The same metric at training time.
        threshold: The probability of the positive class from which rows are flagged; null for several classes.
        positive: The positive class of two; null for several classes.
        negative: The other class of two.
        tp: True positives; null for several classes. With `--weight` all counts of decisions are sums of weights.
        fp: False positives.
        fn: False negatives.
        tn: True negatives.
        referred: Rows that are referred to a person; null if the model refers none.
        requirements: Whether each requirement held on these rows, by its text.
        better_without_model: A sentence if flagging nobody or everybody, or always the largest class, has a better
            value here.
        today: How the rule of `--today` decides these rows; null without it.
        periods: With `--time`, the metric by period, the earliest first; otherwise empty.
        metrics: Every metric with its interval, the model's first.
        ranking_rows: Rows of auroc and average_precision: all of them, or a sample of 2 million.
        classes: The classes by their labels; null for two classes.
        weighted: Whether rows count by the weights of `--weight`.
        confusion: For each true class, the number of its rows called each class.
        report: The file of the report; null without `--report`.
    """

    rows: int
    metric: str
    value: float | None
    value_interval: Pair | None
    training: TrainingComparison
    threshold: float | None
    positive: Any
    negative: Any
    tp: float | None
    fp: float | None
    fn: float | None
    tn: float | None
    referred: int | None
    requirements: dict[str, RequirementOnRows]
    better_without_model: str | None
    today: DecidedToday | None
    periods: list[Period]
    metrics: dict[str, Measured]
    ranking_rows: int
    classes: dict[str, ClassOnRows] | None
    weighted: bool
    confusion: dict[str, dict[str, float]] | None
    report: str | None


#: Metrics of each class, in addition to the model's.
OF_A_CLASS = ("precision", "recall", "f1")


def evaluation_result(
    model: Any,
    X: Any,
    y: Any,
    threshold: float | None = None,
    today: Today | None = None,
    times: Any = None,
    weight: Any = None,
) -> dict[str, Any]:
    """Measure a model on labelled rows.

    Args:
        model: The fitted model.
        X: The rows.
        y: Their labels.
        threshold: A threshold in place of the model's, for two classes.
        today: Today's decisions about these rows.
        times: The time of each row, if rows are in the order of time.
        weight: One weight per row, or None.

    Returns:
        What ``metricfit evaluate --json`` prints: the value of the model's metric here and in training, every metric
        with its interval, the requirements, and the decisions by class. A value that is 0/0 on these rows, such as
        recall without positives, is None.
    """
    rows = DecidedRows.of(model, X, y, threshold, weight=weight)
    facts, counts, of_two = rows.facts, rows.counts, rows.of_two
    without_parameters = (metric for name in names() if isinstance(metric := find(name), Metric))
    several = list(dict.fromkeys([rows.metric, *without_parameters]))
    measured = {
        rows.label(metric): Measured(value=None, interval=None)
        if of_two and not metric.columns and bool(is_undefined(metric, counts).all())
        else Measured(value=rows.value(metric), interval=interval)
        for metric, interval in zip(several, rows.intervals(several), strict=True)
    }
    of_model = measured[facts.label]
    if of_two and rows.scores is not None:
        measured = {facts.label: of_model, **ranking_values(rows.scores, rows.y, rows.weight), **measured}
    training = compare_with_training(
        facts, of_model["value"], of_model["interval"], positives=rows.rarest, threshold=threshold
    )
    of_requirements = rows.intervals([requirement.metric for requirement in rows.requirements])
    cells = [_count(rows, cell.item()) for cell in counts] if of_two else [None] * 4
    return {
        "rows": len(rows),
        "metric": facts.label,
        "value": of_model["value"],
        "value_interval": of_model["interval"],
        "training": training.to_dict(),
        "threshold": (facts.threshold if threshold is None else threshold) if of_two else None,
        "positive": facts.positive,
        "negative": facts.classes[0].name if of_two else None,
        **dict(zip(("tp", "fp", "fn", "tn"), cells, strict=True)),
        "referred": rows.referred,
        "requirements": {
            text: RequirementOnRows(value=None, interval=None, held=None, readiness=None)
            if found is None
            else RequirementOnRows(value=found.value, interval=interval, held=found.met, readiness=rows.readiness[text])
            for (text, found), interval in zip(rows.requirement_values().items(), of_requirements, strict=True)
        },
        "better_without_model": None if of_model["value"] is None else rows.better_without_model(of_model["value"]),
        "today": None if today is None else DecidedToday(name=today.name, value=rows.judge(today.decided)[1]),
        "periods": rows.periods(times),
        "metrics": measured,
        "ranking_rows": ranked_rows(len(rows)),
        "classes": None if of_two else _classes(rows),
        "weighted": rows.weight is not None,
        "confusion": _confusion(rows),
    }


def _count(rows: DecidedRows, count: float) -> float:
    """Return a count of rows as a whole number; of weighted rows, their weight."""
    return int(count) if rows.weight is None else float(count)


def _confusion(rows: DecidedRows) -> dict[str, dict[str, float]] | None:
    """Return the confusion matrix of several classes: for each class, how many of its rows are called each class."""
    if not isinstance(rows.counts, ConfusionMatrix):
        return None
    matrix = to_numpy(rows.counts.matrix, np.int64 if rows.weight is None else np.float64).tolist()
    return {name: dict(zip(rows.classes, row, strict=True)) for name, row in zip(rows.classes, matrix, strict=True)}


def _classes(rows: DecidedRows) -> dict[str, ClassOnRows]:
    """Return the rows of each of several classes, and its metrics and AUROC with their intervals."""
    shown = dict.fromkeys([rows.metric, *map(get_metric, OF_A_CLASS)])
    metrics, counts = [metric for metric in shown if not metric.whole_matrix], rows.counts
    kept = rows.decided != REFERRED
    weight = None if rows.weight is None else rows.weight[kept]
    intervals = class_intervals(rows.decided[kept], rows.y[kept], len(rows.classes), metrics, weight)
    parts = [(metric(counts), is_undefined(metric, counts)) for metric in metrics]
    result = {}
    for index, name in enumerate(rows.classes):
        measured = {}
        for metric, (value, undefined), ends in zip(metrics, parts, intervals, strict=True):
            known = not bool(undefined[index])
            measured[metric.name] = Measured(
                value=float(value[index]) if known else None, interval=ends[index] if known else None
            )
        assert rows.scores is not None
        measured |= ranking_values(rows.scores[:, index], (rows.y == index).astype(np.int64), rows.weight)
        rows_of_class, called = (_count(rows, float(cell[index])) for cell in (counts.positives, counts.predicted))
        result[name] = ClassOnRows(rows=rows_of_class, predicted=called, metrics=measured)
    return result
