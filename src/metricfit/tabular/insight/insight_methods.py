"""``importance`` and ``worst`` of the estimators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metricfit.tabular.insight.importance import Importance
    from metricfit.tabular.insight.worst_rows import WorstRows


class ModelInsight:
    """Adds ``importance`` and ``worst`` to a fitted classifier."""

    def importance(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        repeats: int = 5,
        max_rows: int | None = 10_000,
        max_seconds: float | None = None,
        out_of_fold: bool = False,
        random_state: int = 0,
    ) -> Importance:
        """Measure how much the metric loses when a column is shuffled (permutation importance).

        The metric is that of the model's decisions. Columns are those of the table as it is passed, not encoded ones.
        Columns that say the same share their importance: the model can use one when the other is shuffled. With costs
        from a column, decisions after shuffling it use the shuffled costs, and are judged by the true ones.

        Args:
            X: Rows with the columns of ``fit`` that the model was not trained on; at least 10, with two classes.
            y: Their labels.
            sample_weight: One weight per row.
            repeats: Number of shuffles per column.
            max_rows: Maximum number of rows to decide. Of larger tables a sample is drawn by class, in which rare
                classes keep their rows; it is weighted by the shares of the classes. None decides all rows.
            max_seconds: No shuffle begins after this time, and the notes say what is missing. None for no limit.
            out_of_fold: Whether ``X`` and ``y`` are those that were passed to ``fit``. Each row is then decided by the
                models of the folds that were not trained on it. Not for models that were loaded.
            random_state: Seed of the sample, the shuffles and the resamples.

        Returns:
            The importance of each column in units of the metric, with 95 % intervals that cover both the choice of
            rows and that of shuffles.

        Raises:
            ValueError: If there are too few rows or one class alone, columns are missing, or labels are unknown.
            TypeError: If the model decides several labels per row.

        Example:
            >>> import numpy as np
            >>> from metricfit import MetricClassifier
            >>> X = np.random.default_rng(0).normal(size=(200, 2))
            >>> y = X[:, 1] > 1
            >>> model = MetricClassifier("f1", models=["linear"], random_state=0).fit(X, y)
            >>> model.importance(X, y, out_of_fold=True).table["column"].tolist()
            ['x1', 'x0']
        """
        from metricfit.tabular.insight.importance import measure_importance  # the import of a model does not wait
        from metricfit.tabular.insight.judged_rows import judged_rows

        rows = judged_rows(self, X, y, sample_weight, out_of_fold=out_of_fold)
        return measure_importance(
            rows, repeats=repeats, max_rows=max_rows, max_seconds=max_seconds, random_state=random_state
        )

    def worst(self, X: Any, y: Any, *, n: int = 20, out_of_fold: bool = False) -> WorstRows:
        """Find the rows that the model gets most wrong.

        These are the rows whose calibrated probability is farthest from the truth; with costs from columns, those that
        cost most. Among them are often wrong labels, rows of another kind, and what the columns do not say.

        Args:
            X: Rows with the columns of ``fit`` that the model was not trained on.
            y: Their labels.
            n: Number of rows to return, at most.
            out_of_fold: Whether ``X`` and ``y`` are those that were passed to ``fit``. Each row is then decided by the
                models of the folds that were not trained on it. Not for models that were loaded.

        Returns:
            The rows with their values, their truth, the decision and the probability.

        Raises:
            ValueError: If columns are missing, or labels are unknown.
            TypeError: If the model decides several labels per row.

        Example:
            >>> import numpy as np
            >>> from metricfit import MetricClassifier
            >>> X = np.random.default_rng(0).normal(size=(200, 2))
            >>> y = X[:, 1] > 1
            >>> y[7] = not y[7]  # a wrong label
            >>> model = MetricClassifier("f1", models=["linear"], random_state=0).fit(X, y)
            >>> model.worst(X, y, n=1, out_of_fold=True).table.index.tolist()
            [7]
        """
        from metricfit.tabular.insight.judged_rows import judged_rows
        from metricfit.tabular.insight.worst_rows import find_worst_rows

        return find_worst_rows(judged_rows(self, X, y, out_of_fold=out_of_fold), n)
