"""Whether a written graph decides as the model does, and how fast it is, by onnxruntime."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metricfit._extras import explain_missing
from metricfit.decide.estimators.deciding import DecidingClassifier
from metricfit.export.column_nodes import Input, as_frame
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.export_results import Latency

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
    """Compare labels and probabilities of the graph with those of the model.

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


def graph_latency(
    session: onnxruntime.InferenceSession, X: Any, inputs: Sequence[Input], encoder: TableEncoder | None
) -> Latency:
    """Measure the graph on rows of a table; rows are repeated to 1,000."""
    arrays = feed(X[:ROWS_OF_LATENCY], inputs, encoder)
    place = np.arange(ROWS_OF_LATENCY) % min(ROWS_OF_LATENCY, X.shape[0])
    many = {name: values[place] for name, values in arrays.items()}
    one = {name: values[:1] for name, values in arrays.items()}
    return Latency(
        median(_milliseconds(lambda: session.run(None, one), 21)),
        min(_milliseconds(lambda: session.run(None, many), 3)),
    )


def model_latency(model: DecidingClassifier, X: Any) -> Latency:
    """Measure ``predict`` of the model on the same rows."""
    place = np.arange(ROWS_OF_LATENCY) % min(ROWS_OF_LATENCY, X.shape[0])
    many = X.iloc[place] if hasattr(X, "iloc") else X[place]
    one = many[:1]
    return Latency(
        median(_milliseconds(lambda: model.predict(one), 5)), min(_milliseconds(lambda: model.predict(many), 3))
    )


def _milliseconds(call: Callable[[], Any], times: int) -> list[float]:
    durations = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        durations.append(1000 * (time.perf_counter() - start))
    return durations
