"""A fitted model as a pipeline of scikit-learn's own parts, with FixedThresholdClassifier for the decision.

Classifiers are fitted on two rows of zeros, so that they are complete, and what they learned is then replaced by what
the model learned.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, RobustScaler
from sklearn.utils.validation import check_is_fitted

from metricfit.decide.calibration import Calibration
from metricfit.errors import ExportError, InvalidTypeError
from metricfit.export.made_up import made_up_rows
from metricfit.metrics.metric import get_metric
from metricfit.tabular import inputs as tables
from metricfit.tabular.classifier import MetricClassifier
from metricfit.tabular.encoding.columns import Category, Number
from metricfit.tabular.encoding.encoder import CLIP, Scaling, TableEncoder
from metricfit.tabular.families.forest import Forests
from metricfit.tabular.families.linear import FARTHEST, LinearModel
from metricfit.tabular.tuned import TunedDecisionClassifier

#: Rows may have another label if their logit is this close to the threshold.
ROUNDING = 1e-5
#: Shares of votes are equal to the threshold more often than by chance; those are positive.
BELOW_TIES = 1e-9
OTHERWISE = "export_onnx(path) and metricfit.export.mlflow.save_model hold the whole model"


def to_sklearn(model: Any, X: Any = None) -> FixedThresholdClassifier:
    """Return a fitted model as scikit-learn's own parts, and compare the labels of both.

    A MetricClassifier of two classes whose only family is "linear" or "extra_trees" becomes a pipeline in a
    FixedThresholdClassifier. A TunedDecisionClassifier of two classes with one estimator, by ``cv="prefit"`` or
    ``ensemble=False``, becomes that estimator in a FixedThresholdClassifier. Both are fitted.

    Args:
        model: A fitted MetricClassifier or TunedDecisionClassifier.
        X: Rows to compare labels on, such as the training rows. By default a MetricClassifier makes up rows.

    Returns:
        The classifier. With "linear" its ``predict_proba`` are the model's probabilities; otherwise they are those of
        the estimator, without the model's calibration, and the threshold is one of these.

    Raises:
        ExportError: scikit-learn has no parts for this model; the message says what to do.
        InvalidTypeError: It is a model of another class.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> model = MetricClassifier("f1", models=["linear"], random_state=0).fit(X, X[:, 0] > 1)
        >>> plain = to_sklearn(model, X)
        >>> type(plain).__name__, bool((plain.predict(X) == model.predict(X)).all())
        ('FixedThresholdClassifier', True)
    """
    if not isinstance(model, (MetricClassifier, TunedDecisionClassifier)):
        raise InvalidTypeError(f"to_sklearn takes a model of metricfit, got {type(model).__name__}")
    check_is_fitted(model, "decision_")
    _check_decision(model)
    if isinstance(model, TunedDecisionClassifier):
        plain = _tuned(model)
    else:
        plain = _ensemble(model)
        if X is None:
            X = made_up_rows(model.encoder_, getattr(model, "feature_names_in_", None))
        X = tables.checked_table(model, X, reset=False)
    if X is not None:
        _compare(model, plain, X)
    return plain


def _check_decision(model: MetricClassifier | TunedDecisionClassifier) -> None:
    """Refuse decisions that are no threshold of two classes."""
    decision = model.decision_
    if decision.task != "binary":
        what = "labels" if decision.task == "multilabel" else "classes"
        raise ExportError(
            f"scikit-learn has no part that decides several {what} by thresholds or offsets; "
            f"FixedThresholdClassifier is for two classes. {OTHERWISE}"
        )
    if decision.of_row_costs:
        raise ExportError(
            f"{get_metric(model.metric).name} has a threshold for each row, and FixedThresholdClassifier has one. "
            "metricfit.export.mlflow.save_model holds the whole model"
        )
    if decision.referral is not None:
        raise ExportError(
            f"scikit-learn has no part that refers rows to a person; rethreshold() decides all rows. {OTHERWISE}"
        )


def _tuned(model: TunedDecisionClassifier) -> FixedThresholdClassifier:
    if model._one_estimator is None:
        raise ExportError(
            f"the mean of the logits of {len(model.estimators_)} estimators is no part of scikit-learn; fit with "
            "ensemble=False, which keeps one estimator"
        )
    assert isinstance(model.calibration_, Calibration)
    logit = _uncalibrated(_logit_threshold(model), model.calibration_)
    has_probabilities = hasattr(model._one_estimator, "predict_proba")
    return FixedThresholdClassifier(
        model._one_estimator,
        threshold=float(expit(logit)) if has_probabilities else logit,
        pos_label=model.pos_label_,
        response_method="predict_proba" if has_probabilities else "decision_function",
    )


def _ensemble(model: MetricClassifier) -> FixedThresholdClassifier:
    members = model.ensemble_.members
    if len(members) != 1 or not isinstance(members[0].model, (LinearModel, Forests)):
        names = ", ".join(repr(member.name) for member in members)
        raise ExportError(
            f"the model is made of {names}; scikit-learn has parts for 'linear' or 'extra_trees' alone: "
            f"MetricClassifier(models=['linear']). {OTHERWISE}"
        )
    if not can_encode(model.encoder_):
        raise ExportError(
            f"scikit-learn has no parts for the encoding of dates, text and very wide sparse tables; numbers and "
            f"categories have. {OTHERWISE}"
        )
    return _linear(model) if isinstance(members[0].model, LinearModel) else _forests(model)


def _linear(model: MetricClassifier) -> FixedThresholdClassifier:
    member, scaling = model.ensemble_.members[0], model.encoder_.scaling
    assert isinstance(member.model, LinearModel)
    kept = int((scaling.spread > 0).sum())
    clipped, unclipped = np.split(member.model.coefficients[0], 2)
    # A column that tells where values are missing holds 0 and 1; without the smooth clip, 1 is a larger number.
    of_missing = clipped[kept:] + unclipped[kept:] / np.sqrt(1 - 1 / CLIP**2)
    of_family, of_all = member.calibration, model.ensemble_.calibration
    slope = member.weight / of_family.temperature / of_all.temperature
    intercept = slope * member.model.intercepts[0] + member.weight * float(of_family.bias[0]) / of_all.temperature
    intercept += float(of_all.bias[0]) + float(model.shift_[0])
    coefficients = slope * np.concatenate([CLIP * clipped[:kept], CLIP * unclipped[:kept], of_missing])
    sign = 1.0 if model._order[1] == 1 else -1.0  # logits of scikit-learn are those of the second class
    classifier = LogisticRegression().fit(np.zeros((2, len(coefficients))), model.classes_)
    classifier.coef_, classifier.intercept_ = sign * coefficients[None], np.array([sign * intercept])
    pipeline = Pipeline([*encoding_steps(model, both_scales=True), ("classifier", classifier)])
    assert model.threshold_ is not None
    return _decided(model, pipeline, model.threshold_)


def _forests(model: MetricClassifier) -> FixedThresholdClassifier:
    member = model.ensemble_.members[0]
    forests = member.model
    assert isinstance(forests, Forests)
    forest = ExtraTreesClassifier(n_estimators=1).fit(np.zeros((2, model.encoder_.scaling.width)), [0, 1])
    first = forest.estimators_[0]
    forest.estimators_ = []
    for tree in forests.trees:
        estimator = copy.copy(first)
        estimator.tree_ = tree
        forest.estimators_.append(estimator)
    forest.n_estimators, forest.classes_ = len(forests.trees), np.asarray(model.classes_)[model._order]
    logit = _uncalibrated(_logit_threshold(model), model.ensemble_.calibration) / member.weight
    trees = len(forests.trees) / forests.folds  # half a vote was added for each class
    share = (expit(_uncalibrated(logit, member.calibration)) * (trees + 1) - 0.5) / trees
    pipeline = Pipeline([*encoding_steps(model, both_scales=False), ("classifier", forest)])
    return _decided(model, pipeline, float(share) - BELOW_TIES)


def _logit_threshold(model: MetricClassifier | TunedDecisionClassifier) -> float:
    """Return the threshold of calibrated logits, for the class balance of training."""
    return float(model.decision_.numbers["threshold"]) - float(model.shift_[0])


def _uncalibrated(logit: float, calibration: Calibration) -> float:
    """Return the logit that is calibrated to this one."""
    return float(calibration.invert([logit])[0])


def _decided(model: MetricClassifier, pipeline: Pipeline, threshold: float) -> FixedThresholdClassifier:
    return FixedThresholdClassifier(
        pipeline, threshold=threshold, pos_label=model.pos_label_, response_method="predict_proba"
    )


def _compare(model: MetricClassifier | TunedDecisionClassifier, plain: FixedThresholdClassifier, X: Any) -> None:
    """Refuse parts that decide otherwise than the model, except where rounding decides."""
    different = np.flatnonzero(plain.predict(X) != model.predict(X))
    if not len(different):
        return
    margins = np.abs(model.decision_function(X))[different]
    if margins.max() > ROUNDING:
        row = int(different[margins.argmax()])
        raise ExportError(
            f"the parts of scikit-learn decide {len(different)} rows otherwise than the model, such as row {row}. "
            f"Categories that are no text, such as numbers of pandas' category type, are one cause. {OTHERWISE}"
        )


def can_encode(encoder: TableEncoder) -> bool:
    """Return whether a table has numbers and categories alone."""
    known = (column is None or isinstance(column, (Number, Category)) for column in encoder.columns or [])
    return encoder.directions is None and all(known)


def encoding_steps(model: MetricClassifier, *, both_scales: bool) -> list[tuple[str, Any]]:
    """Return fitted steps from the user's table to the columns of a classifier.

    Args:
        model: The fitted model.
        both_scales: Whether the columns are those of the linear family, scaled to a third: with the smooth clip, and
            then without. Otherwise they are the encoded columns. Those that tell where values are missing come last.
    """
    encoder, names = model.encoder_, getattr(model, "feature_names_in_", None)
    rows = made_up_rows(encoder, names)
    numbers = _numbers(encoder).fit(rows)
    scaling = _fitted_scaling(encoder.scaling, np.asarray(numbers.transform(rows), dtype=np.float64), both_scales)
    return [("numbers", numbers), ("scaling", scaling)]


def _numbers(encoder: TableEncoder) -> Any:
    """From the table to numbers with NaN where they are missing."""
    if encoder.columns is None:
        return FunctionTransformer(np.asarray, kw_args={"dtype": np.float64})
    steps: list[tuple[str, Any, list[int]]] = []
    for position, column in enumerate(encoder.columns):
        if isinstance(column, Category):
            steps.append((f"category {position}", _one_hot(column), [position]))
        elif column is not None:
            as_floats = FunctionTransformer(np.asarray, kw_args={"dtype": np.float64})
            steps.append((f"number {position}", as_floats, [position]))
    return ColumnTransformer(steps, sparse_threshold=0.0)


def _one_hot(column: Category) -> Pipeline:
    """One 0/1 column per category, one for two of them; a missing value is a category if it was one in training."""
    missing = "missing"
    while missing in column.categories:
        missing += "_"
    categories = np.array([missing if each is None else each for each in column.categories], dtype=object)
    known = categories[1:] if len(categories) == 2 else categories
    return Pipeline(
        [
            ("nan", SimpleImputer(missing_values=np.nan, strategy="constant", fill_value=missing)),
            ("none", SimpleImputer(missing_values=None, strategy="constant", fill_value=missing)),
            ("one_hot", OneHotEncoder(categories=[known], handle_unknown="ignore", sparse_output=False)),
        ]
    )


def _fitted_scaling(scaling: Scaling, numbers: NDArray[np.float64], both_scales: bool) -> FeatureUnion:
    """What ``Scaling.transform`` does, with the medians and spreads of the model."""
    kept, told = np.flatnonzero(scaling.spread > 0), np.flatnonzero(scaling.flagged)
    impute, scale = SimpleImputer(strategy="median"), RobustScaler()
    smooth: list[tuple[str, Any]] = [("arctan", FunctionTransformer(np.arctan)), ("sin", FunctionTransformer(np.sin))]
    if both_scales:
        cut = FunctionTransformer(np.clip, kw_args={"a_min": -FARTHEST / CLIP, "a_max": FARTHEST / CLIP})
        smooth = [("both", FeatureUnion([("clipped", Pipeline(smooth)), ("unclipped", cut)]))]
    widen = RobustScaler(with_centering=False)
    steps = [("columns", _select(kept)), ("impute", impute), ("scale", scale), *smooth]
    parts: list[tuple[str, Any]] = []
    if len(kept):
        parts.append(("values", Pipeline(steps if both_scales else [*steps, ("widen", widen)])))
    if len(told):
        parts.append(("missing", Pipeline([("columns", _select(told)), ("where", MissingIndicator(features="all"))])))
    union = FeatureUnion(parts).fit(numbers)
    if len(kept):
        impute.statistics_ = scale.center_ = scaling.centre[kept]
        scale.scale_ = scaling.spread[kept] * CLIP
        widen.scale_ = np.full(len(kept), 1 / CLIP)
    return union


def _select(columns: NDArray[np.int64]) -> ColumnTransformer:
    return ColumnTransformer([("kept", "passthrough", columns)])
