"""The section of two classes: curves, histograms, calibration, and the threshold explorer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from metricfit.errors import InvalidValueError
from metricfit.metrics import Metric, get_metric
from metricfit.metrics.curves import Requirements, as_requirements, auroc, average_precision
from metricfit.metrics.sweep import checked
from metricfit.report.charts import scores as score_charts
from metricfit.report.charts.drawing import Chart
from metricfit.report.page import Section
from metricfit.report.threshold_stops import COUNTS, Stops, compute_stops, shown_metrics


@dataclass(frozen=True)
class Preset:
    """A button of the explorer: its text, and the index of the stop that it selects."""

    text: str
    stop: int


def scores(
    scores: Any,
    labels: Any,
    *,
    threshold: float,
    metric: str | Metric = "f1",
    requirements: Requirements | None = None,
    weight: Any | None = None,
    classes: tuple[str, str] = ("negative", "positive"),
    title: str = "Scores and threshold",
    lead: str = "",
) -> Section:
    """Make the charts and the threshold explorer of one set of scores.

    The charts are ROC and precision-recall curves with the operating point, histograms by class and calibration. The
    explorer shows the confusion matrix and every metric at any threshold, and where the requirements hold.

    Args:
        scores: Scores of the positive class, in [0, 1]; samples with at least the threshold are called positive.
        labels: 1 for the positive class, 0 for the other.
        threshold: The chosen threshold; infinity calls nothing positive.
        metric: The metric that the model is judged by.
        requirements: As ``subject_to`` of ``best_threshold``.
        weight: One weight per sample; counts are then sums of weights.
        classes: Names of the negative and of the positive class.
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
    s, y, w = checked(scores, labels, weight)
    if float(s.min()) < 0 or float(s.max()) > 1:
        raise InvalidValueError(
            f"scores must lie in [0, 1], got {float(s.min()):g} to {float(s.max()):g}; pass probabilities, such as "
            "torch.sigmoid(logits)"
        )
    if not threshold >= 0:
        raise InvalidValueError(
            f"the threshold must be at least 0, got {threshold}; give the one that was chosen, or 0.5"
        )
    if len(classes) != 2:
        raise InvalidValueError(f"classes names the negative and the positive class, got {len(classes)} names")
    s, y, w = s.cpu(), y.cpu(), None if w is None else w.cpu()
    judged, required = get_metric(metric), as_requirements(requirements)
    stops = compute_stops(s, y, w, float(threshold), judged, required)
    both = bool((y == 1).any()) and bool((y == 0).any())
    context = {
        "stops": stops,
        "counts": {name: float(getattr(stops.counts, name)[stops.chosen, 0]) for name in COUNTS},
        "metric": judged.name,
        "metrics": [(shown, _formula(shown)) for shown in shown_metrics(judged, required)],
        "requirements": [str(requirement) for requirement in required],
        "classes": classes,
        "n": float(stops.counts.n[0, 0]),
        "positives": float(stops.counts.positives[0, 0]),
        "weighted": w is not None,
        "sweep": score_charts.sweep(stops, judged, required),
        "beside": [
            score_charts.histograms(s, y, w, classes, stops),
            score_charts.calibration(s, y, w, classes[1]),
        ],
        "charts": _curves(stops, s, y, w) if both else [],
        "presets": _presets(stops),
        "one_class": None if both else classes[int(bool((y == 1).any()))],
    }
    return Section(title, "scores.html", context, lead)


def _presets(stops: Stops) -> list[Preset]:
    same = stops.best is not None and stops.decides_alike(stops.best, stops.chosen)
    presets = [
        Preset(f"chosen{' and best here' if same else ''}, {stops.labels[stops.chosen]}", stops.chosen),
        Preset("0.5", stops.at(0.5)),
    ]
    if stops.best is not None and not same:
        presets.append(Preset(f"best here, {stops.labels[stops.best]}", stops.best))
    return presets


def _curves(stops: Stops, s: Tensor, y: Tensor, w: Tensor | None) -> list[Chart]:
    return [
        score_charts.roc(stops, auroc(s, y, w)),
        score_charts.precision_recall(stops, average_precision(s, y, w)),
    ]


def _formula(metric: Metric) -> str:
    """Return the metric's formula: the first clause of its documentation. A metric of the user may have none.

    The name of a metric that was written as a formula says it already.
    """
    if metric.user_defined and metric.formula.__doc__ in (None, metric.base_name):
        return ""
    return metric.summary.partition(";")[0].rstrip(".")
