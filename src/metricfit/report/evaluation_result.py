"""Everything that ``metricfit evaluate`` measures of a model on labelled rows, as plain values."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import norm

from metricfit.core.counts import Counts
from metricfit.metrics import curves, get_metric
from metricfit.metrics.presence import is_undefined
from metricfit.report.findings import (
    TrainingComparison,
    better_without_model,
    compare_with_training,
    judged_requirements,
    requirements_on,
)
from metricfit.report.model_decisions import (
    class_labels,
    class_numbers,
    decision_counts,
    metric_intervals,
    metric_label,
    metric_values,
    metrics_without_parameters,
    positive_labels,
    positive_scores,
)
from metricfit.stats.delong import delong_interval
from metricfit.stats.multinomial import percentile_interval, resampled_counts
from metricfit.tabular import MetricClassifier
from metricfit.tabular.insight.value_intervals import class_intervals

Pair = tuple[float, float]
#: More rows are sampled: sorting them takes gigabytes, and changes nothing that the interval would show.
MOST_ROWS = 2_000_000
Z = float(norm.isf(0.025))


class Measured(NamedTuple):
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


def ranking_values(scores: NDArray[np.float64], labels: NDArray[np.int64]) -> dict[str, Measured]:
    """Measure how well scores rank positives above negatives.

    Args:
        scores: One score per row.
        labels: 1 for positives, 0 for negatives.

    Returns:
        "auroc" and "average_precision" with their intervals; without values if one class has no row.

    Example:
        >>> found = ranking_values(np.array([0.9, 0.8, 0.4, 0.6, 0.3, 0.1]), np.array([1, 1, 1, 0, 0, 0]))
        >>> round(found["auroc"].value, 3), round(found["average_precision"].value, 3)
        (0.889, 0.917)
    """
    if len(scores) > MOST_ROWS:
        chosen = np.random.default_rng(0).choice(len(scores), MOST_ROWS, replace=False)
        scores, labels = scores[chosen], labels[chosen]
    positives = int(labels.sum())
    rarer = min(positives, len(labels) - positives)
    if rarer == 0:
        return dict.fromkeys(("auroc", "average_precision"), Measured(None, None))
    auroc = float(curves.auroc(scores, labels))
    precision = float(curves.average_precision(scores, labels))
    return {
        "auroc": Measured(auroc, _auroc_interval(scores, labels, auroc, rarer)),
        "average_precision": Measured(precision, average_precision_interval(precision, positives)),
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
        value: The value on these rows.
        interval: Its 95 % interval.
        held: Whether it held.
    """

    value: float
    interval: Pair | None
    held: bool


class ClassOnRows(TypedDict):
    """The decisions about one of several classes.

    Attributes:
        rows: Rows of the class.
        predicted: Rows that are called the class.
        metrics: Metrics of the class against the others.
    """

    rows: int
    predicted: int
    metrics: dict[str, Measured]


