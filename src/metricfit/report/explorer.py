"""The section of two classes: the threshold explorer, curves, histograms and calibration, and their charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import to_numpy
from metricfit.errors import InvalidValueError
from metricfit.metrics import Metric, Requirement, get_metric
from metricfit.metrics.curves import Requirements, as_requirements, auroc, average_precision
from metricfit.metrics.sweep import checked
from metricfit.report import formatting
from metricfit.report.charts import FIRST, MUTED, SECOND, Chart, Curve, Drawing, Mark, Ranges, Widths, label, styled
from metricfit.report.page import Section
from metricfit.report.stops import (
    COUNTS,
    LINEAR,
    MAX_STOPS,
    Floats,
    GroupValues,
    Stops,
    ThresholdAxis,
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
BINS = 40
CALIBRATION_BINS = 10
MIN_VARIANCE = 1e-6  # so that scores of 0 and 1 count too
NORMAL_95 = 1.959963984540054


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
    classes: Sequence[str] = ("negative", "positive"),
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

    The explorer shows the confusion matrix and every metric at any threshold, and where the requirements hold. It also
    shows which threshold is best for given costs of a miss and of a false alarm. The charts are ROC and
    precision-recall curves with the operating point, histograms by class and calibration. If a class is rare, the axis
    of thresholds is in logits.

    Args:
        scores: Scores of the positive class, in [0, 1]; samples with at least the threshold are flagged.
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
    axis = choose_axis([each[0] for each in checks], y, [each.threshold for each in named.values()])
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
        "curves": shown_curves(judged, required),
        "requirements": [str(requirement) for requirement in required],
        "classes": classes,
        "n": float(stops.counts.n[0, 0]),
        "positives": float(stops.counts.positives[0, 0]),
        "weighted": w is not None,
        "sweep": sweep_chart([each.stops for each in methods], judged, required, axis, interval),
        "interval_name": interval_name,
        "group_name": group_name,
        "charts": [
            *([roc(stops, first.captions["roc"])] if both else []),
            *([precision_recall(stops, first.captions["precision_recall"])] if both else []),
        ],
        "beside": [
            histograms(s, y, w, classes, stops, axis),
            calibration(s, y, w, classes[1]),
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


def _checked(method: ScoredMethod, labels: Any, weight: Any) -> tuple[Floats, Floats, Floats | None]:
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
    return to_numpy(s), to_numpy(y), None if w is None else to_numpy(w)


def _explored(
    name: str,
    given: ScoredMethod,
    stops: Stops,
    data: tuple[Floats, Floats, Floats | None],
    metric: Metric,
    requirements: Sequence[Requirement],
    groups: Any | None,
) -> ExploredMethod:
    s, y, w = data
    by_group = [] if groups is None else compute_groups(s, y, w, groups, stops.thresholds, metric)
    captions = {}
    if bool((y == 1).any()) and bool((y == 0).any()):
        captions = {
            "roc": describe_roc(stops, auroc(s, y, w)),
            "precision_recall": describe_precision_recall(stops, average_precision(s, y, w)),
        }
    captions["sweep"] = describe_sweep(stops, metric, requirements)
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
    return f"{text} Curves show 0/0 as 0, elsewhere it is not known."


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


def sweep_chart(
    several: Sequence[Stops],
    metric: Metric,
    requirements: Sequence[Requirement],
    axis: ThresholdAxis = LINEAR,
    interval: tuple[float, float] | None = None,
) -> Widths:
    """Draw the judged and the required metrics at every threshold, with the feasible range shaded.

    Args:
        several: The stops of each method; the first is drawn, and the axes have room for all.
        metric: The judged metric.
        requirements: The requirements.
        axis: The axis of thresholds.
        interval: The interval of the chosen threshold, if it is known.

    Returns:
        The chart for wide and for narrow screens.
    """
    return Widths(*(_sweep(several, metric, requirements, axis, interval, size) for size in ((6.3, 2.75), (4.6, 2.3))))


@styled
def _sweep(
    several: Sequence[Stops],
    metric: Metric,
    requirements: Sequence[Requirement],
    axis: ThresholdAxis,
    interval: tuple[float, float] | None,
    size: tuple[float, float],
) -> Chart:
    drawing, stops = Drawing(*size), several[0]
    axes, shown = drawing.axes, shown_curves(metric, requirements)
    values = np.concatenate([each.metrics[name] for each in several for name, _ in shown])
    low = 0.0 if metric.bounds[0] >= 0 else float(values.min())
    high = low + max(1.05 * (float(values.max()) - low), 1e-6)
    axes.set(xlim=(axis.low, axis.high), ylim=(low, high), xlabel="threshold", ylabel=label(metric.name))
    if axis.kind == "logit":
        ticks = axis.ticks()
        axes.set_xticks([at for at, _ in ticks], [text for _, text in ticks])
    places = axis.places(stops.thresholds)
    here = float(places[stops.chosen])
    value = float(stops.metrics[metric.name][stops.chosen])
    curves = [Curve(None, name, (places, stops.metrics[name]), looks, step=True) for name, looks in shown]
    return drawing.finished(
        "Every threshold",
        describe_sweep(stops, metric, requirements),
        [
            Ranges("feasible", _as_places(axis, stops.spans) if requirements else []),
            Ranges("interval", [] if interval is None else _as_places(axis, [interval])),
            *reversed(curves),
            Mark(None, None, (here, 0.0), "chosen"),
            Mark(None, None, (here, 0.0), "cost"),
            Mark(None, None, (here, 0.0)),
            Mark(None, metric.name, (here, value)),
        ],
    )


def describe_sweep(stops: Stops, metric: Metric, requirements: Sequence[Requirement]) -> str:
    """Say what the chart of all thresholds shows."""
    value = formatting.value(float(stops.metrics[metric.name][stops.chosen]))
    chosen = stops.labels[stops.chosen]
    return f"{metric.name} by threshold, {value} at the chosen one, {chosen}.{_where(stops, requirements)}"


def shown_curves(metric: Metric, requirements: Sequence[Requirement]) -> list[tuple[str, str]]:
    """Return the metrics that are drawn at every threshold, and how: the judged one first, then the required ones."""
    names = dict.fromkeys([metric.name, *(requirement.metric.name for requirement in requirements)])
    return [(name, "first" if number == 0 else f"second dash{(number - 1) % 3}") for number, name in enumerate(names)]


def _as_places(axis: ThresholdAxis, ranges: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(axis.place(start), axis.place(end)) for start, end in ranges]


@styled
def roc(stops: Stops, description: str) -> Chart:
    """Draw the ROC curve with the operating point."""
    drawing = Drawing()
    drawing.axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    drawing.unit_square("false positive rate", "true positive rate (recall)")
    at = float(stops.metrics["fpr"][stops.chosen]), float(stops.metrics["recall"][stops.chosen])
    curves = _curves(stops, "fpr", "recall", np.ones(len(stops.thresholds), dtype=bool))
    return drawing.finished("ROC curve", description, [*curves, Mark("fpr", "recall", at)])


@styled
def precision_recall(stops: Stops, description: str) -> Chart:
    """Draw the precision-recall curve with the operating point; it has no point where nothing is flagged."""
    drawing = Drawing()
    some = to_numpy(stops.counts.predicted)[:, 0] > 0
    share = _share_of_positives(stops)
    drawing.axes.axhline(share, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    drawing.unit_square("recall", "precision")
    at = float(stops.metrics["recall"][stops.chosen]), float(stops.metrics["precision"][stops.chosen])
    return drawing.finished(
        "Precision and recall",
        description,
        [*_curves(stops, "recall", "precision", some), Mark("recall", "precision", at)],
    )


def describe_roc(stops: Stops, area: float) -> str:
    """Say what the ROC curve shows."""
    return f"The area under it is {formatting.value(area)}.{_thick(stops)}"


def describe_precision_recall(stops: Stops, area: float) -> str:
    """Say what the precision-recall curve shows."""
    share = formatting.value(_share_of_positives(stops))
    return f"Average precision is {formatting.value(area)}; calling everything positive gives {share}.{_thick(stops)}"


def _share_of_positives(stops: Stops) -> float:
    return float(stops.counts.positives[0, 0] / stops.counts.n[0, 0])


@styled
def histograms(
    s: Floats, y: Floats, w: Floats | None, classes: Sequence[str], stops: Stops, axis: ThresholdAxis = LINEAR
) -> Chart:
    """Draw the scores of each class as shares of the class, so that a rare class is as visible as the other."""
    drawing = Drawing()
    edges, places = np.linspace(axis.low, axis.high, BINS + 1), axis.places(s)
    for number, colour in ((0, FIRST), (1, SECOND)):
        chosen = y == number
        if not chosen.any():
            continue
        heights, _ = np.histogram(places[chosen], edges, weights=None if w is None else w[chosen])
        shares = heights / heights.sum()
        drawing.axes.stairs(shares, edges, fill=True, color=colour, alpha=0.3)
        drawing.axes.stairs(
            shares, edges, color=colour, linewidth=1.4, label=label(classes[number]), linestyle="-" if number else "--"
        )
    drawing.axes.set(xlim=(axis.low, axis.high), xlabel="score", ylabel="share of the class")
    if axis.kind == "logit":
        ticks = axis.ticks()
        drawing.axes.set_xticks([at for at, _ in ticks], [text for _, text in ticks])
    drawing.axes.legend()
    at = axis.place(float(stops.thresholds[stops.chosen]))
    return drawing.finished(
        "Scores by class", "How often each score occurs, for each class by itself.", [Mark(None, None, (at, 0.0))]
    )


@styled
def calibration(s: Floats, y: Floats, w: Floats | None, positive: str) -> Chart:
    """Draw the share of positives by mean score, in up to ten bins, with Wilson's 95 % intervals."""
    points = reliability(s, y, w)
    drawing = Drawing()
    top = min(1.0, 1.15 * max(max(mean, high) for mean, _, _, high in points))
    drawing.axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    for mean, _, low, high in points:
        drawing.axes.plot([mean, mean], [low, high], color=FIRST, linewidth=1.4)
    drawing.axes.plot([point[0] for point in points], [point[1] for point in points], "o-", color=FIRST, markersize=4.5)
    drawing.axes.set(
        xlim=(-0.02 * top, 1.02 * top), ylim=(-0.02 * top, 1.02 * top), xlabel="mean score", ylabel="share of positives"
    )
    return drawing.finished(
        "Calibration",
        f"Where scores are probabilities of “{positive}”, the points lie on the dashed line; bars are 95 % intervals.",
    )


