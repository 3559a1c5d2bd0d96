"""TunedDecisionClassifier: any classifier of scikit-learn, with decisions chosen for a metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.utils import Tags, check_random_state, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, _routing_enabled, process_routing
from sklearn.utils.validation import _num_samples, check_is_fitted

from metricfit.core.arrays import Floats, Integers
from metricfit.core.types import LabelAverage
from metricfit.decide.calibration import Calibration, fit_calibration, fit_label_calibration
from metricfit.decide.costs import cost_columns
from metricfit.decide.held_out import HeldOut, HeldOutPlaces, collect_held_out, collect_label_rows
from metricfit.decide.rules import Rule, check_rule
from metricfit.errors import InvalidTypeError, InvalidValueError, ModelFileError, quote, shorten
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
from metricfit.tabular.cross_fit import judges_of, judging_parts, rows_that_choose
from metricfit.tabular.deciding import DecidingClassifier
from metricfit.tabular.estimator_scores import (
    HeldOutScores,
    ScoresOf,
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

if TYPE_CHECKING:
    from metricfit.tabular.storage import Stored

PREFIT = "prefit"
#: Files of the fitted estimator and of the estimators of folds.
FITTED, FOLD = "estimator.skops", "fold-{}.skops"
AVERAGES = ("macro", "micro", "weighted", "samples")


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
        confidence: The probability, such as 0.95, with which all requirements must hold on new rows, for requirements
            on recall, fnr, specificity, fpr, precision, npv, accuracy and selection_rate. If there are too few rows
            for that, ``fit`` raises an InfeasibleError before anything is trained. The tests are exact with
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
            with fewer rows (the later in sorted order if both have equally many), which is logged.
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

    calibration_: Calibration

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
            self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self._set_classes(rows.y, None if rows.y.ndim == 2 else declared_order(y))
            columns = cost_columns(get_metric(self.metric), rows.X)
            self._check_decision(rows, columns)
            self._calibrate(self._held_out_scores(rows, fit_params), rows, columns)
            if hasattr(self._deciding_estimators[0], "n_features_in_"):
                self.n_features_in_ = self._deciding_estimators[0].n_features_in_
            names = getattr(rows.X, "columns", [None])
            self.__dict__.pop("feature_names_in_", None)
            if all(isinstance(name, str) for name in names):  # LightGBM writes its names with underscores
                self.feature_names_in_ = np.asarray(names, dtype=object)
            self._decide(self.held_out_, np.zeros(self.held_out_.logits.shape[1]))
        return self

    @property
    def estimator_(self) -> Any:
        """The one estimator that scores new rows; an AttributeError if the estimators of the folds do."""
        check_is_fitted(self, "estimators_")
        if self._one_estimator is None:
            raise AttributeError("estimators_ score new rows; ensemble=False keeps one estimator fitted on all rows")
        return self._one_estimator

    def _write_parts(self, arrays: dict[str, NDArray[Any]], files: dict[str, bytes]) -> dict[str, Any]:
        from metricfit.tabular.model_folder import model_to_bytes  # loads the families

        files |= {FOLD.format(fold): model_to_bytes(each) for fold, each in enumerate(self.estimators_)}
        if self._one_estimator is not None:
            files[FITTED] = model_to_bytes(self._one_estimator)
        arrays["calibration.temperature"] = np.asarray(self.calibration_.temperature, np.float64).reshape(-1)
        arrays["calibration.bias"] = self.calibration_.bias
        return {
            "smallest_probability": self.smallest_probability_,
            "folds": len(self.estimators_),
            "mean_of_folds": self._one_estimator is None,
        }

    def _read_parts(self, stored: Stored) -> None:
        from metricfit.tabular.model_folder import model_from_bytes  # loads the families
        from metricfit.tabular.storage import POSITIVE, SAME, WHOLE, YES_NO, check_entries

        description, files = stored.description, stored.files
        kinds = {"smallest_probability": POSITIVE, "folds": WHOLE, "mean_of_folds": YES_NO}
        check_entries(description, kinds)
        folds, mean_of_folds = description["folds"], description["mean_of_folds"]
        if not int(mean_of_folds) <= folds <= len(files):
            raise ModelFileError(f"folds: {folds} is no number of estimators in this folder")

        def read(name: str) -> Any:
            if name not in files:
                raise ModelFileError(f"{name} is missing")
            return model_from_bytes(files[name], stored.trusted)

        self.estimators_ = [read(FOLD.format(fold)) for fold in range(folds)]
        self._one_estimator = None if mean_of_folds else read(FITTED)
        if isinstance(self.estimator, str) and self.estimator == SAME:
            self.estimator = self._one_estimator
        self.smallest_probability_ = float(description["smallest_probability"])
        self.calibration_ = _read_calibration(stored.arrays, self.held_out_)

    def _faults(self) -> list[str]:
        estimators = [*self.estimators_, *self._deciding_estimators]
        try:
            for estimator in (self.estimator, *estimators):
                check_has_scores(estimator)
            self._check_parameters()
        except (ValueError, TypeError) as error:
            return [f"parameters: {shorten(error)}"]
        for estimator in estimators if self.held_out_.y.ndim == 1 else []:
            known = np.asarray(getattr(estimator, "classes_", []))
            if known.ndim != 1 or not len(known) or not np.isin(known, self.classes_).all():
                return [f"estimator: a {type(estimator).__name__} that knows no class of this model"]
        return []

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

    def _held_out_scores(self, rows: FitRows, fit_params: dict[str, Any]) -> HeldOutScores:
        """Set the fitted estimators, and return scores of rows by estimators that were not trained on them."""
        X, target, scores_of = rows.X, rows.y, self._scores_of(rows.y)
        if isinstance(self.cv, str):
            if self.cv != PREFIT:
                raise InvalidValueError(f"cv is a number of folds, 'prefit' or a splitter; got {quote(self.cv)}")
            check_prefit(self.estimator, None if target.ndim == 2 else self.classes_)
            self._one_estimator, self.estimators_, self._training_share = self.estimator, [], 1.0
            numbers, fold = np.arange(len(target)), np.zeros(len(target), dtype=np.int64)
            return HeldOutScores(scores_of(self.estimator, X), numbers, fold)
        parameters = routed_parameters(self, rows.weight, fit_params)
        splits = splits_of(self.cv, X, target, rows.groups, self._seed)
        self._training_share = min(len(np.unique(train)) for train, _ in splits) / len(target)
        if self.confidence is not None:
            check_training_share(self._training_share)
        held_out = fit_and_score_folds(self.estimator, X, target, splits, parameters, scores_of, self.n_jobs)
        self.estimators_ = [*held_out.models]
        self._one_estimator = None if self.ensemble else clone(self.estimator).fit(X, target, **parameters)
        return held_out

    @property
    def _deciding_estimators(self) -> list[Any]:
        """The estimators whose mean logits decide about new rows."""
        return self.estimators_ if self._one_estimator is None else [self._one_estimator]

    def _scores_of(self, target: NDArray[Any]) -> ScoresOf:
        if target.ndim == 2:
            return partial(label_scores, labels=target.shape[1])
        return partial(class_scores, classes=self.classes_[self._order])

    def _calibrate(self, held_out: HeldOutScores, rows: FitRows, columns: Mapping[str, Floats]) -> None:
        """Fit the calibration, and keep the held-out rows, with the columns of their costs.

        For the plug-in rule the logits of held-out rows have calibrations of other folds. One calibration leaves the
        order of all scores as it is, so that the empirical rule finds the best threshold of the estimator's scores, and
        the certificate of a fitted estimator is exact.
        """
        self.smallest_probability_ = smallest_probability(held_out.scores)
        labels, place, group = rows.y.ndim == 2, held_out.rows, rows.groups
        logits = to_logits(held_out.scores, self.smallest_probability_, labels=labels)
        y: Integers = (rows.y if labels else self._numbers_of(rows.y))[place]
        weight = None if rows.weight is None else rows.weight[place]
        if held_out.repeated and group is None:
            group = np.arange(len(rows.y))  # scores of one row are not independent
        groups = None if group is None else group[place]
        fit = fit_label_calibration if labels else fit_calibration
        self.calibration_ = fit(logits, y, weight)
        calibrated, self._pooled_logits = self.calibration_(logits), None
        self._places = HeldOutPlaces(rows.numbers[place], held_out.folds, rows.total)
        self._scorers = [(model, self.calibration_) for model in held_out.models or (self._one_estimator,)]
        if self._decides_out_of_fold() and check_rule(self.decision) == "plugin":
            calibrated, self._pooled_logits = calibrated.copy(), calibrated
            parts = judging_parts(held_out.folds, np.zeros(len(y), dtype=np.int64) if labels else y, groups)
            chosen_on = rows_that_choose(parts, y, place if held_out.repeated else None)
            calibrations = [fit(logits[mask], y[mask], None if weight is None else weight[mask]) for mask in chosen_on]
            for part, calibration in enumerate(calibrations):
                calibrated[parts == part] = calibration(logits[parts == part])
            numbers, pairs = judges_of(held_out.folds, parts)
            self._places = replace(self._places, folds=numbers)
            self._scorers = [(held_out.models[fold], calibrations[part]) for fold, part in pairs]
        if labels:
            self.held_out_ = collect_label_rows(calibrated, y, weight, groups)
        else:
            costs = {name: values[place] for name, values in columns.items()}
            self.held_out_ = collect_held_out(calibrated, y, weight, groups, costs)

    def _calibrated_logits(self, X: Any) -> Floats:
        deciding = [(estimator, self.calibration_) for estimator in self._deciding_estimators]
        return np.mean([self._logits_by(scorer, X) for scorer in deciding], axis=0)

    def _logits_out_of_fold(self, X: Any, folds: NDArray[np.int64], scorers: Sequence[Any]) -> Floats:
        return score_by_folds(scorers, X, folds, self._logits_by)

    def _comparable_rows(self, X: Any) -> tuple[HeldOut, Floats]:
        models = self.estimators_ or [self._one_estimator]
        folds = np.random.default_rng(self._seed).integers(len(models), size=_num_samples(X))
        return self._pooled_rows(), self._logits_out_of_fold(X, folds, [(model, self.calibration_) for model in models])

    def _logits_by(self, scorer: tuple[Any, Calibration], X: Any) -> Floats:
        """Return calibrated logits by an estimator and its calibration."""
        model, calibration = scorer
        scores = self._scores_of(self.held_out_.y)(model, columns_of_fit(self, X))
        return calibration(to_logits(scores, self.smallest_probability_, labels=self._has_labels))

    def __sklearn_tags__(self) -> Tags:
        tags, of_estimator = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags, of_classifier = of_estimator.input_tags, of_estimator.classifier_tags
        tags.classifier_tags.multi_label = bool(of_classifier is not None and of_classifier.multi_label)
        return tags


def _read_calibration(arrays: Mapping[str, NDArray[Any]], held_out: HeldOut) -> Calibration:
    """Return the stored calibration, if it fits the held-out rows."""
    outputs, has_labels = held_out.logits.shape[1], held_out.y.ndim == 2
    temperature, bias = arrays["calibration.temperature"], arrays["calibration.bias"]
    fits = temperature.shape == (outputs if has_labels else 1,) and bias.shape == (outputs,)
    if not fits or not ((temperature > 0).all() and np.isfinite(temperature).all() and np.isfinite(bias).all()):
        raise ModelFileError(f"calibration: there must be finite numbers for {outputs} outputs")
    return Calibration(temperature if has_labels else float(temperature[0]), bias)


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
    """Return what the estimator's ``fit`` takes beside the rows: as requested by metadata routing, if it is enabled."""
    if _routing_enabled():
        routed = process_routing(model, "fit", sample_weight=weight, **fit_params)
        return dict(routed.estimator.fit)
    return fit_params | fit_parameters_of(model.estimator, weight)


def check_prefit(estimator: Any, classes: NDArray[Any] | None) -> None:
    """Refuse an estimator that is not fitted, or on other classes than those of the rows.

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
