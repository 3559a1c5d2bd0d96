"""A fitted model as one graph of ONNX: the columns of a table go in, labels and probabilities come out."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from metricfit._extras import explain_missing
from metricfit._files import write_file
from metricfit._version import __version__
from metricfit.errors import ExportError, InvalidTypeError
from metricfit.export.onnx.columns import MEANINGS, Input, as_frame, encode, has_unknown_text, inputs_of, made_up_rows
from metricfit.export.onnx.graph import Graph
from metricfit.export.onnx.models import (
    LABEL,
    PROBABILITY,
    add_decision,
    add_ensemble,
    add_tuned,
    check_decision,
    check_metric,
    label_names,
    tuned_inputs,
)
from metricfit.metrics.metric import get_metric
from metricfit.tabular.checks import checked_table, rows_of_table
from metricfit.tabular.classifier import MetricClassifier
from metricfit.tabular.deciding import DecidingClassifier
from metricfit.tabular.encoding.encoder import TableEncoder
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
        rows = made_up_rows(encoder, names) if X is None else checked_table(model, X, reset=False)
    outputs = _output_names(inputs)
    content = _build(model, inputs, outputs)
    start = time.perf_counter()
    session = start_session(content)
    load_seconds = time.perf_counter() - start
    unknown = has_unknown_text(rows, inputs, encoder)
    agreement = compare(session, model, rows_of_table(rows, ~unknown), inputs, np.flatnonzero(~unknown))
    _check(agreement, SINGLE_PRECISION if _in_single_precision(model) else TOLERANCE)
    write_file(path, content)
    arrays = feed(rows[:ROWS_OF_LATENCY], inputs, encoder)
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
        latency=measure_latency(
            lambda part: session.run(None, part),
            lambda place: {name: values[place] for name, values in arrays.items()},
            rows.shape[0],
            21,
        ),
        model_latency=measure_latency(
            model.predict, lambda place: rows.iloc[place] if hasattr(rows, "iloc") else rows[place], rows.shape[0], 5
        ),
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


with explain_missing("metricfit.export.onnx", ["onnxruntime"], "metricfit[onnx]"):
    import onnxruntime

#: Rows that are compared at a time.
ROWS_AT_A_TIME = 4096
ROWS_OF_LATENCY = 1000


class Agreement(NamedTuple):
    """How the graph and the model agree on some rows.

    Attributes:
        rows: The number of rows.
        different: The positions of rows with another label.
        largest_difference: The largest difference of a probability.
    """

    rows: int
    different: tuple[int, ...]
    largest_difference: float


def start_session(content: bytes) -> onnxruntime.InferenceSession:
    """Load a graph into onnxruntime, on the CPU."""
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def feed(X: Any, inputs: Sequence[Input], encoder: TableEncoder | None) -> dict[str, NDArray[Any]]:
    """Return what each input of the graph gets for the rows of a checked table."""
    table = X if inputs[0].kind == "array" else as_frame(X)
    return {entry.name: entry.values(table, encoder) for entry in inputs}


def compare(
    session: onnxruntime.InferenceSession,
    model: DecidingClassifier,
    X: Any,
    inputs: Sequence[Input],
    positions: NDArray[np.int64],
) -> Agreement:
    """Compare labels and probabilities of the graph with the model's.

    Args:
        session: The graph.
        model: The model.
        X: Rows of a checked table.
        inputs: The inputs of the graph.
        positions: The position of each row in the user's table.
    """
    different: list[int] = []
    largest, rows = 0.0, X.shape[0]
    for first in range(0, rows, ROWS_AT_A_TIME):
        part = X.iloc[first : first + ROWS_AT_A_TIME] if hasattr(X, "iloc") else X[first : first + ROWS_AT_A_TIME]
        expected = model.predict_proba(part)  # names the columns that cannot be read
        labels, probabilities = session.run(None, feed(part, inputs, getattr(model, "encoder_", None)))
        largest = max(largest, float(np.abs(probabilities - expected).max(initial=0.0)))
        unequal = np.array([str(a) != str(b) for a, b in zip(labels, model.predict(part), strict=True)], dtype=bool)
        different += positions[first + np.flatnonzero(unequal)].tolist()
    return Agreement(rows, tuple(different), largest)


def measure_latency(call: Callable[[Any], Any], take: Callable[[Any], Any], rows: int, times: int) -> Latency:
    """Measure a call on one row and on 1,000.

    Args:
        call: What is called with rows.
        take: Returns rows by their numbers; they are repeated to 1,000.
        rows: The number of rows that there are.
        times: How often one row is passed.
    """
    place = np.arange(ROWS_OF_LATENCY) % min(ROWS_OF_LATENCY, rows)
    one, many = take(place[:1]), take(place)
    return Latency(median(_milliseconds(lambda: call(one), times)), min(_milliseconds(lambda: call(many), 3)))


def _milliseconds(call: Callable[[], Any], times: int) -> list[float]:
    durations = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        durations.append(1000 * (time.perf_counter() - start))
    return durations


#: Rows with another label that a message names.
NAMED_ROWS = 10


class Latency(NamedTuple):
    """Milliseconds of one call.

    Attributes:
        one_row: For one row, the median of 21 calls.
        thousand_rows: For 1,000 rows, the fastest of 3 calls.
    """

    one_row: float
    thousand_rows: float


@dataclass(frozen=True)
class OnnxExport:
    """What was exported.

    Attributes:
        path: The file.
        bytes: Its size.
        inputs: For each input of the graph, what it holds.
        outputs: The names of the outputs: the label, and the probabilities of all classes.
        classes: The labels in the order of the probabilities.
        checked_rows: The number of rows on which the graph was compared with the model.
        unknown_text_rows: The number of rows that were not compared, because they have a text that was not there in
            training: the graph takes it for missing, and the model encodes its characters.
        made_up: Whether these rows were made up, because none were passed.
        rows_from: Which rows these are, in words, such as "made-up rows" or "training rows".
        different_rows: The positions of the rows with another label than the model's.
        largest_difference: The largest difference of a probability.
        load_seconds: The time that onnxruntime took to load the graph.
        latency: Milliseconds of the graph, for one row and for 1,000.
        model_latency: The same for ``predict`` of the model.
    """

    path: Path
    bytes: int
    inputs: dict[str, str]
    outputs: tuple[str, str]
    classes: tuple[Any, ...]
    checked_rows: int
    unknown_text_rows: int
    made_up: bool
    rows_from: str
    different_rows: tuple[int, ...]
    largest_difference: float
    load_seconds: float
    latency: Latency
    model_latency: Latency

    def to_dict(self) -> dict[str, Any]:
        """Describe the export in plain values, as ``metricfit export --json`` prints it.

        Returns:
            The fields, with the latencies by name and the number of different labels.
        """
        return asdict(self) | {
            "path": str(self.path),
            "latency": self.latency._asdict(),
            "model_latency": self.model_latency._asdict(),
            "different_labels": len(self.different_rows),
        }

    def __str__(self) -> str:
        """Say in sentences what was written and how it compares with the model."""
        rows = f"{self.checked_rows:,} {self.rows_from}"
        if self.unknown_text_rows:
            rows += f" (not on {self.unknown_text_rows:,} with text that was not there in training)"
        if self.different_rows:
            count, named = len(self.different_rows), ", ".join(map(str, self.different_rows[:NAMED_ROWS]))
            more = ", ..." if count > NAMED_ROWS else ""
            verb, noun = ("differs", "row") if count == 1 else ("differ", "rows")
            labels = f"{count} of the labels {verb}, at {noun} {named}{more} (counted from 0)"
        else:
            labels = "all labels equal"
        size = f"{self.bytes / 1e6:.1f} MB" if self.bytes >= 1e6 else f"{self.bytes / 1e3:.0f} KB"
        return "\n".join(
            [
                f"{self.path}: {size}, {len(self.inputs)} inputs; outputs {' and '.join(self.outputs)}",
                f"Checked on {rows}: {labels}; probabilities differ by at most {self.largest_difference:.1g}",
                f"One row: {self.latency.one_row:.2f} ms (in Python {self.model_latency.one_row:.1f} ms); 1,000 rows: "
                f"{self.latency.thousand_rows:.0f} ms (in Python {self.model_latency.thousand_rows:.0f} ms); loading "
                f"takes {self.load_seconds:.1f} s",
            ]
        )
