"""What ``evaluate`` measures: metrics of decisions, each at a threshold, and measures of scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from metricfit.core.canonical_batch import Classes, Columns
from metricfit.core.counting import count_batch
from metricfit.core.counts import Counts
from metricfit.core.threshold_reading import refuse_classes
from metricfit.core.threshold_vectors import check_length
from metricfit.core.types import ScalarAverage
from metricfit.errors import InvalidValueError
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Formula, Metric
from metricfit.metrics.ranking import RankingMetric, get_measure, get_ranking
from metricfit.metrics.registry import rankings
from metricfit.train.averaging import Averaging
from metricfit.train.label_thresholds import best_label_thresholds

BEST = "best"
Threshold = float | Tensor

#: A metric of decisions or a measure of scores: the object, its name, or a function of Counts.
Measure = str | Metric | RankingMetric | Formula


@dataclass(frozen=True)
class Request:
    """A requested metric of decisions, or a ranking such as "auroc"."""

    name: str
    metric: Metric | None
    own_threshold: bool
    averaging: Averaging
    ranking: RankingMetric | None = None

    def needs_scores(self) -> bool:
        """Check whether the counts at one threshold are not enough to measure it."""
        return self.ranking is not None or self.own_threshold or isinstance(self.metric, GroupGap)


def parse_requests(metrics: Measure | Sequence[Measure], averaging: Averaging) -> list[Request]:
    """Read the metrics that ``evaluate`` was asked for.

    Raises:
        ValueError: There are none, one is unknown, or it does not go with the average.
    """
    several = [metrics] if isinstance(metrics, (str, Metric, RankingMetric)) or callable(metrics) else list(metrics)
    if not several:
        raise InvalidValueError("evaluate needs at least one metric, such as 'f1'")
    if averaging.average is None:
        raise InvalidValueError("evaluate gives one number per metric; average=None would give one per class")
    requests = [_parse_request(metric, averaging) for metric in several]
    if all(request.averaging.zero_division != averaging.zero_division for request in requests):
        first = requests[0]  # zero_division applies to some of the metrics, or is an error
        averaging.refuse_for(first.name) if first.metric is None else averaging.check(first.metric)
    return requests


def _parse_request(metric: Measure, averaging: Averaging) -> Request:
    text = metric.strip() if isinstance(metric, str) else ""
    if text == "loss":
        raise InvalidValueError("evaluate measures metrics; for a loss, call it on the logits that evaluate returns")
    own_threshold = text.startswith(f"{BEST} ")
    if own_threshold:
        metric = text.removeprefix(f"{BEST} ").strip()
    if (ranking := get_ranking(metric)) is not None:
        if own_threshold:
            raise InvalidValueError(f"{ranking.name} needs no threshold: ask for {ranking.name!r}")
        averaging = averaging.for_metric(None)
        averaging.refuse_for(ranking.name)
        return Request(ranking.name, None, False, averaging, ranking)
    try:
        formula = get_measure(metric)
    except ValueError as error:
        raise InvalidValueError(f"{error}. Besides metrics, evaluate knows {', '.join(rankings())}") from None
    assert isinstance(formula, Metric)
    if own_threshold and isinstance(formula, GroupGap):
        raise InvalidValueError(f"{formula.name} is 0 if nothing is positive, so it has no best threshold of its own")
    averaging = averaging.for_metric(None if own_threshold else formula)
    averaging.check(formula)
    if own_threshold:
        averaging.refuse_for(repr(text))
    return Request(f"{BEST} {formula.name}" if own_threshold else formula.name, formula, own_threshold, averaging)


def measure(
    samples: Columns | Classes,
    requests: Sequence[Request],
    thresholds: Mapping[str, Threshold],
    *,
    of_group: bool = False,
) -> tuple[dict[str, float], frozenset[str]]:
    """Measure metrics, each at its threshold.

    Args:
        samples: The rows.
        requests: The metrics.
        thresholds: The threshold of each metric of decisions, by its name.
        of_group: Whether these are the rows of one group, of which a value that is not defined is NaN.

    Returns:
        The values, and the names of the metrics whose value is 0/0.
    """
    matrix = any(request.metric is not None and request.metric.needs_matrix for request in requests)
    counts: dict[int, Counts] = {}  # most metrics share one threshold
    values: dict[str, float] = {}
    undefined = set()
    for request in requests:
        if request.metric is not None:
            threshold = thresholds[request.name]
            if id(threshold) not in counts:
                counts[id(threshold)] = count_batch(samples, per_label(threshold), matrix=matrix)
            values[request.name] = request.averaging.value(request.metric, counts[id(threshold)])
            if request.averaging.is_undefined(request.metric, counts[id(threshold)]):
                undefined.add(request.name)
        elif of_group and bool((samples.target == samples.target.flatten()[0]).all()):
            undefined.add(request.name)
        else:
            assert request.ranking is not None
            average = request.averaging.average
            values[request.name] = request.ranking.measure_samples(samples, average, warn=not of_group)
    return values | dict.fromkeys(undefined if of_group else (), math.nan), frozenset(undefined)


def per_label(threshold: Threshold) -> Threshold:
    """Return a threshold, or one per label, in the shape in which it is compared with the logits ``(labels, n)``."""
    return threshold.unsqueeze(-1) if isinstance(threshold, Tensor) else threshold


def choose_threshold(
    samples: Columns | Classes, threshold: Threshold | str | None, metric: Metric | None, average: ScalarAverage
) -> Threshold:
    """Return the threshold; "best" is chosen for the metric. It is NaN if the largest logit decides."""
    if isinstance(samples, Classes):
        if isinstance(threshold, (str, Tensor)):
            raise refuse_classes()
        return math.nan
    if isinstance(threshold, Tensor):
        check_length(threshold.unsqueeze(-1), samples.logits.shape[-2])
    if isinstance(threshold, str):
        return math.nan if metric is None else best_label_thresholds(samples, metric, average)
    return 0.5 if threshold is None else threshold
