"""The charts of one set of scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from metricfit.metrics import Metric, Requirement
from metricfit.report import formatting
from metricfit.report.charts import FIRST, MUTED, SECOND, Chart, Curve, Drawing, Mark, Ranges, Widths, label, styled
from metricfit.report.stops import LINEAR, Stops, ThresholdAxis

Floats = npt.NDArray[np.float64]
BINS = 40
CALIBRATION_BINS = 10
MIN_VARIANCE = 1e-6  # so that scores of 0 and 1 count too
NORMAL_95 = 1.959963984540054


def sweep(
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
    """Draw the precision-recall curve with the operating point; it has no point where nothing is called positive."""
    drawing = Drawing()
    some = stops.counts.predicted.squeeze(-1).numpy() > 0
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
def histograms(s: Any, y: Any, w: Any, classes: tuple[str, str], stops: Stops, axis: ThresholdAxis = LINEAR) -> Chart:
    """Draw the scores of each class as shares of the class, so that a rare class is as visible as the other."""
    drawing = Drawing()
    edges, places = np.linspace(axis.low, axis.high, BINS + 1), axis.places(s.numpy())
    for number, colour in ((0, FIRST), (1, SECOND)):
        chosen = (y == number).numpy()
        if not chosen.any():
            continue
        heights, _ = np.histogram(places[chosen], edges, weights=None if w is None else w.numpy()[chosen])
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
def calibration(s: Any, y: Any, w: Any, positive: str) -> Chart:
    """Draw the share of positives by mean score, in up to ten bins, with Wilson's 95 % intervals."""
    points = reliability(s.numpy(), y.numpy(), None if w is None else w.numpy())
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


def _curves(stops: Stops, x: str, y: str, defined: npt.NDArray[np.bool_]) -> list[Curve]:
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
