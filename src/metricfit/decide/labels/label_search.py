"""The best thresholds of calibrated logits of several labels: macro, micro and weighted averages, and per sample.

- *macro* and *weighted*: every label counts separately, so that each has its own best threshold. A label that no row
  has is decided by the labels: its best expected F1, of probabilities near 0, would be to call it everywhere.
- *micro*: the counts of all labels are summed. If the probabilities are calibrated, one threshold of the probability
  for all labels is best (of the same number of positive decisions, those with the highest probabilities have the most
  true positives); so the plug-in rule searches one threshold.
- *samples*: the metric of each row's labels, averaged over the rows, as in scikit-learn. The expected value of a row is
  no function of its expected counts; so the plug-in rule searches one threshold of the probability for all labels, by
  the true labels. On four tables (studies/label_thresholds.py) the mean F1 of the test rows was 0.570 with it,
  0.568 with one threshold per label by the true labels, and 0.502 at 0.5.

The empirical rule for *micro* and *samples* starts at the best threshold for all labels together and then changes one
label at a time, which is exact for each label: a sort and a cumulative sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from metricfit.core.counts import Counts
from metricfit.core.types import LabelAverage
from metricfit.decide.labels.label_thresholds import metric_of_label
from metricfit.decide.rules import Rule, check_rule, choose_threshold
from metricfit.metrics.average import averaged, check_average
from metricfit.metrics.metric import Metric

#: Maximum number of rounds through the labels.
ROUNDS = 10
#: Smallest improvement, as a share of the value, for which a threshold is changed.
IMPROVEMENT = 1e-9

#: Takes logits, labels, weights, the metric, the decisions and the number of a label; returns thresholds of that label
#: and values that are higher the better the decisions at each are.
ValuesOfLabel = Callable[[Tensor, Tensor, Tensor, Metric, Tensor, int], tuple[Tensor, Tensor]]


def label_value(decided: Tensor, y: Tensor, weight: Tensor | None, metric: Metric, average: LabelAverage) -> float:
    """Return the metric of decisions on several labels.

    Args:
        decided: Decisions 0 and 1, or shares of them, ``(n, c)``.
        y: Labels 0 and 1 ``(n, c)``.
        weight: One weight per row, or None.
        metric: The metric.
        average: "macro", "micro" or "weighted" over labels, or "samples" over rows.

    Example:
        >>> from metricfit.metrics import f1
        >>> label_value(torch.tensor([[1, 0], [0, 0]]), torch.tensor([[1, 0], [0, 1]]), None, f1, "samples")
        0.5
    """
    d, t = decided.double(), y.double()
    w = torch.ones(len(t), dtype=torch.float64) if weight is None else weight.double()
    if average == "samples":
        return float(w @ row_values(d, t, metric) / w.sum())
    tp, predicted, positives = w @ (d * t), w @ d, w @ t
    return float(averaged(metric, _counts(tp, predicted, positives, w.sum()), average))


def row_values(decided: Tensor, y: Tensor, metric: Metric) -> Tensor:
    """Return the metric of each row's labels, ``(n,)``."""
    tp, predicted, positives = ((decided * y).sum(1), decided.sum(1), y.sum(1))
    return _row_metric(metric, tp, predicted, positives, y.shape[1])


def choose_label_thresholds(
    logits: Tensor, y: Tensor, weight: Tensor | None, metric: Metric, average: LabelAverage, *, rule: Rule
) -> Tensor:
    """Choose one threshold of calibrated logits per label.

    Args:
        logits: Calibrated logits ``(n, c)``.
        y: Labels 0 and 1 ``(n, c)``.
        weight: One weight per row, or None.
        metric: The metric.
        average: "macro", "micro", "weighted" or "samples".
        rule: "plugin" for expected counts, "empirical" for the labels, or "auto".

    Returns:
        The thresholds ``(c,)``.

    Raises:
        InvalidValueError: There is no such rule, or the average makes no sense for the metric.

    Example:
        >>> from metricfit.metrics import f1
        >>> z, y = torch.tensor([[2.0, -1.0], [1.0, -3.0]]), torch.tensor([[1, 1], [0, 0]])
        >>> choose_label_thresholds(z, y, None, f1, "macro", rule="empirical")
        tensor([ 1.5000, -2.0000], dtype=torch.float64)
    """
    kind, z, labels = check_rule(rule), logits.double(), logits.shape[1]
    if average in ("macro", "weighted"):
        there = (y if weight is None else y * (weight > 0)[:, None]).any(0).tolist()
        rules: list[Rule] = [kind if seen else "empirical" for seen in there]  # a label of no row is never called
        thresholds = [
            choose_threshold(z[:, j], y[:, j], weight, metric_of_label(metric, j, labels), rule=rules[j]).threshold
            for j in range(labels)
        ]
        return torch.tensor(thresholds, dtype=torch.float64)
    check_average(metric, "micro")
    w = torch.ones(len(z), dtype=torch.float64) if weight is None else weight.double()
    if average == "micro":
        repeated = w.repeat_interleave(labels)
        common = choose_threshold(z.reshape(-1), y.reshape(-1), repeated, metric, rule=kind).threshold
        start = torch.full((labels,), common, dtype=torch.float64)
        return start if kind == "plugin" else improve_by_label(z, y.double(), w, metric, start, "micro")
    start = torch.full((labels,), _common_of_samples(z, y.double(), w, metric), dtype=torch.float64)
    return start if kind == "plugin" else improve_by_label(z, y.double(), w, metric, start, "samples")


