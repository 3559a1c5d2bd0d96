"""The stops of the explorer: the thresholds that it can show, with the counts and all metrics at each of them.

Everything is computed here, with the library's formulas; the page only looks it up. A threshold t decides as the
smallest stop that is at least t, so with a stop at every distinct score the page is exact everywhere.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from metricfit.core.counts import Counts
from metricfit.metrics import Metric, Requirement, fbeta, get_metric, names
from metricfit.metrics.curves import InfeasibleError, best_threshold
from metricfit.metrics.metric import MetricFactory
from metricfit.metrics.registry import find
from metricfit.metrics.sweep import one_class, sweep
from metricfit.report import formatting
from metricfit.report.threshold_axis import LINEAR, ThresholdAxis

Floats = npt.NDArray[np.float64]
MAX_STOPS = 2000
GRID = np.arange(1001) / 1000  # what the slider goes through, and what people type
NOTED_SPANS = 50
COUNTS = ("tp", "fp", "fn", "tn")


@dataclass(frozen=True)
class Stops:
    """Thresholds, rising, the last infinite; per stop the counts ``(stops, 1)``, the metrics and the requirements.

    ``distinct`` is how many distinct scores there are, ``complete`` whether all of them are stops, ``gridded`` whether
    all thresholds of three decimals are. ``spans`` are the stretches of thresholds where all requirements hold, from
    the complete set.
    """

    thresholds: Floats
    labels: list[str]
    counts: Counts
    metrics: dict[str, Floats]
    met: dict[str, npt.NDArray[np.bool_]]
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

    def payload(self) -> dict[str, Any]:
        """What the page's script looks up. Numbers are the bytes of little-endian doubles in base64, hence exact."""
        return {
            "thresholds": packed(self.thresholds),
            "labels": self.labels,
            "counts": {name: packed(getattr(self.counts, name).squeeze(-1).numpy()) for name in COUNTS},
            "metrics": {name: packed(values) for name, values in self.metrics.items()},
            "met": {name: "".join(map(str, held.astype(int))) for name, held in self.met.items()},
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
    falling, counts = sweep(scores, labels, weight)
    distinct = falling.flip(0).numpy()
    counts = counts.map(lambda values: values.flip(0))
    feasible = np.ones(len(distinct), dtype=bool)
    for requirement in requirements:
        feasible &= requirement.forgives(one_class(requirement, counts)).numpy()
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
    counts = counts.map(lambda values: values[torch.from_numpy(source)])
    return Stops(
        thresholds=thresholds,
        labels=[formatting.threshold(at, above) for at, above in zip(thresholds, below, strict=True)],
        counts=counts,
        metrics={shown.name: one_class(shown, counts).numpy() for shown in shown_metrics(metric, requirements)},
        met={
            str(requirement): requirement.forgives(one_class(requirement, counts)).numpy()
            for requirement in requirements
        },
        distinct=len(distinct) - 1,
        complete=complete,
        gridded=gridded,
        chosen=int(np.searchsorted(thresholds, threshold)),
        best=None if best is None else int(np.searchsorted(thresholds, best)),
        spans=spans,
    )


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


def packed(numbers: Floats) -> str:
    """The bytes of little-endian doubles in base64.

    >>> packed(np.array([1.0]))
    'AAAAAAAA8D8='
    """
    return base64.b64encode(numbers.astype("<f8").tobytes()).decode()


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
    positives = counts.tp.squeeze(-1).flip(0).numpy()
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