class EvaluationResult(TypedDict):
    """What ``evaluate --json`` prints.

    Attributes:
        rows: Number of rows.
        metric: Name of the model's metric, with its average if there are several classes.
        value: The metric on these rows; null where it is 0/0, as recall is without positives.
        value_interval: 95 % interval of the value.
        training: The same metric at training time.
        threshold: The probability of the positive class from which rows are called positive; null for several classes.
        positive: The positive class of two; null for several classes.
        negative: The other class of two.
        tp: True positives; null for several classes.
        fp: False positives.
        fn: False negatives.
        tn: True negatives.
        referred: Rows that are referred to a person; null if the model refers none.
        requirements: Whether each requirement held on these rows, by its text.
        better_without_model: A sentence if flagging nobody or everybody, or always the largest class, has a better
            value here.
        metrics: Every metric with its interval, the model's first.
        ranking_rows: Rows of auroc and average_precision: all of them, or a sample of 2 million.
        classes: The classes by their labels; null for two classes.
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
    tp: int | None
    fp: int | None
    fn: int | None
    tn: int | None
    referred: int | None
    requirements: dict[str, RequirementOnRows]
    better_without_model: str | None
    metrics: dict[str, Measured]
    ranking_rows: int
    classes: dict[str, ClassOnRows] | None
    confusion: dict[str, dict[str, int]] | None
    report: str | None


#: Metrics of each class, beside the model's.
OF_A_CLASS = ("precision", "recall", "f1")


def evaluation_result(model: MetricClassifier, X: Any, y: Any, threshold: float | None = None) -> dict[str, Any]:
    """Measure a model on labelled rows.

    Args:
        model: The fitted model.
        X: The rows.
        y: Their labels.
        threshold: A threshold in place of the model's, for two classes.

    Returns:
        What ``metricfit evaluate --json`` prints: the value of the model's metric here and in training, every metric
        with its interval, the requirements, and the decisions by class. A value that is 0/0 on these rows, such as
        recall without positives, is None.
    """
    metric, of_two = get_metric(model.metric), len(model.classes_) == 2
    counts = decision_counts(model, X, y, threshold)
    several = list(dict.fromkeys([metric, *metrics_without_parameters()]))
    unknown = {each.name for each in several if of_two and not each.columns and bool(is_undefined(each, counts).all())}
    values: dict[str, float | None] = {**metric_values(model, X, y, counts, several), **dict.fromkeys(unknown)}
    intervals = metric_intervals(model, X, y, threshold, several) | dict.fromkeys(unknown)
    measured = {
        metric_label(model, each): {"value": values[each.name], "interval": intervals[each.name]} for each in several
    }
    if of_two:
        name, *others = measured
        ranked = ranking_values(positive_scores(model, X), positive_labels(model, y))
        ranking = {measure: found._asdict() for measure, found in ranked.items()}
        measured = {name: measured[name]} | ranking | {other: measured[other] for other in others}
    training = compare_with_training(
        model, values[metric.name], intervals[metric.name], positives=_rarest(counts), threshold=threshold
    )
    return {
        "rows": len(y),
        "metric": metric_label(model),
        "value": values[metric.name],
        "value_interval": intervals[metric.name],
        "training": training.to_dict(),
        "threshold": (model.threshold_ if threshold is None else threshold) if of_two else None,
        "positive": model.pos_label_,
        "negative": next(label for label in model.classes_ if label != model.pos_label_) if of_two else None,
        **dict(zip(("tp", "fp", "fn", "tn"), (int(each) for each in counts) if of_two else (None,) * 4, strict=True)),
        "referred": len(y) - int(counts.n) if of_two and threshold is None and model.refer_region_ else None,
        "requirements": _requirements(model, X, y, counts, threshold),
        "better_without_model": _better_without_model(model, counts, values[metric.name]),
        "metrics": measured,
        "ranking_rows": ranked_rows(len(y)),
        "classes": _classes(model, X, y, counts) if not of_two else None,
        "confusion": _confusion(model, X, y) if not of_two else None,
    }


def _better_without_model(model: MetricClassifier, counts: Counts, value: float | None) -> str | None:
    return None if value is None else next(iter(better_without_model(model, counts, value)), None)


def _requirements(
    model: MetricClassifier, X: Any, y: Any, counts: Counts, threshold: float | None
) -> dict[str, dict[str, Any]]:
    """Return whether each requirement held, with the interval of its value."""
    metrics = {str(requirement): requirement.metric for requirement in judged_requirements(model, threshold)}
    if not metrics:
        return {}
    if len(model.classes_) == 2:
        by_metric = metric_intervals(model, X, y, threshold, list(metrics.values()))
        intervals = {text: by_metric[metric.name] for text, metric in metrics.items()}
    else:
        called, truth = class_numbers(model, model.predict(X)), class_numbers(model, y)
        drawn = resampled_counts(called, truth, len(model.classes_), matrix=True)
        intervals = {text: percentile_interval(metric(drawn).squeeze(-1)) for text, metric in metrics.items()}
    return {
        text: {"value": result.value, "interval": intervals[text], "held": result.met}
        for text, result in requirements_on(model, counts, threshold=threshold).items()
    }


def _classes(model: MetricClassifier, X: Any, y: Any, counts: Counts) -> dict[str, dict[str, Any]]:
    """Return the rows of each class, and its metrics and AUROC with their intervals."""
    shown = dict.fromkeys([get_metric(model.metric), *map(get_metric, OF_A_CLASS)])
    metrics = [metric for metric in shown if not metric.whole_matrix]
    numbers = class_numbers(model, y)
    called = class_numbers(model, model.predict(X))
    by_metric = class_intervals(called, numbers, len(model.classes_), metrics)
    intervals = {metric.name: ends for metric, ends in zip(metrics, by_metric, strict=True)}
    unknown = {metric.name: is_undefined(metric, counts) for metric in metrics}
    probabilities = model.predict_proba(X)[:, model._order]
    found = {}
    for index, label in enumerate(class_labels(model)):
        of_class: dict[str, Any] = {
            "rows": int(counts.positives[index]),
            "predicted": int(counts.predicted[index]),
            "metrics": {
                metric.name: {
                    "value": None if bool(unknown[metric.name][index]) else float(metric(counts)[index]),
                    "interval": None if bool(unknown[metric.name][index]) else intervals[metric.name][index],
                }
                for metric in metrics
            },
        }
        ranked = ranking_values(probabilities[:, index].astype(np.float64), (numbers == index).astype(np.int64))
        of_class["metrics"] |= {measure: measured._asdict() for measure, measured in ranked.items()}
        found[str(label)] = of_class
    return found


def _confusion(model: MetricClassifier, X: Any, y: Any) -> dict[str, dict[str, int]]:
    """Return the confusion matrix: for each true class, how many of its rows are called each class."""
    matrix = pd.crosstab(np.asarray(y), model.predict(X)).reindex(
        index=class_labels(model), columns=class_labels(model), fill_value=0
    )
    labels, rows = [str(label) for label in class_labels(model)], matrix.to_numpy().tolist()
    return {label: dict(zip(labels, row, strict=True)) for label, row in zip(labels, rows, strict=True)}


def _rarest(counts: Counts) -> int:
    return int(counts.positives.min())