def improve_by_label(
    z: Tensor,
    t: Tensor,
    w: Tensor,
    metric: Metric,
    start: Tensor,
    average: Literal["micro", "samples"],
    allowed: Mapping[int, Tensor] | None = None,
    labels: Sequence[int] | None = None,
) -> Tensor:
    """Change one threshold at a time until a round brings no improvement.

    Args:
        z: Logits ``(n, c)``.
        t: Labels 0 and 1, or their probabilities, ``(n, c)``.
        w: One weight per row, above 0 where thresholds are restricted.
        metric: The metric.
        start: The thresholds to start from.
        average: "micro" or "samples".
        allowed: For some labels, which of their thresholds may be chosen: infinity and the distinct logits, falling.
        labels: The labels whose thresholds are changed; by default all.

    Returns:
        The thresholds.
    """
    values_of_label: ValuesOfLabel = _micro_of_label if average == "micro" else _samples_of_label
    thresholds, best = start.clone(), -math.inf
    decided = (z >= thresholds).double()
    for _ in range(ROUNDS):
        before = best
        for label in range(z.shape[1]) if labels is None else labels:
            cuts, values = values_of_label(z, t, w, metric, decided, label)
            if allowed is not None and label in allowed:
                values = values.masked_fill(~allowed[label], -torch.inf)
            lowest = z[:, label][decided[:, label] > 0]  # the threshold that decides as now is the first below these
            now = int((cuts > lowest.min()).sum()) if len(lowest) else 0
            place = int(values.argmax())
            least = IMPROVEMENT * max(abs(float(values[now])), 1e-6) if values[now] > -torch.inf else 0.0
            if values[place] > values[now] + least:
                thresholds[label] = cuts[place]
                decided[:, label] = (z[:, label] >= thresholds[label]).double()
                now = place
            best = float(values[now])
        if best <= before + IMPROVEMENT * abs(best):
            break
    return thresholds


def _samples_of_label(
    z: Tensor, t: Tensor, w: Tensor, metric: Metric, decided: Tensor, label: int
) -> tuple[Tensor, Tensor]:
    """Return the thresholds of a label and the mean of the rows' values at each; higher is better."""
    others = decided.clone()
    others[:, label] = 0
    without = _signed(metric, row_values(others, t, metric))
    others[:, label] = 1
    return _cumulate(z[:, label], w * (_signed(metric, row_values(others, t, metric)) - without), float(w @ without))


def _micro_of_label(
    z: Tensor, t: Tensor, w: Tensor, metric: Metric, decided: Tensor, label: int
) -> tuple[Tensor, Tensor]:
    """Return the thresholds of a label and the metric of the summed counts at each; higher is better."""
    others = decided.clone()
    others[:, label] = 0
    tp, predicted = float((w @ (others * t)).sum()), float((w @ others).sum())
    cuts, of_label = _cumulate(z[:, label], w * t[:, label], tp)
    _, called = _cumulate(z[:, label], w, predicted)
    total = w.sum() * z.shape[1]
    counts = _counts(of_label, called, (w @ t).sum().expand_as(called), total.expand_as(called))
    values = metric(counts.map(lambda cell: cell[:, None])).squeeze(-1)
    return cuts, _signed(metric, values)


def _common_of_samples(z: Tensor, t: Tensor, w: Tensor, metric: Metric) -> float:
    """Return the best threshold for all labels: each row's value changes where one of its labels becomes positive."""
    falling, order = z.sort(dim=1, descending=True)
    zeros = torch.zeros(len(z), 1, dtype=torch.float64)
    tp = torch.cat([zeros, t.gather(1, order).cumsum(1)], dim=1)
    predicted = torch.arange(z.shape[1] + 1, dtype=torch.float64).expand_as(tp)
    values = _row_metric(metric, tp, predicted, t.sum(1, keepdim=True).expand_as(tp), z.shape[1])
    values = _signed(metric, values)
    cuts, sums = _cumulate(falling.reshape(-1), (w[:, None] * values.diff(dim=1)).reshape(-1), float(w @ values[:, 0]))
    return float(cuts[int(sums.argmax())])


def _cumulate(scores: Tensor, gains: Tensor, start: float) -> tuple[Tensor, Tensor]:
    """Return thresholds between the distinct scores, falling, and the start plus the gains of the scores above each."""
    falling, order = scores.sort(descending=True, stable=True)
    last_of_ties = torch.cat([falling[1:] != falling[:-1], torch.ones(1, dtype=torch.bool)])
    sums = torch.cat([torch.zeros(1, dtype=torch.float64), gains[order].cumsum(0)[last_of_ties]])
    distinct = falling[last_of_ties]
    ends = torch.cat([distinct[:1] + 1, (distinct[1:] + distinct[:-1]) / 2, distinct[-1:] - 1])
    return ends, start + sums


def _row_metric(metric: Metric, tp: Tensor, predicted: Tensor, positives: Tensor, labels: int) -> Tensor:
    counts = _counts(tp, predicted, positives, torch.full_like(tp, float(labels)))
    return metric(counts.map(lambda cell: cell[..., None])).squeeze(-1)


def _counts(tp: Tensor, predicted: Tensor, positives: Tensor, total: Tensor) -> Counts:
    cells = (tp, predicted - tp, positives - tp, total - predicted - positives + tp)
    return Counts(*(cell.clamp(min=0) for cell in cells))


def _signed(metric: Metric, values: Tensor) -> Tensor:
    return -values if metric.minimize else values