def reliability(s: Floats, y: Floats, w: Floats | None) -> list[tuple[float, float, float, float]]:
    """Per bin the mean score, the share of positives and its interval by Wilson (1927). Equal scores share a bin; with
    weights, a bin counts as many samples as Kish's effective size, (sum w)² / sum w².

    Bins hold equal sums of s (1 - s), the variance of a label that the score expects: with as many samples in each, a
    rare class would be in the last bin alone. Labels have no part in it.

    >>> reliability(np.array([0.2, 0.2]), np.array([0.0, 1.0]), None)[0][:2]
    (0.2, 0.5)
    """
    s = s.astype(np.float64)
    weights = np.ones_like(s) if w is None else w
    rising = np.sort(s)
    order = np.argsort(s, kind="stable")
    summed = np.cumsum(np.maximum(s * (1 - s), MIN_VARIANCE)[order] * weights[order])
    reached = summed[np.searchsorted(rising, s, side="right") - 1] / summed[-1]
    bins = np.searchsorted(np.linspace(0, 1, CALIBRATION_BINS + 1)[1:-1], reached, side="left")
    points = []
    for number in np.unique(bins):
        inside = bins == number
        size = weights[inside].sum()
        effective = size**2 / (weights[inside] ** 2).sum()
        mean, share = (float((weights[inside] * values[inside]).sum() / size) for values in (s, y.astype(np.float64)))
        points.append((mean, share, *_wilson(share, effective)))
    return points


def _wilson(share: float, n: float) -> tuple[float, float]:
    z = NORMAL_95
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def _curves(stops: Stops, x: str, y: str, defined: NDArray[np.bool_]) -> list[Curve]:
    """Return a curve, and below it the part on which the requirements hold, if there are any."""
    xs, ys = stops.metrics[x], np.where(defined, stops.metrics[y], math.nan)
    curve = Curve(x, y, (xs, ys))
    if not stops.met:
        return [curve]
    feasible = np.logical_and.reduce(list(stops.met.values()))
    part = Curve(x, y, (xs, np.where(feasible, ys, math.nan)), "feasible-part", feasible_only=True)
    return [part, curve]


def _thick(stops: Stops) -> str:
    return " The requirements are met on the thick part." if stops.met and stops.spans else ""


def _where(stops: Stops, requirements: Sequence[Requirement]) -> str:
    if not requirements:
        return ""
    asked = " and ".join(map(str, requirements))
    if not stops.spans:
        return f" No threshold gives {asked}."
    stretches = ", ".join(f"{start:.4g} to {end:.4g}" for start, end in stops.spans[:3])
    more = f" and {len(stops.spans) - 3} shorter stretches" if len(stops.spans) > 3 else ""
    return f" Shaded: {asked}, at thresholds {stretches}{more}."
