"""The stops of the explorer: the thresholds that it can show, their axis, and the counts and metrics at each one."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from metricfit.core.arrays import to_numpy
from metricfit.core.counts import Counts
from metricfit.metrics import Metric, Requirement, fbeta, get_metric, names
from metricfit.metrics.curves import InfeasibleError, best_threshold
from metricfit.metrics.group_gap import is_undefined
from metricfit.metrics.metric import MetricFactory
from metricfit.metrics.registry import find
from metricfit.metrics.sweep import one_class, sweep
from metricfit.report import formatting

Floats = npt.NDArray[np.float64]
#: If a class has a smaller share than this, or a chosen threshold is so close to 0 or 1, the axis is in logits.
RARE = 0.02
EDGE = 1e-6
TICKS = (1e-6, 1e-5, 1e-4, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1 - 1e-5, 1 - 1e-6)


@dataclass(frozen=True)
class ThresholdAxis:
    """How thresholds are placed along an axis.

    Attributes:
        kind: "linear", or "logit".
        low: The position of the left end.
        high: The position of the right end.

    Example:
        >>> axis = ThresholdAxis("logit", -4.0, 4.0)
        >>> axis.place(0.5), axis.place(0.0), [text for _, text in axis.ticks()]
        (0.0, -4.0, ['0.1', '0.5', '0.9'])
    """

    kind: Literal["linear", "logit"] = "linear"
    low: float = 0.0
    high: float = 1.0

    def places(self, thresholds: Any) -> Floats:
        """Return the positions of thresholds, those beyond an end at the end."""
        given = np.asarray(thresholds, dtype=np.float64)
        if self.kind == "logit":
            with np.errstate(divide="ignore"):
                inside = np.clip(given, 0.0, 1.0)
                given = np.log(inside) - np.log1p(-inside)
        positions: Floats = np.clip(given, self.low, self.high)
        return positions

    def place(self, threshold: float) -> float:
        """Return the position of a threshold."""
        return float(self.places(threshold))

    def ticks(self) -> list[tuple[float, str]]:
        """Return the positions of ticks and their labels; none for a linear axis, which needs no help."""
        if self.kind == "linear":
            return []
        positions = [(float(np.log(at) - np.log1p(-at)), f"{at:.7g}") for at in TICKS]
        return [(position, text) for position, text in positions if self.low < position < self.high]


LINEAR = ThresholdAxis()


def choose_axis(scores: Sequence[Any], labels: Any, thresholds: Sequence[float]) -> ThresholdAxis:
    """Choose the axis of an explorer.

    Args:
        scores: The scores of each method.
        labels: 1 for positive rows, otherwise 0.
        thresholds: The chosen threshold of each method.

    Returns:
        A linear axis from 0 to 1, or one in logits. It covers the scores of the rarer class and half of the others.

    Example:
        >>> choose_axis([[0.1, 0.9]], [0, 1], [0.5]).kind, choose_axis([[0.001, 0.002]], [0, 1], [0.0015]).kind
        ('linear', 'logit')
    """
    share = float(np.mean(np.asarray(labels)))
    edges = [min(threshold, 1 - threshold) for threshold in thresholds if threshold <= 1]
    if RARE <= share <= 1 - RARE and all(edge >= RARE for edge in edges):
        return LINEAR
    positive = np.asarray(labels) == 1
    lows, highs = zip(*(_ends(np.asarray(each, dtype=np.float64), positive) for each in scores), strict=True)
    low, high = (float(end) for end in np.clip([min(lows), max(highs)], EDGE, 1 - EDGE))
    reached = [threshold for threshold in thresholds if EDGE <= threshold <= 1 - EDGE]
    low, high = min([low, 0.4, *reached]), max([high, 0.6, *reached])
    margin = 0.02 * (np.log(high / (1 - high)) - np.log(low / (1 - low)))
    return ThresholdAxis("logit", float(np.log(low / (1 - low)) - margin), float(np.log(high / (1 - high)) + margin))


def _ends(scores: Floats, positive: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Return the range of scores that matters: the rarer class's range, and half of the other class next to it."""
    rare = positive if positive.mean() < 0.5 else ~positive
    if not rare.any():
        return float(scores.min()), float(scores.max())
    middle = float(np.median(scores))
    low, high = float(scores[rare].min()), float(scores[rare].max())
    if positive.mean() < 0.5:
        return min(low, middle), float(scores.max())
    return float(scores.min()), max(high, middle)


