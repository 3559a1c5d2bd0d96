"""The decision as nodes: labels and probabilities from calibrated logits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metricfit.decide.estimators.deciding import DecidingClassifier
from metricfit.errors import ExportError
from metricfit.export.graph import Graph
from metricfit.metrics.metric import get_metric

LABEL, PROBABILITY = "label", "probability"


class LabelNames(NamedTuple):
    """The labels by class number, with that of referred rows at the end if there is one.

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
    if model.decision_.thresholds is not None:
        raise ExportError("a model of several labels is not written as ONNX; train one model per label")


def label_names(model: DecidingClassifier) -> LabelNames:
    """Return the labels in the order of class numbers."""
    names = np.asarray(model.classes_)[model._order]
    if model.decision_.refer is not None:
        return LabelNames(np.array([*map(str, names), str(model.refer_label_)], dtype=object), "string")
    for kinds, dtype, name in (("b", np.bool_, "bool"), ("iu", np.int64, "int64"), ("f", np.float64, "double")):
        if names.dtype.kind in kinds:
            return LabelNames(names.astype(dtype), name)
    return LabelNames(np.array([str(label) for label in names], dtype=object), "string")


def add_decision(graph: Graph, model: DecidingClassifier, logits: str, outputs: tuple[str, str]) -> None:
    """Add the outputs: the label ``(rows,)`` and the probabilities ``(rows, c)`` in the order of ``classes_``."""
    label, probability = outputs
    shifted = graph.node("Add", logits, graph.constant(model.shift_.double().numpy()))
    classes = len(model.classes_)
    by_class = shifted if classes > 2 else graph.join([_zeros_like(graph, shifted), shifted])
    probabilities = graph.node("Softmax", by_class, axis=1)
    in_order = graph.columns(probabilities, np.argsort(model._order))
    number = _two_classes(graph, model, shifted) if classes == 2 else _several(graph, model, shifted, probabilities)
    names = label_names(model)
    chosen = graph.node("Gather", graph.constant(names.values), number, axis=0)
    graph.output(label, chosen, names.type, None)
    graph.output(probability, in_order, "double", classes)


def _two_classes(graph: Graph, model: DecidingClassifier, logits: str) -> str:
    """Return class numbers, and 2 for referred rows."""
    decision = model.decision_
    assert decision.threshold is not None
    margins = graph.node("Squeeze", logits, graph.constant(np.array([1], dtype=np.int64)))
    margins = graph.node("Sub", margins, graph.constant(np.float64(decision.threshold)))
    zero = graph.constant(np.float64(0))
    number = graph.cast(graph.node("GreaterOrEqual", margins, zero), "int64")
    if decision.refer is None:
        return number
    low, high = (graph.constant(np.float64(end - decision.threshold)) for end in decision.refer)
    above, below = graph.node("GreaterOrEqual", margins, low), graph.node("Less", margins, high)
    return graph.node("Where", graph.node("And", above, below), graph.constant(np.int64(2)), number)


def _several(graph: Graph, model: DecidingClassifier, logits: str, probabilities: str) -> str:
    decision = model.decision_
    assert decision.offsets is not None
    scores = logits
    if decision.costs is not None:
        scores = graph.node("Neg", graph.node("MatMul", probabilities, graph.constant(decision.costs.double().numpy())))
    margins = graph.node("Add", scores, graph.constant(decision.offsets.double().numpy()))
    return graph.node("ArgMax", margins, axis=1, keepdims=0)


def _zeros_like(graph: Graph, tensor: str) -> str:
    return graph.node("Mul", tensor, graph.constant(np.float64(0)))
