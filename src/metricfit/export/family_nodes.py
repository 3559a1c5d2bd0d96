"""The families of an ensemble as nodes, their calibrations and weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from metricfit.decide.calibration import Calibration
from metricfit.errors import ExportError
from metricfit.export.estimator_nodes import add_estimator
from metricfit.export.graph import Graph
from metricfit.export.network_nodes import add_network
from metricfit.export.tree_nodes import boosted_trees, forest_trees
from metricfit.tabular.encoding.scaling import CLIP
from metricfit.tabular.ensemble import Ensemble
from metricfit.tabular.families.boosted_trees import BoostedTrees
from metricfit.tabular.families.extra_trees import Forests
from metricfit.tabular.families.family import FittedModel, MeanOfFolds
from metricfit.tabular.families.kernel import KernelModel
from metricfit.tabular.families.linear import FARTHEST, LinearModel
from metricfit.tabular.families.network import NetworkModel
from metricfit.tabular.families.user_model import SMALLEST_PROBABILITY, FittedUserModel


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
    total: str | None = None
    for member in ensemble.members:
        try:
            logits = _add_family(graph, member.model, x)
        except ExportError as error:
            raise ExportError(f"the family {member.name!r} cannot be exported: {error}") from None
        part = graph.node(
            "Mul", graph.constant(np.float64(member.weight)), calibrate(graph, member.calibration, logits)
        )
        total = part if total is None else graph.node("Add", total, part)
    assert total is not None
    return calibrate(graph, ensemble.calibration, total)


def calibrate(graph: Graph, calibration: Calibration, logits: str) -> str:
    """Add a calibration."""
    scaled = graph.node("Div", logits, graph.constant(np.float64(calibration.temperature)))
    return graph.node("Add", scaled, graph.constant(calibration.bias.double().numpy()))


def _add_family(graph: Graph, model: FittedModel, x: str) -> str:
    if isinstance(model, MeanOfFolds):
        return graph.mean([_add_family(graph, part, x) for part in model.models])
    for kind, add in ADDERS.items():
        if isinstance(model, kind):
            return add(graph, model, x)
    raise ExportError(f"models of type {type(model).__name__} are not written as ONNX")


def _linear(graph: Graph, model: LinearModel, x: str) -> str:
    inside = graph.clip(x, -0.999 * CLIP, 0.999 * CLIP)
    share = graph.node("Div", inside, graph.constant(np.float64(CLIP)))
    square = graph.node("Sub", graph.constant(np.float64(1)), graph.node("Mul", share, share))
    unclipped = graph.clip(graph.node("Div", inside, graph.node("Sqrt", square)), -FARTHEST, FARTHEST)
    return graph.affine(graph.join([x, unclipped]), model.coefficients.T, model.intercepts)


def _kernel(graph: Graph, model: KernelModel, x: str) -> str:
    vectors = model.vectors.astype(np.float64)
    of_vectors = model.gamma * np.square(vectors).sum(axis=1)
    product = graph.node("MatMul", x, graph.weights(vectors.T))
    product = graph.node("Mul", product, graph.constant(np.float64(2 * model.gamma)))
    axis = graph.constant(np.array([1], dtype=np.int64))
    of_rows = graph.node("ReduceSum", graph.node("Mul", x, x), axis, keepdims=1)
    of_rows = graph.node("Mul", of_rows, graph.constant(np.float64(model.gamma)))
    exponents = graph.node("Sub", graph.node("Sub", product, graph.constant(of_vectors)), of_rows)
    values = graph.node("Exp", graph.node("Min", exponents, graph.constant(np.float64(0))))
    return graph.affine(values, model.coefficients, model.intercepts)


def _boosting(graph: Graph, model: BoostedTrees, x: str) -> str:
    return graph.node("Add", boosted_trees(model).sums(graph, x), graph.constant(model.start[None]))


def _forests(graph: Graph, model: Forests, x: str) -> str:
    votes = forest_trees(model).sums(graph, x)
    if model.classes > 2:
        axis = graph.constant(np.array([1], dtype=np.int64))
        others = graph.node("ReduceSum", votes, axis, keepdims=1)
    else:
        others = votes
    first = graph.node("Sub", graph.constant(np.float64(len(model.trees))), others)
    shares = graph.node("Div", graph.join([first, votes]), graph.constant(np.float64(model.folds)))
    shares = graph.node("Add", shares, graph.constant(np.float64(0.5)))
    total = len(model.trees) / model.folds + 0.5 * model.classes
    return log_odds(graph, graph.node("Div", shares, graph.constant(np.float64(total))), model.classes)


def _network(graph: Graph, model: NetworkModel, x: str) -> str:
    shape = graph.constant(np.array([-1, model.architecture.out_features], dtype=np.int64))
    return graph.mean([graph.node("Reshape", add_network(graph, member, x), shape) for member in model.members])


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
    clipped = graph.node("Max", scores, graph.constant(np.float64(SMALLEST_PROBABILITY)))
    total = graph.node("ReduceSum", clipped, graph.constant(np.array([1], dtype=np.int64)), keepdims=1)
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
    NetworkModel: _network,
    FittedUserModel: _user_model,
}
