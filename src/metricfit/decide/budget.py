r"""Exactly k: the k rows, or the k labels of every row, that are best for a metric.

*Rows of two classes.* Of all choices of k rows, the ones with the highest probabilities have the most true positives
and the fewest false ones, which every metric of counts prefers. With costs of each row they are the rows with the
largest expected saving.

*Labels.* The counts of one decision for each row are its probabilities, so that a metric of expected counts is improved
most by the k labels of a row with the largest a p + b, where b is the slope of the metric by false positives less the
one by true negatives, and a + b the slope by true positives less the one by false negatives (Schultheis et al. 2023,
"Consistent algorithms for multi-label classification with macro-at-k metrics"). The slopes depend on the counts.
Frank and Wolfe's algorithm therefore moves from mixed counts towards the counts of the best labels at their slopes,
each time by the best share. Every step makes a decision for all rows, and the best of these decisions is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from metricfit.core.arrays import Booleans, Floats, Integers
from metricfit.core.counts import Counts
from metricfit.decide.calibration import sigmoid
from metricfit.decide.decision import ThresholdDecision, TopLabelsDecision, largest
from metricfit.decide.held_out import HeldOut
from metricfit.decide.labels import label_value
from metricfit.decide.optimism import draw_multiplicities, number_of_resamples, quantiles, value_of_shares
from metricfit.decide.rules import Goal, middle_of
from metricfit.errors import InvalidTypeError, InvalidValueError, quote
from metricfit.metrics.average import averaged

#: The most steps of the search, and the shares of a step that are tried.
STEPS, SHARES = 50, np.linspace(0, 1, 201)


def check_budget(budget: Any, outputs: int, rows: int, *, has_labels: bool) -> int:
    """Return a budget as a number.

    Args:
        budget: The number of rows to flag, or of labels per row.
        outputs: Number of logits per row: labels, or classes if there are several.
        rows: Number of rows.
        has_labels: Whether rows have several labels.

    Raises:
        InvalidTypeError: It is no whole number.
        InvalidValueError: It is negative or larger than possible, or there are several classes.

    Example:
        >>> check_budget(3, 5, 100, has_labels=True)
        3
    """
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer):
        raise InvalidTypeError(f"budget is a number of rows, or of labels per row, such as 200; got {quote(budget)}")
    if not has_labels and outputs > 1:
        raise InvalidValueError("budget is for two classes or several labels; of several classes every row has one")
    there, what = (outputs, "labels") if has_labels else (rows, "rows")
    if not 0 <= budget <= there:
        raise InvalidValueError(f"budget={budget}: there are {there} {what}")
    return int(budget)


def choose_within_budget(rows: HeldOut, goal: Goal, budget: int) -> ThresholdDecision | TopLabelsDecision:
    """Choose the decision with exactly this many positive rows, or labels of each row.

    Args:
        rows: Calibrated logits of held-out rows of two classes, or with several labels.
        goal: The metric, its average and the rule.
        budget: The number. Of equal logits of two classes all are positive, so that there may be more.

    Returns:
        The decision, with its value on the rows and an interval by resamples of them.

    Example:
        >>> from metricfit.decide.held_out import collect_label_rows
        >>> from metricfit.metrics import recall
        >>> z, y = np.array([[3.0, 0.0, -3.0], [3.0, -1.0, -2.0]]), np.array([[1, 0, 0], [1, 0, 1]])
        >>> rows = collect_label_rows(z, y, None, None)
        >>> choose_within_budget(rows, Goal(recall), 1).decide(z)  # the rare label counts as much as the others
        array([[0, 1, 0],
               [0, 0, 1]])
    """
    has_labels = rows.y.ndim == 2
    decision = choose_top_labels(rows, goal, budget) if has_labels else _top_rows(rows, budget)
    decided = decision.decide(rows.logits)
    shares = decided if has_labels else np.eye(2)[decided]
    measure = label_value if has_labels else value_of_shares

    def value(weight: Floats) -> float:
        return measure(shares, rows.y, weight, goal.metric, goal.average)

    stratum = np.zeros(len(rows.y), dtype=np.int64)  # rows are drawn from all, so that the class balance varies too
    drawn = draw_multiplicities(stratum, rows.groups, number_of_resamples(len(rows.y)), goal.seed)
    ends = quantiles(np.array([value(rows.weights * times) for times in drawn]))
    here = value(rows.weights)
    return decision.with_evidence(value=here, value_interval=ends, corrected_value=here, corrected_interval=ends)


def _top_rows(rows: HeldOut, budget: int) -> ThresholdDecision:
    """Return the threshold below the rows with the largest logits; equal ones may be more."""
    falling = np.sort(rows.logits.squeeze(1))[::-1]
    return ThresholdDecision(middle_of(falling, float(falling[budget - 1]) if budget else np.inf))


def choose_top_labels(rows: HeldOut, goal: Goal, budget: int) -> TopLabelsDecision:
    """Choose by what the labels of a row are ordered, of which it gets this many.

    Args:
        rows: Calibrated logits and labels ``(n, c)``.
        goal: The metric, its average and the rule: "plugin" for expected counts, "empirical" for the labels.
        budget: The number of labels of each row.

    Returns:
        The decision, without evidence.
    """
    p, w = sigmoid(rows.logits), rows.weights
    truth = p if goal.rule == "plugin" else rows.y.astype(np.float64)
    labels = rows.y.shape[1]
    best = TopLabelsDecision(np.ones(labels), np.zeros(labels), budget)
    if goal.average not in ("macro", "weighted"):
        return best  # labels count alike in "micro", and in "samples" the most probable ones are expected to be best

    def counts_of(decided: Integers) -> Floats:
        tp, predicted, positives = w @ (decided * truth), w @ decided, w @ truth
        return np.stack([tp, predicted - tp, positives - tp, w.sum() - predicted - positives + tp])

    def value(cells: Floats) -> Floats:
        found = np.asarray(averaged(goal.metric, Counts(*cells), goal.average))
        return -found if goal.metric.minimize else found

    cells = counts_of(best.decide(rows.logits))
    best_value = float(value(cells))
    for _ in range(STEPS):
        decision = TopLabelsDecision(*_slopes(value, cells), budget)
        found = counts_of(decision.decide(rows.logits))
        if (reached := float(value(found))) > best_value:
            best, best_value = decision, reached
        mixed = (1 - SHARES) * cells[..., None] + SHARES * found[..., None]
        place = int(value(mixed.swapaxes(1, 2)).argmax())
        if place == 0:
            break
        cells = mixed[..., place]
    return best


#: By how much counts are changed for a slope, as a share of the rows.
CHANGE = 1e-4


def _slopes(value: Callable[[Floats], Floats], cells: Floats) -> tuple[Floats, Floats]:
    """Return by how much a value grows with the probability of a label that is called, and without it.

    Args:
        value: The value of counts ``(4, ..., c)``, higher is better.
        cells: Counts ``(4, c)``.
    """
    step = CHANGE * cells[:, 0].sum()
    slopes = []
    for place in range(4):
        below = np.minimum(step, cells[place])  # counts stay at least 0
        ends = [np.repeat(cells[:, None], cells.shape[1], axis=1) for _ in range(2)]  # one label is changed in each row
        for end, change in zip(ends, (step, -below), strict=True):
            end[place] += np.diag(np.broadcast_to(change, below.shape))
        slopes.append((value(ends[0]) - value(ends[1])) / (step + below))
    tp, fp, fn, tn = slopes
    return tp - fp - fn + tn, fp - tn


def best_rows(gains: Floats, budget: int) -> Booleans:
    """Return which rows are the best: as many as the budget says, the first ones of equal gains.

    Example:
        >>> best_rows(np.array([0.3, 0.9, 0.3]), 2)
        array([ True,  True, False])
    """
    return largest(gains[None], budget)[0]
