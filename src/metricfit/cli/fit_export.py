"""``metricfit fit --onnx``: the fitted model as a graph, compared with the model on the training rows."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from metricfit.cli.terminal import print_message
from metricfit.data.parquet_table import ParquetTable
from metricfit.errors import ExportError
from metricfit.tabular import MetricClassifier
from metricfit.tabular.export_results import OnnxExport
from metricfit.tabular.large.row_sources import random_rows

GRAPH = "model.onnx"
#: Training rows that the labels are compared on; of more, a random sample.
CHECKED_ROWS = 50_000


def check_can_export() -> None:
    """Report a missing package before anything is trained."""
    import_module("metricfit.export.onnx")


def export_fitted(model: MetricClassifier, X: Any, folder: Path, out: Path) -> OnnxExport | None:
    """Export a model that was just fitted, and compare it with its graph on the training rows.

    Args:
        model: The fitted model.
        X: The table that it was fitted on.
        folder: The folder to write to.
        out: What this folder will be called.

    Returns:
        What was exported; None if that is not possible, which is printed.
    """
    rows = len(X)
    drawn = random_rows(rows, CHECKED_ROWS)
    table = X.rows(drawn).take(np.arange(len(drawn))) if isinstance(X, ParquetTable) else X.iloc[drawn]
    rows_from = "training rows" if len(drawn) == rows else f"of {rows:,} training rows, drawn at random"
    try:
        result: OnnxExport = import_module("metricfit.export.onnx").export_onnx(
            model, folder / GRAPH, table, rows_from=rows_from
        )
    except ExportError as error:
        print_message(f"The model is kept, and not exported: {error}.")
        return None
    return replace(result, path=out / GRAPH, different_rows=tuple(drawn[list(result.different_rows)].tolist()))
