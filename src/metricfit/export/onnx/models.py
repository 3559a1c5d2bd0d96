"""A model as nodes: its families or estimators, their calibrations and weights, and the decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from metricfit.core.arrays import to_numpy
from metricfit.decide.calibration import Calibration
from metricfit.errors import ExportError
from metricfit.export.onnx.columns import ARRAY_INPUT, Input
from metricfit.export.onnx.graph import Graph
from metricfit.export.onnx.trees import add_lightgbm, boosted_trees, forest_trees, is_lightgbm
from metricfit.metrics.metric import get_metric
from metricfit.tabular.deciding import DecidingClassifier
from metricfit.tabular.encoding.encoder import CLIP
from metricfit.tabular.ensemble import Ensemble
from metricfit.tabular.families.boosting import BoostedTrees
from metricfit.tabular.families.family import FittedModel, MeanOfFolds
from metricfit.tabular.families.forest import Forests
from metricfit.tabular.families.kernel import KernelModel
from metricfit.tabular.families.linear import FARTHEST, LinearModel
from metricfit.tabular.families.user_model import SMALLEST_PROBABILITY, FittedUserModel
from metricfit.tabular.tuned import TunedDecisionClassifier

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
        return _linear_estimator(graph, estimator, x)
    raise ExportError(f"a {type(estimator).__name__} is not written as ONNX here. Known are {KNOWN}")


def _linear_estimator(graph: Graph, estimator: Any, x: str) -> EstimatorScores:
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
        scores = graph.beside_zeros(scores)
    return EstimatorScores(graph.node("Softmax", scores, axis=1), True)


def _trees(graph: Graph, estimator: Any, x: str) -> EstimatorScores:
    members = getattr(estimator, "estimators_", [estimator])
    trees = tuple(member.tree_ for member in members)
    classes = len(estimator.classes_)
    known = tuple(np.arange(classes) for _ in trees)
    rounded = graph.cast(graph.cast(x, "float"), "double")  # scikit-learn's trees compare in single precision
    votes = forest_trees(Forests(trees, known, classes, 1), may_be_missing=True).sums(graph, rounded)
    shares = graph.node("Div", _all_votes(graph, votes, len(trees), classes), len(trees))
    return EstimatorScores(graph.clip(shares, 0.0, 1.0), True)


def _all_votes(graph: Graph, votes: str, trees: int, classes: int) -> str:
    """Put the votes for the first class, which are what the others leave, before those for the others."""
    total = votes if classes == 2 else graph.node("ReduceSum", votes, [1], keepdims=1)
    return graph.join([graph.node("Sub", trees, total), votes])


def _add_step(graph: Graph, step: Any, x: str) -> str:
    """Add a step that keeps the columns, scaled or imputed."""
    if step is None or step == "passthrough":
        return x
    if _imputes_nan(step):
        if step.add_indicator or np.isnan(np.asarray(step.statistics_, dtype=np.float64)).any():
            raise ExportError("SimpleImputer that adds or drops columns is not written as ONNX")
        return graph.node("Where", graph.node("IsNaN", x), np.asarray(step.statistics_, dtype=np.float64)[None], x)
    if isinstance(step, MinMaxScaler):
        scaled = graph.node("Add", graph.node("Mul", x, step.scale_), step.min_)
        return graph.clip(scaled, *step.feature_range) if step.clip else scaled
    if isinstance(step, (StandardScaler, RobustScaler, MaxAbsScaler)):
        centre = getattr(step, "mean_" if isinstance(step, StandardScaler) else "center_", None)
        if centre is not None and getattr(step, "with_mean", True):
            x = graph.node("Sub", x, np.asarray(centre, dtype=np.float64))
        scale = step.scale_
        return x if scale is None else graph.node("Div", x, np.asarray(scale, dtype=np.float64))
    raise ExportError(f"the step {type(step).__name__} is not written as ONNX here. Known are {KNOWN}")


def _imputes_nan(step: Any) -> bool:
    missing = getattr(step, "missing_values", None)
    return isinstance(step, SimpleImputer) and isinstance(missing, float) and bool(np.isnan(missing))


def add_ensemble(graph: Graph, ensemble: Ensemble, encoded: str) -> str:
    """Add the families of an ensemble.

    Args:
        graph: The graph.
        ensemble: The families, their calibrations and weights.
        encoded: The encoded columns, in single precision.

    Returns:
        The calibrated logits ``(rows, 1)`` or ``(rows, c)``.

    Raises:
        ExportError: A family cannot be exported.
    """
    x = graph.cast(encoded, "double")
    parts = []
    for member in ensemble.members:
        try:
            logits = _add_family(graph, member.model, x)
        except ExportError as error:
            raise ExportError(f"the family {member.name!r} cannot be exported: {error}") from None
        parts.append(graph.node("Mul", member.weight, calibrate(graph, member.calibration, logits)))
    return calibrate(graph, ensemble.calibration, graph.sum(parts))


def calibrate(graph: Graph, calibration: Calibration, logits: str) -> str:
    """Add a calibration."""
    scaled = graph.node("Div", logits, calibration.temperature)
    return graph.node("Add", scaled, calibration.bias)


def _add_family(graph: Graph, model: FittedModel, x: str) -> str:
    if isinstance(model, MeanOfFolds):
        return graph.mean([_add_family(graph, part, x) for part in model.models])
    for kind, add in ADDERS.items():
        if isinstance(model, kind):
            return add(graph, model, x)
    if type(model).__name__ == "NetworkModel":  # asked by name, because its module loads torch
        from metricfit.export.onnx.networks import add_network_model

        return add_network_model(graph, model, x)
    raise ExportError(f"models of type {type(model).__name__} are not written as ONNX")


def _linear(graph: Graph, model: LinearModel, x: str) -> str:
    inside = graph.clip(x, -0.999 * CLIP, 0.999 * CLIP)
    share = graph.node("Div", inside, CLIP)
    square = graph.node("Sub", 1, graph.node("Mul", share, share))
    unclipped = graph.clip(graph.node("Div", inside, graph.node("Sqrt", square)), -FARTHEST, FARTHEST)
    return graph.affine(graph.join([x, unclipped]), model.coefficients.T, model.intercepts)


def _kernel(graph: Graph, model: KernelModel, x: str) -> str:
    vectors = model.vectors.astype(np.float64)
    of_vectors = model.gamma * np.square(vectors).sum(axis=1)
    product = graph.node("MatMul", x, graph.weights(vectors.T))
    product = graph.node("Mul", product, 2 * model.gamma)
    of_rows = graph.node("ReduceSum", graph.node("Mul", x, x), [1], keepdims=1)
    of_rows = graph.node("Mul", of_rows, model.gamma)
    exponents = graph.node("Sub", graph.node("Sub", product, of_vectors), of_rows)
    values = graph.node("Exp", graph.node("Min", exponents, 0))
    return graph.affine(values, model.coefficients, model.intercepts)


def _boosting(graph: Graph, model: BoostedTrees, x: str) -> str:
    return graph.node("Add", boosted_trees(model).sums(graph, x), model.starts.mean(axis=0)[None])


def _forests(graph: Graph, model: Forests, x: str) -> str:
    votes = forest_trees(model).sums(graph, x)
    shares = graph.node("Div", _all_votes(graph, votes, len(model.trees), model.classes), model.folds)
    shares = graph.node("Add", shares, 0.5)
    total = len(model.trees) / model.folds + 0.5 * model.classes
    return log_odds(graph, graph.node("Div", shares, total), model.classes)


def _user_model(graph: Graph, model: FittedUserModel, x: str) -> str:
    if model.takes_table:
        raise ExportError(
            "a Pipeline encodes the table itself, and only classifiers of encoded columns are written as ONNX; "
            "metricfit.export.mlflow.save_model holds the whole model"
        )
    if not np.array_equal(model.model.classes_, np.arange(model.classes)):
        raise ExportError("a model of a fold without rows of some class is not written as ONNX")
    scores, are_probabilities = add_estimator(graph, model.model, x)
    if not are_probabilities:
        return scores
    clipped = graph.node("Max", scores, SMALLEST_PROBABILITY)
    total = graph.node("ReduceSum", clipped, [1], keepdims=1)
    return log_odds(graph, graph.node("Div", clipped, total), model.classes)


def log_odds(graph: Graph, probabilities: str, classes: int) -> str:
    """Add logits: ``(rows, 1)`` for two classes, logarithms of the probabilities for several."""
    logs = graph.node("Log", probabilities)
    if classes > 2:
        return logs
    return graph.node("Sub", graph.columns(logs, np.array([1])), graph.columns(logs, np.array([0])))


ADDERS: dict[type, Callable[[Graph, Any, str], str]] = {
    LinearModel: _linear,
    KernelModel: _kernel,
    BoostedTrees: _boosting,
    Forests: _forests,
    FittedUserModel: _user_model,
}


def tuned_inputs(model: TunedDecisionClassifier, X: Any) -> list[Input]:
    """Return one input per column that the estimator was fitted with, all of them numbers; one input for an array.

    Args:
        model: The fitted model.
        X: Rows such as the training rows, for estimators that do not keep the number of their columns.
    """
    estimator = model.scorer_.deciding[0]
    names, width = getattr(estimator, "feature_names_in_", None), getattr(estimator, "n_features_in_", X.shape[1])
    if names is not None:
        return [Input(str(name), "number", position) for position, name in enumerate(names)]
    return [Input(ARRAY_INPUT, "array", width=int(width))]


def add_tuned(graph: Graph, model: TunedDecisionClassifier, inputs: list[Input]) -> str:
    """Add the inputs and the estimators; returns the mean of their calibrated logits."""
    x = graph.join([graph.input(entry.name, entry.type, entry.width) for entry in inputs])
    return graph.mean([_add_logits(graph, model, estimator, x) for estimator in model.scorer_.deciding])


def _add_logits(graph: Graph, model: TunedDecisionClassifier, estimator: Any, x: str) -> str:
    labels, known = model.chosen_.names.in_order.tolist(), np.asarray(estimator.classes_).tolist()
    if set(labels) != set(known):
        raise ExportError("an estimator of a fold without rows of some class is not written as ONNX")
    scores, are_probabilities = add_estimator(graph, estimator, x)
    place = np.array([known.index(label) for label in labels])
    if are_probabilities:
        clipped = graph.node("Max", graph.columns(scores, place), model.scorer_.smallest_probability)
        logits = log_odds(graph, clipped, len(labels))
    elif len(labels) == 2:
        logits = scores if place[1] == 1 else graph.node("Neg", scores)
    else:
        logits = graph.columns(scores, place)
    assert isinstance(model.scorer_.calibration, Calibration)
    return calibrate(graph, model.scorer_.calibration, logits)


LABEL, PROBABILITY = "label", "probability"


class LabelNames(NamedTuple):
    """The labels by class number, with the label of referred rows at the end if it exists.

    Attributes:
        values: The labels, as ONNX can hold them.
        type: The type of their tensor.
    """

    values: NDArray[Any]
    type: str


def check_metric(model: DecidingClassifier) -> None:
    """Refuse metrics whose decisions need more than the logits.

    Raises:
        ExportError: The metric takes costs from columns.
    """
    if get_metric(model.metric).columns:
        raise ExportError(
            f"{get_metric(model.metric).name} decides each row by costs in columns, which is not written as ONNX. "
            "Use the probabilities of a model for another metric and decide outside, or save the model for MLflow"
        )


def check_decision(model: DecidingClassifier) -> None:
    """Refuse decisions that are not written as ONNX.

    Raises:
        ExportError: The decision needs more than the logits, or decides several labels.
    """
    check_metric(model)
    if model.refer_region_ is not None and len(model.classes_) > 2:
        raise ExportError("rows of several classes that are referred are not written as ONNX: export before refer")
    if model.decision_.task == "multilabel":
        raise ExportError("a model of several labels is not written as ONNX; train one model per label")


def label_names(model: DecidingClassifier) -> LabelNames:
    """Return the labels in the order of class numbers."""
    names = model.chosen_.names.in_order
    if model.refer_region_ is not None:
        return LabelNames(np.array([*map(str, names), str(model.chosen_.refer_label)], dtype=object), "string")
    for kinds, dtype, name in (("b", np.bool_, "bool"), ("iu", np.int64, "int64"), ("f", np.float64, "double")):
        if names.dtype.kind in kinds:
            return LabelNames(names.astype(dtype), name)
    return LabelNames(np.array([str(label) for label in names], dtype=object), "string")


def add_decision(graph: Graph, model: DecidingClassifier, logits: str, outputs: tuple[str, str]) -> None:
    """Add the outputs: the label ``(rows,)`` and the probabilities ``(rows, c)`` in the order of ``classes_``."""
    label, probability = outputs
    shifted = graph.node("Add", logits, to_numpy(model.shift_, np.float64))
    classes = len(model.classes_)
    by_class = shifted if classes > 2 else graph.beside_zeros(shifted)
    probabilities = graph.node("Softmax", by_class, axis=1)
    in_order = graph.columns(probabilities, model.chosen_.names.places)
    number = _two_classes(graph, model, shifted) if classes == 2 else _several(graph, model, shifted, probabilities)
    names = label_names(model)
    chosen = graph.node("Gather", names.values, number, axis=0)
    graph.output(label, chosen, names.type, None)
    graph.output(probability, in_order, "double", classes)


def _two_classes(graph: Graph, model: DecidingClassifier, logits: str) -> str:
    """Return class numbers, and 2 for referred rows."""
    threshold, referral = model.decision_.numbers["threshold"], model.decision_.referral
    margins = graph.node("Squeeze", logits, [1])
    margins = graph.node("Sub", margins, threshold)
    number = graph.cast(graph.node("GreaterOrEqual", margins, 0), "int64")
    if referral is None:
        return number
    low, high = (end - threshold for end in (referral.low, referral.high))
    referred = graph.node("And", graph.node("GreaterOrEqual", margins, low), graph.node("Less", margins, high))
    return graph.node("Where", referred, graph.constant(np.int64(2)), number)


def _several(graph: Graph, model: DecidingClassifier, logits: str, probabilities: str) -> str:
    numbers, scores = model.decision_.numbers, logits
    if "costs" in numbers:
        scores = graph.node("Neg", graph.node("MatMul", probabilities, numbers["costs"]))
    margins = graph.node("Add", scores, numbers["offsets"])
    return graph.node("ArgMax", margins, axis=1, keepdims=0)
