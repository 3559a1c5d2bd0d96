"""MetricClassifier: a scikit-learn classifier for tables that decides for a metric."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from metricfit._moved import RenamedAttribute, renamed_parameters
from metricfit.core.counts import Counts
from metricfit.core.types import ScalarAverage
from metricfit.decide.decisions import Refit, choose_decision, to_probability
from metricfit.decide.held_out import HeldOut
from metricfit.errors import InvalidValueError
from metricfit.metrics.average import averaged
from metricfit.metrics.curves import Requirements, as_requirements
from metricfit.metrics.feasibility import InfeasibleWarning
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.tabular import inputs, storage
from metricfit.tabular.ensemble_fit import fit_ensemble
from metricfit.tabular.families.family import Features
from metricfit.tabular.parameters import MOVED_TO_NETWORK, check_requirements_fit
from metricfit.tabular.positive_class import shares_of
from metricfit.tabular.report_layer import ModelReport
from metricfit.tabular.rollback import unchanged_if_it_fails
from metricfit.tabular.training_rows import prepare_rows

RESAMPLES = 30  # for the corrected value; each chooses the weights of the families again


class MetricClassifier(ModelReport, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier for tables that makes the best decisions for the metric it is judged by.

    It fits several families of models on the same folds, weights them by what they are worth for the metric, calibrates
    the result, and chooses the decision whose expected metric is best.

    Args:
        metric: A Metric, its name such as ``"fbeta(beta=2)"``, or a function of Counts.
        subject_to: Requirements such as ``"recall >= 0.95"``, for two classes. If no threshold meets them, the model
            decides at the threshold with the smallest violation, and an InfeasibleWarning says what is reachable;
            ``rethreshold(subject_to=...)`` chooses again.
        models: The families. "auto" is "linear", "kernel", "boosting", "boosting_small" and "extra_trees". Otherwise a
            list of these names, "boosting_metric", "network", ``tabular.Network(...)``, scikit-learn classifiers, or
            (name, model) pairs. A Pipeline gets the table as it was passed; other classifiers get numbers without
            missing values.
        decision: "plugin" (the threshold whose expected counts have the best metric), "empirical" (the exact best
            threshold on the out-of-fold rows) or "auto", which is "plugin".
        members: Number of folds; None for 8, 5 above 20,000 rows and 3 above 100,000. At most the rows of a class.
        cv: None for stratified folds; "forward" for rows in the order of time, where each fold is judged by a model of
            earlier rows; or a splitter of scikit-learn.
        average: Average over several classes: "macro", "micro" or "weighted".
        pos_label: The positive class of two. By default 1 of 0/1 and of -1/1, True of booleans, and otherwise the
            class with fewer rows (the later in sorted order if both have equally many), which is logged.
        class_weight: "balanced" or a weight for each class. It is used in training only: the decision is chosen and
            the probabilities are calibrated on the rows as they are.
        time_budget: Seconds of training; None for no limit. Cheap families are fitted first, and the first of them
            whatever the budget is. A family that would not be ready in time is left out, which is logged and recorded
            in ``models_``. The choice of weights and decision comes after it.
        n_jobs: Number of folds that are fitted at a time; -1 for one per core.
        device: Device of networks; by default a GPU if there is one.
        verbose: Whether to print each family when it is ready. Decisions are always logged by the logger
            "metricfit.tabular".
        random_state: Seed of the folds and of every model.

    Attributes:
        classes_: The labels, sorted.
        pos_label_: The positive class of two; None for several classes.
        models_: One row per family: its weight, its value and cross-entropy out of fold, its seconds, and why it was
            left out if it was.
        threshold_: Rows are positive where ``predict_proba`` of the positive class is at least this. None for several
            classes.
        threshold_interval_: 95 % bootstrap interval of the threshold.
        requirements_: For each requirement, as text: its value out of fold, whether that meets the bound, and the best
            value that any threshold reaches.
        requirements_met_: Whether all requirements are met out of fold; True if there are none.
        offsets_: For several classes, what is added to the log-probabilities before the largest is taken.
        value_: The metric to expect on new rows: its value out of fold, less the optimism of choosing weights and
            decision on the same rows. For several classes and after ``rethreshold`` the optimism is that of the
            decision alone; under requirements none is subtracted.
        value_interval_: 95 % bootstrap interval of the value.
        history_: One row per member and epoch of the network; empty without a network.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> model = MetricClassifier("f1", models=["linear", "boosting"], random_state=0).fit(X, X[:, 0] > 1)
        >>> model.predict(X[:3]).dtype, model.predict_proba(X).shape
        (dtype('bool'), (200, 2))
    """

    plan = RenamedAttribute("models_")

    @renamed_parameters(**MOVED_TO_NETWORK)
    def __init__(
        self,
        metric: str | Metric | Formula = "f1",
        *,
        subject_to: Requirements | None = None,
        models: Any = "auto",
        decision: Literal["auto", "plugin", "empirical"] = "auto",
        members: int | None = None,
        cv: Any = None,
        average: ScalarAverage = "macro",
        pos_label: Any = None,
        class_weight: str | Mapping[Any, float] | None = None,
        time_budget: float | None = 300.0,
        n_jobs: int | None = -1,
        device: str | None = None,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.metric = metric
        self.subject_to = subject_to
        self.models = models
        self.decision = decision
        self.members = members
        self.cv = cv
        self.average = average
        self.pos_label = pos_label
        self.class_weight = class_weight
        self.time_budget = time_budget
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> MetricClassifier:
        """Fit the families, choose their weights, calibrate the ensemble and choose the decision.

        Args:
            X: An array, where NaN is a missing value, a pandas or polars DataFrame with columns of any kind, or a
                sparse matrix.
            y: One label per row.
            sample_weight: One weight per row, used in training, in calibration and to choose the decision.
            groups: One group per row. Rows of one group are held out together, and so are copies of a row.

        Returns:
            The model itself. If ``fit`` fails, the model stays as it was.

        Raises:
            ValueError: If a parameter, the table or the labels cannot be used.
        """
        with unchanged_if_it_fails(self):
            prepared = prepare_rows(self, X, y, sample_weight, groups)
            fitted = fit_ensemble(self, prepared)
            self.ensemble_, self.models_, self.held_out_ = fitted.ensemble, fitted.models, fitted.held_out
            self.history_, self._seed = fitted.history, prepared.seed
            unshifted = torch.zeros(self.held_out_.logits.shape[1], dtype=torch.float64)
            self._decide(self.held_out_, unshifted, fitted.refit)
        return self

    def rethreshold(
        self, prevalence: float | Mapping[Any, float] | None = None, *, subject_to: Requirements | None = "unchanged"
    ) -> MetricClassifier:
        """Choose the threshold again, for another class balance or other requirements; nothing is trained.

        With another balance the probabilities change too: rows of each class are assumed to look as before, and only
        their shares to change (prior shift).

        Args:
            prevalence: The share of the positive class, or of each class by its label. None means the balance of the
                training rows.
            subject_to: Requirements that replace the model's ``subject_to``; None removes them. By default they stay.

        Returns:
            The model itself. If no threshold meets the requirements, it decides at the threshold with the smallest
            violation, and an InfeasibleWarning says what is reachable, as in ``fit``.

        Example:
            >>> X = np.random.default_rng(0).normal(size=(200, 3))
            >>> model = MetricClassifier("precision", models=["linear"], random_state=0)
            >>> model.fit(X, X[:, 0] > 1).rethreshold(subject_to="recall >= 0.9").requirements_met_
            True
        """
        check_is_fitted(self, "decision_")
        with unchanged_if_it_fails(self):
            if subject_to != "unchanged":
                requirements = as_requirements(subject_to)
                check_requirements_fit(len(self.classes_), requirements)
                self.subject_to = subject_to
            held_out, shift = self.held_out_, torch.zeros_like(self.shift_)
            if prevalence is not None:
                shares = shares_of(prevalence, self.classes_[self._order])
                held_out = self.held_out_.with_class_shares(torch.from_numpy(shares))
                shift = (held_out.logits - self.held_out_.logits)[0]
            self._decide(held_out, shift)
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return calibrated logits, shifted so that the decision is at 0.

        Args:
            X: Rows with the columns of ``fit``.

        Returns:
            For two classes ``(n,)``, positive for the second of ``classes_``; for several ``(n, c)``, with the offsets
            added, so that the largest decides.
        """
        logits = self._logits(X)
        margins: NDArray[np.float64] = self.decision_.margins(logits).numpy()
        if len(self.classes_) > 2:
            return margins
        return margins if self._order[1] == 1 else -margins

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict labels: by the threshold for two classes, by the largest log-probability plus offset for several.

        Args:
            X: Rows with the columns of ``fit``.

        Returns:
            One of ``classes_`` per row.
        """
        logits = self._logits(X)
        margins = self.decision_.margins(logits)
        number = (margins >= 0).long() if len(self.classes_) == 2 else margins.argmax(1)
        labels: NDArray[Any] = self.classes_[self._order[number.numpy()]]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return calibrated probabilities.

        Args:
            X: Rows with the columns of ``fit``.

        Returns:
            One row per row of ``X``, with a column for each of ``classes_``.
        """
        logits = self._logits(X)
        if len(self.classes_) == 2:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        probabilities = np.empty(logits.shape)
        probabilities[:, self._order] = torch.softmax(logits, dim=1).numpy()
        return probabilities

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the metric of the predictions, negated if lower is better, so that higher is always better.

        Raises:
            ValueError: If ``y`` holds labels that were not there in ``fit``.
        """
        metric = get_metric(self.metric)
        predicted, labels = self.predict(X), inputs.checked_labels(self, y)
        check_consistent_length(predicted, labels)
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise InvalidValueError(f"y has labels that were not there in fit: {', '.join(map(str, unknown[:5]))}")
        weight = inputs.checked_weights(sample_weight, labels)
        counts = Counts.from_labels(
            self._numbers_of(predicted),
            self._numbers_of(labels),
            num_classes=None if len(self.classes_) == 2 else len(self.classes_),
            weight=None if weight is None else torch.from_numpy(weight),
        )
        value = float(averaged(metric, counts, self.average))
        return -value if metric.minimize else value

    def save(self, path: str | os.PathLike[str], trusted: Sequence[str] | None = None) -> None:
        """Write the fitted model to a new folder, as JSON, safetensors and files of skops; nothing is pickled.

        Args:
            path: A folder that does not exist or has no files.
            trusted: Names of types in the user's own models, beside those that skops trusts; an error names them.

        Raises:
            ValueError: If a model of the user has types that are not trusted.
        """
        check_is_fitted(self, "decision_")
        storage.save(self, path, trusted)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], trusted: Sequence[str] | None = None, **user_functions: Any
    ) -> MetricClassifier:
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
        model = cls()
        storage.load(model, path, trusted, **user_functions)
        return model

    def _decide(self, held_out: HeldOut, shift: torch.Tensor, refit: Refit | None = None) -> None:
        decision = choose_decision(
            held_out,
            get_metric(self.metric),
            subject_to=as_requirements(self.subject_to),
            average=self.average,
            rule=self.decision,
            refit=refit,
            resamples=RESAMPLES if refit is not None else None,
            seed=self._seed,
        )
        self.shift_, self.decision_ = shift, decision
        self._show_decision()
        if decision.not_reachable is not None:
            warnings.warn(
                f"{decision.not_reachable}. The model is kept and decides there; rethreshold(subject_to=...) chooses "
                "again without training",
                InfeasibleWarning,
                stacklevel=3,
            )

    def _show_decision(self) -> None:
        """Set the public attributes from the decision."""
        decision = self.decision_
        assert decision.corrected_value is not None
        self.value_, self.value_interval_ = decision.corrected_value, decision.corrected_interval
        self.requirements_ = dict(decision.requirements)
        self.requirements_met_ = all(result.met for result in decision.requirements.values())
        self.offsets_ = None if decision.offsets is None else decision.offsets.numpy()
        self.threshold_ = None if decision.threshold is None else to_probability(decision.threshold)
        ends = decision.interval
        self.threshold_interval_ = None if ends is None else (to_probability(ends[0]), to_probability(ends[1]))

    def _logits(self, X: Any) -> torch.Tensor:
        """Return the calibrated logits of the ensemble, for the current class balance."""
        check_is_fitted(self, "decision_")
        table = inputs.checked_table(self, X, reset=False)
        return self.ensemble_.logits(Features(self.encoder_.transform(table), table)) + self.shift_

    def _numbers_of(self, labels: NDArray[Any]) -> torch.Tensor:
        """Return class numbers; of two classes, the positive one is 1."""
        return torch.from_numpy(np.argsort(self._order)[np.searchsorted(self.classes_, labels)])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags
