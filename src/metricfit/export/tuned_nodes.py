"""A TunedDecisionClassifier as nodes: its estimators, and the calibration of their scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from metricfit.decide.calibration import Calibration
from metricfit.errors import ExportError
from metricfit.export.column_nodes import ARRAY_INPUT, Input
from metricfit.export.estimator_nodes import add_estimator
from metricfit.export.family_nodes import calibrate, log_odds
from metricfit.export.graph import Graph
from metricfit.tabular.tuned import TunedDecisionClassifier


def tuned_inputs(model: TunedDecisionClassifier, X: Any) -> list[Input]:
    """Return one input per column that the estimator was fitted with, all of them numbers; one input for an array.

    Args:
        model: The fitted model.
        X: Rows such as those of training, for estimators that do not keep the number of their columns.
    """
    estimator = model._deciding_estimators[0]
    names, width = getattr(estimator, "feature_names_in_", None), getattr(estimator, "n_features_in_", X.shape[1])
    if names is not None:
        return [Input(str(name), "number", position) for position, name in enumerate(names)]
    return [Input(ARRAY_INPUT, "array", width=int(width))]


def add_tuned(graph: Graph, model: TunedDecisionClassifier, inputs: list[Input]) -> str:
    """Add the inputs and the estimators; returns the mean of their calibrated logits."""
    x = graph.join([graph.input(entry.name, entry.type, entry.width) for entry in inputs])
    return graph.mean([_add_logits(graph, model, estimator, x) for estimator in model._deciding_estimators])


def _add_logits(graph: Graph, model: TunedDecisionClassifier, estimator: Any, x: str) -> str:
    labels, known = np.asarray(model.classes_)[model._order].tolist(), np.asarray(estimator.classes_).tolist()
    if set(labels) != set(known):
        raise ExportError("an estimator of a fold without rows of some class is not written as ONNX")
    scores, are_probabilities = add_estimator(graph, estimator, x)
    place = np.array([known.index(label) for label in labels])
    if are_probabilities:
        smallest = graph.constant(np.float64(model.smallest_probability_))
        logits = log_odds(graph, graph.node("Max", graph.columns(scores, place), smallest), len(labels))
    elif len(labels) == 2:
        logits = scores if place[1] == 1 else graph.node("Neg", scores)
    else:
        logits = graph.columns(scores, place)
    assert isinstance(model.calibration_, Calibration)
    return calibrate(graph, model.calibration_, logits)
