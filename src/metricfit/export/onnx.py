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
from metricfit.export.decision_nodes import LABEL, PROBABILITY, add_decision, check_decision, check_metric, label_names
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
from metricfit.export.tuned_nodes import add_tuned, tuned_inputs
from metricfit.metrics.metric import get_metric
from metricfit.tabular import inputs as tables
from metricfit.tabular.classifier import MetricClassifier
from metricfit.tabular.export_results import OnnxExport
from metricfit.tabular.families.family import MeanOfFolds
from metricfit.tabular.families.kernel import KernelModel
from metricfit.tabular.tuned import TunedDecisionClassifier

#: Probabilities that differ by more are a defect. "kernel" and models of the user may work in single precision in
#: Python, and "kernel" adds up thousands of numbers that cancel.
TOLERANCE, SINGLE_PRECISION = 1e-6, 1e-3


def export_onnx(
    model: Any, path: str | os.PathLike[str], X: Any = None, *, rows_from: str = "rows that were passed"
) -> OnnxExport:
    """Write a fitted model as one graph of ONNX, and compare it with the model.

    The graph holds the encoding of the columns, all families, their weights, the calibration and the decision. It has
    one input ``(rows, 1)`` per column of the training table, with the column's name: numbers as float64 (NaN is
    missing), categories as strings (the empty string is missing), dates as seconds since 1970 in UTC. A model that was
    trained on an array has one input ``X``. The outputs are ``label`` and ``probability``, with one column per class.

    Args:
        model: A fitted MetricClassifier; or a TunedDecisionClassifier of a linear model, a tree or a forest of
            scikit-learn or a LGBMClassifier, behind steps that scale or impute numbers.
        path: The file to write. Missing folders are created.
        X: Rows to compare the graph and the model on, such as the training rows. By default rows are made up, with
            numbers around the medians, known and unknown categories, and missing values. A TunedDecisionClassifier
            needs rows.
        rows_from: What these rows are, for the result.

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
    if not isinstance(model, (MetricClassifier, TunedDecisionClassifier)):
        raise InvalidTypeError(
            f"export_onnx takes a MetricClassifier or a TunedDecisionClassifier, got {type(model).__name__}; skl2onnx "
            "exports scikit-learn's own classifiers"
        )
    check_is_fitted(model, "decision_")
    check_decision(model)
    names = getattr(model, "feature_names_in_", None)
    names = None if names is None else [str(name) for name in names]
    if isinstance(model, TunedDecisionClassifier):
        if X is None:
            raise ExportError("pass rows to compare the graph with the model: export_onnx(path, X)")
        rows = X if hasattr(X, "shape") else np.asarray(X)
        encoder, inputs = None, tuned_inputs(model, rows)
    else:
        encoder, inputs = model.encoder_, inputs_of(model.encoder_, names)
        rows = made_up_rows(encoder, names) if X is None else tables.checked_table(model, X, reset=False)
    outputs = _output_names(inputs)
    content = _build(model, inputs, outputs)
    start = time.perf_counter()
    session = start_session(content)
    load_seconds = time.perf_counter() - start
    unknown = has_unknown_text(rows, inputs, encoder)
    agreement = compare(session, model, tables.rows(rows, ~unknown), inputs, np.flatnonzero(~unknown))
    _check(agreement, SINGLE_PRECISION if _in_single_precision(model) else TOLERANCE)
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
        rows_from="made-up rows" if X is None else rows_from,
        different_rows=agreement.different,
        largest_difference=agreement.largest_difference,
        load_seconds=load_seconds,
        latency=graph_latency(session, rows, inputs, encoder),
        model_latency=model_latency(model, rows),
    )


def check_table(model: MetricClassifier) -> None:
    """Refuse before training what cannot be exported: the metric, and the columns as they were encoded.

    Raises:
        ExportError: They cannot be exported; the message names the columns.
    """
    check_metric(model)
    names = getattr(model, "feature_names_in_", None)
    inputs_of(model.encoder_, None if names is None else [str(name) for name in names])


def _build(model: MetricClassifier | TunedDecisionClassifier, inputs: list[Input], outputs: tuple[str, str]) -> bytes:
    graph = Graph({*outputs, *(entry.name for entry in inputs)})
    if isinstance(model, TunedDecisionClassifier):
        logits = add_tuned(graph, model, inputs)
    else:
        logits = add_ensemble(graph, model.ensemble_, encode(graph, model.encoder_, inputs))
    add_decision(graph, model, logits, outputs)
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


def _in_single_precision(model: MetricClassifier | TunedDecisionClassifier) -> bool:
    if isinstance(model, TunedDecisionClassifier):
        return True
    return any(isinstance(member.model, (KernelModel, MeanOfFolds)) for member in model.ensemble_.members)


def _check(agreement: Agreement, tolerance: float) -> None:
    if not agreement.largest_difference <= tolerance:
        raise ExportError(
            f"the graph does not compute what the model does: probabilities differ by up to "
            f"{agreement.largest_difference:.2g} on {agreement.rows:,} rows. Nothing was written; please report this "
            "with the versions of onnxruntime and metricfit"
        )
