"""MetricClassifier: a scikit-learn classifier for tables that decides for a metric.

A table that is read in batches is never in memory as a whole. What decisions, metrics and reports need of it are the
logits, and the columns that hold the costs of each row.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from math import nan
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from metricfit._schema import Label
from metricfit.core.arrays import Floats
from metricfit.core.types import ScalarAverage
from metricfit.data.reading import Batch, ColumnTypes
from metricfit.decide.held_out import HeldOut
from metricfit.errors import InvalidValueError, MetricfitError, ModelFileError, TableError
from metricfit.metrics.curves import Requirements
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.tabular.checks import (
    check_parameters,
    checked_table,
    describe_unseen,
    parts_of_table,
    unchanged_if_it_fails,
)
from metricfit.tabular.chosen import Chosen
from metricfit.tabular.deciding import DecidingClassifier
from metricfit.tabular.encoding.columns import Category, Date, Text
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.ensemble import Ensemble, ModelRow, logits_by_fold
from metricfit.tabular.ensemble_fit import basis_apart, fit_ensemble, keep_apart, prepare_rows
from metricfit.tabular.families.family import Features
from metricfit.tabular.notebook import Rows

log = logging.getLogger("metricfit.tabular")

#: Rows that are encoded at a time; all rows of a large table would take many times its memory.
ROWS_AT_ONCE = 200_000


class MetricClassifier(DecidingClassifier):
    """A classifier for tables that makes the best decisions for the metric it is judged by.

    It fits several families of models on the same folds and weights them by what they are worth for the metric. Then it
    calibrates the result, and chooses the decision whose expected metric is best.

    Args:
        metric: A Metric, its name such as ``"fbeta(beta=2)"``, or a function of Counts. With
            ``"cost(fp=5, fn='amount')"`` a miss costs what the column "amount" of ``X`` says, and each row is decided
            by its own costs.
        subject_to: Requirements such as ``"recall >= 0.95"``. Of several classes, ``"recall['gold'] >= 0.9"`` is on the
            class with that label, and ``"recall >= 0.9"`` on every class. If no decision meets them, the model decides
            with the smallest violation, and an InfeasibleWarning says what is reachable;
            ``rethreshold(subject_to=...)`` chooses again.
        confidence: The probability, such as 0.95, with which all requirements must hold on new rows. Requirements
            may be on recall, fnr, specificity, fpr, precision, npv, accuracy and selection_rate. If there are too few
            rows for that, ``fit`` raises an InfeasibleError before anything is trained. The tests are exact for scores
            of a model that was not fitted on the rows; for out-of-fold scores the documentation has measurements. None
            meets them on the out-of-fold rows alone, and then about half of all models miss the bound on new rows.
        calibration: The share of the rows, such as 0.3, that is kept apart from training to choose the decision on; of
            rows in groups, the share of the groups. The tests of ``confidence`` are then exact, and ``certificate_`` is
            "guaranteed". None chooses on the out-of-fold scores of all rows.
        models: The families. "auto" is "linear", "boosting_small", "extra_trees", "boosting" and "kernel". Tables with
            columns of free text have "text" too. Otherwise a list of these names, "auto", "catboost", "xgboost",
            "boosting_metric", "in_context", "tabicl", "tabpfn", "network", ``tabular.Network(...)``,
            ``tabular.InContext(...)``, scikit-learn classifiers, or (name, model) pairs. A Pipeline gets the table as
            it was passed; other classifiers get numbers without missing values.
        quality: What "auto" stands for. "fast" is "linear" and "boosting_small", for loops. "best" adds "in_context",
            CatBoost and XGBoost if they are installed, and foundation models whose weights this machine has, as far
            as ``time_budget`` goes.
        decision: "plugin" (the threshold whose expected counts have the best metric), "empirical" (the exact best
            threshold on the out-of-fold rows) or "auto", which is "plugin".
        members: Number of folds; None for 8, 5 above 20,000 rows and 3 above 100,000. At most the rows of a class.
        cv: None or a number for stratified folds; "forward" or a TimeSeriesSplit for rows in the order of time; or a
            splitter of scikit-learn that holds out no row twice. In the order of time each fold is judged by a model of
            earlier rows; "forward" judges the later half.
        average: Average over several classes: "macro", "micro" or "weighted".
        pos_label: The positive class of two. By default 1 of 0/1 and of -1/1, True of booleans, and otherwise the class
            with fewer rows, which is logged. Of equally many rows, it is the later class in sorted order.
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
            its label. ``rethreshold(prevalence="estimate", X=new_rows)`` estimates the balance of rows without labels,
            with ``prevalence_interval_``, and ``drift_`` says whether another balance explains their scores.
        history_: One row per member and epoch of the network; empty without a network.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> model = MetricClassifier("f1", models=["linear", "boosting"], random_state=0).fit(X, X[:, 0] > 1)
        >>> model.predict(X[:3]).dtype, model.predict_proba(X).shape
        (dtype('bool'), (200, 2))
    """

    average: ScalarAverage
    stored_parts: ClassVar[Mapping[str, Any]] = {
        "chosen_": Chosen,
        "encoder_": TableEncoder,
        "ensemble_": Ensemble,
        "models_": list[ModelRow],
        "history_": list[dict[str, Label]],
    }

    def __init__(
        self,
        metric: str | Metric | Formula = "f1",
        *,
        subject_to: Requirements | None = None,
        confidence: float | None = None,
        calibration: float | None = None,
        models: Any = "auto",
        quality: str = "default",
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
            prepared = prepare_rows(self, *training, apart=apart)
            self.encoder_ = prepared.encoder  # watchers look at it before the families are fitted
            fitted = fit_ensemble(self, prepared)
            self.ensemble_ = fitted.ensemble
            self.models_, self.history_ = Rows(fitted.models), fitted.history
            basis = fitted.basis
            if apart is not None:  # the whole model scores them, as it does new rows
                logits = self._calibrated_logits(apart.X)
                basis = basis_apart(basis.names, basis.seed, apart, logits, get_metric(self.metric), self.ensemble_)
            self._decide(basis)
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

        Without rows the page shows the models with their weights, and the decisions on the training rows. Models that
        did not train on a row decide it. With ``X`` and ``y`` it shows the decisions on those rows, and the values of
        the rows that are most wrong.

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
        check_is_fitted(self, "chosen_")
        if (X is None) != (y is None):
            raise InvalidValueError("report needs both X and y, or neither")
        if groups is not None and (X is None or out_of_fold):
            raise InvalidValueError("groups= is for other rows than the rows of fit, together with X and y")
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

    def _check_parts(self) -> None:
        self.models_ = Rows(self.models_)
        self.history_ = [{name: nan if each is None else each for name, each in row.items()} for row in self.history_]
        check_parameters(self)
        if self.n_features_in_ != self.encoder_.features:
            raise ModelFileError(f"features: {self.n_features_in_}, of a table of {self.encoder_.features} columns")
        row = np.full((1, self.encoder_.features), np.nan, dtype=float if self.encoder_.columns is None else object)
        table = pd.DataFrame(row, columns=getattr(self, "feature_names_in_", None))
        self.ensemble_.check(Features(self.encoder_.transform(table), table), self.chosen_.names.outputs)

    def _calibrated_logits(self, X: Any) -> Floats:
        if isinstance(X, ScoredRows):
            return X.logits
        table = checked_table(self, X, reset=False)
        unseen = self.encoder_.count_unseen(table)
        if unseen:
            log.warning(describe_unseen(unseen, len(table)))
        return self._logits_of_table(table)

    def _logits_of_table(self, table: Any) -> Floats:
        parts = parts_of_table(table, ROWS_AT_ONCE)
        return np.concatenate([self.ensemble_.logits(Features(self.encoder_.transform(part), part)) for part in parts])

    def _comparable_rows(self, X: Any) -> tuple[HeldOut, Floats]:
        basis = self.chosen_.basis
        if not basis.out_of_fold:
            return basis.held_out, self._calibrated_logits(X)
        features = self._features(X)
        folds = np.random.default_rng(basis.seed).integers(self.ensemble_.folds, size=len(features))
        return basis.pooled_rows.with_copies_as_groups(), self.ensemble_.logits_of_folds(features, folds)

    def _logits_out_of_fold(self, X: Any, folds: NDArray[np.int64], scorers: Sequence[Ensemble]) -> Floats:
        return logits_by_fold(scorers, self._features(X), folds)

    def _features(self, X: Any) -> Features:
        table = checked_table(self, X, reset=False)
        return Features(self.encoder_.transform(table), table)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


WHOLE_NUMBER = re.compile(r"-?(0|[1-9]\d*)")


@dataclass(frozen=True)
class ScoredRows:
    """Stands for a table wherever a model predicts: ``model.predict(rows)`` decides without computing logits again.

    Attributes:
        logits: The calibrated logits, ``(n, 1)`` or ``(n, c)``.
        kept: Columns with the costs of each row, by name.
        unseen: Rows with categories that the training rows did not have, by column.

    Example:
        >>> from metricfit import MetricClassifier
        >>> X = np.random.default_rng(0).normal(size=(100, 2))
        >>> model = MetricClassifier(models=["linear"], random_state=0).fit(X, X[:, 0] > 1)
        >>> parts = [ScoredRows.of(model, X[:60]), ScoredRows.of(model, X[60:])]
        >>> bool((model.predict(ScoredRows.join(parts)) == model.predict(X)).all())
        True
    """

    logits: NDArray[np.float64]
    kept: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    unseen: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, model: MetricClassifier, X: Any) -> ScoredRows:
        """Return the rows of a table with their logits."""
        kept = {name: np.asarray(X[name]) for name in get_metric(model.metric).columns}
        if not len(X):  # a table that an estimator would refuse
            outputs = 1 if len(model.classes_) == 2 else len(model.classes_)
            return cls(np.zeros((0, outputs)), kept)
        table = checked_table(model, X, reset=False)
        return cls(model._logits_of_table(table), kept, model.encoder_.count_unseen(table))

    @classmethod
    def join(cls, parts: Sequence[ScoredRows]) -> ScoredRows:
        """Return the rows of several parts, one after the other."""
        names = list(parts[0].kept)
        kept = {name: np.concatenate([part.kept[name] for part in parts]) for name in names}
        return cls(np.concatenate([part.logits for part in parts]), kept)

    def take(self, rows: NDArray[Any]) -> ScoredRows:
        """Return some of the rows, by their numbers or by a mask."""
        return ScoredRows(self.logits[rows], {name: each[rows] for name, each in self.kept.items()})

    @property
    def columns(self) -> list[str]:
        """The names of the columns that are kept."""
        return list(self.kept)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of kept columns."""
        return len(self), len(self.kept)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.kept[name]

    def __len__(self) -> int:
        return len(self.logits)


