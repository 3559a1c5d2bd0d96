"""The charts of one set of scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from metricfit.metrics import Metric, Requirement
from metricfit.report import formatting
from metricfit.report.charts.drawing import FIRST, GOOD, MUTED, SECOND, Chart, Drawing, Mark, Widths, label, styled
from metricfit.report.threshold_stops import Stops

Floats = npt.NDArray[np.float64]
BINS = 40
CALIBRATION_BINS = 10
MIN_VARIANCE = 1e-6  # so that scores of 0 and 1 count too
NORMAL_95 = 1.959963984540054
DASHES = ((0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))


def sweep(stops: Stops, metric: Metric, requirements: Sequence[Requirement]) -> Widths:
    """Draw the judged and the required metrics at every threshold, with the feasible range shaded."""
    return Widths(_sweep(stops, metric, requirements, 9.4), _sweep(stops, metric, requirements, 4.6))


@styled
def _sweep(stops: Stops, metric: Metric, requirements: Sequence[Requirement], width: float) -> Chart:
    drawing = Drawing(width, height=2.9)
    axes = drawing.axes
    _shade(drawing, stops, bool(requirements))
    ends = np.minimum(stops.thresholds, 1.0)
    shown = dict.fromkeys([metric, *(requirement.metric for requirement in requirements)])
    for number, shown_metric in enumerate(shown):
        style: Any = "-" if number == 0 else DASHES[(number - 1) % len(DASHES)]
        colour = FIRST if number == 0 else SECOND
        # A stop decides for the thresholds up to it, from the stop before.
        x, y = np.concatenate([[0.0], ends]), stops.metrics[shown_metric.name]
        axes.step(
            x,
            np.concatenate([y[:1], y]),
            where="pre",
            color=colour,
            linestyle=style,
            label=label(shown_metric.name, 20),
        )
    low, high = axes.get_ylim()
    here = min(float(stops.thresholds[stops.chosen]), 1.0)
    axes.axvline(here, color=MUTED, linewidth=1.2, linestyle=(0, (1, 2)))
    low = 0.0 if metric.bounds[0] >= 0 else low
    axes.set(xlim=(0, 1), ylim=(low, max(high, low + 1e-6)), xlabel="threshold", ylabel=label(metric.name))
    if len(shown) > 1 or requirements:
        drawing.figure.legend(loc="outside upper center", ncols=4 if width > 6 else 2)
    value = float(stops.metrics[metric.name][stops.chosen])
    return drawing.finished(
        "Every threshold",
        f"{metric.name} by threshold, {formatting.value(value)} at the chosen one, {stops.labels[stops.chosen]}."
        + _where(stops, requirements),
        [Mark(None, None, (here, 0.0)), Mark(None, metric.name, (here, value))],
    )


@styled
def roc(stops: Stops, area: float) -> Chart:
    """Draw the ROC curve with the operating point."""
    drawing = Drawing()
    drawing.axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    _curve(drawing, stops, stops.metrics["fpr"], stops.metrics["recall"])
    drawing.unit_square("false positive rate", "true positive rate (recall)")
    at = float(stops.metrics["fpr"][stops.chosen]), float(stops.metrics["recall"][stops.chosen])
    return drawing.finished("ROC curve", f"The area under it is {formatting.value(area)}.", [Mark("fpr", "recall", at)])


@styled
def precision_recall(stops: Stops, area: float) -> Chart:
    """Draw the precision-recall curve with the operating point; it has no point where nothing is called positive."""
    drawing = Drawing()
    some = stops.counts.predicted.squeeze(-1).numpy() > 0
    share = float(stops.counts.positives[0, 0] / stops.counts.n[0, 0])
    drawing.axes.axhline(share, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    _curve(drawing, stops, stops.metrics["recall"], np.where(some, stops.metrics["precision"], math.nan))
    drawing.unit_square("recall", "precision")
    at = float(stops.metrics["recall"][stops.chosen]), float(stops.metrics["precision"][stops.chosen])
    return drawing.finished(
        "Precision and recall",
        f"Average precision is {formatting.value(area)}; calling everything positive gives {formatting.value(share)}.",
        [Mark("recall", "precision", at)],
    )


@styled
def histograms(s: Any, y: Any, w: Any, classes: tuple[str, str], stops: Stops) -> Chart:
    """Draw the scores of each class as shares of the class, so that a rare class is as visible as the other."""
    drawing = Drawing()
    edges = np.linspace(0, 1, BINS + 1)
    for number, colour in ((0, FIRST), (1, SECOND)):
        chosen = (y == number).numpy()
        if not chosen.any():
            continue
        heights, _ = np.histogram(s.numpy()[chosen], edges, weights=None if w is None else w.numpy()[chosen])
        shares = heights / heights.sum()
        drawing.axes.stairs(shares, edges, fill=True, color=colour, alpha=0.3)
        drawing.axes.stairs(
            shares, edges, color=colour, linewidth=1.4, label=label(classes[number]), linestyle="-" if number else "--"
        )
    drawing.axes.set(xlim=(0, 1), xlabel="score", ylabel="share of the class")
    drawing.axes.legend()
    at = float(stops.thresholds[stops.chosen])
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


def _curve(drawing: Drawing, stops: Stops, x: Floats, y: Floats) -> None:
    """Draw a curve, and highlight the part on which the requirements hold."""
    drawing.axes.plot(x, y, color=FIRST)
    if not stops.met:
        return
    feasible = np.logical_and.reduce(list(stops.met.values()))
    if feasible.any():
        part = np.where(feasible, x, math.nan), np.where(feasible, y, math.nan)
        drawing.axes.plot(
            *part, color=GOOD, linewidth=9, alpha=0.35, zorder=1, label="requirements met", solid_capstyle="round"
        )
        drawing.figure.legend(loc="outside upper center")


def _shade(drawing: Drawing, stops: Stops, required: bool) -> None:
    if not required:
        return
    for number, (start, end) in enumerate(stops.spans):
        shown = max(end - start, 1e-3)
        drawing.axes.axvspan(
            end - shown, end, color=GOOD, alpha=0.22, linewidth=0, label=None if number else "requirements met"
        )


def _where(stops: Stops, requirements: Sequence[Requirement]) -> str:
    if not requirements:
        return ""
    asked = " and ".join(map(str, requirements))
    if not stops.spans:
        return f" No threshold gives {asked}."
    stretches = ", ".join(f"{start:.4g} to {end:.4g}" for start, end in stops.spans[:3])
    more = f" and {len(stops.spans) - 3} shorter stretches" if len(stops.spans) > 3 else ""
    return f" Shaded: {asked}, at thresholds {stretches}{more}."
