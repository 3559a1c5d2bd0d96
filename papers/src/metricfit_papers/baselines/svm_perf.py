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
from metricfit.tabular.inputs import checked_labels
from metricfit.tabular.positive_class import choose_positive_class, classes_of, order_of
from metricfit.tabular.rollback import unchanged_if_it_fails
from metricfit_papers.baselines.cutting_planes import cut
from metricfit_papers.baselines.violations import Array, Violations, WorstPairs, WorstTable


class SVMPerf(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""A linear SVM whose slack is a metric of all rows together. Joachims 2005, SVM-perf.

    .. math:: \min_w \; \tfrac12 \lVert w \rVert^2 + C \max_{y'} \Big[ n\, \Delta(y', y)
        - \sum_{i:\, y'_i \ne y_i} y_i\, f(x_i) \Big], \qquad f(x) = w^\top x + b, \quad y = \pm 1

    :math:`\Delta` is one minus the metric of the labels y' (the metric itself where lower is better). For
    ``"error_rate"`` the bracket is the sum of hinge losses: ``LinearSVC(loss="hinge")`` with the same C. For
    ``"auroc"`` y' are orders of pairs, the bracket is n times the mean over pairs of max(0, 1 - (f+ - f-)), and b is 0:
    the sign of f then means nothing, choose a threshold. Joachims writes the sums with y - y' and without n: his C is
    C / (4 n) here, for a loss in 0..1.

    Args:
        metric: "f1", "error_rate" (or "accuracy"), "auroc", any other Metric, its name, or a function of Counts.
        C: the price of the slack, against the size of w.
        tol: stop when no labels violate by more than this, in units of the metric.
        fit_intercept: learn b, as the weight of one more column of ``intercept_scaling``.
        intercept_scaling: the larger, the less b is drawn to 0.
        pos_label: the positive class. By default 1 of 0/1 and of -1/1, True of booleans, and otherwise the class with
            fewer rows (the later in sorted order if both have equally many), which is logged.
        max_iter: planes to cut at most; a ConvergenceWarning says where they did not suffice.

    Attributes:
        classes_: the two labels, sorted.
        pos_label_: the positive one.
        coef_: w, ``(1, columns)``.
        intercept_: b, ``(1,)``.
        n_iter_: how many planes were cut.

    Labels that cost more must be beaten by a larger margin, but each sample pulls alike (margin rescaling): where
    classes overlap, unequal costs move the boundary less than class weights would. Columns should be of like size:
    standardise them. For metrics whose loss is concave in the false positives (accuracy, F-beta, precision, recall,
    Jaccard, cost) the most violated labels take O(n log n), for the area under the ROC curve too, and for others (MCC,
    G-mean) O(positives x negatives) time in blocks of bounded memory. The small quadratic
    programs are solved by Clarabel.

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
        """Cut planes until none is violated by more than ``tol``. A fit that fails leaves the model as it was."""
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
        """f(x), above 0 for the second of ``classes_``."""
        scores = self._scores(X)
        return scores if self._order[1] == 1 else -scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The labels, by the sign of f."""
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
        value = float(metric(Counts.from_labels(torch.from_numpy(scores > 0), positive)))
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
        found = cut(columns, violations, self.C * len(labels), self.tol, self.max_iter)
        if found.excess > self.tol:
            warnings.warn(
                f"SVMPerf cut {found.cuts} planes and labels still violate by {found.excess:.2g}, more than "
                f"tol={self.tol:g}: raise max_iter or tol, lower C, or standardise the columns",
                ConvergenceWarning,
                stacklevel=3,
            )
        w = found.weights[: X.shape[1]]
        b = found.weights[-1] * self.intercept_scaling if with_intercept else 0.0
        self.coef_, self.intercept_ = w.reshape(1, -1), np.array([b])
        self.n_iter_ = found.cuts

    def _scores(self, X: Any) -> Array:
        """f(x), above 0 for the positive class."""
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