MAX_STOPS = 2000
GRID = np.arange(1001) / 1000  # what the slider goes through, and what people type
NOTED_SPANS = 50
COUNTS = ("tp", "fp", "fn", "tn")


@dataclass(frozen=True)
class Stops:
    """Thresholds, rising, the last infinite; per stop the counts ``(stops, 1)``, the metrics and the requirements.

    ``distinct`` is how many distinct scores there are, ``complete`` whether all of them are stops, ``gridded`` whether
    all thresholds of three decimals are. ``spans`` are the stretches of thresholds where all requirements hold, from
    the complete set. ``unknown`` says where a metric is 0/0; its value is then what the formula gives, 0.
    """

    thresholds: Floats
    labels: list[str]
    counts: Counts
    metrics: dict[str, Floats]
    met: dict[str, npt.NDArray[np.bool_]]
    unknown: dict[str, npt.NDArray[np.bool_]]
    distinct: int
    complete: bool
    gridded: bool
    chosen: int
    best: int | None
    spans: list[tuple[float, float]]

    def at(self, threshold: float) -> int:
        """Return the index of the stop that decides as this threshold does."""
        return int(np.searchsorted(self.thresholds, threshold))

    def decides_alike(self, a: int, b: int) -> bool:
        """Return whether no sample's score lies between two stops."""
        return all(float(count[a, 0]) == float(count[b, 0]) for count in self.counts)

    def text(self, name: str, at: int, kind: str = "value") -> str:
        """Return a metric at a stop as the page shows it: "not known" where it is 0/0, as ``evaluate`` says."""
        if self.unknown[name][at]:
            return "not known"
        shown: str = getattr(formatting, kind)(float(self.metrics[name][at]))
        return shown

    def payload(self) -> dict[str, Any]:
        """What the page's script looks up. Numbers are the bytes of little-endian doubles in base64, hence exact."""
        return {
            "thresholds": packed(self.thresholds),
            "labels": self.labels,
            "counts": {name: packed(to_numpy(getattr(self.counts, name))[:, 0]) for name in COUNTS},
            "metrics": {name: packed(values) for name, values in self.metrics.items()},
            **{
                part: {name: "".join(map(str, marks.astype(int))) for name, marks in getattr(self, part).items()}
                for part in ("met", "unknown")
            },
            "complete": self.complete,
            "chosen": self.chosen,
            "spans": self.spans,
        }


