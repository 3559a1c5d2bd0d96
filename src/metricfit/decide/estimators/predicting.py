"""What every estimator of this package does with new rows once it has a decision: labels, probabilities and scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from metricfit.core.types import LabelAverage
from metricfit.decide.calibration import sigmoid
from metricfit.decide.costs.row_costs import RowCosts, cost_columns, row_costs
from metricfit.decide.decision import REFERRED, Decision
from metricfit.decide.estimators.row_checks import checked_labels, checked_weights
from metricfit.decide.estimators.scoring import average_of_classes, value_of_classes, value_of_labels
from metricfit.decide.refer.refer_label import labels_with_referred
from metricfit.decide.shift.class_balance import ClassBalance
from metricfit.errors import InvalidValueError
from metricfit.metrics.metric import Formula, Metric, get_metric


class PredictingClassifier(ClassBalance):
    """A classifier with a decision about its calibrated logits.

    A subclass has the parameters ``metric`` and ``average``, and sets ``decision_``.
    """

    metric: str | Metric | Formula
    average: LabelAverage
    decision_: Decision
    refer_label_: Any = "refer"
    refer_region_: tuple[float, float] | None

    @property
    def _has_labels(self) -> bool:
        """Whether rows have several independent labels, and not one of several classes."""
        return self.held_out_.y.dim() == 2

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return calibrated logits, shifted so that the decision is at 0.

        Args:
            X: Rows with the columns of ``fit``.

        Returns:
            For two classes ``(n,)``, positive for the second of ``classes_``; for several ``(n, c)``, with the offsets
            added, so that the largest decides; for labels ``(n, c)``, positive where a label is predicted.
        """
        margins: NDArray[np.float64] = self._margins(X).numpy()
        if self._has_labels:
            return margins
        if margins.ndim == 2:
            return np.asarray(margins[:, np.argsort(self._order)])
        return margins if self._order[1] == 1 else -margins

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict labels: by the threshold for two classes, by the largest log-probability plus offset for several.

        Args:
            X: Rows with the columns of ``fit``.

        Returns:
            One of ``classes_`` per row; for several labels 0 and 1, ``(n, c)``. After ``refer``, its label for rows
            that are referred.
        """
        decided = self._decide_rows(X)
        if self._has_labels:
            return decided.numpy()
        names: NDArray[Any] = self.classes_[self._order]
        if self.refer_region_ is not None:
            return labels_with_referred(decided.numpy(), names, self.refer_label_)
        labels: NDArray[Any] = names[decided.numpy()]
        return labels

    def row_thresholds(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of the positive class from which each row is called positive.

        It differs between rows only with costs in columns, such as ``cost(fp=5, fn="amount")``.

        Args:
            X: Rows with the columns of the costs.

        Returns:
            One threshold per row: infinity for rows that are never positive, because missing them costs nothing.

        Raises:
            ValueError: If there are more than two classes, or a column of costs is missing.
        """
        check_is_fitted(self, "decision_")
        if self.decision_.task != "binary":
            raise InvalidValueError("row_thresholds is for two classes")
        zeros = torch.zeros(X.shape[0] if hasattr(X, "shape") else len(X), dtype=torch.float64)
        costs = self._costs_of(X, len(zeros))
        shifts = zeros if costs is None else costs.margins(zeros)
        thresholds = sigmoid(-self.decision_.margins(shifts.numpy()))
        return np.where(shifts.isneginf().numpy(), np.inf, thresholds)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return calibrated probabilities.

        Args:
            X: Rows with the columns of ``fit``.

        Returns:
            One row per row of ``X``, with a column for each of ``classes_`` or each label.
        """
        logits = self._logits(X)
        if self._has_labels:
            return np.asarray(torch.sigmoid(logits).numpy())
        if len(self.classes_) == 2:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        probabilities = np.empty(logits.shape)
        probabilities[:, self._order] = torch.softmax(logits, dim=1).numpy()
        return probabilities

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the metric of the predictions, negated if lower is better, so that higher is always better.

        Rows that are referred to a person (``refer``) do not count.

        Args:
            X: Rows with the columns of ``fit``.
            y: Their labels.
            sample_weight: One weight per row.

        Returns:
            The value of the metric, or minus it.

        Raises:
            ValueError: If ``y`` holds labels that were not there in ``fit``.
        """
        metric = get_metric(self.metric)
        if self._has_labels:
            value = value_of_labels(metric, self.predict(X), y, sample_weight, self.average)
        else:
            decided, labels = self._decide_rows(X), checked_labels(self, y)
            check_consistent_length(decided, labels)
            unknown = np.setdiff1d(labels, self.classes_)
            if len(unknown):
                listed = ", ".join(map(str, unknown[:5]))
                raise InvalidValueError(f"y has labels that were not there in fit: {listed}")
            weight = checked_weights(sample_weight, labels)
            kept = decided != REFERRED
            if not bool(kept.any()):
                raise InvalidValueError("every row is referred, so that there are no decisions to score")
            value = value_of_classes(
                metric,
                decided[kept],
                self._numbers_of(labels)[kept],
                len(self.classes_),
                None if weight is None else torch.from_numpy(weight)[kept],
                average=average_of_classes(self.average),
                costs=self._costs_of(X, len(labels)),
            )
        return -value if metric.minimize else value

    def _logits(self, X: Any) -> torch.Tensor:
        """Return calibrated logits for the current class balance."""
        check_is_fitted(self, "decision_")
        return self._calibrated_logits(X) + self.shift_

    def _margins(self, X: Any) -> torch.Tensor:
        logits = self._logits_to_decide(X)
        return torch.as_tensor(self.decision_.margins(logits))

    def _logits_to_decide(self, X: Any) -> torch.Tensor:
        """Return what the decision is about: logits, or cost margins if rows have costs of their own."""
        check_is_fitted(self, "decision_")
        columns = cost_columns(get_metric(self.metric), X)  # reports a missing column before the model does
        logits = self._logits(X)
        costs = self._costs_of(columns, len(logits))
        return logits if costs is None else costs.margins(logits)

    def _costs_of(self, table: Any, rows: int) -> RowCosts | None:
        """Return the costs of the rows of a table, or of its columns alone, if the metric takes costs from columns."""
        metric = get_metric(self.metric)
        if not metric.columns:
            return None
        return row_costs(metric, table if isinstance(table, dict) else cost_columns(metric, table), rows)

    def _decide_rows(self, X: Any) -> torch.Tensor:
        """Return class numbers, -1 for rows that are referred, or for several labels 0 and 1."""
        logits = self._logits_to_decide(X)  # it reports a model that is not fitted
        return torch.as_tensor(self.decision_.decide_or_refer(logits))

    def _numbers_of(self, labels: NDArray[Any]) -> torch.Tensor:
        """Return class numbers; of two classes, the positive one is 1."""
        return torch.from_numpy(np.argsort(self._order)[np.searchsorted(self.classes_, labels)])
