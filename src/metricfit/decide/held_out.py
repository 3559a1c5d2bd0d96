"""The rows on which decisions are chosen: held-out logits with labels, weights and groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.core.arrays import Array, Floats, Integers, to_numpy
from metricfit.core.counts import Counts
from metricfit.core.numerics import ratio
from metricfit.decide.calibration import sigmoid, softmax
from metricfit.metrics.curves import metric_of_label
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.sweep import one_class, sweep


@dataclass(frozen=True)
class HeldOut:
    """Calibrated logits of training rows, each by the member of the ensemble that did not train on the row.

    Attributes:
        logits: Logits ``(n, 1)`` or ``(n, c)``.
        y: Class numbers ``(n,)``; for several labels 0 and 1, ``(n, c)``.
        weight: One weight per row, or None.
        groups: The group of each row, or None; the bootstrap draws whole groups.
        shares: The share of each class, or of the rows where each label is there, in these rows.
        columns: Columns of the table that hold the costs of each row (``decide.costs``).
        balance_known: Whether the shares are known, as after ``with_class_shares``, instead of a sample's.
    """

    logits: Floats
    y: Integers
    weight: Floats | None
    groups: NDArray[Any] | None
    shares: Floats
    columns: Mapping[str, Floats] = field(default_factory=dict)
    balance_known: bool = False

    def __post_init__(self) -> None:
        of_type = {"logits": np.float64, "y": np.int64, "weight": np.float64, "shares": np.float64}
        for name, dtype in of_type.items():
            values = getattr(self, name)
            object.__setattr__(self, name, None if values is None else to_numpy(values, dtype))
        columns = {name: to_numpy(values, np.float64) for name, values in self.columns.items()}
        object.__setattr__(self, "columns", columns)

    @property
    def weights(self) -> Floats:
        """One weight per row, 1 if the rows have none."""
        return np.ones(len(self.y)) if self.weight is None else self.weight

    def with_copies_as_groups(self) -> HeldOut:
        """Return the rows with a group for each distinct row of logits, if they have no groups yet.

        Copies of a row are held out by one fold, and its model decides the logits of them all, so they say no more
        about the logits of other models than one row does.
        """
        if self.groups is not None:
            return self
        return replace(self, groups=np.unique(self.logits, axis=0, return_inverse=True)[1].reshape(-1))

    def with_class_shares(self, shares: Array) -> HeldOut:
        """Return the rows as they would be if the classes had other shares (prior shift).

        The distribution of the rows within each class stays the same. The weights change by the ratio of the shares,
        and the logits by its logarithm.

        Args:
            shares: The new share of each class.

        Returns:
            Rows with new weights and logits.
        """
        change = to_numpy(shares, np.float64) / self.shares
        logits, weight = self.logits + logit_shift(change), self.weights * change[self.y]
        return replace(self, logits=logits, weight=weight, shares=shares, balance_known=True)

    def with_logits_shifted(self, shift: Array) -> HeldOut:
        """Return the rows with the class shares that ``with_class_shares`` shifts the logits for by this much.

        Args:
            shift: The difference of the logits, ``(1,)`` for two classes and ``(c,)`` for several.

        Returns:
            These rows, if the shift is 0; otherwise rows with new weights and logits.
        """
        change = to_numpy(shift, np.float64)
        if not change.any():
            return self
        by_class = np.concatenate([[0.0], change]) if len(self.shares) == 2 else change
        return self.with_class_shares(softmax(np.log(self.shares) + by_class))


@dataclass(frozen=True)
class HeldOutPlaces:
    """Where held-out rows come from, in their order.

    Attributes:
        rows: The number of each row in the table that ``fit`` got.
        folds: The number of the fold that held the row out.
        total: The number of rows of that table.
    """

    rows: Integers
    folds: Integers
    total: int


def collect_held_out(
    logits: Array,
    y: Array,
    weight: Array | None,
    groups: NDArray[Any] | None,
    columns: Mapping[str, Array] | None = None,
) -> HeldOut:
    """Collect the rows that were held out by some member of an ensemble.

    Args:
        logits: Logits of all training rows, NaN for rows that no member held out.
        y: Class numbers.
        weight: One weight per row, or None.
        groups: The group of each row, or None.
        columns: Columns with the costs of each row, by name.

    Returns:
        The rows whose logits are not NaN, and their class shares. A class that was never held out has its share of all
        rows.
    """
    rows = HeldOut(logits, y, weight, groups, np.ones(1), columns or {})
    kept = ~np.isnan(rows.logits).any(1)
    of_all, of_kept = (np.bincount(rows.y, rows.weights * part) for part in (np.ones(len(rows.y)), kept))
    shares = np.where(of_kept > 0, of_kept / of_kept.sum(), of_all / of_all.sum())
    return replace(
        rows,
        logits=rows.logits[kept],
        y=rows.y[kept],
        weight=None if rows.weight is None else rows.weight[kept],
        groups=None if groups is None else groups[kept],
        shares=shares / shares.sum(),
        columns={name: values[kept] for name, values in rows.columns.items()},
    )


def collect_label_rows(logits: Array, y: Array, weight: Array | None, groups: NDArray[Any] | None) -> HeldOut:
    """Collect held-out rows with several labels.

    Args:
        logits: Calibrated logits ``(n, c)``.
        y: Labels 0 and 1 ``(n, c)``.
        weight: One weight per row, or None.
        groups: The group of each row, or None.

    Returns:
        The rows. The shares of a label are taken from the rows where it is known.
    """
    rows = HeldOut(logits, y, weight, groups, np.ones(1))
    return replace(rows, shares=rows.weights @ rows.y / rows.weights.sum())


def logit_shift(change: Floats) -> Floats:
    """Return how calibrated logits shift if the share of each class is multiplied by ``change``."""
    shift = np.log(change)
    return shift[1:] - shift[:1] if len(shift) == 2 else shift


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
