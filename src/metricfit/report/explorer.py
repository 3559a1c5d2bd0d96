"""The section of two classes: the threshold explorer, curves, histograms and calibration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from metricfit.errors import InvalidValueError
from metricfit.metrics import Metric, Requirement, get_metric
from metricfit.metrics.curves import Requirements, as_requirements, auroc, average_precision
from metricfit.metrics.sweep import checked
from metricfit.report import formatting, score_charts
from metricfit.report.page import Section
from metricfit.report.stops import (
    COUNTS,
    MAX_STOPS,
    GroupValues,
    Stops,
    choose_axis,
    compute_groups,
    compute_stops,
    shown_metrics,
)

Pair = tuple[float, float]
#: Stops of a method that is not the first; the page holds several of them.
MAX_OTHER_STOPS = 300
#: The ends of the slider of costs, as powers of 10.
LARGEST_RATIO = 3.0


@dataclass(frozen=True)
class ScoredMethod:
    """The scores of a method, for the explorer's choice of methods.

    Args:
        scores: Scores of the positive class, in [0, 1].
        threshold: The chosen threshold.
        interval: An interval of the threshold, if it is known.

    Example:
        >>> ScoredMethod([0.9, 0.2], threshold=0.5).interval is None
        True
    """

    scores: Any
    threshold: float
    interval: Pair | None = None


@dataclass(frozen=True)
class Preset:
    """A button of the explorer: its text, and the index of the stop that it selects."""

    text: str
    stop: int


@dataclass(frozen=True)
class ExploredMethod:
    """One method of the explorer, ready for the page."""

    name: str
    stops: Stops
    presets: list[Preset]
    interval: Pair | None
    groups: list[GroupValues]
    about: str
    captions: dict[str, str]

    def payload(self) -> dict[str, Any]:
        """What the page's script looks up."""
        return self.stops.payload() | {
            "presets": [[preset.text, preset.stop] for preset in self.presets],
            "interval": self.interval,
            "groups": [group.payload() for group in self.groups],
            "about": self.about,
            "captions": self.captions,
        }


def scores(
    scores: Any,
    labels: Any,
    *,
    threshold: float,
    metric: str | Metric = "f1",
    requirements: Requirements | None = None,
    weight: Any | None = None,
    classes: tuple[str, str] = ("negative", "positive"),
    interval: Pair | None = None,
    interval_name: str = "95 % interval of the threshold",
    method: str = "",
    others: Mapping[str, ScoredMethod] | None = None,
    groups: Any | None = None,
    group_name: str = "group",
    title: str = "Threshold explorer",
    lead: str = "",
) -> Section:
    """Make the threshold explorer and the charts of one set of scores, or of several methods to choose from.

    The explorer shows the confusion matrix and every metric at any threshold, where the requirements hold, and which
    threshold is best for given costs of a miss and of a false alarm. The charts are ROC and precision-recall curves
    with the operating point, histograms by class and calibration. If a class is rare, the axis of thresholds is in
    logits.

    Args:
        scores: Scores of the positive class, in [0, 1]; samples with at least the threshold are called positive.
        labels: 1 for the positive class, 0 for the other.
        threshold: The chosen threshold; infinity calls nothing positive.
        metric: The metric that the model is judged by.
        requirements: As ``subject_to`` of ``best_threshold``.
        weight: One weight per sample; counts are then sums of weights.
        classes: Names of the negative and of the positive class.
        interval: An interval of the threshold, which is shaded.
        interval_name: What the interval is.
        method: Name of the method that the scores are from, if there are others.
        others: Other methods on the same samples, by name; the reader can choose them.
        groups: The group of each sample. Up to 12 groups are shown in a table.
        group_name: What a group is called.
        title: Title of the section.
        lead: A sentence or two below the title.

    Returns:
        The section.

    Raises:
        InvalidValueError: If a score is outside [0, 1], the threshold is negative, or there are not two names.

    Example:
        >>> section = scores([0.9, 0.6, 0.4, 0.1], [1, 0, 1, 0], threshold=0.4, classes=("stays", "leaves"))
        >>> [preset.text for preset in section.context["presets"]]
        ['chosen and best here, 0.4', '0.5']
    """
    if len(classes) != 2:
        raise InvalidValueError(f"classes names the negative and the positive class, got {len(classes)} names")
    named = {method: ScoredMethod(scores, threshold, interval)} | dict(others or {})
    judged, required = get_metric(metric), as_requirements(requirements)
    checks = [_checked(each, labels, weight) for each in named.values()]
    s, y, w = checks[0]
    axis = choose_axis([each[0].numpy() for each in checks], y.numpy(), [each.threshold for each in named.values()])
    methods = []
    for number, ((name, given), (own, _, _)) in enumerate(zip(named.items(), checks, strict=True)):
        limit = MAX_OTHER_STOPS if number else MAX_STOPS
        stops = compute_stops(own, y, w, float(given.threshold), judged, required, axis=axis, limit=limit)
        methods.append(_explored(name, given, stops, (own, y, w), judged, required, groups))
    first, stops = methods[0], methods[0].stops
    both = bool((y == 1).any()) and bool((y == 0).any())
    context = {
        "methods": methods,
        "stops": stops,
        "axis": axis,
        "position": axis.place(float(stops.thresholds[stops.chosen])),
        "counts": {name: float(getattr(stops.counts, name)[stops.chosen, 0]) for name in COUNTS},
        "metric": judged.name,
        "prices": _prices(judged),
        "metrics": [(shown, _formula(shown)) for shown in shown_metrics(judged, required)],
        "curves": score_charts.shown_curves(judged, required),
        "requirements": [str(requirement) for requirement in required],
        "classes": classes,
        "n": float(stops.counts.n[0, 0]),
        "positives": float(stops.counts.positives[0, 0]),
        "weighted": w is not None,
        "sweep": score_charts.sweep([each.stops for each in methods], judged, required, axis, interval),
        "interval_name": interval_name,
        "group_name": group_name,
        "charts": [
            *([score_charts.roc(stops, first.captions["roc"])] if both else []),
            *([score_charts.precision_recall(stops, first.captions["precision_recall"])] if both else []),
        ],
        "beside": [
            score_charts.histograms(s, y, w, classes, stops, axis),
            score_charts.calibration(s, y, w, classes[1]),
        ],
        "presets": first.presets,
        "one_class": None if both else classes[int(bool((y == 1).any()))],
    }
    return Section(title, "scores.html", context, lead)


