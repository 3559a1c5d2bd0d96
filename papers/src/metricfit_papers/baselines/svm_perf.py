"""SVMPerf: a linear SVM for a metric of the whole training set."""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data

from metricfit.core.counts import Counts
from metricfit.errors import InvalidValueError
from metricfit.metrics.curves import auroc
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.tabular.checks import checked_labels, unchanged_if_it_fails
from metricfit.tabular.positive_class import choose_positive_class, classes_of, order_of
from metricfit_papers.baselines.cutting_planes import cut
from metricfit_papers.baselines.violations import Array, Violations, WorstPairs, WorstTable


class SVMPerf(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""A linear SVM that is trained for a metric of all rows together. Joachims 2005, SVM-perf.

    .. math:: \min_w \; \tfrac12 \lVert w \rVert^2 + C \max_{y'} \Big[ n\, \Delta(y', y)
        - \sum_{i:\, y'_i \ne y_i} y_i\, f(x_i) \Big], \qquad f(x) = w^\top x + b, \quad y = \pm 1

    :math:`\Delta` is one minus the metric of the labels y' (the metric itself if lower is better). For ``"error_rate"``
    the bracket is the sum of hinge losses, as in ``LinearSVC(loss="hinge")`` with the same C. For ``"auroc"`` y' are
    orders of pairs, the bracket is n times the mean over pairs of max(0, 1 - (f+ - f-)), and b is 0; the sign of f then
    has no meaning, so choose a threshold. Joachims writes the sums with y - y' and without n: his C is C / (4 n) here,
    for a loss from 0 to 1.

    Labels with a higher cost must be separated by a larger margin, but each sample has the same weight (margin
    rescaling). If classes overlap, unequal costs therefore move the boundary less than class weights would. Columns
    should have similar scales: standardise them. Finding the most violated labels takes O(n log n) time for the area
    under the ROC curve and for metrics whose loss is concave in the false positives (accuracy, F-beta, precision,
    recall, Jaccard, cost), and O(positives x negatives) time, in blocks of bounded memory, for others (MCC, G-mean).
    The small quadratic programs are solved by Clarabel.

    Args:
        metric: "f1", "error_rate" (or "accuracy"), "auroc", any other Metric, its name, or a function of Counts.
        C: The weight of the loss relative to the size of w.
        tol: Training stops when no labels violate the constraints by more than this, in units of the metric.
        fit_intercept: Whether to learn b, as the weight of an additional column of ``intercept_scaling``.
        intercept_scaling: The larger it is, the less b is pulled towards 0.
        pos_label: The positive class. By default 1 of 0/1 and of -1/1, True of booleans, and otherwise the class with
            fewer rows (the later one in sorted order if both have the same number), which is logged.
        max_iter: Maximum number of planes; a ConvergenceWarning reports if they did not suffice.

    Attributes:
        classes_: The two labels, sorted.
        pos_label_: The positive label.
        coef_: w, ``(1, columns)``.
        intercept_: b, ``(1,)``.
        n_iter_: Number of planes.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> y = X[:, 0] + 0.3 * X[:, 1] > 1
        >>> SVMPerf("f1", C=100).fit(X, y).score(X, y)
        1.0
    """

    def __init__(
        self,
        metric: str | Metric | Formula = "f1",
        *,
        C: float = 1.0,
        tol: float = 1e-3,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        pos_label: Any = None,
        max_iter: int = 2000,
    ) -> None:
        self.metric = metric
        self.C = C
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.pos_label = pos_label
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any) -> SVMPerf:
        """Train the SVM. If this fails, the model is not changed.

        Args:
            X: An array or a sparse matrix ``(n, columns)``.
            y: One label per row, of two classes.

        Returns:
            This object.

        Raises:
            ValueError: A parameter is out of range, or the data cannot be used.
        """
        for name in ("C", "tol", "intercept_scaling", "max_iter"):
            kind = Integral if name == "max_iter" else Real
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kind) or not 0 < float(value) < math.inf:
                whole = "a whole number" if kind is Integral else "a finite number"
                raise InvalidValueError(f"SVMPerf needs {name} above 0, {whole}, got {value!r}")
        with unchanged_if_it_fails(self):
            self._fit(X, y)
        return self

    def decision_function(self, X: Any) -> Array:
        """Compute f(x).

        Args:
            X: An array or a sparse matrix ``(n, columns)``.

        Returns:
            One number per row, above 0 for the second of ``classes_``.
        """
        scores = self._scores(X)
        return scores if self._order[1] == 1 else -scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the labels by the sign of f.

        Args:
            X: An array or a sparse matrix ``(n, columns)``.

        Returns:
            One label per row.
        """
        number = (self._scores(X) > 0).astype(np.int64)
        labels: NDArray[Any] = self.classes_[self._order[number]]
        return labels

    def score(self, X: Any, y: Any) -> float:
        """The metric of the predictions, of f for the area under the ROC curve; negative where lower is better."""
        scores, labels = self._scores(X), checked_labels(self, y)
        positive = torch.from_numpy(labels == self.classes_[self._order[1]])
        if self._is_auroc():
            return float(auroc(torch.from_numpy(scores), positive))
        metric = self._metric()
        value = metric(Counts.from_labels(scores > 0, positive)).item()
        return -value if metric.minimize else value

    def _fit(self, X: Any, y: Any) -> None:
        X = self._checked(X, reset=True)
        labels = checked_labels(self, y)
        check_consistent_length(X, labels)
        self.classes_ = classes_of(labels)
        if len(self.classes_) > 2:
            raise InvalidValueError(
                f"Only binary classification is supported. y has {len(self.classes_)} classes: SVMPerf needs 2"
            )
        self.pos_label_ = choose_positive_class(labels, self.pos_label)
        self._order = order_of(self.classes_, self.pos_label_)
        positive = labels == self.classes_[self._order[1]]
        by_pairs = self._is_auroc()
        with_intercept = self.fit_intercept and not by_pairs
        columns = self._with_constant(X) if with_intercept else X
        violations: Violations = WorstPairs(positive) if by_pairs else WorstTable(self._metric(), positive)
        solution = cut(columns, violations, self.C * len(labels), self.tol, self.max_iter)
        if solution.excess > self.tol:
            warnings.warn(
                f"SVMPerf has added {solution.cuts} planes, and labels still violate the constraints by "
                f"{solution.excess:.2g}, more than tol={self.tol:g}: raise max_iter or tol, lower C, or standardise "
                "the columns",
                ConvergenceWarning,
                stacklevel=3,
            )
        w = solution.weights[: X.shape[1]]
        b = solution.weights[-1] * self.intercept_scaling if with_intercept else 0.0
        self.coef_, self.intercept_ = w.reshape(1, -1), np.array([b])
        self.n_iter_ = solution.cuts

    def _scores(self, X: Any) -> Array:
        """Return f(x), above 0 for the positive class."""
        check_is_fitted(self, "coef_")
        scores: Array = self._checked(X, reset=False) @ self.coef_[0] + self.intercept_[0]
        return scores

    def _checked(self, X: Any, *, reset: bool) -> Any:
        return validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float64)

    def _with_constant(self, X: Any) -> Any:
        constant = np.full((X.shape[0], 1), float(self.intercept_scaling))
        return csr_array(hstack([X, constant])) if issparse(X) else np.hstack([X, constant])

    def _is_auroc(self) -> bool:
        return isinstance(self.metric, str) and self.metric == "auroc"

    def _metric(self) -> Metric:
        by_error = isinstance(self.metric, str) and self.metric == "error_rate"
        return get_metric("accuracy" if by_error else self.metric)

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags
