"""TunedDecisionClassifier: any classifier of scikit-learn, with decisions chosen for a metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.utils import Tags, check_random_state, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, _routing_enabled, process_routing
from sklearn.utils.validation import _num_samples, check_is_fitted

from metricfit._schema import StoredModel
from metricfit.core.arrays import Floats, Integers
from metricfit.core.types import LabelAverage
from metricfit.decide.calibration import Calibration, fit_calibration, fit_label_calibration
from metricfit.decide.costs import cost_columns
from metricfit.decide.held_out import HeldOut, HeldOutPlaces, collect_held_out, collect_label_rows
from metricfit.decide.rules import Rule, check_rule
from metricfit.errors import InvalidTypeError, InvalidValueError, ModelFileError, quote
from metricfit.metrics.class_order import declared_order
from metricfit.metrics.curves import Requirements
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.tabular.checks import (
    FitRows,
    check_decision_parameters,
    checked_label_matrix,
    checked_labels,
    checked_rows,
    columns_of_fit,
    has_several_labels,
    unchanged_if_it_fails,
)
from metricfit.tabular.chosen import Basis, Chosen
from metricfit.tabular.cross_fit import judges_of, judging_parts, rows_that_choose
from metricfit.tabular.deciding import DecidingClassifier
from metricfit.tabular.estimator_scores import (
    HeldOutScores,
    Scores,
    check_has_scores,
    check_training_share,
    class_scores,
    fit_and_score_folds,
    fit_parameters_of,
    label_scores,
    rows_of,
    score_by_folds,
    smallest_probability,
    splits_of,
    to_logits,
)
from metricfit.tabular.positive_class import ClassNames

PREFIT = "prefit"
AVERAGES = ("macro", "micro", "weighted", "samples")


@dataclass(frozen=True)
class Scorer:
    """Fitted estimators, and how their scores become calibrated logits.

    Attributes:
        estimators: The estimators of the folds; none for an estimator that was fitted before.
        one: The estimator that scores new rows alone; None if the mean of the folds' does.
        calibration: The calibration of the logits.
        smallest_probability: What stands in for probabilities of 0.
    """

    estimators: tuple[StoredModel, ...]
    one: StoredModel | None
    calibration: Calibration
    smallest_probability: float

    @property
    def deciding(self) -> tuple[Any, ...]:
        """The estimators whose mean logits decide about new rows."""
        return self.estimators if self.one is None else (self.one,)

    def check(self, names: ClassNames) -> None:
        """Refuse parts of a folder that are not for these classes.

        Raises:
            ModelFileError: A part is for other classes, or missing.
        """
        if not self.deciding or not self.smallest_probability > 0:
            raise ModelFileError("scorer: an estimator and a smallest_probability above 0 are needed")
        several = (names.outputs,) if names.has_labels else ()
        sizes = np.shape(self.calibration.temperature), np.shape(self.calibration.bias)
        if sizes != (several, (names.outputs,)):
            raise ModelFileError(f"calibration: there must be finite numbers for {names.outputs} outputs")
        for estimator in {*self.estimators, *self.deciding}:
            check_has_scores(estimator)
            known = np.asarray(getattr(estimator, "classes_", []) if not names.has_labels else names.classes)
            if known.ndim != 1 or not len(known) or not np.isin(known, names.classes).all():
                raise ModelFileError(f"estimator: a {type(estimator).__name__} that knows no class of this model")


def calibrated_rows(
    held_out: HeldOutScores,
    one: Any,
    rows: FitRows,
    names: ClassNames,
    columns: Mapping[str, Floats],
    rule: Rule,
    seed: int,
    training_share: float,
) -> tuple[Scorer, Basis]:
    """Fit the calibration, and return it with the held-out rows and the columns of their costs.

    For the plug-in rule the logits of held-out rows have calibrations of other folds. One calibration leaves the order
    of all scores as it is, so that the empirical rule finds the best threshold of the estimator's scores, and the
    certificate of a fitted estimator is exact.
    """
    smallest, labels, place, group = smallest_probability(held_out.scores), names.has_labels, held_out.rows, rows.groups
    logits = to_logits(held_out.scores, smallest, labels=labels)
    y: Integers = (rows.y if labels else names.numbers_of(rows.y))[place]
    weight = None if rows.weight is None else rows.weight[place]
    if held_out.repeated and group is None:
        group = np.arange(len(rows.y))  # scores of one row are not independent
    groups = None if group is None else group[place]
    fit = fit_label_calibration if labels else fit_calibration
    calibration = fit(logits, y, weight)
    scorer = Scorer(held_out.models, one, calibration, smallest)
    calibrated, pooled, numbers = calibration(logits), None, held_out.folds
    scorers = [(model, calibration) for model in held_out.models or (one,)]
    if training_share < 1 and rule == "plugin":
        calibrated, pooled = calibrated.copy(), calibrated
        parts = judging_parts(held_out.folds, np.zeros(len(y), dtype=np.int64) if labels else y, groups)
        chosen_on = rows_that_choose(parts, y, place if held_out.repeated else None)
        calibrations = [fit(logits[mask], y[mask], None if weight is None else weight[mask]) for mask in chosen_on]
        for part, of_part in enumerate(calibrations):
            calibrated[parts == part] = of_part(logits[parts == part])
        numbers, pairs = judges_of(held_out.folds, parts)
        scorers = [(held_out.models[fold], calibrations[part]) for fold, part in pairs]
    places = HeldOutPlaces(rows.numbers[place], numbers, rows.total)
    if labels:
        collected = collect_label_rows(calibrated, y, weight, groups)
    else:
        costs = {name: values[place] for name, values in columns.items()}
        collected = collect_held_out(calibrated, y, weight, groups, costs)
    return scorer, Basis(names, collected, seed, training_share, pooled, places, tuple(scorers))


class TunedDecisionClassifier(MetaEstimatorMixin, DecidingClassifier):  # type: ignore[misc]
    """Any classifier of scikit-learn, with the decisions that are best for the metric it is judged by.

    The classifier is fitted on the folds of ``cv``. Its scores of the rows that each fold holds out are calibrated, and
    the decision is chosen on them: a threshold for two classes, offsets for several, one threshold per label for
    several labels. New rows are scored by the mean of the logits of the folds' estimators.

    Args:
        estimator: A classifier with ``predict_proba`` or ``decision_function``: LightGBM, a Pipeline, a foundation
            model.
        metric: A Metric, its name such as ``"fbeta(beta=2)"``, or a function of Counts. With
            ``"cost(fp=5, fn='amount')"`` a miss costs what the column "amount" of ``X`` says, and each row is decided
            by its own costs.
        subject_to: Requirements such as ``"recall >= 0.95"``. Of several classes, ``"recall['gold'] >= 0.9"`` is on the
            class with that label and ``"recall >= 0.9"`` on every class; of several labels, ``"recall[2] >= 0.9"`` is
            on the label of column 2. If no decision meets them, the model decides with the smallest violation, and an
            InfeasibleWarning says what is reachable.
        confidence: The probability, such as 0.95, with which all requirements must hold on new rows. Requirements
            may be on recall, fnr, specificity, fpr, precision, npv, accuracy and selection_rate. If there are too few
            rows for that, ``fit`` raises an InfeasibleError before anything is trained. The tests are exact with
            ``cv="prefit"`` and rows that the model was not fitted on; for out-of-fold scores the documentation has
            measurements. None meets them on the held-out rows alone, and then about half of all models miss the bound
            on new rows.
        decision: "plugin" (the threshold whose expected counts have the best metric), "empirical" (the exact best
            threshold on the held-out rows) or "auto", which is "plugin".
        cv: The number of shuffled stratified folds, at most the number of rows of a class; a splitter of scikit-learn;
            or "prefit" for an estimator that is fitted already. ``fit`` then only chooses the decision, on rows that
            the estimator was not trained on.
        ensemble: Whether new rows are scored by the mean of the logits of the folds' estimators, as by default in
            CalibratedClassifierCV. False fits the estimator once more, on all rows, and scores new rows by this one
            alone: for faster predictions, and for splitters whose folds train on few of the rows, such as
            TimeSeriesSplit. It does not apply to ``cv="prefit"``.
        average: Average over several classes or labels: "macro", "micro" or "weighted"; for labels also "samples", the
            mean over the rows of the metric of each row's labels.
        pos_label: The positive class of two. By default 1 of 0/1 and of -1/1, True of booleans, and otherwise the class
            with fewer rows, which is logged. Of equally many rows, it is the later class in sorted order.
        n_jobs: Number of folds that are fitted at a time; -1 for one per core.
        random_state: Seed of the folds and of the bootstrap. The estimator has its own.

    Attributes:
        estimators_: The estimators of the folds; with ``cv="prefit"`` an empty list.
        estimator_: With ``ensemble=False`` the estimator that was fitted on all rows, with ``cv="prefit"`` the one that
            was passed; otherwise there is no such attribute.
        classes_: The labels, sorted; for several labels, their column numbers.
        pos_label_: The positive class of two; otherwise None.
        threshold_: Rows are positive where ``predict_proba`` of the positive class is at least this. None for several
            classes, and for costs in columns, where ``row_thresholds(X)`` has the threshold of each row.
        thresholds_: For several labels, one threshold of the probability per label; otherwise None.
        threshold_interval_: 95 % bootstrap interval of the threshold; for several labels an array ``(labels, 2)``.
        offsets_: For several classes, what is added to the log-probabilities before the largest is taken; to minus the
            expected costs, if a metric of the whole confusion matrix has them (``decide.CostDecision``).
        value_: The metric to expect on new rows: its value on held-out rows, whose logits have calibrations of other
            folds. With ``decision="empirical"``, which chooses by the labels of these rows, it is lowered by a
            bootstrap estimate of that gain; under requirements it is not.
        value_interval_: 95 % bootstrap interval of the value.
        curve_: The metric and the counts of the held-out rows at every threshold; for several labels a list with one
            curve per label, and None for several classes.
        requirements_: For each requirement, as text: its value on held-out rows, whether that meets the bound, and the
            best value that any threshold reaches.
        requirements_met_: Whether all requirements are met on held-out rows, or certified; True if there are none.
        confidence_: The probability for which the requirements are certified; None if they are not.
        certificate_: What that says about new rows: "guaranteed" or "certified on cross-validated scores
            (approximate)". None without a confidence.
        refer_region_: After ``refer``, the first probability that is referred and the first above those; else None.
        referred_share_: The share of the held-out rows that is referred.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> model = TunedDecisionClassifier(LogisticRegression(), "f1", random_state=0).fit(X, X[:, 0] > 1)
        >>> bool(((model.predict_proba(X)[:, 1] >= model.threshold_) == model.predict(X)).all())
        True
        >>> model.rethreshold(metric="precision", subject_to="recall >= 0.9").requirements_met_
        True
    """

    stored_parts: ClassVar[Mapping[str, Any]] = {"chosen_": Chosen, "scorer_": Scorer}

    def __init__(
        self,
        estimator: Any,
        metric: str | Metric | Formula = "f1",
        *,
        subject_to: Requirements | None = None,
        decision: Rule = "auto",
        confidence: float | None = None,
        cv: Any = 5,
        ensemble: bool = True,
        average: LabelAverage = "macro",
        pos_label: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.metric = metric
        self.subject_to = subject_to
        self.decision = decision
        self.confidence = confidence
        self.cv = cv
        self.ensemble = ensemble
        self.average = average
        self.pos_label = pos_label
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, **fit_params: Any
    ) -> TunedDecisionClassifier:
        """Fit the estimator on each fold and choose the decision; with ``ensemble=False`` fit it on all rows too.

        Args:
            X: Rows, in any form that the estimator takes.
            y: One label per row, or a matrix of 0 and 1 with one column per label.
            sample_weight: One weight per row, used to choose the decision, and in training if the estimator takes
                weights.
            groups: One group per row. Rows of one group are held out together.
            fit_params: What else the estimator's ``fit`` takes. Values with one entry per row are split like the rows.

        Returns:
            The model itself. If ``fit`` fails, the model stays as it was.

        Raises:
            TypeError: If the estimator has no scores.
            ValueError: If a parameter, the rows or the labels cannot be used.
        """
        with unchanged_if_it_fails(self):
            check_has_scores(self.estimator)
            self._check_parameters()
            rows, fit_params = prepare_tuned_rows(self, X, y, sample_weight, groups, fit_params)
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            names = self._names_of(rows.y, None if rows.y.ndim == 2 else declared_order(y))
            columns = cost_columns(get_metric(self.metric), rows.X)
            self._check_decision(names, rows, columns)
            held_out, one, share = self._held_out_scores(names, rows, fit_params, seed)
            self.scorer_, basis = calibrated_rows(
                held_out, one, rows, names, columns, check_rule(self.decision), seed, share
            )
            if hasattr(self.scorer_.deciding[0], "n_features_in_"):
                self.n_features_in_ = self.scorer_.deciding[0].n_features_in_
            columns_of_X = getattr(rows.X, "columns", [None])
            self.__dict__.pop("feature_names_in_", None)
            if all(isinstance(name, str) for name in columns_of_X):  # LightGBM writes its names with underscores
                self.feature_names_in_ = np.asarray(columns_of_X, dtype=object)
            self._decide(basis)
        return self

    @property
    def estimators_(self) -> list[Any]:
        """The estimators of the folds."""
        return list(self.scorer_.estimators)

    @property
    def estimator_(self) -> Any:
        """The one estimator that scores new rows; an AttributeError if the estimators of the folds do."""
        check_is_fitted(self, "scorer_")
        if self.scorer_.one is None:
            raise AttributeError("estimators_ score new rows; ensemble=False keeps one estimator fitted on all rows")
        return self.scorer_.one

    def _check_parts(self) -> None:
        check_has_scores(self.estimator)
        self._check_parameters()
        self.scorer_.check(self.chosen_.names)

    def get_metadata_routing(self) -> MetadataRouter:
        """Return which metadata ``fit`` takes, and which it passes on to the estimator.

        Returns:
            The routing, as scikit-learn describes it.
        """
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=self).add_self_request(self).add(estimator=self.estimator, method_mapping=mapping)

    def _check_parameters(self) -> None:
        check_decision_parameters(self, AVERAGES)
        if not isinstance(self.ensemble, (bool, np.bool_)):
            raise InvalidTypeError(f"ensemble is True or False; got {quote(self.ensemble)}")
        get_metric(self.metric)

    def _held_out_scores(
        self, names: ClassNames, rows: FitRows, fit_params: dict[str, Any], seed: int
    ) -> tuple[HeldOutScores, Any, float]:
        """Return scores of rows by estimators that were not trained on them, and the smallest share they trained on.

        The estimator in between is the one that scores new rows alone, or None.
        """
        X, target = rows.X, rows.y
        if isinstance(self.cv, str):
            if self.cv != PREFIT:
                raise InvalidValueError(f"cv is a number of folds, 'prefit' or a splitter; got {quote(self.cv)}")
            check_prefit(self.estimator, None if target.ndim == 2 else names.classes)
            numbers, fold = np.arange(len(target)), np.zeros(len(target), dtype=np.int64)
            return HeldOutScores(scores_of(self.estimator, X, names), numbers, fold), self.estimator, 1.0
        parameters = routed_parameters(self, rows.weight, fit_params)
        splits = splits_of(self.cv, X, target, rows.groups, seed)
        share = min(len(np.unique(train)) for train, _ in splits) / len(target)
        if self.confidence is not None:
            check_training_share(share)
        of_classes = partial(scores_of, names=names)
        held_out = fit_and_score_folds(self.estimator, X, target, splits, parameters, of_classes, self.n_jobs)
        one = None if self.ensemble else clone(self.estimator).fit(X, target, **parameters)
        return held_out, one, share

    def _calibrated_logits(self, X: Any) -> Floats:
        deciding = [(estimator, self.scorer_.calibration) for estimator in self.scorer_.deciding]
        return np.mean([self._logits_by(scorer, X) for scorer in deciding], axis=0)

    def _logits_out_of_fold(self, X: Any, folds: NDArray[np.int64], scorers: Sequence[Any]) -> Floats:
        return score_by_folds(scorers, X, folds, self._logits_by)

    def _comparable_rows(self, X: Any) -> tuple[HeldOut, Floats]:
        models, basis = self.scorer_.estimators or (self.scorer_.one,), self.chosen_.basis
        folds = np.random.default_rng(basis.seed).integers(len(models), size=_num_samples(X))
        scorers = [(model, self.scorer_.calibration) for model in models]
        return basis.pooled_rows, self._logits_out_of_fold(X, folds, scorers)

    def _logits_by(self, scorer: tuple[Any, Calibration], X: Any) -> Floats:
        """Return calibrated logits by an estimator and its calibration."""
        (model, calibration), names = scorer, self.chosen_.names
        scores = scores_of(model, columns_of_fit(self, X), names)
        return calibration(to_logits(scores, self.scorer_.smallest_probability, labels=names.has_labels))

    def __sklearn_tags__(self) -> Tags:
        tags, of_estimator = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags, of_classifier = of_estimator.input_tags, of_estimator.classifier_tags
        tags.classifier_tags.multi_label = bool(of_classifier is not None and of_classifier.multi_label)
        return tags


def scores_of(model: Any, X: Any, names: ClassNames) -> Scores:
    """Return the scores of rows by an estimator of these classes or labels."""
    return label_scores(model, X, len(names.order)) if names.has_labels else class_scores(model, X, names.in_order)


NOT_FITTED = (
    "cv='prefit' takes a fitted %(name)s, and this one is not: fit it, or choose cv=5. scikit-learn's clone, which "
    "GridSearchCV and cross_val_score use, unfits estimators; it leaves sklearn.frozen.FrozenEstimator(model) fitted"
)


def prepare_tuned_rows(
    model: TunedDecisionClassifier, X: Any, y: Any, sample_weight: Any, groups: Any, fit_params: dict[str, Any]
) -> tuple[FitRows, dict[str, Any]]:
    """Check labels, weights and groups; rows of weight 0 are left out, also of what else the estimator's ``fit`` takes.

    Raises:
        InvalidValueError: The labels, weights or groups cannot be used, or do not fit the model's parameters.
    """
    X = X if hasattr(X, "shape") or not hasattr(X, "__array__") else np.asarray(X)
    X, target = indexable(X, _checked_target(model, y))
    rows = checked_rows(X, target, sample_weight, groups, model.cv)
    return rows, fit_params if len(rows.numbers) == rows.total else rows_of(fit_params, rows.numbers, rows.total)


def routed_parameters(model: TunedDecisionClassifier, weight: Any, fit_params: dict[str, Any]) -> dict[str, Any]:
    """Return what the estimator's ``fit`` takes besides rows: as requested by metadata routing, if it is enabled."""
    if _routing_enabled():
        routed = process_routing(model, "fit", sample_weight=weight, **fit_params)
        return dict(routed.estimator.fit)
    return fit_params | fit_parameters_of(model.estimator, weight)


def check_prefit(estimator: Any, classes: NDArray[Any] | None) -> None:
    """Refuse an estimator that is not fitted, or on other classes than the rows have.

    Args:
        estimator: The estimator of ``cv="prefit"``.
        classes: The classes of the rows; None for several labels.

    Raises:
        NotFittedError: The estimator is not fitted.
        InvalidValueError: It does not know a label, or there are no rows of one of its classes.
    """
    check_is_fitted(estimator, msg=NOT_FITTED)
    if classes is None:
        return
    known, given = set(np.asarray(estimator.classes_).tolist()), set(classes.tolist())
    for labels, what in ((given - known, "labels that the estimator does not know"), (known - given, "no rows of")):
        if labels:
            names = ", ".join(quote(label) for label in sorted(labels, key=str)[:5])
            raise InvalidValueError(f"cv='prefit': y has {what}: {names}. Pass rows with the estimator's classes")


def _checked_target(model: TunedDecisionClassifier, y: Any) -> NDArray[Any]:
    """Return one label per row, or a matrix of 0 and 1 with one column per label."""
    if y is not None and has_several_labels(y):
        target: NDArray[Any] = checked_label_matrix(y)
        if model.pos_label is not None:
            raise InvalidValueError("pos_label is for two classes; of several labels, 1 means that one is there")
        return target
    if model.average == "samples":
        raise InvalidValueError("average='samples' is for several labels, a matrix y of 0 and 1")
    return checked_labels(model, y)