def compute_stops(
    scores: Any,
    labels: Any,
    weight: Any,
    threshold: float,
    metric: Metric,
    requirements: Sequence[Requirement],
    *,
    axis: ThresholdAxis = LINEAR,
    limit: int = MAX_STOPS,
) -> Stops:
    """Compute the stops of a set of scores.

    These are all distinct scores. If there are more than ``limit``, they are a selection of the scores, and of 2,000
    stops about half are all thresholds with up to three decimals. 0.5, the chosen threshold and the best one are always
    among them.
    """
    swept = sweep(scores, labels, weight)
    distinct, counts = (
        to_numpy(swept.thresholds)[::-1],
        swept.counts.map(lambda values: np.flip(to_numpy(values), 0).copy()),
    )
    feasible = np.ones(len(distinct), dtype=bool)
    for requirement in requirements:
        feasible &= requirement.forgives(_values(requirement, counts))
    try:
        best = best_threshold(scores, labels, metric, list(requirements), weight=weight).threshold
    except InfeasibleError:
        best = None
    spans = _spans(distinct, feasible, axis)
    widest = sorted(spans, key=lambda span: span[0] - span[1])[: min(NOTED_SPANS, limit // 10)]
    gridded = limit >= MAX_STOPS
    needed = [*([] if best is None else [best]), *(end for span in widest for end in span)]
    kept = _kept(distinct, counts, needed, limit, gridded)
    complete = len(kept) == len(distinct)
    round_numbers = GRID if gridded and not complete else [0.5]
    thresholds = np.unique(np.concatenate([distinct[kept], round_numbers, [threshold, math.inf]]))
    source = np.searchsorted(distinct, thresholds)
    below = [distinct[at - 1] if at else -math.inf for at in source]
    counts = counts.map(lambda values: values[source])
    shown = {each.name: each for each in shown_metrics(metric, requirements)}
    return Stops(
        thresholds=thresholds,
        labels=[formatting.threshold(at, above) for at, above in zip(thresholds, below, strict=True)],
        counts=counts,
        metrics={name: _values(each, counts) for name, each in shown.items()},
        met={str(required): to_numpy(required.forgives(_values(required, counts))) for required in requirements},
        unknown={name: to_numpy(is_undefined(each, counts)).reshape(-1) for name, each in shown.items()},
        distinct=len(distinct) - 1,
        complete=complete,
        gridded=gridded,
        chosen=int(np.searchsorted(thresholds, threshold)),
        best=None if best is None else int(np.searchsorted(thresholds, best)),
        spans=spans,
    )


def _values(formula: Metric | Requirement, counts: Counts) -> Any:
    """Return a metric, or the violation of a requirement, at each stop."""
    return to_numpy(one_class(formula, counts))


def shown_metrics(metric: Metric, requirements: Sequence[Requirement] = ()) -> list[Metric]:
    """Return the metrics of a page: the judged one, the required ones, and all metrics without parameters.

    F-beta is shown with 2 and 0.5; other metrics with parameters are shown only if they are judged or required.

    >>> from metricfit import metrics
    >>> [metric.name for metric in shown_metrics(metrics.mcc, [metrics.recall >= 0.9])][:3]
    ['mcc', 'recall', 'f1']
    """
    required = [requirement.metric for requirement in requirements]
    usual = [get_metric(name) for name in names() if not isinstance(find(name), MetricFactory)]
    return list(dict.fromkeys([metric, *required, *usual, fbeta(beta=2), fbeta(beta=0.5)]))


def packed(numbers: Floats, kind: str = "<f8") -> str:
    """The bytes of little-endian doubles, or numbers of another type, in base64.

    >>> packed(np.array([1.0]))
    'AAAAAAAA8D8='
    """
    return base64.b64encode(numbers.astype(kind).tobytes()).decode()


def _kept(
    distinct: Floats, counts: Counts, needed: Sequence[float], limit: int, gridded: bool
) -> npt.NDArray[np.int64]:
    """Return the indices of the distinct scores to keep.

    Of too many scores, as many are kept evenly by rank, by the logarithm of the rank from the top and by the positives
    found, beside the thresholds of three decimals: each of these can miss what the others hold where classes are rare
    or scores crowd.
    """
    if len(distinct) <= limit:
        return np.arange(len(distinct))
    share = (limit - len(GRID) * gridded - len(needed) - 3) // 3
    last = len(distinct) - 1
    by_rank = np.linspace(0, last, share).round().astype(np.int64)
    from_top = last + 1 - np.geomspace(1, last + 1, share).round().astype(np.int64)
    positives = to_numpy(counts.tp)[::-1, 0]
    by_positives = last - np.searchsorted(positives, np.linspace(0, positives[-1], share))
    return np.unique(np.concatenate([by_rank, from_top, by_positives, np.searchsorted(distinct, needed)]))


def _spans(distinct: Floats, feasible: npt.NDArray[np.bool_], axis: ThresholdAxis) -> list[tuple[float, float]]:
    """Return the ranges of [0, 1] in which thresholds are feasible; gaps too small to show are closed."""
    if feasible.all():
        return [(0.0, 1.0)]
    ends = np.clip(distinct, 0, 1)
    starts = np.concatenate([[0.0], ends[:-1]])
    from_places, to_places = axis.places(starts), axis.places(ends)
    visible = 1e-3 * (axis.high - axis.low)
    spans: list[tuple[float, float]] = []
    last = -np.inf
    for at in np.flatnonzero(feasible):
        start, end = float(starts[at]), float(ends[at])
        if spans and from_places[at] - last < visible:
            spans[-1] = spans[-1][0], end
        else:
            spans.append((start, end))
        last = to_places[at]
    return spans


#: More groups than these are identifiers, such as patients, and no table of them is shown.
MAX_GROUPS = 12


@dataclass(frozen=True)
class GroupValues:
    """A group of rows: its size, and its counts and values at each stop.

    Attributes:
        name: The group.
        n: Its rows, by weight.
        positives: Its positive rows, by weight.
        tp: True positives at each stop.
        fp: False positives at each stop.
        values: The metric at each stop.
    """

    name: str
    n: float
    positives: float
    tp: Floats
    fp: Floats
    values: Floats

    def payload(self) -> dict[str, Any]:
        """What the page's script looks up; single precision is enough for what it shows."""
        return {
            "positives": self.positives,
            "tp": packed(self.tp, "<f4"),
            "fp": packed(self.fp, "<f4"),
            "values": packed(self.values, "<f4"),
        }


def are_few_groups(groups: Any) -> bool:
    """Return whether there are so few groups that the explorer has a table of them."""
    return 1 < len(np.unique(np.asarray(groups).astype(str))) <= MAX_GROUPS


def compute_groups(
    scores: Floats, labels: Floats, weight: Floats | None, groups: Any, thresholds: Floats, metric: Metric
) -> list[GroupValues]:
    """Compute what each group's decisions are worth at each stop.

    Args:
        scores: Scores of the positive class.
        labels: 1 for positive rows, otherwise 0.
        weight: One weight per row, or None.
        groups: The group of each row.
        thresholds: The stops.
        metric: The metric.

    Returns:
        The groups, the largest first; none if there are more than 12 or only one.

    Example:
        >>> from metricfit import metrics
        >>> scores, labels = np.array([0.2, 0.9, 0.8]), np.array([0.0, 1.0, 0.0])
        >>> found = compute_groups(scores, labels, None, ["a", "a", "b"], np.array([0.5]), metrics.accuracy)
        >>> [(group.name, group.n, float(group.values[0])) for group in found]
        [('a', 2.0, 1.0), ('b', 1.0, 0.0)]
    """
    if not are_few_groups(groups):
        return []
    names = np.asarray(groups).astype(str)
    distinct = np.unique(names)
    weights = np.ones_like(scores) if weight is None else weight
    found = []
    for name in distinct:
        inside = names == name
        tp, fp = (
            _sum_from(scores[part], weights[part], thresholds)
            for part in (inside & (labels == 1), inside & (labels == 0))
        )
        n, positives = float(weights[inside].sum()), float(weights[inside & (labels == 1)].sum())
        cells = (part[:, None] for part in (tp, fp, positives - tp, n - positives - fp))
        found.append(GroupValues(str(name), n, positives, tp, fp, _values(metric, Counts(*cells))))
    return sorted(found, key=lambda group: -group.n)


def _sum_from(scores: Floats, weights: Floats, thresholds: Floats) -> Floats:
    """Return the sum of weights of scores that are at least each threshold."""
    order = np.argsort(scores)
    summed = np.concatenate([[0.0], np.cumsum(weights[order])])
    total: Floats = summed[-1] - summed[np.searchsorted(scores[order], thresholds)]
    return total
