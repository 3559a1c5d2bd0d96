"""MetricClassifier: a scikit-learn classifier for tables that decides for a metric."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from metricfit.core.types import ScalarAverage
from metricfit.decide.held_out import HeldOut
from metricfit.errors import InvalidValueError, shorten
from metricfit.metrics.curves import Requirements
from metricfit.metrics.metric import Formula, Metric
from metricfit.tabular import inputs, storage, stored_ensemble
from metricfit.tabular.calibration_rows import keep_apart
from metricfit.tabular.deciding import DecidingClassifier
from metricfit.tabular.ensemble import Ensemble, logits_by_fold
from metricfit.tabular.ensemble_fit import fit_ensemble
from metricfit.tabular.families.family import Features, Floats
from metricfit.tabular.notebook import Rows
from metricfit.tabular.parameters import check_parameters
from metricfit.tabular.row_checks import unchanged_if_it_fails
from metricfit.tabular.scored_rows import ScoredRows
from metricfit.tabular.training_rows import prepare_rows

log = logging.getLogger("metricfit.tabular")

#: Rows that are encoded at a time; those of a large table would take many times its memory.
ROWS_AT_ONCE = 200_000


class MetricClassifier(DecidingClassifier):
    """A classifier for tables that makes the best decisions for the metric it is judged by.

    It fits several families of models on the same folds, weights them by what they are worth for the metric, calibrates
    the result, and chooses the decision whose expected metric is best.

    Args:
        metric: A Metric, its name such as ``"fbeta(beta=2)"``, or a function of Counts. With
            ``"cost(fp=5, fn='amount')"`` a miss costs what the column "amount" of ``X`` says, and each row is decided
            by its own costs.
        subject_to: Requirements such as ``"recall >= 0.95"``. Of several classes, ``"recall['gold'] >= 0.9"`` is on the
            class with that label, and ``"recall >= 0.9"`` on every class. If no decision meets them, the model decides
            with the smallest violation, and an InfeasibleWarning says what is reachable;
            ``rethreshold(subject_to=...)`` chooses again.
        confidence: The probability, such as 0.95, with which all requirements must hold on new rows, for requirements
            on recall, fnr, specificity, fpr, precision, npv, accuracy and selection_rate. If there are too few rows
            for that, ``fit`` raises an InfeasibleError before anything is trained. The tests are exact for scores of
            a model that was not fitted on the rows; for out-of-fold scores the documentation has measurements. None
            meets them on the out-of-fold rows alone, and then about half of all models miss the bound on new rows.
        calibration: The share of the rows, such as 0.3, that is kept apart from training to choose the decision on; of
            rows in groups, the share of the groups. The tests of ``confidence`` are then exact, and ``certificate_`` is
            "guaranteed". None chooses on the out-of-fold scores of all rows.
        models: The families. "auto" is "linear", "kernel", "boosting", "boosting_small" and "extra_trees". Tables with
            columns of free text have "text" too. Otherwise a list of these names, "auto", "catboost", "xgboost",
            "boosting_metric", "tabicl", "tabpfn", "network", ``tabular.Network(...)``, ``tabular.InContext(...)``,
            scikit-learn classifiers, or (name, model) pairs. A Pipeline gets the table as it was passed; other
            classifiers get numbers without missing values.
        quality: What "auto" stands for. "fast" is "linear" and "boosting_small", for loops. "best" adds more settings
            of boosted trees, CatBoost and XGBoost if they are installed, and foundation models whose weights this
            machine has, as far as ``time_budget`` goes.
        decision: "plugin" (the threshold whose expected counts have the best metric), "empirical" (the exact best
            threshold on the out-of-fold rows) or "auto", which is "plugin".
        members: Number of folds; None for 8, 5 above 20,000 rows and 3 above 100,000. At most the rows of a class.
        cv: None or a number for stratified folds; "forward" or a TimeSeriesSplit for rows in the order of time, where
            each fold is judged by a model of earlier rows ("forward" judges the later half); or a splitter of
            scikit-learn that holds out no row twice.
        average: Average over several classes: "macro", "micro" or "weighted".
        pos_label: The positive class of two. By default 1 of 0/1 and of -1/1, True of booleans, and otherwise the
            class with fewer rows (the later in sorted order if both have equally many), which is logged.
        class_weight: "balanced" or a weight for each class. It is used in training only: the decision is chosen and
            the probabilities are calibrated on the rows as they are.
        time_budget: Seconds of ``fit``; None for no limit. Families that are worth most per second are fitted first,
            and the first of them whatever the budget is. A family that would not be ready in time is left out, which
            is logged and recorded in ``models_``. Time for weights and decision is kept free.
        n_jobs: Number of folds that are fitted at a time; -1 for one per core.
        device: Device of networks; by default a GPU if there is one.
        verbose: Whether to print each family when it is ready, with its value, the best value so far and the time that
            is left. Decisions are always logged by the logger "metricfit.tabular".
        random_state: Seed of the folds and of every model.

    Attributes:
        classes_: The labels, sorted.
        pos_label_: The positive class of two; None for several classes.
        models_: One row per family: its weight, its value and cross-entropy out of fold, its seconds, and why it was
            left out if it was.
        threshold_: Rows are positive where ``predict_proba`` of the positive class is at least this. None for several
            classes, and for costs in columns, where ``row_thresholds(X)`` has the threshold of each row.
        threshold_interval_: 95 % bootstrap interval of the threshold.
        curve_: The metric and the counts at every threshold, out of fold; None for several classes.
        requirements_: For each requirement, as text: its value out of fold, whether that meets the bound, and the best
            value that any threshold reaches.
        requirements_met_: Whether all requirements are met out of fold, or with ``confidence`` certified; True if there
            are none.
        confidence_: The probability for which the requirements are certified; None if they are not.
        certificate_: What that says about new rows: "guaranteed" or "certified on cross-validated scores
            (approximate)". None without a confidence.
        refer_region_: After ``refer``, the probabilities of the positive class that are referred to a person: from the
            first on and below the second. None if every row is decided.
        referred_share_: The share of the held-out rows that is referred.
        offsets_: For several classes, what is added to the log-probabilities before the largest is taken; to minus the
            expected costs, if a metric of the whole confusion matrix has them (``decide.CostDecision``).
        value_: The metric to expect on new rows: its value out of fold. Models, calibrations and weights that give the
            logits of a row were chosen on other rows. With ``decision="empirical"``, which chooses by the labels of
            these rows, it is lowered by a bootstrap estimate of that gain; under requirements it is not.
        value_interval_: 95 % bootstrap interval of the value.
        prevalence_: The class balance that the model decides for: the share of the positive class, or of each class by
            its label. ``rethreshold(prevalence="estimate", X=new_rows)`` estimates that of rows without labels, with
            ``prevalence_interval_``, and ``drift_`` says whether another balance explains their scores.
        history_: One row per member and epoch of the network; empty without a network.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> model = MetricClassifier("f1", models=["linear", "boosting"], random_state=0).fit(X, X[:, 0] > 1)
        >>> model.predict(X[:3]).dtype, model.predict_proba(X).shape
        (dtype('bool'), (200, 2))
    """

    average: ScalarAverage
    _judges: Sequence[Ensemble] = ()  # of each fold; not saved

    def __init__(
        self,
        metric: str | Metric | Formula = "f1",
        *,
        subject_to: Requirements | None = None,
        confidence: float | None = None,
        calibration: float | None = None,
        models: Any = "auto",
        quality: Literal["fast", "default", "best"] = "default",
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
        self.confidence = confidence
        self.calibration = calibration
        self.models = models
        self.quality = quality
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
            check_parameters(self)
            training, apart = keep_apart(self, X, y, sample_weight, groups)
            prepared = prepare_rows(self, training.X, training.y, training.weight, training.groups, apart=apart)
            fitted = fit_ensemble(self, prepared)
            self.ensemble_, self.models_, self.held_out_ = fitted.ensemble, Rows(fitted.models), fitted.held_out
            self.history_, self._seed = fitted.history, prepared.seed
            self._places, self._judges, self._pooled_logits = fitted.places, fitted.judges, fitted.pooled_logits
            self._training_share = fitted.training_share
            if apart is not None:
                self.held_out_, self._places = apart.held_out(self)
                self._judges, self._pooled_logits, self._training_share = [self.ensemble_], None, 1.0
            self._decide(self.held_out_, np.zeros(self.held_out_.logits.shape[1]))
        return self

    def report(
        self,
        path: str | os.PathLike[str],
        X: Any = None,
        y: Any = None,
        *,
        threshold: float | None = None,
        data: str | None = None,
        target: str | None = None,
        groups: Any = None,
        out_of_fold: bool = False,
    ) -> Path:
        """Write an HTML page about the model.

        Without rows the page shows the decisions on the training rows, each by models that did not train on it, and
        the models with their weights. With ``X`` and ``y`` it shows the decisions on those rows, and the values of the
        rows that are most wrong.

        Args:
            path: The file to write. Missing folders are created.
            X: Rows to judge the model on.
            y: The labels of these rows.
            threshold: A threshold in place of the model's, for two classes and with ``X`` and ``y``.
            data: Name of the table, for the title.
            target: Name of the predicted column, for the title of a page about the training rows.
            groups: One group per row of ``X``, for values by group. Without ``X`` they are the groups of ``fit``.
            out_of_fold: Whether ``X`` and ``y`` are those that were passed to ``fit``. The page is then the one about
                the training rows, and also shows which columns matter and the rows that are most wrong. Not for models
                that were loaded.

        Returns:
            The path of the page.

        Raises:
            InvalidValueError: If only one of ``X`` and ``y`` is given, or a threshold without rows or for several
                classes.
            ModuleNotFoundError: If the extra ``report`` is not installed.
        """
        check_is_fitted(self, "decision_")
        if (X is None) != (y is None):
            raise InvalidValueError("report needs both X and y, or neither")
        if groups is not None and (X is None or out_of_fold):
            raise InvalidValueError("groups= is for other rows than those of fit, together with X and y")
        if out_of_fold and X is None:
            raise InvalidValueError("out_of_fold=True needs X and y, those that were passed to fit")
        if threshold is not None and (X is None or out_of_fold or getattr(self, "threshold_", None) is None):
            raise InvalidValueError("threshold= is for models of two classes, together with X and y")
        pages = import_module("metricfit.report.model_page")
        if X is None or out_of_fold:
            rows = (X, y) if out_of_fold else None
            page = pages.write_model_page(self, path, data=data, target=target, rows=rows)
        else:
            page = pages.write_evaluation_page(self, X, y, path, threshold=threshold, data=data, groups=groups)
        return Path(page)

    def save(
        self,
        path: str | os.PathLike[str],
        trusted: Sequence[str] | None = None,
        *,
        data: str | None = None,
        target: str | None = None,
    ) -> None:
        """Write the fitted model to a new folder, as JSON, safetensors and files of skops; nothing is pickled.

        The folder also has a model card for people, ``model_card.md``, which loading ignores.

        Args:
            path: A folder that does not exist or has no files.
            trusted: Names of types in the user's own models, beside those that skops trusts; an error names them.
            data: Name of the table, for the model card.
            target: Name of the predicted column, for the model card.

        Raises:
            ValueError: If a model of the user has types that are not trusted.
        """
        check_is_fitted(self, "decision_")
        storage.save(self, path, trusted, data=data, target=target)

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
        storage.load(model, path, trusted, user_functions)
        return model

    def _write_parts(self, arrays: dict[str, NDArray[Any]], files: dict[str, bytes]) -> dict[str, Any]:
        return stored_ensemble.write_parts(self, arrays, files)

    def _read_parts(self, stored: storage.Stored) -> None:
        self._restore(stored_ensemble.read_parts(stored, len(self.classes_)))

    def _faults(self) -> list[str]:
        try:
            check_parameters(self)
        except (ValueError, TypeError) as error:
            return [f"parameters: {shorten(error)}"]
        stored_ensemble.check_parts(self)
        return []

    def _calibrated_logits(self, X: Any) -> Floats:
        if isinstance(X, ScoredRows):
            return X.logits
        table = inputs.checked_table(self, X, reset=False)
        unseen = self.encoder_.count_unseen(table)
        if unseen:
            log.warning(inputs.describe_unseen(unseen, len(table)))
        return self._logits_of_table(table)

    def _logits_of_table(self, table: Any) -> Floats:
        parts = inputs.parts(table, ROWS_AT_ONCE)
        return np.concatenate([self.ensemble_.logits(Features(self.encoder_.transform(part), part)) for part in parts])

    def _comparable_rows(self, X: Any) -> tuple[HeldOut, Floats]:
        if not self._decides_out_of_fold():
            return self.held_out_, self._calibrated_logits(X)
        features = self._features(X)
        folds = np.random.default_rng(self._seed).integers(self.ensemble_.folds, size=len(features))
        return self._pooled_rows().with_copies_as_groups(), self.ensemble_.logits_of_folds(features, folds)

    def _fold_scorers(self) -> Sequence[Ensemble]:
        return self._judges

    def _logits_out_of_fold(self, X: Any, folds: NDArray[np.int64], scorers: Sequence[Ensemble]) -> Floats:
        return logits_by_fold(scorers, self._features(X), folds)

    def _features(self, X: Any) -> Features:
        table = inputs.checked_table(self, X, reset=False)
        return Features(self.encoder_.transform(table), table)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags
