"""What every estimator of this package does once it has calibrated logits of held-out rows: decide, and decide anew.

Exports and reports call upwards: ``metricfit.export`` and ``metricfit.report`` are above this package in the import
contract, need packages that training does not, and are loaded when a model is exported or a page is written.
"""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from metricfit.core.arrays import Floats, Integers
from metricfit.core.types import LabelAverage
from metricfit.decide.bounds import check_confidence
from metricfit.decide.budget import best_rows, check_budget, choose_top_labels
from metricfit.decide.calibration import sigmoid, softmax
from metricfit.decide.choose import checked_guarantee, choose_decision
from metricfit.decide.class_requirements import check_class_index, model_requirements
from metricfit.decide.costs import RowCosts, check_costs, cost_columns, row_costs
from metricfit.decide.decision import REFERRED, Decision
from metricfit.decide.decision_curve import DecisionCurve, decision_curve, label_curves
from metricfit.decide.held_out import HeldOut
from metricfit.decide.refer import check_refer_label, check_referral, choose_referral, labels_with_referred
from metricfit.decide.rules import Goal, Rule, check_rule
from metricfit.decide.shift import Drift, DriftWarning, PriorShift, estimate_prior_shift
from metricfit.errors import InvalidValueError, quote
from metricfit.metrics.class_order import check_has_order
from metricfit.metrics.curves import Requirements, as_requirements
from metricfit.metrics.feasibility import InfeasibleWarning
from metricfit.metrics.group_gap import GroupGap
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.tabular.checks import (
    FitRows,
    average_of_classes,
    checked_labels,
    checked_weights,
    unchanged_if_it_fails,
    value_of_classes,
    value_of_labels,
)
from metricfit.tabular.estimator_scores import check_training_share
from metricfit.tabular.positive_class import choose_positive_class, classes_of, order_of, shares_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from metricfit.tabular.insight.importance import Importance
    from metricfit.tabular.insight.judged_rows import WorstRows
    from metricfit.tabular.plots import Plots
    from metricfit.tabular.storage import Stored
    from metricfit.tabular.watch import Watch


class DecidingClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """A classifier that chooses its decision for a metric on held-out rows, and can choose it anew without training.

    A subclass has the parameters ``metric``, ``subject_to``, ``decision`` and ``average``. Its ``fit`` sets
    ``classes_``, ``pos_label_``, ``_order``, ``held_out_`` and ``_seed``, and then calls ``_decide``.

    Attributes:
        classes_: The labels, sorted.
        pos_label_: The positive class of two; None for several classes.
        held_out_: The rows on which decisions are chosen, with the class balance of training.
        shift_: What is added to calibrated logits for another class balance; 0 for that of training.
        prevalence_: The class balance that the model decides for.
        prevalence_interval_: Its 95 % bootstrap interval, if it was estimated from new rows.
        drift_: Whether another class balance explains the scores of these rows.
        decision_: The decision about calibrated logits plus ``shift_``.
        threshold_: Rows are positive where ``predict_proba`` of the positive class is at least this. None for several
            classes, and for costs in columns, where ``row_thresholds(X)`` gives the threshold of each row.
        thresholds_: For several labels, one threshold of the probability per label; otherwise None.
        threshold_interval_: 95 % bootstrap interval of the threshold; for several labels an array ``(labels, 2)``.
        offsets_: For several classes, what is added to the log-probabilities before the largest is taken; to minus the
            expected costs, if a metric of the whole confusion matrix has them (``decide.CostDecision``).
        value_: The metric to expect on new rows.
        value_interval_: 95 % bootstrap interval of the value.
        requirements_: For each requirement, as text: its value on held-out rows, whether that meets the bound, and the
            best value that any threshold reaches. A requirement on every class or label has one entry for each.
        requirements_met_: Whether all requirements are met on held-out rows; True if there are none. With
            ``confidence``, whether they are certified.
        confidence_: The probability for which the requirements are certified; None if they are not.
        certificate_: What that says about new rows, from ``Evidence.certificate``: "guaranteed" or "certified on
            cross-validated scores (approximate)". None without a confidence.
        refer_region_: After ``refer``, the probabilities of the positive class that are referred to a person: from the
            first on and below the second. Of several classes, how many times the second best class the best one is,
            with the offsets. None if every row is decided.
        referred_share_: The share of the held-out rows that is referred.
    """

    metric: str | Metric | Formula
    pos_label: Any
    subject_to: Requirements | None
    average: LabelAverage
    decision: Rule
    confidence: float | None = None
    classes_: NDArray[Any]
    pos_label_: Any
    shift_: Floats
    #: What was estimated from new rows without labels by the last ``rethreshold``.
    prior_shift_: PriorShift | None = None
    decision_: Decision
    threshold_: float | None
    thresholds_: NDArray[np.float64] | None
    threshold_interval_: Any
    offsets_: NDArray[np.float64] | None
    refer_label_: Any = "refer"
    refer_region_: tuple[float, float] | None
    #: For each class number its index in ``classes_``; the positive class of two has number 1.
    _order: NDArray[np.int64]
    _seed: int
    #: The held-out rows with the weights and calibrations of the final model, as new rows have them; None if equal.
    _pooled_logits: Floats | None = None
    #: What scored the held-out rows, by the numbers in ``_places.folds``; not saved.
    _scorers: Sequence[Any] = ()
    #: The smallest share of the rows that a model was trained on which scored held-out rows. It is 1 if they were kept
    #: apart, and the model that scores new rows scored them.
    _training_share: float = 1.0

    def rethreshold(
        self,
        prevalence: float | Mapping[Any, float] | Literal["estimate"] | None = None,
        *,
        X: Any = None,
        metric: str | Metric | Formula | None = None,
        subject_to: Requirements | None = "unchanged",
        confidence: float | str | None = "unchanged",
    ) -> Self:
        """Choose the decision again, for another class balance, metric or requirements; nothing is trained.

        With another balance the probabilities change too: rows of each class are assumed to look as before, and only
        their shares to change (prior shift).

        Args:
            prevalence: The share of the positive class, or of each class by its label. None means the balance of the
                training rows. "estimate" estimates the shares from new rows without labels, ``X``; ``prevalence_`` and
                ``prevalence_interval_`` are the result, and ``drift_`` says whether another balance explains their
                scores.
            X: New rows with the columns of ``fit``, for ``prevalence="estimate"``.
            metric: A metric that replaces the model's ``metric``. By default it stays. What was trained for the old
                metric stays as it is.
            subject_to: Requirements that replace the model's ``subject_to``; None removes them. By default they stay.
                Of several classes, ``"recall['gold'] >= 0.9"`` is on one of them.
            confidence: The probability with which the requirements must hold on new rows; None to meet them on the
                held-out rows alone. By default it stays; it goes where the requirements are removed.

        Returns:
            The model itself. If no decision meets the requirements, it decides with the smallest violation, and an
            InfeasibleWarning says what is reachable, as in ``fit``. A DriftWarning says if the scores of ``X`` changed
            in a way that another class balance does not explain.

        Raises:
            ValueError: If a share is not between 0 and 1, a requirement cannot be used, or ``X`` is missing or has
                other columns.

        Example:
            >>> from metricfit import MetricClassifier
            >>> import numpy as np
            >>> X = np.random.default_rng(0).normal(size=(200, 3))
            >>> model = MetricClassifier("precision", models=["linear"], random_state=0).fit(X, X[:, 0] > 1)
            >>> model.rethreshold(subject_to="recall >= 0.9").requirements_met_
            True
            >>> model.rethreshold(metric="f1", subject_to=None).metric
            'f1'
        """
        check_is_fitted(self, "decision_")
        with unchanged_if_it_fails(self):
            if metric is not None:
                self.metric = metric
            if subject_to != "unchanged":
                requirements = model_requirements(self, subject_to)
                self.subject_to = subject_to
                if not requirements and confidence == "unchanged":
                    self.confidence = None
            if confidence != "unchanged":
                self.confidence = None if confidence is None else check_confidence(confidence)
            if prevalence is not None and self._has_labels:
                raise InvalidValueError("prevalence is for classes; a model of several labels decides as trained")
            chosen, classes = get_metric(self.metric), 0 if self._has_labels else len(self.classes_)
            check_costs(chosen, self.held_out_.columns, classes, model_requirements(self))
            held_out, shift, estimate = self._rows_at_balance(prevalence, X)
            self._decide(held_out, shift)
            self.prior_shift_ = estimate
        if estimate is not None and estimate.drift.found:
            warnings.warn(str(estimate.drift), DriftWarning, stacklevel=2)
        return self

    def refer(
        self,
        max_share: float | None = None,
        *,
        subject_to: Requirements | None = None,
        label: Any = "refer",
        confidence: float | None = None,
    ) -> Self:
        """Refer rows to a person that the model is least sure about; nothing is trained.

        The rows whose probabilities are in a region around the threshold are referred. Of several classes, rows are
        referred whose best class leads the second best by too little. The other decisions stay as they are, and
        ``value_``, its interval, ``requirements_`` and ``score`` are theirs alone. ``rethreshold`` decides all rows
        again.

        Args:
            max_share: The largest share of the held-out rows that may be referred; the region is the one with the best
                metric. By default it is the smallest region that meets ``subject_to``. 0 refers no row.
            subject_to: Requirements on the decided rows, such as ``"precision >= 0.9"``, beside the model's own.
            label: What ``predict`` returns for rows that are referred; none of ``classes_``. If it is not of their
                type, ``predict`` returns objects.
            confidence: The probability with which the requirements hold on the decided ones of new rows. A fifth of the
                held-out rows then chooses threshold or offsets anew, and the regions that are tested on the others.

        Returns:
            The model itself, with ``refer_region_`` and ``referred_share_``. If no region meets the requirements, it is
            the one with the smallest violation, and an InfeasibleWarning says so.

        Raises:
            ValueError: If neither ``max_share`` nor ``subject_to`` is given, the label is a class, or the model has
                several labels, costs in columns, or a confidence of its own that is not passed here.

        Example:
            >>> import numpy as np
            >>> from metricfit import MetricClassifier
            >>> X = np.random.default_rng(0).normal(size=(200, 3))
            >>> y = X[:, 0] + np.random.default_rng(1).normal(size=200) > 1
            >>> model = MetricClassifier("f1", models=["linear"], random_state=0).fit(X, y).refer(max_share=0.1)
            >>> model.referred_share_ <= 0.1, sorted(set(model.predict(X).tolist()), key=str)
            (True, [False, True, 'refer'])
        """
        check_is_fitted(self, "decision_")
        metric, requirements = get_metric(self.metric), as_requirements(subject_to)
        check_referral(metric, 0 if self._has_labels else len(self.classes_), max_share, requirements)
        if self.confidence is not None and confidence is None:
            raise InvalidValueError(
                "the model's confidence is for decisions about all rows: pass refer(confidence=...) for the decided "
                "ones, or rethreshold(confidence=None) first"
            )
        check_refer_label(label, self.classes_)
        held_out = self.held_out_.with_logits_shifted(self.shift_)
        requirements = list(dict.fromkeys([*model_requirements(self), *model_requirements(self, subject_to)]))
        average = average_of_classes(self.average)
        goal = Goal(metric, requirements, average, check_rule(self.decision), seed=self._seed)
        if confidence is not None:
            settings: dict[str, Any] = {"seed": self._seed, "out_of_fold": self._decides_out_of_fold()}
            guarantee = checked_guarantee(
                requirements, held_out.y, confidence, weight=held_out.weight, groups=held_out.groups, **settings
            )
            goal = replace(goal, guarantee=guarantee)
        decision: Any = self.decision_
        with unchanged_if_it_fails(self):
            self.decision_ = choose_referral(
                held_out, goal, decision, max_share=max_share, of_threshold=model_requirements(self)
            )
            self.refer_label_ = label
            self._show_decision()
        self._warn_if_not_reachable("The model refers these rows", levels=3)
        return self

    @property
    def curve_(self) -> DecisionCurve | list[DecisionCurve] | None:
        """The metric and the counts of the held-out rows at every threshold.

        None for several classes, and for costs in columns, where each row has a threshold of its own.
        For several labels a list with one curve per label.

        Example:
            >>> from metricfit import MetricClassifier
            >>> import numpy as np
            >>> X = np.random.default_rng(0).normal(size=(200, 3))
            >>> curve = MetricClassifier("f1", models=["linear"], random_state=0).fit(X, X[:, 0] > 1).curve_
            >>> bool((curve.tp + curve.fn == (X[:, 0] > 1).sum()).all())
            True
        """
        check_is_fitted(self, "decision_")
        if self._has_labels:
            return label_curves(self.held_out_, get_metric(self.metric))
        if self.held_out_.logits.shape[1] > 1 or get_metric(self.metric).columns:
            return None
        return decision_curve(self.held_out_.with_logits_shifted(self.shift_), get_metric(self.metric))

    @property
    def _has_labels(self) -> bool:
        """Whether rows have several independent labels, and not one of several classes."""
        return self.held_out_.y.ndim == 2

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return calibrated logits, shifted so that the decision is at 0.

        Args:
            X: Rows with the columns of ``fit``.

        Returns:
            For two classes ``(n,)``, positive for the second of ``classes_``; for several ``(n, c)``, with the offsets
            added, so that the largest decides; for labels ``(n, c)``, positive where a label is predicted.
        """
        logits = self._logits_to_decide(X)
        margins = np.asarray(self.decision_.margins(logits))
        if self._has_labels:
            return margins
        if margins.ndim == 2:
            return np.asarray(margins[:, np.argsort(self._order)])
        return margins if self._order[1] == 1 else -margins

    def predict(self, X: Any, *, budget: int | None = None) -> NDArray[Any]:
        """Predict labels: by the threshold for two classes, by the largest log-probability plus offset for several.

        Args:
            X: Rows with the columns of ``fit``.
            budget: Predict the positive class for exactly this many of these rows, or this many labels for each row,
                in place of the decision: the ones that are best for the metric (``decide.budget``). No row is referred.

        Returns:
            One of ``classes_`` per row; for several labels 0 and 1, ``(n, c)``. After ``refer``, its label for rows
            that are referred.
        """
        decided = self._decide_rows(X) if budget is None else self._decide_within(X, budget)
        if self._has_labels:
            return decided
        names: NDArray[Any] = self.classes_[self._order]
        if self.refer_region_ is not None:
            return labels_with_referred(decided, names, self.refer_label_)
        labels: NDArray[Any] = names[decided]
        return labels

    def row_thresholds(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of the positive class from which each row is flagged.

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
        zeros = np.zeros(X.shape[0] if hasattr(X, "shape") else len(X))
        costs = self._costs_of(X, len(zeros))
        shifts = zeros if costs is None else costs.margins(zeros)
        thresholds = sigmoid(-self.decision_.margins(shifts))
        return np.where(np.isneginf(shifts), np.inf, thresholds)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return calibrated probabilities.

        Args:
            X: Rows with the columns of ``fit``.

        Returns:
            One row per row of ``X``, with a column for each of ``classes_`` or each label.
        """
        logits = self._logits(X)
        if self._has_labels:
            return np.asarray(sigmoid(logits))
        if len(self.classes_) == 2:
            logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        probabilities = np.empty(logits.shape)
        probabilities[:, self._order] = softmax(logits)
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
            decided, numbers = self._decide_rows(X), self._numbers_of_known(y)
            check_consistent_length(decided, numbers)
            weight = checked_weights(sample_weight, numbers)
            kept = decided != REFERRED
            if not kept.any():
                raise InvalidValueError("every row is referred, so that there are no decisions to score")
            value = value_of_classes(
                metric,
                decided[kept],
                numbers[kept],
                len(self.classes_),
                None if weight is None else weight[kept],
                average=average_of_classes(self.average),
                costs=self._costs_of(X, len(numbers)),
            )
        return -value if metric.minimize else value

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
        from metricfit.tabular.insight.judged_rows import find_worst_rows, judged_rows

        return find_worst_rows(judged_rows(self, X, y, out_of_fold=out_of_fold), n)

    @property
    def plot(self) -> Plots:
        """Pictures for a notebook: ``threshold()``, ``calibration()``, ``confusion()`` and ``importance(X, y)``."""
        check_is_fitted(self, "decision_")
        plots: Plots = import_module("metricfit.tabular.plots").Plots(self)  # loads matplotlib
        return plots

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """Show a fitted model in a notebook by its value and its decision, and not by its parameters alone."""
        shown: dict[str, str] = super()._repr_mimebundle_(**options)
        if hasattr(self, "decision_"):
            shown["text/html"] = import_module("metricfit.tabular.notebook").show_model(self)
        return shown

    def _repr_html_(self) -> str | None:
        return self._repr_mimebundle_().get("text/html")

    def watch(
        self,
        X: Any,
        y: Any,
        *,
        subject_to: Requirements | None = None,
        confidence: float | None = None,
        times: Any = None,
        predicted: Any = None,
    ) -> Watch:
        """Test whether requirements still hold after deployment, on rows whose labels have arrived.

        Every call gets all rows since deployment, in the order in which their labels arrived. The tests bet on one row
        after the other (Waudby-Smith and Ramdas 2024), so looking every day causes no false alarms.

        Args:
            X: Rows with the columns of ``fit``.
            y: Their labels.
            subject_to: Requirements on rates, F-beta, jaccard or cost, such as ``"recall >= 0.85"``; by default those
                of the model.
            confidence: The probability that no alarm is ever raised while all requirements hold at every row; by
                default 0.95.
            times: The time of each row, for the picture.
            predicted: The labels that were decided; ``X`` is then not needed. By default the model decides the rows.

        Returns:
            What the rows say about each requirement; ``print`` shows it, and ``plot`` draws it over time.

        Raises:
            ValueError: If there is no requirement, one cannot be watched, or labels are unknown.
        """
        check_is_fitted(self, "decision_")
        from metricfit.tabular.watch import watch_requirements  # most models are not watched

        return watch_requirements(self, X, y, subject_to, confidence, times, predicted)

    def export_onnx(self, path: str | os.PathLike[str], X: Any = None) -> Any:
        """Write the model as one graph of ONNX, which onnxruntime runs without torch and scikit-learn.

        The graph holds the encoding of the columns, all families, their weights, the calibration and the decision. It
        has one input ``(rows, 1)`` per column of the training table: numbers as float64 (NaN is missing), categories as
        strings (the empty string is missing), dates as seconds since 1970 in UTC. A model that was trained on an array
        has one input ``X``. The outputs are ``label`` and ``probability``, with one column per class.

        Args:
            path: The file to write. Missing folders are created.
            X: Rows to compare the graph and the model on, such as the training rows. By default rows are made up, with
                numbers around the medians, known and unknown categories, and missing values. A TunedDecisionClassifier
                needs rows, and its estimator must be a linear model, a tree or a forest of scikit-learn or a
                LGBMClassifier, behind steps that scale or impute numbers.

        Returns:
            The size, the comparison and the latency; ``print`` shows them.

        Raises:
            ExportError: If columns, families or the decision cannot be exported, such as free text, or if the graph
                does not decide as the model does. No file is written.
            ModuleNotFoundError: If the extra ``onnx`` is not installed.
        """
        check_is_fitted(self, "decision_")
        return import_module("metricfit.export.onnx").export_onnx(self, path, X)

    def save(
        self,
        path: str | os.PathLike[str],
        trusted: Sequence[str] | None = None,
        *,
        data: str | None = None,
        target: str | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the fitted model to a new folder, as JSON, safetensors and files of skops; nothing is pickled.

        The folder also has a model card for people, ``model_card.md``, which loading ignores.

        Args:
            path: A folder that does not exist or has no files.
            trusted: Names of types in the user's own models, beside those that skops trusts; an error names them.
                LightGBM's are among these.
            data: Name of the table, for the model card.
            target: Name of the predicted column, for the model card.
            overwrite: Whether to replace a model in the folder.

        Raises:
            ValueError: If a model of the user has types that are not trusted.
        """
        check_is_fitted(self, "decision_")
        from metricfit.tabular import storage  # loads the families

        storage.save(self, path, trusted, data=data, target=target, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], trusted: Sequence[str] | None = None, **user_functions: Any) -> Self:
        """Load a model from a folder; nothing in the folder is executed.

        Args:
            path: The folder that ``save`` wrote.
            trusted: Names of types in the user's own models, beside those that skops trusts; an error names them.
                Trust them only if you trust where the folder comes from.
            user_functions: ``metric=`` or ``network=``, if the saved model was trained with a user-defined function;
                functions are not stored in the folder.

        Returns:
            The fitted model.

        Raises:
            ValueError: If the folder is damaged or incomplete, or has types that are not trusted.
        """
        from metricfit.tabular import storage  # loads the families

        model: Self = cls(None)  # every parameter is in the folder
        storage.load(model, path, trusted, user_functions)
        return model

    def _set_classes(
        self, target: NDArray[Any], declared: Sequence[Any] | None, counted: NDArray[Any] | None = None
    ) -> None:
        """Set the classes and their order.

        Args:
            target: One label per row, or for several labels 0 and 1 ``(n, c)``.
            declared: The classes in the order that their type declares, or None.
            counted: The labels that are counted to choose the positive class; None for ``target``.

        Raises:
            InvalidValueError: The labels cannot be used, or a metric needs an order that they do not have.
        """
        if target.ndim == 2:
            self.classes_, self.pos_label_, self._order = np.arange(target.shape[1]), None, np.arange(target.shape[1])
            return
        self.classes_ = classes_of(target)
        self.pos_label_ = choose_positive_class(target if counted is None else counted, self.pos_label)
        self._order = order_of(self.classes_, self.pos_label_, declared)
        judged = [get_metric(self.metric), *(requirement.metric for requirement in as_requirements(self.subject_to))]
        check_has_order(self.classes_.tolist(), declared, judged)

    def _logits(self, X: Any) -> Floats:
        """Return calibrated logits for the current class balance."""
        check_is_fitted(self, "decision_")
        return self._calibrated_logits(X) + self.shift_

    def _logits_to_decide(self, X: Any) -> Floats:
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

    def _decide_rows(self, X: Any) -> Integers:
        """Return class numbers, -1 for rows that are referred, or for several labels 0 and 1."""
        logits = self._logits_to_decide(X)  # it reports a model that is not fitted
        return np.asarray(self.decision_.decide_or_refer(logits))

    def _decide_within(self, X: Any, budget: int) -> Integers:
        """Return class numbers of which exactly this many are 1, or 0 and 1 for as many labels of each row."""
        check_is_fitted(self, "decision_")
        metric = get_metric(self.metric)
        columns, logits = cost_columns(metric, X), self._logits(X)
        number = check_budget(budget, logits.shape[1], len(logits), has_labels=self._has_labels)
        if self._has_labels:
            goal = Goal(metric, average=self.average, rule=check_rule(self.decision))
            return np.asarray(choose_top_labels(self.held_out_, goal, number).decide(logits))
        costs, gains = self._costs_of(columns, len(logits)), logits.squeeze(1)
        if costs is not None:
            p = sigmoid(gains)
            gains = p * costs.fn - (1 - p) * costs.fp
        return best_rows(gains, number).astype(np.int64)

    def _numbers_of(self, labels: NDArray[Any]) -> Integers:
        """Return class numbers; of two classes, the positive one is 1."""
        return np.argsort(self._order)[np.searchsorted(self.classes_, labels)]

    def _numbers_of_known(self, y: Any) -> Integers:
        """Return class numbers of labels that a user passes; other labels than those of ``fit`` are refused."""
        labels = checked_labels(self, y)
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            listed = ", ".join(quote(label) for label in unknown[:5].tolist())
            raise InvalidValueError(f"y has labels that were not there in fit: {listed}")
        return self._numbers_of(labels)

    def _check_decision(self, rows: FitRows, columns: Mapping[str, Floats]) -> None:
        """Refuse requirements, costs and a confidence that the rows do not support, before anything is trained.

        Args:
            rows: The rows on which the decision will be chosen.
            columns: The columns with the costs of each row.

        Raises:
            InvalidValueError: A requirement is on a class that there is not, or costs or a confidence cannot be used.
            InfeasibleError: There are too few rows for the confidence.
        """
        has_labels = rows.y.ndim == 2
        requirements, metric = model_requirements(self, has_labels=has_labels), get_metric(self.metric)
        if not has_labels or isinstance(metric, GroupGap):
            check_class_index(len(self.classes_), metric)
        check_costs(metric, columns, 0 if has_labels else len(self.classes_), requirements)
        if self.confidence is not None:
            y = rows.y if has_labels else self._numbers_of(rows.y)
            checked_guarantee(requirements, y, self.confidence, weight=rows.weight, groups=rows.groups)

    def _decide(self, held_out: HeldOut, shift: Floats) -> None:
        """Choose the decision on these rows, and show it in the public attributes."""
        if self.confidence is not None:
            check_training_share(self._training_share)
        self.prior_shift_ = None
        self.shift_ = shift
        metric, requirements = get_metric(self.metric), model_requirements(self)
        self.decision_ = choose_decision(
            held_out,
            metric,
            subject_to=requirements,
            average=self.average if self._has_labels else average_of_classes(self.average),
            rule=self.decision,
            seed=self._seed,
            confidence=self.confidence,
            out_of_fold=self._decides_out_of_fold(),
        )
        self._show_decision()
        self._warn_if_not_reachable(
            "The model is kept and decides there; rethreshold(subject_to=...) chooses again without training"
        )

    def _warn_if_not_reachable(self, consequence: str, levels: int = 4) -> None:
        """Say that no decision meets the requirements; the line that called ``fit`` or ``refer`` is named."""
        if self.decision_.evidence.not_reachable is not None:
            message = f"{self.decision_.evidence.not_reachable}. {consequence}"
            warnings.warn(message, InfeasibleWarning, stacklevel=levels)

    def _decides_out_of_fold(self) -> bool:
        """Whether the rows to decide on were scored by other models than new rows are, whatever parameters say now."""
        return self._training_share < 1

    def _restore(self, attributes: Mapping[str, Any]) -> None:
        """Take over attributes from a folder."""
        for name, value in attributes.items():
            setattr(self, name, value)
        self._show_decision()

    @abstractmethod
    def _write_parts(self, arrays: dict[str, NDArray[Any]], files: dict[str, bytes]) -> dict[str, Any]:
        """Return what JSON holds of the estimator beyond its decision; arrays and files are added."""

    @abstractmethod
    def _read_parts(self, stored: Stored) -> None:
        """Take over what ``_write_parts`` wrote."""

    @abstractmethod
    def _faults(self) -> list[str]:
        """Return what is wrong with an estimator that was loaded."""

    def _show_decision(self) -> None:
        """Set the public attributes from the decision."""
        evidence = self.decision_.evidence
        assert evidence.corrected_value is not None
        self.value_, self.value_interval_ = evidence.corrected_value, evidence.corrected_interval
        self.requirements_ = dict(evidence.requirements)
        self.requirements_met_ = all(result.met for result in evidence.requirements.values())
        self.confidence_, self.certificate_ = evidence.confidence, evidence.certificate
        self.threshold_ = self.threshold_interval_ = self.thresholds_ = self.offsets_ = self.refer_region_ = None
        self.referred_share_ = 0.0
        for name, value in self.decision_.attributes(np.argsort(self._order)).items():
            setattr(self, name, value)

    @abstractmethod
    def _calibrated_logits(self, X: Any) -> Floats:
        """Return logits ``(n, 1)`` or ``(n, c)`` in the order of class numbers, for the class balance of training."""

    def _comparable_rows(self, X: Any) -> tuple[HeldOut, Floats]:
        """Return the held-out rows, and calibrated logits of new rows that are distributed as theirs without drift.

        If the logits of held-out rows come from the models of folds, so do those of new rows, each from one of them.
        """
        return self.held_out_, self._calibrated_logits(X)

    def _pooled_rows(self) -> HeldOut:
        """Return the held-out rows with the weights and calibrations of the final model."""
        pooled = self._pooled_logits
        return self.held_out_ if pooled is None else replace(self.held_out_, logits=pooled)

    def _rows_at_balance(self, prevalence: Any, X: Any) -> tuple[HeldOut, Floats, PriorShift | None]:
        """Return the held-out rows at a class balance, the shift of the logits, and what was estimated from ``X``."""
        estimated = isinstance(prevalence, str)
        if estimated and prevalence != "estimate":
            raise InvalidValueError(f"prevalence is a share, one per class, or 'estimate'; got {quote(prevalence)}")
        if estimated == (X is None):
            needs = (
                "prevalence='estimate' needs new rows without labels" if estimated else "X is for prevalence='estimate'"
            )
            raise InvalidValueError(f"{needs}: rethreshold(prevalence='estimate', X=new_rows)")
        if prevalence is None:
            return self.held_out_, np.zeros_like(self.shift_), None
        estimate = estimate_prior_shift(*self._comparable_rows(X), seed=self._seed) if estimated else None
        shares = estimate.shares if estimate else shares_of(prevalence, self.classes_[self._order])
        held_out = self.held_out_.with_class_shares(shares)
        return held_out, (held_out.logits - self.held_out_.logits)[0], estimate

    @property
    def prevalence_(self) -> float | dict[Any, float]:
        """The class balance that the model decides for: the share of the positive class, or of each class by label.

        Example:
            >>> from metricfit import MetricClassifier
            >>> X = np.random.default_rng(0).normal(size=(200, 3))
            >>> model = MetricClassifier("f1", models=["linear"], random_state=0).fit(X, X[:, 0] > 1)
            >>> round(model.prevalence_, 3), round(model.rethreshold(prevalence=0.4).prevalence_, 3)
            (0.16, 0.4)
        """
        check_is_fitted(self, "decision_")
        shift = self.shift_ if len(self.classes_) > 2 else np.concatenate([np.zeros_like(self.shift_), self.shift_])
        return self._by_label(softmax((np.log(self.held_out_.shares) + shift)[None])[0].tolist())

    @property
    def prevalence_interval_(self) -> tuple[float, float] | dict[Any, tuple[float, float]] | None:
        """The 95 % interval of ``prevalence_`` if it was estimated, otherwise None."""
        shift = self.prior_shift_
        return None if shift is None else self._by_label(list(map(tuple, shift.intervals.tolist())))

    @property
    def drift_(self) -> Drift | None:
        """Whether another class balance explains the scores of the new rows, if it was estimated."""
        return None if self.prior_shift_ is None else self.prior_shift_.drift

    def _by_label(self, values: list[Any]) -> Any:
        """Return the value of the positive class of two, or of each class by its label."""
        labels = self.classes_[self._order].tolist()
        return values[1] if len(labels) == 2 else dict(zip(labels, values, strict=True))
