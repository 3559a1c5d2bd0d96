"""Classifiers as nodes: linear models, trees, forests and LightGBM, behind steps that scale or impute numbers.

They are the estimators of a TunedDecisionClassifier, and the user's own models in a MetricClassifier.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from metricfit.errors import ExportError
from metricfit.export.onnx.graph import Graph
from metricfit.export.onnx.trees import add_lightgbm, forest_trees, is_lightgbm
from metricfit.tabular.families.forest import Forests

KNOWN = (
    "LogisticRegression and other linear classifiers, DecisionTreeClassifier, RandomForestClassifier, "
    "ExtraTreesClassifier and LGBMClassifier, in a Pipeline with StandardScaler, MinMaxScaler, MaxAbsScaler, "
    "RobustScaler or SimpleImputer. metricfit.export.mlflow saves any other for MLflow"
)


class EstimatorScores(NamedTuple):
    """What a classifier says about rows, in the order of its ``classes_``.

    Attributes:
        tensor: Probabilities ``(rows, c)``; or scores, ``(rows, 1)`` of the second class of two.
        are_probabilities: Which of the two it is.
    """

    tensor: str
    are_probabilities: bool


def add_estimator(graph: Graph, estimator: Any, x: str) -> EstimatorScores:
    """Add a fitted classifier.

    Args:
        graph: The graph.
        estimator: The classifier, or a pipeline that ends in one.
        x: Its columns, numbers in double precision.

    Returns:
        Its probabilities if it has ``predict_proba``, otherwise its scores.

    Raises:
        ExportError: It is not written as ONNX here.
    """
    if isinstance(estimator, Pipeline):
        for _, step in estimator.steps[:-1]:
            x = _add_step(graph, step, x)
        return add_estimator(graph, estimator.steps[-1][1], x)
    if isinstance(estimator, (DecisionTreeClassifier, RandomForestClassifier, ExtraTreesClassifier)):
        return _trees(graph, estimator, x)
    if is_lightgbm(estimator):
        return EstimatorScores(add_lightgbm(graph, estimator, x), True)
    module = type(estimator).__module__
    is_linear = module.startswith(("sklearn.linear_model.", "sklearn.svm.")) and hasattr(estimator, "coef_")
    is_logistic = isinstance(estimator, LogisticRegression)
    if is_linear and (is_logistic or not hasattr(estimator, "predict_proba")):
        return _linear(graph, estimator, x)
    raise ExportError(f"a {type(estimator).__name__} is not written as ONNX here. Known are {KNOWN}")


def _linear(graph: Graph, estimator: Any, x: str) -> EstimatorScores:
    coefficients = np.atleast_2d(estimator.coef_)
    width = len(coefficients)
    scores = graph.affine(x, coefficients.T, np.broadcast_to(estimator.intercept_, (width,)))
    if not isinstance(estimator, LogisticRegression):
        if width != (1 if len(estimator.classes_) == 2 else len(estimator.classes_)):
            raise ExportError(f"a {type(estimator).__name__} that compares pairs of classes is not written as ONNX")
        return EstimatorScores(scores, False)
    if width > 1 and estimator.solver == "liblinear":
        raise ExportError("LogisticRegression(solver='liblinear') of several classes is not written as ONNX")
    if width == 1:
        scores = graph.join([graph.node("Mul", scores, graph.constant(np.float64(0))), scores])
    return EstimatorScores(graph.node("Softmax", scores, axis=1), True)


def _trees(graph: Graph, estimator: Any, x: str) -> EstimatorScores:
    members = getattr(estimator, "estimators_", [estimator])
    trees = tuple(member.tree_ for member in members)
    classes = len(estimator.classes_)
    known = tuple(np.arange(classes) for _ in trees)
    rounded = graph.cast(graph.cast(x, "float"), "double")  # scikit-learn's trees compare in single precision
    votes = forest_trees(Forests(trees, known, classes, folds=1), may_be_missing=True).sums(graph, rounded)
    total = votes
    if classes > 2:
        total = graph.node("ReduceSum", votes, graph.constant(np.array([1], dtype=np.int64)), keepdims=1)
    first = graph.node("Sub", graph.constant(np.float64(len(trees))), total)
    shares = graph.node("Div", graph.join([first, votes]), graph.constant(np.float64(len(trees))))
    return EstimatorScores(graph.clip(shares, 0.0, 1.0), True)


def _add_step(graph: Graph, step: Any, x: str) -> str:
    """Add a step that keeps the columns, scaled or imputed."""
    if step is None or step == "passthrough":
        return x
    if _imputes_nan(step):
        if step.add_indicator or np.isnan(np.asarray(step.statistics_, dtype=np.float64)).any():
            raise ExportError("SimpleImputer that adds or drops columns is not written as ONNX")
        fill = graph.constant(np.asarray(step.statistics_, dtype=np.float64)[None])
        return graph.node("Where", graph.node("IsNaN", x), fill, x)
    if isinstance(step, MinMaxScaler):
        scaled = graph.node("Add", graph.node("Mul", x, graph.constant(step.scale_)), graph.constant(step.min_))
        return graph.clip(scaled, *step.feature_range) if step.clip else scaled
    if isinstance(step, (StandardScaler, RobustScaler, MaxAbsScaler)):
        centre = getattr(step, "mean_" if isinstance(step, StandardScaler) else "center_", None)
        if centre is not None and getattr(step, "with_mean", True):
            x = graph.node("Sub", x, graph.constant(np.asarray(centre, dtype=np.float64)))
        scale = step.scale_
        return x if scale is None else graph.node("Div", x, graph.constant(np.asarray(scale, dtype=np.float64)))
    raise ExportError(f"the step {type(step).__name__} is not written as ONNX here. Known are {KNOWN}")


def _imputes_nan(step: Any) -> bool:
    missing = getattr(step, "missing_values", None)
    return isinstance(step, SimpleImputer) and isinstance(missing, float) and bool(np.isnan(missing))
