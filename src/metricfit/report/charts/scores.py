"""The charts of one set of scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from metricfit.metrics import Metric, Requirement
from metricfit.report import formatting as words
from metricfit.report.charts.drawing import FIRST, GOOD, MUTED, SECOND, Chart, Drawing, Mark, Widths, label, styled
from metricfit.report.threshold_stops import Stops

Floats = npt.NDArray[np.float64]
BINS = 40
CALIBRATION_BINS = 10
LEAST_VARIANCE = 1e-6  # so that scores of 0 and 1 have a place too
NORMAL_95 = 1.959963984540054
DASHES = ((0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))


def sweep(found: Stops, metric: Metric, requirements: Sequence[Requirement]) -> Widths:
    """The judged and the required metrics at every threshold, the feasible stretch shaded, the chosen one dotted."""
    return Widths(_sweep(found, metric, requirements, 9.4), _sweep(found, metric, requirements, 4.6))


@styled
def _sweep(found: Stops, metric: Metric, requirements: Sequence[Requirement], width: float) -> Chart:
    drawing = Drawing(width, height=2.9)
    axes = drawing.axes
    _shade(drawing, found, bool(requirements))
    ends = np.minimum(found.thresholds, 1.0)
    shown = dict.fromkeys([metric, *(each.metric for each in requirements)])
    for number, each in enumerate(shown):
        style: Any = "-" if number == 0 else DASHES[(number - 1) % len(DASHES)]
        colour = FIRST if number == 0 else SECOND
        # A stop decides for the thresholds up to it, from the stop before.
        x, y = np.concatenate([[0.0], ends]), found.metrics[each.name]
        axes.step(x, np.concatenate([y[:1], y]), where="pre", color=colour, linestyle=style, label=label(each.name, 20))
    low, high = axes.get_ylim()
    here = min(float(found.thresholds[found.chosen]), 1.0)
    axes.axvline(here, color=MUTED, linewidth=1.2, linestyle=(0, (1, 2)))
    low = 0.0 if metric.bounds[0] >= 0 else low
    axes.set(xlim=(0, 1), ylim=(low, max(high, low + 1e-6)), xlabel="threshold", ylabel=label(metric.name))
    if len(shown) > 1 or requirements:
        drawing.figure.legend(loc="outside upper center", ncols=4 if width > 6 else 2)
    value = float(found.metrics[metric.name][found.chosen])
    return drawing.finished(
        "Every threshold",
        f"{metric.name} by threshold, {words.value(value)} at the chosen one, {found.labels[found.chosen]}."
        + _where(found, requirements),
        [Mark(None, None, (here, 0.0)), Mark(None, metric.name, (here, value))],
    )


@styled
def roc(found: Stops, area: float) -> Chart:
    """The ROC curve with the operating point."""
    drawing = Drawing()
    drawing.axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    _curve(drawing, found, found.metrics["fpr"], found.metrics["recall"])
    drawing.unit_square("false positive rate", "true positive rate (recall)")
    at = float(found.metrics["fpr"][found.chosen]), float(found.metrics["recall"][found.chosen])
    return drawing.finished("ROC curve", f"The area under it is {words.value(area)}.", [Mark("fpr", "recall", at)])


@styled
def precision_recall(found: Stops, area: float) -> Chart:
    """The precision-recall curve with the operating point; where nothing is called positive it has no point."""
    drawing = Drawing()
    some = found.counts.predicted.squeeze(-1).numpy() > 0
    share = float(found.counts.positives[0, 0] / found.counts.n[0, 0])
    drawing.axes.axhline(share, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    _curve(drawing, found, found.metrics["recall"], np.where(some, found.metrics["precision"], math.nan))
    drawing.unit_square("recall", "precision")
    at = float(found.metrics["recall"][found.chosen]), float(found.metrics["precision"][found.chosen])
    return drawing.finished(
        "Precision and recall",
        f"Average precision is {words.value(area)}; calling everything positive gives {words.value(share)}.",
        [Mark("recall", "precision", at)],
    )


@styled
def histograms(s: Any, y: Any, w: Any, classes: tuple[str, str], found: Stops) -> Chart:
    """Each class's scores, as shares of the class: a rare class is as tall as the other."""
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
    at = float(found.thresholds[found.chosen])
    return drawing.finished(
        "Scores by class", "How often each score occurs, for each class by itself.", [Mark(None, None, (at, 0.0))]
    )


@styled
def calibration(s: Any, y: Any, w: Any, positive: str) -> Chart:
    """Mean score against the share of positives, in up to ten bins, with Wilson's 95 % interval."""
    points = reliability(s.numpy(), y.numpy(), None if w is None else w.numpy())
    drawing = Drawing()
    top = min(1.0, 1.15 * max(max(mean, high) for mean, _, _, high in points))
    drawing.axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    for mean, _, low, high in points:
        drawing.axes.plot([mean, mean], [low, high], color=FIRST, linewidth=1.4)
    drawing.axes.plot([each[0] for each in points], [each[1] for each in points], "o-", color=FIRST, markersize=4.5)
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
    summed = np.cumsum(np.maximum(s * (1 - s), LEAST_VARIANCE)[order] * weights[order])
    reached = summed[np.searchsorted(rising, s, side="right") - 1] / summed[-1]
    bins = np.searchsorted(np.linspace(0, 1, CALIBRATION_BINS + 1)[1:-1], reached, side="left")
    points = []
    for each in np.unique(bins):
        inside = bins == each
        size = weights[inside].sum()
        effective = size**2 / (weights[inside] ** 2).sum()
        mean, share = (float((weights[inside] * given[inside]).sum() / size) for given in (s, y.astype(np.float64)))
        points.append((mean, share, *_wilson(share, effective)))
    return points


def _wilson(share: float, n: float) -> tuple[float, float]:
    z = NORMAL_95
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def _curve(drawing: Drawing, found: Stops, x: Floats, y: Floats) -> None:
    """A curve, and where requirements are given, its feasible part underlaid."""
    drawing.axes.plot(x, y, color=FIRST)
    if not found.met:
        return
    feasible = np.logical_and.reduce(list(found.met.values()))
    if feasible.any():
        part = np.where(feasible, x, math.nan), np.where(feasible, y, math.nan)
        drawing.axes.plot(
            *part, color=GOOD, linewidth=9, alpha=0.35, zorder=1, label="requirements met", solid_capstyle="round"
        )
        drawing.figure.legend(loc="outside upper center")


def _shade(drawing: Drawing, found: Stops, required: bool) -> None:
    if not required:
        return
    for number, (start, end) in enumerate(found.spans):
        shown = max(end - start, 1e-3)
        drawing.axes.axvspan(
            end - shown, end, color=GOOD, alpha=0.22, linewidth=0, label=None if number else "requirements met"
        )


def _where(found: Stops, requirements: Sequence[Requirement]) -> str:
    if not requirements:
        return ""
    asked = " and ".join(map(str, requirements))
    if not found.spans:
        return f" No threshold gives {asked}."
    stretches = ", ".join(f"{start:.4g} to {end:.4g}" for start, end in found.spans[:3])
    more = f" and {len(found.spans) - 3} shorter stretches" if len(found.spans) > 3 else ""
    return f" Shaded: {asked}, at thresholds {stretches}{more}."