def _prices(metric: Metric) -> dict[str, float]:
    """Return what a miss and a false alarm cost at first: the costs of the metric, otherwise 1 each."""
    costs = metric.parameters if metric.base_name == "cost" else {}
    miss, alarm = (cost if isinstance(cost := costs.get(name), (int, float)) else 1.0 for name in ("fn", "fp"))
    ratio = math.log10(miss / alarm) if miss > 0 and alarm > 0 else 0.0
    return {"miss": miss, "alarm": alarm, "ratio": max(-LARGEST_RATIO, min(LARGEST_RATIO, ratio))}


def _checked(method: ScoredMethod, labels: Any, weight: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    s, y, w = checked(method.scores, labels, weight)
    if float(s.min()) < 0 or float(s.max()) > 1:
        raise InvalidValueError(
            f"scores must lie in [0, 1], got {float(s.min()):g} to {float(s.max()):g}; pass probabilities, such as "
            "torch.sigmoid(logits)"
        )
    if not method.threshold >= 0:
        raise InvalidValueError(
            f"the threshold must be at least 0, got {method.threshold}; give the one that was chosen, or 0.5"
        )
    return s.cpu(), y.cpu(), None if w is None else w.cpu()


def _explored(
    name: str,
    given: ScoredMethod,
    stops: Stops,
    data: tuple[Tensor, Tensor, Tensor | None],
    metric: Metric,
    requirements: Sequence[Requirement],
    groups: Any | None,
) -> ExploredMethod:
    s, y, w = data
    of_rows, truth = (np.asarray(part, dtype=np.float64) for part in (s, y))
    weights = None if w is None else np.asarray(w, dtype=np.float64)
    by_group = [] if groups is None else compute_groups(of_rows, truth, weights, groups, stops.thresholds, metric)
    captions = {}
    if bool((y == 1).any()) and bool((y == 0).any()):
        captions = {
            "roc": score_charts.describe_roc(stops, auroc(s, y, w)),
            "precision_recall": score_charts.describe_precision_recall(stops, average_precision(s, y, w)),
        }
    captions["sweep"] = score_charts.describe_sweep(stops, metric, requirements)
    return ExploredMethod(
        name, stops, _presets(stops), given.interval, by_group, _about(stops, bool(requirements)), captions
    )


def _about(stops: Stops, required: bool) -> str:
    """Say which thresholds the page holds, and what "best here" is."""
    number = formatting.count(stops.distinct)
    if stops.complete:
        text = f"The page holds all {number} distinct scores: the numbers are exact at any threshold."
    else:
        grid = "all with up to three decimals, " if stops.gridded else ""
        best = "" if stops.best is None else ", the best"
        text = (
            f"There are {number} distinct scores. The page holds {formatting.count(len(stops.thresholds))} thresholds: "
            f"{grid}the chosen one{best} and a choice of scores. The numbers at each of them are exact."
        )
    if stops.best is not None:
        under = " under the requirements" if required else ""
        text += (
            f" “Best here” is the best threshold in hindsight{under}: it was chosen on these samples, so its value on "
            "new samples is usually worse."
        )
    return f"{text} 0/0 is shown as 0."


def _presets(stops: Stops) -> list[Preset]:
    same = stops.best is not None and stops.decides_alike(stops.best, stops.chosen)
    presets = [
        Preset(f"chosen{' and best here' if same else ''}, {stops.labels[stops.chosen]}", stops.chosen),
        Preset("0.5", stops.at(0.5)),
    ]
    if stops.best is not None and not same:
        presets.append(Preset(f"best here, {stops.labels[stops.best]}", stops.best))
    return presets


def _formula(metric: Metric) -> str:
    """Return the metric's formula: the first clause of its documentation. A metric of the user may have none.

    The name of a metric that was written as a formula says it already.
    """
    if metric.user_defined and metric.formula.__doc__ in (None, metric.base_name):
        return ""
    return metric.summary.partition(";")[0].rstrip(".")
