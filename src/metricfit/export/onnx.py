"""A fitted model as one graph of ONNX: the columns of a table go in, labels and probabilities come out."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from metricfit._files import write_file
from metricfit._version import __version__
from metricfit.errors import ExportError, InvalidTypeError
from metricfit.export.column_nodes import MEANINGS, Input, encode, has_unknown_text, inputs_of
from metricfit.export.decision_nodes import LABEL, PROBABILITY, add_decision, check_decision, label_names
from metricfit.export.family_nodes import add_ensemble
from metricfit.export.graph import Graph
from metricfit.export.made_up import made_up_rows
from metricfit.export.runtime_check import (
    Agreement,
    compare,
    graph_latency,
    model_latency,
    start_session,
)
from metricfit.metrics.metric import get_metric
from metricfit.tabular import inputs as tables
from metricfit.tabular.classifier import MetricClassifier
from metricfit.tabular.export_results import OnnxExport

#: Probabilities that differ by more are a defect. ``kernel`` works in single precision in Python.
TOLERANCE = 1e-4


def export_onnx(model: Any, path: str | os.PathLike[str], X: Any = None) -> OnnxExport:
    """Write a fitted model as one graph of ONNX, and compare it with the model.

    The graph holds the encoding of the columns, all families, their weights, the calibration and the decision. It has
    one input ``(rows, 1)`` per column of the training table, with the column's name: numbers as float64 (NaN is
    missing), categories as strings (the empty string is missing), dates as seconds since 1970 in UTC. A model that was
    trained on an array has one input ``X``. The outputs are ``label`` and ``probability``, with one column per class.

    Args:
        model: A fitted MetricClassifier.
        path: The file to write. Missing folders are created.
        X: Rows to compare the graph and the model on, such as the training rows. By default rows are made up, with
            numbers around the medians, known and unknown categories, and missing values.

    Returns:
        The size, the comparison and the latency.

    Raises:
        ExportError: The model has columns, families or a decision that cannot be exported, or the graph does not decide
            as the model does. No file is written.
        ModuleNotFoundError: onnx or onnxruntime is not installed.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from metricfit import MetricClassifier
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> model = MetricClassifier("f1", models=["linear"], random_state=0).fit(X, X[:, 0] > 1)
        >>> result = export_onnx(model, Path(tempfile.mkdtemp(), "model.onnx"), X)
        >>> result.checked_rows, result.different_rows, result.outputs
        (200, (), ('label', 'probability'))
    """
    if not isinstance(model, MetricClassifier):
        raise InvalidTypeError(
            f"export_onnx writes a MetricClassifier; got {type(model).__name__}. scikit-learn's own classifiers are "
            "exported by skl2onnx"
        )
    check_is_fitted(model, "decision_")
    check_decision(model)
    names = getattr(model, "feature_names_in_", None)
    names = None if names is None else [str(name) for name in names]
    inputs = inputs_of(model.encoder_, names)
    outputs = _output_names(inputs)
    content = _build(model, inputs, outputs)
    start = time.perf_counter()
    session = start_session(content)
    load_seconds = time.perf_counter() - start
    rows = made_up_rows(model.encoder_, names) if X is None else tables.checked_table(model, X, reset=False)
    unknown = has_unknown_text(rows, inputs, model.encoder_)
    agreement = compare(session, model, tables.rows(rows, ~unknown), inputs, np.flatnonzero(~unknown))
    _check(agreement)
    write_file(path, content)
    return OnnxExport(
        path=Path(path),
        bytes=len(content),
        inputs={entry.name: MEANINGS[entry.kind] for entry in inputs},
        outputs=outputs,
        classes=tuple(model.classes_.tolist()),
        checked_rows=agreement.rows,
        unknown_text_rows=int(unknown.sum()),
        made_up=X is None,
        different_rows=agreement.different,
        largest_difference=agreement.largest_difference,
        load_seconds=load_seconds,
        latency=graph_latency(session, rows, inputs, model.encoder_),
        model_latency=model_latency(model, rows),
    )


def _build(model: MetricClassifier, inputs: Sequence[Input], outputs: tuple[str, str]) -> bytes:
    graph = Graph({*outputs, *(entry.name for entry in inputs)})
    encoded = encode(graph, model.encoder_, inputs)
    add_decision(graph, model, add_ensemble(graph, model.ensemble_, encoded), outputs)
    description = {
        "version": __version__,
        "metric": get_metric(model.metric).name,
        "classes": [str(label) for label in model.classes_],
        "label_type": label_names(model).type,
        "inputs": {entry.name: MEANINGS[entry.kind] for entry in inputs},
    }
    text = f"Classifier for the metric {description['metric']}"
    return bytes(graph.model({"metricfit": json.dumps(description)}, text).SerializeToString())


def _output_names(inputs: Sequence[Input]) -> tuple[str, str]:
    """Return the names of the outputs, which no column may have."""
    taken = {entry.name for entry in inputs}
    label, probability = LABEL, PROBABILITY
    while {label, probability} & taken:
        label, probability = f"predicted_{label}", f"predicted_{probability}"
    return label, probability


def _check(agreement: Agreement) -> None:
    if not agreement.largest_difference <= TOLERANCE:
        raise ExportError(
            f"the graph does not compute what the model does: probabilities differ by up to "
            f"{agreement.largest_difference:.2g} on {agreement.rows:,} rows. Nothing was written; please report this "
            "with the versions of onnxruntime and metricfit"
        )
