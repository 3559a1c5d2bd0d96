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
from typing import TYPE_CHECKING, Any, ClassVar, Literal

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
from metricfit.decide.class_requirements import check_class_index
from metricfit.decide.costs import check_costs, cost_columns
from metricfit.decide.decision import REFERRED, Decision
from metricfit.decide.held_out import DecisionCurve, HeldOut, decision_curve, label_curves
from metricfit.decide.refer import check_refer_label, check_referral, choose_referral
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
from metricfit.tabular.chosen import Basis, Chosen
from metricfit.tabular.estimator_scores import check_training_share
from metricfit.tabular.positive_class import ClassNames, shares_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from metricfit.tabular.insight.importance import Importance
    from metricfit.tabular.insight.judged_rows import WorstRows
    from metricfit.tabular.plots import Plots
    from metricfit.tabular.watch import Watch


class DecidingClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """A classifier that chooses its decision for a metric on held-out rows, and can choose it anew without training.

    A subclass has the parameters ``metric``, ``subject_to``, ``decision`` and ``average``. Its ``fit`` scores held-out
    rows, and passes them to ``_decide``. The other attributes are views of ``chosen_``.

    Attributes:
        chosen_: The held-out rows and the decision.
        classes_: The labels, sorted.
        pos_label_: The positive class of two; None for several classes.
        held_out_: The rows on which decisions are chosen, with the class balance of training.
        shift_: What is added to calibrated logits for another class balance; 0 for the balance of training.
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
    chosen_: Chosen
    held_out_: HeldOut
    shift_: Floats
    prior_shift_: PriorShift | None
    decision_: Decision
    threshold_: float | None
    thresholds_: NDArray[np.float64] | None
    threshold_interval_: Any
    offsets_: NDArray[np.float64] | None
    refer_region_: tuple[float, float] | None
    #: The attributes that are stored in addition to the parameters, and their types.
    stored_parts: ClassVar[Mapping[str, Any]]

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
        check_is_fitted(self, "chosen_")
        basis, names = self.chosen_.basis, self.chosen_.names
        with unchanged_if_it_fails(self):
            if metric is not None:
                self.metric = metric
            if subject_to != "unchanged":
                if not names.requirements(subject_to) and confidence == "unchanged":
                    self.confidence = None
                self.subject_to = subject_to
            if confidence != "unchanged":
                self.confidence = None if confidence is None else check_confidence(confidence)
            if prevalence is not None and names.has_labels:
                raise InvalidValueError("prevalence is for classes; a model of several labels decides as trained")
            requirements = names.requirements(self.subject_to)
            check_costs(get_metric(self.metric), basis.held_out.columns, names.number, requirements)
            shares, estimate = self._shares_at(prevalence, X)
            self._decide(basis, shares, estimate)
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
            subject_to: Requirements on the decided rows, such as ``"precision >= 0.9"``, in addition to the model's.
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
        check_is_fitted(self, "chosen_")
        chosen, metric, names = self.chosen_, get_metric(self.metric), self.chosen_.names
        check_referral(metric, names.number, max_share, as_requirements(subject_to))
        if self.confidence is not None and confidence is None:
            raise InvalidValueError(
                "the model's confidence is for decisions about all rows: pass refer(confidence=...) for the decided "
                "ones, or rethreshold(confidence=None) first"
            )
        check_refer_label(label, names.classes)
        rows, of_threshold, seed = chosen.rows, names.requirements(self.subject_to), chosen.basis.seed
        requirements = list(dict.fromkeys([*of_threshold, *names.requirements(subject_to)]))
        goal = Goal(metric, requirements, average_of_classes(self.average), check_rule(self.decision), seed=seed)
        if confidence is not None:
            settings: dict[str, Any] = {"groups": rows.groups, "seed": seed, "out_of_fold": chosen.basis.out_of_fold}
            guarantee = checked_guarantee(requirements, rows.y, confidence, weight=rows.weight, **settings)
            goal = replace(goal, guarantee=guarantee)
        decision: Any = chosen.decision
        referring = choose_referral(rows, goal, decision, max_share=max_share, of_threshold=of_threshold)
        self._show(replace(chosen, decision=referring, refer_label=label))
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
        check_is_fitted(self, "chosen_")
        chosen, metric = self.chosen_, get_metric(self.metric)
        if chosen.names.has_labels:
            return label_curves(chosen.basis.held_out, metric)
        return None if chosen.names.outputs > 1 or metric.columns else decision_curve(chosen.rows, metric)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return calibrated logits, shifted so that the decision is at 0.

        Args:
            X: Rows with the columns of ``fit``.

        Returns:
            For two classes ``(n,)``, positive for the second of ``classes_``; for several ``(n, c)``, with the offsets
            added, so that the largest decides; for labels ``(n, c)``, positive where a label is predicted.
        """
        logits, names = self._logits_to_decide(X), self.chosen_.names
        margins = np.asarray(self.chosen_.decision.margins(logits))
        if names.has_labels:
            return margins
        if margins.ndim == 2:
            return np.asarray(margins[:, names.places])
        return margins if names.order[1] == 1 else -margins

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
        return self.chosen_.labels_of(decided)

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
        check_is_fitted(self, "chosen_")
        if self.decision_.task != "binary":
            raise InvalidValueError("row_thresholds is for two classes")
        zeros = np.zeros(X.shape[0] if hasattr(X, "shape") else len(X))
        costs = self.chosen_.costs_of(get_metric(self.metric), X, len(zeros))
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
        logits, names = self._logits(X), self.chosen_.names
        if names.has_labels:
            return np.asarray(sigmoid(logits))
        if names.outputs == 1:
            logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        return np.asarray(softmax(logits)[:, names.places])

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
        metric, decided, chosen = get_metric(self.metric), self._decide_rows(X), self.chosen_
        if chosen.names.has_labels:
            value = value_of_labels(metric, decided, y, sample_weight, self.average)
        else:
            numbers = chosen.names.checked_numbers_of(checked_labels(self, y))
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
                costs=chosen.costs_of(metric, X, len(numbers)),
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

        The metric judges the model's decisions. Columns are meant as in the table that is passed, before encoding.
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
            rows and the choice of shuffles.

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
        check_is_fitted(self, "chosen_")
        plots: Plots = import_module("metricfit.tabular.plots").Plots(self)  # loads matplotlib
        return plots

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """Show a fitted model in a notebook by its value and its decision, and not by its parameters alone."""
        shown: dict[str, str] = super()._repr_mimebundle_(**options)
        if hasattr(self, "chosen_"):
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
        check_is_fitted(self, "chosen_")
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
        check_is_fitted(self, "chosen_")
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
            trusted: Names of types in the user's models that skops does not trust by itself; an error names them.
                LightGBM's are among these.
            data: Name of the table, for the model card.
            target: Name of the predicted column, for the model card.
            overwrite: Whether to replace a model in the folder.

        Raises:
            ValueError: If a model of the user has types that are not trusted.
        """
        check_is_fitted(self, "chosen_")
        from metricfit.tabular import storage  # loads the families

        storage.save(self, path, trusted, data=data, target=target, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], trusted: Sequence[str] | None = None, **user_functions: Any) -> Self:
        """Load a model from a folder; nothing in the folder is executed.

        Args:
            path: The folder that ``save`` wrote.
            trusted: Names of types in the user's models that skops does not trust by itself; an error names them.
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

    def _names_of(self, target: NDArray[Any], declared: Sequence[Any] | None, counted: Any = None) -> ClassNames:
        """Return the classes of a target, as ``ClassNames.of`` does.

        Raises:
            InvalidValueError: The labels cannot be used, or a metric needs an order that they do not have.
        """
        names = ClassNames.of(target, self.pos_label, declared, counted)
        judged = [get_metric(self.metric), *(requirement.metric for requirement in as_requirements(self.subject_to))]
        if not names.has_labels:
            check_has_order(names.classes.tolist(), declared, judged)
        return names

    def _logits(self, X: Any) -> Floats:
        """Return calibrated logits for the current class balance."""
        check_is_fitted(self, "chosen_")
        return self._calibrated_logits(X) + self.chosen_.shift

    def _logits_to_decide(self, X: Any) -> Floats:
        """Return what the decision is about: logits, or cost margins if rows have costs of their own."""
        check_is_fitted(self, "chosen_")
        metric = get_metric(self.metric)
        columns = cost_columns(metric, X)  # reports a missing column before the model does
        logits = self._logits(X)
        costs = self.chosen_.costs_of(metric, columns, len(logits))
        return logits if costs is None else costs.margins(logits)

    def _decide_rows(self, X: Any) -> Integers:
        """Return class numbers, -1 for rows that are referred, or for several labels 0 and 1."""
        logits = self._logits_to_decide(X)  # it reports a model that is not fitted
        return self.chosen_.decide(logits)

    def _decide_within(self, X: Any, budget: int) -> Integers:
        """Return class numbers of which exactly this many are 1, or 0 and 1 for as many labels of each row."""
        check_is_fitted(self, "chosen_")
        metric, chosen = get_metric(self.metric), self.chosen_
        columns, logits = cost_columns(metric, X), self._logits(X)
        number = check_budget(budget, logits.shape[1], len(logits), has_labels=chosen.names.has_labels)
        if chosen.names.has_labels:
            goal = Goal(metric, average=self.average, rule=check_rule(self.decision))
            return np.asarray(choose_top_labels(chosen.basis.held_out, goal, number).decide(logits))
        costs, gains = chosen.costs_of(metric, columns, len(logits)), logits.squeeze(1)
        if costs is not None:
            p = sigmoid(gains)
            gains = p * costs.fn - (1 - p) * costs.fp
        return best_rows(gains, number).astype(np.int64)

    def _check_decision(self, names: ClassNames, rows: FitRows, columns: Mapping[str, Floats]) -> None:
        """Refuse requirements, costs and a confidence that the rows do not support, before anything is trained.

        Args:
            names: The classes.
            rows: The rows on which the decision will be chosen.
            columns: The columns with the costs of each row.

        Raises:
            InvalidValueError: A requirement is on a class that there is not, or costs or a confidence cannot be used.
            InfeasibleError: There are too few rows for the confidence.
        """
        requirements, metric = names.requirements(self.subject_to), get_metric(self.metric)
        if not names.has_labels or isinstance(metric, GroupGap):
            check_class_index(len(names.classes), metric)
        check_costs(metric, columns, names.number, requirements)
        if self.confidence is not None:
            y = rows.y if names.has_labels else names.numbers_of(rows.y)
            checked_guarantee(requirements, y, self.confidence, weight=rows.weight, groups=rows.groups)

    def _decide(self, basis: Basis, shares: Floats | None = None, estimate: PriorShift | None = None) -> None:
        """Choose the decision on held-out rows, for these shares of the classes, and show it in public attributes."""
        if self.confidence is not None:
            check_training_share(basis.training_share)
        rows = basis.held_out if shares is None else basis.held_out.with_class_shares(shares)
        shift = (rows.logits - basis.held_out.logits)[0]
        decision = choose_decision(
            rows,
            get_metric(self.metric),
            subject_to=basis.names.requirements(self.subject_to),
            average=self.average if basis.names.has_labels else average_of_classes(self.average),
            rule=self.decision,
            seed=basis.seed,
            confidence=self.confidence,
            out_of_fold=basis.out_of_fold,
        )
        self._show(Chosen(basis, shift, decision, estimate))
        self._warn_if_not_reachable(
            "The model is kept and decides there; rethreshold(subject_to=...) chooses again without training"
        )

    def _show(self, chosen: Chosen) -> None:
        """Keep held-out rows and a decision, and show them in the public attributes."""
        self.chosen_ = chosen
        self.__dict__.update(chosen.attributes())

    def _warn_if_not_reachable(self, consequence: str, levels: int = 4) -> None:
        """Say that no decision meets the requirements; the line that called ``fit`` or ``refer`` is named."""
        if self.decision_.evidence.not_reachable is not None:
            message = f"{self.decision_.evidence.not_reachable}. {consequence}"
            warnings.warn(message, InfeasibleWarning, stacklevel=levels)

    def _take_over(self, parameters: Mapping[str, Any], parts: Mapping[str, Any]) -> None:
        """Take over the parameters and the stored parts of a folder."""
        self.__dict__.update({**parameters, **parts})  # set_params would look into the estimator
        self._show(self.chosen_)

    @abstractmethod
    def _check_parts(self) -> None:
        """Refuse parameters and parts of a folder that are wrong, or do not fit each other.

        Raises:
            ValueError: A part is wrong.
        """

    @abstractmethod
    def _calibrated_logits(self, X: Any) -> Floats:
        """Return logits ``(n, 1)`` or ``(n, c)`` in the order of class numbers, for the class balance of training."""

    @abstractmethod
    def _comparable_rows(self, X: Any) -> tuple[HeldOut, Floats]:
        """Return the held-out rows, and calibrated logits of new rows that are distributed as theirs without drift.

        If the logits of held-out rows come from the folds' models, the logits of new rows do too, each row's from one
        model.
        """

    def _shares_at(self, prevalence: Any, X: Any) -> tuple[Floats | None, PriorShift | None]:
        """Return the shares of the classes at a class balance, and what was estimated from ``X``."""
        estimated = isinstance(prevalence, str)
        if estimated and prevalence != "estimate":
            raise InvalidValueError(f"prevalence is a share, one per class, or 'estimate'; got {quote(prevalence)}")
        if estimated == (X is None):
            needs = (
                "prevalence='estimate' needs new rows without labels" if estimated else "X is for prevalence='estimate'"
            )
            raise InvalidValueError(f"{needs}: rethreshold(prevalence='estimate', X=new_rows)")
        if prevalence is None:
            return None, None
        if not estimated:
            return shares_of(prevalence, self.chosen_.names.in_order), None
        estimate = estimate_prior_shift(*self._comparable_rows(X), seed=self.chosen_.basis.seed)
        return estimate.shares, estimate

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
        check_is_fitted(self, "chosen_")
        shares: float | dict[Any, float] = self.chosen_.prevalence
        return shares

    @property
    def prevalence_interval_(self) -> tuple[float, float] | dict[Any, tuple[float, float]] | None:
        """The 95 % interval of ``prevalence_`` if it was estimated, otherwise None."""
        shift = self.prior_shift_
        return None if shift is None else self.chosen_.names.by_label(list(map(tuple, shift.intervals.tolist())))

    @property
    def drift_(self) -> Drift | None:
        """Whether another class balance explains the scores of the new rows, if it was estimated."""
        return None if self.prior_shift_ is None else self.prior_shift_.drift
