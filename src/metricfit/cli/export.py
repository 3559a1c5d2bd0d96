"""``metricfit export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricfit.cli import options
from metricfit.cli.command_rows import name_data, read_data, title_data
from metricfit.cli.exit_codes import UserError
from metricfit.cli.output_paths import check_file
from metricfit.cli.saved_model import load_any_model, model_columns
from metricfit.cli.terminal import print_result, status
from metricfit.data.text_format import TextOptions
from metricfit.export.onnx import export_onnx
from metricfit.tabular import TunedDecisionClassifier


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
    classifier = load_any_model(model)
    rows = None
    if data:
        table = read_data(data, None, TextOptions(sep, decimal, encoding))
        rows = model_columns(classifier, table, name_data(data))
    elif isinstance(classifier, TunedDecisionClassifier):
        raise UserError("This model does not know what its columns look like: give rows of them with --data TABLE.")
    with status("Exporting ...", quiet):
        result = export_onnx(classifier, onnx, rows, rows_from=f"rows of {title_data(data)}" if data else "")
    lines = str(result).splitlines()
    if result.made_up:
        lines.append("--data TABLE compares the labels on the rows of a table, such as that of training.")
    print_result(result.to_dict(), as_json, lines)
