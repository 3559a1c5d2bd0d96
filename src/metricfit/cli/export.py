"""``metricfit export``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from metricfit.cli import options
from metricfit.cli.command_rows import name_data, read_data
from metricfit.cli.output_paths import check_file
from metricfit.cli.saved_model import load_model, model_columns
from metricfit.cli.terminal import print_result, status
from metricfit.data.text_format import TextOptions
from metricfit.export.onnx import export_onnx
from metricfit.tabular.export_results import OnnxExport


def export(
    model: options.ModelFolder,
    onnx: Annotated[Path, typer.Option("--onnx", help="A new file for the graph, .onnx.")],
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            help="A table, such as that of training, on whose rows the labels of the graph and of the model are "
            "compared; may be repeated. By default rows are made up.",
        ),
    ] = None,
    sep: options.Separator = None,
    decimal: options.Decimal = None,
    encoding: options.Encoding = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a saved model as one ONNX graph, compare it with the model, and time it."""
    check_file(onnx, "--onnx")
    classifier = load_model(model)
    rows = None
    if data:
        table = read_data(data, None, TextOptions(sep, decimal, encoding))
        rows = model_columns(classifier, table, name_data(data))
    with status("Exporting ...", quiet):
        result = export_onnx(classifier, onnx, rows)
    print_result(_as_dict(result), as_json, str(result).splitlines())


def _as_dict(result: OnnxExport) -> dict[str, Any]:
    """Return the result for JSON, with the latencies by name and the number of different labels."""
    return asdict(result) | {
        "path": str(result.path),
        "latency": result.latency._asdict(),
        "model_latency": result.model_latency._asdict(),
        "different_labels": len(result.different_rows),
    }