def score_batch(model: MetricClassifier, X: pd.DataFrame, batch: Batch) -> ScoredRows:
    """Return the rows of a batch with their logits.

    Args:
        model: The fitted model.
        X: The columns of the batch that the model was trained on.
        batch: The batch, which knows where its rows come from.

    Raises:
        TableError: The model cannot read a row; the message names the row.
    """
    try:
        return ScoredRows.of(model, X)
    except MetricfitError:
        row = _first_unreadable_row(model, X)
        if row is None:
            raise
        try:
            ScoredRows.of(model, X.iloc[row : row + 1])
        except MetricfitError as error:
            raise TableError(f"{batch.source}, row {batch.first + row}: {error}") from None
        raise


def column_types(model: MetricClassifier, target: str | None = None) -> ColumnTypes:
    """Return which columns of a text file are text, by what the model knows about its columns.

    Without that, a column of codes such as 007 would be text in one batch and numbers in another, where no code has a
    letter.

    Args:
        model: The fitted model.
        target: Name of the column with labels. If the model's labels are text, the file's labels are read as text,
            and words such as NA are labels.
    """
    names = getattr(model, "feature_names_in_", ())
    columns = model.encoder_.columns or [None] * len(names)
    text = [str(name) for name, column in zip(names, columns, strict=False) if _is_text(column)]
    labels_are_text = target is not None and model.classes_.dtype.kind in "OUT"
    return ColumnTypes(text, [str(target)] if labels_are_text else [])


def _is_text(column: object) -> bool:
    if isinstance(column, Category):  # categories that are whole numbers may be written as 1 or as 1.0, unless as 01
        return not all(category is None or WHOLE_NUMBER.fullmatch(category) for category in column.categories)
    return isinstance(column, (Date, Text))


def _first_unreadable_row(model: MetricClassifier, X: pd.DataFrame) -> int | None:
    """Return the number of the first row that the model cannot read, found by halving; None if each can be read."""
    readable, unreadable = 0, len(X)
    while unreadable - readable > 1:
        middle = (readable + unreadable) // 2
        try:
            model._features(X.iloc[readable:middle])
        except MetricfitError:
            unreadable = middle
        else:
            readable = middle
    try:
        model._features(X.iloc[readable:unreadable])
    except MetricfitError:
        return readable
    return None
