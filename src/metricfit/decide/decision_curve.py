"""What every threshold of two classes would give: the counts, the rates and the value of the metric.

Estimators show it as ``curve_``. It chooses nothing, and so is a module apart from ``decide.choose``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metricfit.core.arrays import Array, Floats, to_numpy
from metricfit.core.counts import Counts
from metricfit.core.numerics import ratio
from metricfit.decide.calibration import sigmoid
from metricfit.decide.held_out import HeldOut
from metricfit.metrics.curves import metric_of_label
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.sweep import one_class, sweep


@dataclass(frozen=True)
class DecisionCurve:
    """The held-out rows decided at every threshold; all attributes are arrays of one length, by falling threshold.

    ``pandas.DataFrame(vars(curve))`` is a table of them.

    Attributes:
        threshold: Thresholds of the probability. Rows are positive from the threshold on. The first threshold is
            infinity, where no row is positive.
        value: The value of the metric.
        tp: True positives; with sample weights, their total weight.
        fp: False positives.
        fn: False negatives.
        tn: True negatives.
        precision: Precisions, 0 where no row is positive.
        recall: Recalls.

    Example:
        >>> from metricfit.decide.held_out import collect_held_out
        >>> rows = collect_held_out(np.array([[2.0], [0.0], [-1.0]]), np.array([1, 0, 1]), None, None)
        >>> curve = decision_curve(rows, get_metric("f1"))
        >>> curve.recall, curve.value_of("accuracy")
        (array([0. , 0.5, 0.5, 1. ]), array([0.33333333, 0.66666667, 0.33333333, 0.66666667]))
    """

    threshold: Floats
    value: Floats
    tp: Floats
    fp: Floats
    fn: Floats
    tn: Floats
    precision: Floats
    recall: Floats

    def value_of(self, metric: str | Metric | Formula) -> Floats:
        """Return the values of another metric at the same thresholds.

        Args:
            metric: A Metric of counts, its name or a function of Counts.

        Returns:
            One value per threshold.
        """
        cells = (cell[:, None] for cell in (self.tp, self.fp, self.fn, self.tn))
        return one_class(get_metric(metric), Counts(*cells))


def decision_curve(held_out: HeldOut, metric: Metric) -> DecisionCurve:
    """Compute the curve of held-out rows of two classes.

    Args:
        held_out: Calibrated logits ``(n, 1)``, with labels and weights.
        metric: The metric.

    Returns:
        The curve, from infinity on.
    """
    return _curve(held_out.logits.squeeze(1), held_out.y, held_out.weight, metric)


def label_curves(held_out: HeldOut, metric: Metric) -> list[DecisionCurve]:
    """Compute one curve per label of held-out rows with several labels.

    Args:
        held_out: Calibrated logits and labels ``(n, c)``, with weights.
        metric: The metric.

    Returns:
        The curves, each from infinity on, with the value of the metric of that label alone.
    """
    labels = held_out.y.shape[1]
    return [
        _curve(held_out.logits[:, label], held_out.y[:, label], held_out.weight, metric_of_label(metric, label, labels))
        for label in range(labels)
    ]


def _curve(logits: Array, y: Array, weight: Array | None, metric: Metric) -> DecisionCurve:
    swept = sweep(to_numpy(logits, np.float64), to_numpy(y), None if weight is None else to_numpy(weight))
    counts = swept.counts
    threshold = sigmoid(swept.thresholds)
    threshold[0] = np.inf
    cells = [cell.squeeze(-1) for cell in (counts.tp, counts.fp, counts.fn, counts.tn)]
    rates = [ratio(counts.tp, total).squeeze(-1) for total in (counts.predicted, counts.positives)]
    return DecisionCurve(threshold, one_class(metric, counts), *cells, *rates)
